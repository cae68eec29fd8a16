//! `teal mount`: serves a mount in the foreground, or starts a daemon and waits until it serves.

use crate::cli::MountArgs;
use crate::rollback::Rollback;
use crate::{daemon, options, replica, second_place, status};
use anyhow::{Context, Result, bail};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use teal_command::path_context::PathContext as _;
use teal_command::paths::{self, MountPointState};
use teal_command::{READY, fuse_is_there};

/// Refuses a mount point that cannot be one, and a machine without FUSE. `true` when a dead mount
/// was found there. It is repaired now, unless the new mount takes its place.
pub(crate) fn check_mount_point(dir: &Path, store: &Path) -> Result<bool> {
    // Looked at first, because a busy or full directory can never become a mount point.
    let is_dead = match paths::inspect_mount_point(dir)? {
        MountPointState::Mounted => bail!(
            "something is mounted on {} already; see `teal status`",
            dir.display()
        ),
        MountPointState::NotDirectory => bail!(
            "{} is no directory; a mount point must be one",
            dir.display()
        ),
        MountPointState::NotEmpty => bail!(
            "{} is not empty; choose an empty directory, or a name that is free",
            dir.display()
        ),
        MountPointState::Dead => true,
        MountPointState::Empty | MountPointState::Missing => false,
    };
    if !fuse_is_there() {
        bail!(
            "/dev/fuse is missing: this kernel or container has no FUSE; load the module `fuse` or \
             allow the device"
        );
    }
    // The new mount takes the place of the dead one, so that no program writes into the bare
    // directory in between; but a block device is free only once the dead mount is gone.
    if is_dead && !is_replaced(store) {
        status::free_dead_mount_point(dir)?;
    }
    Ok(is_dead)
}

/// Says whether the options and the places of a mount are ones that can be; mounts nothing.
pub(crate) fn check_only(args: &MountArgs) -> Result<ExitCode> {
    options::parse_options(&args.options)?;
    paths::absolute_path(&args.path)?;
    paths::absolute_path(&args.dir)?;
    Ok(ExitCode::SUCCESS)
}

/// Runs the command. What was made for the mount is kept when the mount is there, and taken back
/// otherwise.
pub(crate) fn mount(mut args: MountArgs, made: Rollback) -> Result<ExitCode> {
    // The daemon runs in the root directory, so the paths must not depend on this one.
    args.path = paths::absolute_path(&args.path)?;
    args.dir = paths::absolute_path(&args.dir)?;
    // The daemon is another process, which gets the option as a part of `-o`.
    if args.take_over {
        args.options.push(options::TAKE_OVER.to_owned());
    }
    let parsed = options::parse_options(&args.options)?;
    // `mount -o remount` changes an existing mount, and nothing below concerns it.
    if parsed.remount {
        return remount(&args, &parsed);
    }
    // Only `teal up` makes a mount point; here a missing one is more likely a mistyped name.
    if paths::inspect_mount_point(&args.dir)? == MountPointState::Missing {
        bail!(
            "{} does not exist; make the directory first",
            args.dir.display()
        );
    }
    debug_assert!(
        args.path.is_absolute() && args.dir.is_absolute(),
        "the daemon runs in /"
    );
    check_mount_point(&args.dir, &args.path)?;
    // The daemon that another process has started looks no more: it takes the store's lock.
    if !args.tell && second_place::bind_if_mounted(&args)? {
        made.keep_changes();
        return Ok(ExitCode::SUCCESS);
    }
    // With `--tell` this process is the daemon that another one has started.
    if args.foreground || args.tell {
        return daemon::serve_mount(&args, parsed, made);
    }
    start_daemon(&args, made)
}

/// Returns whether a mount of this store comes before the dead one at its mount point goes.
fn is_replaced(store: &Path) -> bool {
    rustix::process::geteuid().is_root()
        && std::fs::metadata(store).is_ok_and(|meta| meta.is_file())
}

/// Changes the kernel's flags of a mount; a store opened read-only stays read-only.
fn remount(args: &MountArgs, options: &options::MountConfig) -> Result<ExitCode> {
    let is_shared = replica::load_setting(&args.path)?.is_some();
    // mount(2) replaces all flags at once, so every restriction in force is named.
    let flags = options.flags_in_force(is_shared).mount_flags();
    rustix::mount::mount_remount(&args.dir, flags, "")
        .with_context(|| format!("remounting {}", args.dir.display()))?;
    Ok(ExitCode::SUCCESS)
}

/// Starts the daemon and waits until it serves or says why it cannot.
fn start_daemon(args: &MountArgs, made: Rollback) -> Result<ExitCode> {
    debug_assert!(
        args.path.is_absolute() && args.dir.is_absolute(),
        "the daemon runs in /"
    );
    let log = paths::log_file(&args.dir)?;
    // The log is appended to, so that the words of an earlier daemon stay readable.
    let errors = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(&log)
        .with_path(&log)?;
    let program = std::env::current_exe().context("the file of this program is not known")?;
    let mut command = Command::new(program);
    // The daemon is this program again, which says on standard output when it serves.
    command.arg("mount").arg("--tell");
    if !args.options.is_empty() {
        command.arg("-o").arg(args.options.join(","));
    }
    command.arg("--").arg(&args.path).arg(&args.dir);
    // A few threads that hardly allocate at once need no arena each.
    command.env("MALLOC_ARENA_MAX", "2");
    // The daemon must not keep the directory busy in which it was started.
    command
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(errors);
    let mut child = command.spawn().context("cannot start the daemon")?;
    let mut said = String::new();
    if let Some(out) = child.stdout.take()
        && let Err(error) = BufReader::new(out).read_line(&mut said)
    {
        // The daemon may serve all the same, so nothing is taken back.
        made.keep_changes();
        return Err(error).context("the daemon's message cannot be read");
    }
    let said = said.trim();
    if said == READY {
        made.keep_changes();
        return Ok(ExitCode::SUCCESS);
    }
    // The daemon has said why it cannot serve; waiting for it collects the process.
    let _ = child.wait();
    if said.is_empty() {
        // The daemon may have written to the store before it died, so nothing is taken back.
        made.keep_changes();
        bail!("the daemon ended without a word; see {}", log.display());
    }
    bail!("{}", said.strip_prefix("teal: ").unwrap_or(said))
}
