//! `teal check --server`: whether the data of a volume's server is whole.

use crate::control::{self, ControlAnswer, ControlRequest, DamagedFileShown, ServerCheckShown};
use crate::mounts::no_daemon_error;
use anyhow::{Result, bail};
use std::path::Path;
use std::process::ExitCode;
use teal_command::paths;
use teal_command::say::{count_noun, escape_control, say, shell_quoted, shown_path};

/// Has the serving daemon check its server's data. The exit status is 0 when everything is whole
/// now, 1 otherwise.
pub(crate) fn check_server(path: &Path) -> Result<ExitCode> {
    let dir = paths::absolute_path(path)?;
    // A store has no mount point beneath it: the server is opened by the daemon only.
    if !dir.is_dir() {
        let shown = shell_quoted(&shown_path(&dir));
        bail!(
            "{} is no mount point: mount its volume (teal up DIR --store {shown}), then teal check \
             --server DIR",
            shown_path(&dir)
        );
    }
    match control::ask(&dir, &ControlRequest::CheckServer)? {
        Some(ControlAnswer::ServerChecked { checked }) => Ok(show_findings(&dir, &checked)),
        _ => Err(no_daemon_error(&dir)),
    }
}

fn show_findings(dir: &Path, found: &ServerCheckShown) -> ExitCode {
    for problem in &found.problems {
        say!("{}", escape_control(problem));
    }
    let others = found.problem_count.saturating_sub(found.problems.len());
    if others > 0 {
        say!("... and {} more", count_noun(others as u64, "problem"));
    }
    for file in &found.files {
        say!("{}", file_words(file));
    }
    let others = found.file_count.saturating_sub(found.files.len());
    if others > 0 {
        say!("... and {} more", count_noun(others as u64, "file"));
    }
    say!(
        "server of {}: {}, {}, {} of content in its history",
        shown_path(dir),
        count_noun(found.packs as u64, "pack"),
        count_noun(found.chunks as u64, "whole chunk"),
        count_noun(found.pieces, "piece")
    );
    if found.mended > 0 {
        say!(
            "{} of damaged content stored again from this machine's store",
            count_noun(found.mended, "piece")
        );
    }
    if found.problem_count == 0 && found.file_count == 0 {
        say!("the server's data is whole");
        return ExitCode::SUCCESS;
    }
    if found.file_count > 0 {
        say!(
            "{} damaged at the server: write the files named above again from a machine or a \
             backup that has them",
            count_noun(found.file_count as u64, "file")
        );
    }
    if found.problem_count > 0 {
        say!(
            "{} of the server's own files: back up what can be read, and replace the disk if it \
             fails again",
            count_noun(found.problem_count as u64, "problem")
        );
    }
    ExitCode::FAILURE
}

/// Returns the line for a damaged file.
fn file_words(file: &DamagedFileShown) -> String {
    let name = if file.path.is_empty() {
        format!("a removed file (object {})", file.object)
    } else {
        escape_control(&file.path).to_string()
    };
    match (file.present_pieces, file.past_pieces) {
        (0, past) => format!(
            "{name}: {} of earlier versions cannot be read; what it holds now is whole",
            count_noun(past, "piece")
        ),
        (present, _) => format!("{name}: {} cannot be read", count_noun(present, "piece")),
    }
}
