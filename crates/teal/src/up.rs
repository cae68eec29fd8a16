//! `teal up`: from nothing to a mounted tree in one command.

use crate::cli::{MountArgs, UpArgs};
use crate::rollback::Rollback;
use crate::{launch, mkfs};
use anyhow::{Context, Result, bail};
use std::path::Path;
use std::process::ExitCode;
use teal_command::path_context::PathContext as _;
use teal_command::paths::{self, MountPointState};
use teal_command::say::say;
use teal_command::size::human_size;
use teal_log::SMALLEST_STORE;

/// The largest store made without being asked for a size.
const LARGEST_DEFAULT: u64 = 1 << 40;

/// Runs the command.
pub(crate) fn mount_or_begin(args: &UpArgs) -> Result<ExitCode> {
    let (dir, store) = paths::mount_and_store(args.dir.as_deref(), args.store.as_deref())?;
    let was_dead = launch::check_mount_point(&dir, &store)?;
    let mut made = Rollback::default();
    let fresh = !store.exists();
    let size = if fresh {
        Some(make_store(&store, args.size, &dir, &mut made)?)
    } else if args.size.is_some() {
        bail!(
            "{} exists already: --size is for a new store",
            store.display()
        );
    } else {
        None
    };
    let mount = MountArgs {
        path: store.clone(),
        dir: dir.clone(),
        options: Vec::new(),
        foreground: args.foreground,
        tell: false,
        take_over: args.take_over,
    };
    let code = bring_up(mount, made)?;
    // In the foreground the mount has ended by now.
    if args.foreground {
        return Ok(code);
    }
    if let Some(size) = size {
        say_made(&store, size);
    }
    if was_dead {
        say!(
            "the daemon of {} had been killed: the mount point is repaired",
            dir.display()
        );
    }
    say!(
        "{} is ready. Its files live in {}",
        dir.display(),
        store.display()
    );
    if fresh {
        say!("");
        say!("try next:");
        let (dir, store) = (dir.display(), store.display());
        for (command, why) in [
            (format!("cp -r ~/some/files {dir}"), "puts something in"),
            (
                "teal status".to_owned(),
                "shows how full it is, and whether everything is on the disk",
            ),
            (
                format!("teal down {dir}"),
                "unmounts it; `teal up` brings everything back",
            ),
            (
                format!("teal check {store}"),
                "verifies every block, while it is unmounted",
            ),
        ] {
            say!("  {command}\n      {why}");
        }
    }
    Ok(code)
}

/// Mounts a store, on a directory that is made if it is missing; what was made is taken back when
/// that fails.
pub(crate) fn bring_up(mount: MountArgs, mut made: Rollback) -> Result<ExitCode> {
    // A mount point with a dead daemon cannot be looked into, and is not missing.
    if paths::inspect_mount_point(&mount.dir)? == MountPointState::Missing {
        std::fs::create_dir(&mount.dir).with_context(|| {
            format!(
                "cannot make the mount point {}: choose another place",
                mount.dir.display()
            )
        })?;
        made.made_dir(&mount.dir);
    }
    launch::mount(mount, made)
}

/// Makes a store for a mount point; returns its size.
pub(crate) fn make_store(
    store: &Path,
    size: Option<u64>,
    dir: &Path,
    made: &mut Rollback,
) -> Result<u64> {
    let parent = store.parent().unwrap_or(Path::new("/"));
    // Made first, because the free space is that of its file system.
    debug_assert!(store.is_absolute(), "the daemon runs in the root directory");
    made.make_dirs(parent)?;
    let size = match size {
        Some(size) => size,
        None => {
            let host = rustix::fs::statvfs(parent).with_path(parent)?;
            let free = host.f_bavail * host.f_frsize;
            // A fifth of the free space is left to others; a store has whole MiB.
            let size = (free / 5 * 4).min(LARGEST_DEFAULT) >> 20 << 20;
            if size < SMALLEST_STORE {
                bail!(
                    "{} has {} free, of which a new store takes at most four fifths, and a store \
                     needs at least {}; \
                     name another place with --store",
                    parent.display(),
                    human_size(free),
                    human_size(SMALLEST_STORE)
                );
            }
            size
        }
    };
    let label = dir
        .file_name()
        .map_or_else(String::new, |n| n.to_string_lossy().into_owned());
    // The superblock has 64 bytes for a label, which is cut between characters.
    let mut cut = label.len().min(64);
    while !label.is_char_boundary(cut) {
        cut -= 1;
    }
    debug_assert!(
        cut <= 64 && label.is_char_boundary(cut),
        "the label is text and fits"
    );
    mkfs::create_store(store, Some(size), &label[..cut], false)?;
    made.made_file(store);
    Ok(size)
}

/// Says what [`make_store`] has made.
pub(crate) fn say_made(store: &Path, size: u64) {
    say!(
        "a new store of up to {} is in {}; it takes space only as it is used",
        human_size(size),
        store.display()
    );
}
