//! `teal up`: from nothing to a mounted tree in one command.

use crate::cli::{Mount, Up};
use crate::paths::{self, Point};
use crate::say::say;
use crate::status::human;
use crate::{launch, mkfs, status};
use anyhow::{Context, Result, bail};
use std::path::Path;
use std::process::ExitCode;
use teal_log::SMALLEST_STORE;

/// The largest store made without being asked for a size.
const LARGEST_DEFAULT: u64 = 1 << 40;

/// Runs the command.
pub(crate) fn up(args: &Up) -> Result<ExitCode> {
    let (dir, store) = paths::place(args.dir.as_deref(), args.store.as_deref())?;
    match paths::look_at(&dir)? {
        Point::Mounted => bail!("something is mounted on {} already; see `teal status`", dir.display()),
        Point::NotDirectory => bail!("{} is no directory; a mount point must be one", dir.display()),
        Point::NotEmpty => bail!("{} is not empty; choose an empty directory, or a name that is free", dir.display()),
        Point::Dead => {
            status::repair(&dir)?;
            say!("the daemon of {} had been killed: the mount point is repaired", dir.display());
        }
        Point::Empty | Point::Missing => {}
    }
    if !launch::fuse_is_there() {
        bail!("/dev/fuse is missing: this kernel or container has no FUSE; load the module `fuse` or allow the device");
    }
    let fresh = !store.exists();
    if fresh {
        make_store(&store, args.size, &dir)?;
    } else if args.size.is_some() {
        bail!("{} exists already: --size is for a new store", store.display());
    }
    if !dir.exists() {
        std::fs::create_dir(&dir).with_context(|| dir.display().to_string())?;
    }
    let mount =
        Mount { path: store.clone(), dir: dir.clone(), options: Vec::new(), foreground: args.foreground, tell: false };
    if args.foreground {
        return launch::mount(mount);
    }
    let code = launch::mount(mount)?;
    say!("{} is ready. Its files live in {}", dir.display(), store.display());
    if fresh {
        say!("");
        say!("try next:");
        let (dir, store) = (dir.display(), store.display());
        for (command, why) in [
            (format!("cp -r ~/some/files {dir}"), "put something in"),
            ("teal status".to_owned(), "how full, and is everything on the disk?"),
            (format!("teal down {dir}"), "unmount; `teal up` brings everything back"),
            (format!("teal check {store}"), "verify every block, while it is down"),
        ] {
            say!("  {command}\n      {why}");
        }
    }
    Ok(code)
}

pub(crate) fn make_store(store: &Path, size: Option<u64>, dir: &Path) -> Result<()> {
    let parent = store.parent().unwrap_or(Path::new("/"));
    std::fs::create_dir_all(parent).with_context(|| parent.display().to_string())?;
    let host = rustix::fs::statvfs(parent).with_context(|| parent.display().to_string())?;
    let free = host.f_bavail * host.f_frsize;
    let size = size.unwrap_or_else(|| (free / 5 * 4).min(LARGEST_DEFAULT) >> 20 << 20);
    if size < SMALLEST_STORE {
        bail!("{} has {} free: a store needs at least 16 MiB", parent.display(), human(free));
    }
    let label = dir.file_name().map_or_else(String::new, |n| n.to_string_lossy().into_owned());
    let mut cut = label.len().min(64);
    while !label.is_char_boundary(cut) {
        cut -= 1;
    }
    mkfs::make(store, Some(size), &label[..cut], false)?;
    say!("made a store of up to {} in {} (space is taken as it is used)", human(size), store.display());
    Ok(())
}
