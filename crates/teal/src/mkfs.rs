//! `teal mkfs`: an empty store, never over something else by accident.

use crate::cli::MkfsArgs;
use crate::{opening, probe};
use anyhow::{Context, Result, bail};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use teal_command::path_context::PathContext as _;
use teal_command::paths;
use teal_command::say::{say, shown_path};
use teal_env::{Disk, FileDisk, OpenMode, SystemClock, SystemEntropy};
use teal_log::{MkfsOptions, SMALLEST_STORE, Store};

/// Runs the command.
pub(crate) fn make_empty_store(args: &MkfsArgs) -> Result<ExitCode> {
    let path = paths::absolute_path(&args.path)?;
    let bytes = create_store(&path, args.size, &args.label, args.force)?;
    say!(
        "a new store of {} is in {}",
        teal_command::size::human_size(bytes),
        path.display()
    );
    say!("to mount it, run: teal mount {} DIR", path.display());
    Ok(ExitCode::SUCCESS)
}

/// Makes a store; returns its size. What existed before is untouched when this fails before
/// writing.
pub(crate) fn create_store(
    path: &Path,
    size: Option<u64>,
    label: &str,
    force: bool,
) -> Result<u64> {
    debug_assert!(path.is_absolute(), "messages name the whole path");
    // The superblock has room for 64 bytes.
    if label.len() > 64 {
        bail!("a label has at most 64 bytes");
    }
    let (disk, created) = open_target_disk(path, size, force)?;
    // A sector has 512 bytes.
    let bytes = disk.shape().sectors * 512;
    let owner = (
        rustix::process::geteuid().as_raw(),
        rustix::process::getegid().as_raw(),
    );
    let options = MkfsOptions {
        label: label.to_owned(),
        owner,
        ..MkfsOptions::default()
    };
    let done = Store::mkfs(
        Arc::new(disk),
        Arc::new(SystemClock),
        &SystemEntropy,
        &options,
    );
    // Only a file that this call has made is removed again.
    if done.is_err() && created {
        let _ = std::fs::remove_file(path);
    }
    done.with_context(|| format!("cannot make a store in {}", path.display()))?;
    Ok(bytes)
}

/// Returns the disk on which a store is to be made, and whether its file is new. A file that
/// existed before is not changed.
pub(crate) fn open_target_disk(
    path: &Path,
    size: Option<u64>,
    force: bool,
) -> Result<(FileDisk, bool)> {
    let meta = std::fs::metadata(path).ok();
    let is_block = meta
        .as_ref()
        .is_some_and(|m| m.file_type().is_block_device());
    let created = meta.is_none();
    let disk = match &meta {
        // A broken symbolic link looks missing, but writing through it would make a file elsewhere.
        None if std::fs::symlink_metadata(path).is_ok() => {
            bail!(
                "{} is a symbolic link that leads nowhere; remove it, or name a file",
                shown_path(path)
            )
        }
        None => {
            let missing = || {
                format!(
                    "{} does not exist: give the size of the new file with --size, such as 20G",
                    shown_path(path)
                )
            };
            let size = size.with_context(missing)?;
            if size < SMALLEST_STORE {
                bail!("{}", too_small(size));
            }
            FileDisk::open(path, OpenMode::Create(size))?
        }
        Some(_) if is_block && size.is_some() => {
            bail!("{} is a device: its size is fixed", path.display())
        }
        Some(m) => {
            // The kernel would let this program write below a mounted file system.
            refuse_mounted(path, m)?;
            let disk = opening::open_disk(path, OpenMode::Write)?;
            // `--force` overwrites known formats, but never a mounted device.
            if let Some(what) = probe::recognise_content(&disk).filter(|_| !force) {
                bail!(
                    "{} holds {what}; use --force to overwrite it",
                    path.display()
                );
            }
            if !is_block && !force && m.len() > 0 && probe::holds_data(&disk) {
                bail!(
                    "{} is a file with content; use --force to overwrite it",
                    path.display()
                );
            }
            // The file is resized only after all checks: until here nothing has changed.
            match size {
                Some(size) if size != m.len() => {
                    drop(disk);
                    resize_file(path, size)?;
                    opening::open_disk(path, OpenMode::Write)?
                }
                _ => disk,
            }
        }
    };
    Ok((disk, created))
}

fn too_small(size: u64) -> String {
    format!(
        "a size of {size} bytes is too small: a store needs at least 16 MiB; sizes take a unit, \
         such as 500M or 20G"
    )
}

fn resize_file(path: &Path, size: u64) -> Result<()> {
    if size < SMALLEST_STORE {
        bail!("{}", too_small(size));
    }
    let file = std::fs::OpenOptions::new()
        .write(true)
        .open(path)
        .with_path(path)?;
    file.set_len(size).with_path(path)
}

/// Refuses a device that is mounted, whatever `--force` says.
fn refuse_mounted(path: &Path, meta: &std::fs::Metadata) -> Result<()> {
    if !meta.file_type().is_block_device() {
        return Ok(());
    }
    let device = (
        rustix::fs::major(meta.rdev()),
        rustix::fs::minor(meta.rdev()),
    );
    // Without the kernel's table nothing is known to be mounted.
    if let Some(mount) = teal_command::mount_table::list_mounts()
        .unwrap_or_default()
        .into_iter()
        .find(|mount| mount.device == device)
    {
        bail!("{} is mounted on {}", path.display(), mount.point.display());
    }
    Ok(())
}
