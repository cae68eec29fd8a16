//! `teal flush`, `teal conflicts`: what is between this machine and the server.

use crate::cli::{Conflicts, Keep};
use crate::control::{self, Answer, Ask, ConflictShown};
use crate::mounts::nothing_on;
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use teal_command::paths;
use teal_command::say::{count, say, shown};

/// Sends everything that is only here.
pub(crate) fn flush(dir: Option<PathBuf>) -> Result<ExitCode> {
    let dir = paths::point(dir)?;
    match control::ask(&dir, &Ask::Flush)? {
        Some(Answer::Done) => {
            // Programs may have gone on meanwhile.
            let since = match control::ask(&dir, &Ask::Status)? {
                Some(Answer::Status(status)) => {
                    status.upstream.map_or(0, |upstream| upstream.only_here)
                }
                _ => 0,
            };
            if since == 0 {
                say!("everything in {} is at the server", shown(&dir));
            } else {
                let objects = count(since, "object");
                say!(
                    "what was in {} before is at the server; {objects} changed meanwhile",
                    shown(&dir)
                );
            }
        }
        _ => return Err(nothing_on(&dir)),
    }
    Ok(ExitCode::SUCCESS)
}

fn list(dir: &Path) -> Result<Vec<ConflictShown>> {
    match control::ask(dir, &Ask::Conflicts)? {
        Some(Answer::Conflicts { conflicts }) => Ok(conflicts),
        _ => Err(nothing_on(dir)),
    }
}

/// Runs the command.
pub(crate) fn conflicts(what: Conflicts) -> Result<ExitCode> {
    match what {
        Conflicts::Ls { dir } => {
            let found = list(&paths::point(dir)?)?;
            if found.is_empty() {
                say!("no conflicts");
            }
            for conflict in &found {
                let copy = if conflict.copy_path.is_empty() {
                    String::new()
                } else {
                    format!(" and {}", conflict.copy_path)
                };
                say!(
                    "{:>4}  {}  {}{copy}",
                    conflict.id,
                    conflict.kind,
                    conflict.path
                );
            }
        }
        Conflicts::Show { id, dir } => {
            let conflict = find(&paths::point(dir)?, id)?;
            say!("conflict {id}: {}", conflict.kind);
            say!("  first    {}", conflict.path);
            if !conflict.copy_path.is_empty() {
                say!("  later    {}", conflict.copy_path);
            }
            say!("  device   {} ({} UTC)", conflict.device, conflict.time);
            if !conflict.lost.is_empty() {
                say!("  not done {}", conflict.lost);
            }
        }
        Conflicts::Resolve { id, keep, dir } => {
            let dir = paths::point(dir)?;
            let conflict = find(&dir, id)?;
            let (first, later) = (
                under(&dir, &conflict.path),
                under(&dir, &conflict.copy_path),
            );
            match (keep, conflict.copy_path.is_empty()) {
                (Keep::Both, _) | (Keep::First, true) => {}
                (Keep::Later, true) => bail!(
                    "the later state is not a file of its own: {}",
                    conflict.lost
                ),
                (Keep::First, false) => remove(&later)?,
                (Keep::Later, false) => {
                    std::fs::rename(&later, &first).with_context(|| {
                        format!("moving {} to {}", later.display(), first.display())
                    })?;
                }
            }
            control::ask(&dir, &Ask::Resolve { id })?.ok_or_else(|| nothing_on(&dir))?;
            say!("conflict {id} is resolved");
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn find(dir: &Path, id: u64) -> Result<ConflictShown> {
    let found = list(dir)?.into_iter().find(|conflict| conflict.id == id);
    found.with_context(|| format!("there is no open conflict {id}; see `teal conflicts ls`"))
}

/// A path of the volume under its mount point.
fn under(dir: &Path, path: &str) -> PathBuf {
    dir.join(path.trim_start_matches('/'))
}

fn remove(path: &Path) -> Result<()> {
    let meta = std::fs::symlink_metadata(path).with_context(|| path.display().to_string())?;
    let done = if meta.is_dir() {
        std::fs::remove_dir_all(path)
    } else {
        std::fs::remove_file(path)
    };
    done.with_context(|| path.display().to_string())
}
