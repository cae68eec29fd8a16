//! `teal flush`, `teal conflicts`: what is between this machine and the server.

use crate::cli::{ConflictKeep, ConflictsCommand};
use crate::control::{self, ConflictShown, ControlAnswer, ControlRequest};
use crate::mounts::no_daemon_error;
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use teal_command::path_context::PathContext as _;
use teal_command::paths;
use teal_command::say::{count_noun, say, shown_path};

/// Sends everything that is only here.
pub(crate) fn flush_to_server(dir: Option<PathBuf>) -> Result<ExitCode> {
    let dir = paths::mount_point_for(dir)?;
    // The daemon answers when the server has everything, so there is no progress to show.
    match control::ask(&dir, &ControlRequest::Flush)? {
        Some(ControlAnswer::Done) => {
            // Programs may have gone on meanwhile.
            let since = match control::ask(&dir, &ControlRequest::Status)? {
                Some(ControlAnswer::Status(status)) => {
                    status.upstream.map_or(0, |upstream| upstream.only_here)
                }
                _ => 0,
            };
            if since == 0 {
                say!("everything in {} is at the server", shown_path(&dir));
            } else {
                let objects = count_noun(since, "object");
                say!(
                    "what was in {} before is at the server; {objects} changed meanwhile",
                    shown_path(&dir)
                );
            }
        }
        _ => return Err(no_daemon_error(&dir)),
    }
    Ok(ExitCode::SUCCESS)
}

fn list_conflicts(dir: &Path) -> Result<Vec<ConflictShown>> {
    match control::ask(dir, &ControlRequest::Conflicts)? {
        Some(ControlAnswer::Conflicts { conflicts }) => Ok(conflicts),
        _ => Err(no_daemon_error(dir)),
    }
}

/// Runs the command.
pub(crate) fn run_conflicts(what: ConflictsCommand) -> Result<ExitCode> {
    match what {
        ConflictsCommand::Ls { dir } => {
            let found = list_conflicts(&paths::mount_point_for(dir)?)?;
            if found.is_empty() {
                say!("there are no conflicts");
            }
            for conflict in &found {
                // Some conflicts have no copy, because the later state was not kept as a file.
                let copy = if conflict.copy_path.is_empty() {
                    String::new()
                } else {
                    format!(" and {}", shown_later(conflict))
                };
                let first = shown_first(conflict);
                say!("{:>4}  {}  {first}{copy}", conflict.id, conflict.kind);
            }
        }
        ConflictsCommand::Show { id, dir } => {
            let conflict = find_conflict(&paths::mount_point_for(dir)?, id)?;
            say!("conflict {id}: {}", conflict.kind);
            say!("  first    {}", shown_first(&conflict));
            if !conflict.copy_path.is_empty() {
                say!("  later    {}", shown_later(&conflict));
            }
            say!("  device   {} ({} UTC)", conflict.device, conflict.time);
            if !conflict.lost.is_empty() {
                say!("  not done {}", conflict.lost);
            }
        }
        ConflictsCommand::Resolve { id, keep, dir } => {
            let dir = paths::mount_point_for(dir)?;
            let conflict = find_conflict(&dir, id)?;
            // The files are changed before the conflict is marked as resolved: after a crash in
            // between it is still listed, and can be resolved again.
            keep_states(&dir, &conflict, keep)?;
            // The daemon tells the server, which lists the conflict no more.
            control::ask(&dir, &ControlRequest::Resolve { id })?
                .ok_or_else(|| no_daemon_error(&dir))?;
            say!("conflict {id} is resolved");
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns where the first state lies, or lay.
fn shown_first(conflict: &ConflictShown) -> String {
    match (&*conflict.path, conflict.is_removed) {
        ("", _) => "a file that was removed".to_owned(),
        (path, true) => format!("{path} (removed)"),
        (path, false) => path.to_owned(),
    }
}

/// Returns where the later state lies, or lay.
fn shown_later(conflict: &ConflictShown) -> String {
    if conflict.is_copy_removed {
        format!("{} (removed)", conflict.copy_path)
    } else {
        conflict.copy_path.clone()
    }
}

/// Removes the state of a conflict that is not to be kept. Never removes the last one, as far as
/// this machine and its server know.
fn keep_states(dir: &Path, conflict: &ConflictShown, keep: ConflictKeep) -> Result<()> {
    let first = path_under(dir, &conflict.path);
    let later = path_under(dir, &conflict.copy_path);
    let has_copy = !conflict.copy_path.is_empty();
    match keep {
        ConflictKeep::Both => Ok(()),
        ConflictKeep::Later if !has_copy => bail!(
            "the later state is not a file of its own: {}",
            conflict.lost
        ),
        // What was removed needs no removing, and nothing is left to choose from.
        ConflictKeep::First if !has_copy || conflict.is_copy_removed => Ok(()),
        ConflictKeep::Later if conflict.is_removed => Ok(()),
        ConflictKeep::First if conflict.is_removed => bail!(
            "the first state was removed, and {} is the only one left: say `--keep later` or \
             `--keep both`",
            conflict.copy_path
        ),
        ConflictKeep::Later if conflict.is_copy_removed => bail!(
            "the later state was removed, and {} is the only one left: say `--keep first` or \
             `--keep both`",
            conflict.path
        ),
        ConflictKeep::First => {
            // The server does not know yet what was removed here since the last flush.
            std::fs::symlink_metadata(&first).with_context(|| {
                let left = &conflict.copy_path;
                format!("{}, the state to keep; {left} stays", first.display())
            })?;
            remove_path(&later)
        }
        ConflictKeep::Later => std::fs::rename(&later, &first)
            .with_context(|| format!("moving {} to {}", later.display(), first.display())),
    }
}

fn find_conflict(dir: &Path, id: u64) -> Result<ConflictShown> {
    let found = list_conflicts(dir)?
        .into_iter()
        .find(|conflict| conflict.id == id);
    found.with_context(|| format!("there is no open conflict {id}; see `teal conflicts ls`"))
}

/// Returns where a path of the volume lies under its mount point.
fn path_under(dir: &Path, path: &str) -> PathBuf {
    dir.join(path.trim_start_matches('/'))
}

fn remove_path(path: &Path) -> Result<()> {
    // The copy may be a symbolic link, which is removed itself and not followed.
    let meta = std::fs::symlink_metadata(path).with_path(path)?;
    let done = if meta.is_dir() {
        std::fs::remove_dir_all(path)
    } else {
        std::fs::remove_file(path)
    };
    done.with_path(path)
}
