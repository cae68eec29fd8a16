//! `teal pin`, `teal free`: files on demand, for people.

use crate::control::{Answer, Ask};
use crate::device::{asked, on_mount};
use crate::say::say;
use crate::status::human;
use anyhow::{Result, bail};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::ExitCode;

/// Runs `teal pin`.
pub(crate) fn pin(path: &Path) -> Result<ExitCode> {
    let (dir, meta) = on_mount(path)?;
    let Answer::Pinned { files, bytes, missing } = asked(&dir, &Ask::Pin { object: meta.ino() })? else {
        bail!("the daemon's answer is about something else");
    };
    let coming = if missing > 0 { format!("; {} are on their way", human(missing)) } else { String::new() };
    say!("{files} files ({}) are always here{coming}", human(bytes));
    Ok(ExitCode::SUCCESS)
}

/// Runs `teal free`.
pub(crate) fn free(path: &Path) -> Result<ExitCode> {
    let (dir, meta) = on_mount(path)?;
    let Answer::Freed { files, bytes, stay, stay_bytes } = asked(&dir, &Ask::Free { object: meta.ino() })? else {
        bail!("the daemon's answer is about something else");
    };
    say!("{} of {files} files given back; they come again when they are needed", human(bytes));
    if stay > 0 {
        say!(
            "{stay} files ({}) stay: the server does not have them as they are here; `teal flush` sends them",
            human(stay_bytes)
        );
    }
    Ok(ExitCode::SUCCESS)
}
