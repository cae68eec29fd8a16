//! `teal pin`, `teal free`: files on demand, for people.

use crate::control::{ControlAnswer, ControlRequest};
use crate::device::ask_mount;
use crate::mounts::object_at;
use anyhow::{Result, bail};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::ExitCode;
use teal_command::say::{count_noun, say};
use teal_command::size::human_size;

/// Runs `teal pin`.
pub(crate) fn pin_path(path: &Path) -> Result<ExitCode> {
    let (dir, meta) = object_at(path)?;
    let ControlAnswer::Pinned {
        files,
        bytes,
        missing,
    } = ask_mount(&dir, &ControlRequest::Pin { object: meta.ino() })?
    else {
        bail!("the daemon's answer is about something else");
    };
    let coming = if missing > 0 {
        format!("; {} are on their way", human_size(missing))
    } else {
        String::new()
    };
    let are = if files == 1 { "is" } else { "are" };
    say!(
        "{} ({}) {are} always here{coming}",
        count_noun(files, "file"),
        human_size(bytes)
    );
    Ok(ExitCode::SUCCESS)
}

/// Runs `teal free`.
pub(crate) fn free_path(path: &Path) -> Result<ExitCode> {
    let (dir, meta) = object_at(path)?;
    let ControlAnswer::Freed {
        files,
        bytes,
        stay,
        stay_bytes,
    } = ask_mount(&dir, &ControlRequest::Free { object: meta.ino() })?
    else {
        bail!("the daemon's answer is about something else");
    };
    // Content that fits into the file's inode takes no space of its own, so nothing is said of it.
    let room = if bytes > 0 {
        format!("{} of ", human_size(bytes))
    } else {
        String::new()
    };
    match (files, stay) {
        (0, 0) => say!("there is nothing to give back: no content of it is here"),
        (0, _) => {}
        (1, _) => say!("{room}1 file is given back; it comes again when it is needed"),
        _ => say!("{room}{files} files are given back; they come again when they are needed"),
    }
    if stay > 0 {
        let (files, stays) = (
            count_noun(stay, "file"),
            if stay == 1 { "stays" } else { "stay" },
        );
        let (has, are) = if stay == 1 {
            ("it as it is", "it")
        } else {
            ("them as they are", "them")
        };
        say!(
            "{files} ({}) {stays}: the server does not have {has} here; `teal flush` sends {are}",
            human_size(stay_bytes)
        );
    }
    Ok(ExitCode::SUCCESS)
}
