//! `teal mount`: in the foreground, or as a daemon whose start is waited for.

use crate::cli::MountArgs;
use crate::rollback::Rollback;
use crate::{daemon, options, replica, status};
use anyhow::{Context, Result, bail};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use teal_command::paths::{self, MountPointState};
use teal_command::{READY, fuse_is_there};

/// Refuses a mount point that cannot be one, and a machine without FUSE. `true` when a dead mount
/// was found there. It is repaired now, unless the new mount takes its place.
pub(crate) fn check_mount_point(dir: &Path, store: &Path) -> Result<bool> {
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
            "/dev/fuse is missing: this kernel or container has no FUSE; load the module `fuse` or allow the device"
        );
    }
    // The new mount takes the place of the dead one, so that nobody writes into the bare directory;
    // but a device is free only then.
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
    args.path = paths::absolute_path(&args.path)?;
    args.dir = paths::absolute_path(&args.dir)?;
    if args.take_over {
        args.options.push(options::TAKE_OVER.to_owned());
    }
    let parsed = options::parse_options(&args.options)?;
    if parsed.remount {
        return remount(&args, &parsed);
    }
    if paths::inspect_mount_point(&args.dir)? == MountPointState::Missing {
        bail!(
            "{} does not exist; make the directory first",
            args.dir.display()
        );
    }
    check_mount_point(&args.dir, &args.path)?;
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
    use rustix::mount::MountFlags;
    let is_shared = replica::load_setting(&args.path)?.is_some();
    let flags = [
        (options.read_only, MountFlags::RDONLY),
        (options.nosuid.is_in_force(is_shared), MountFlags::NOSUID),
        (options.nodev.is_in_force(is_shared), MountFlags::NODEV),
        (options.noexec, MountFlags::NOEXEC),
        (options.noatime, MountFlags::NOATIME),
    ];
    let flags = flags
        .into_iter()
        .filter(|(set, _)| *set)
        .fold(MountFlags::empty(), |all, (_, flag)| all | flag);
    rustix::mount::mount_remount(&args.dir, flags, "")
        .with_context(|| format!("remounting {}", args.dir.display()))?;
    Ok(ExitCode::SUCCESS)
}

/// Starts the daemon and waits until it serves or says why it cannot.
fn start_daemon(args: &MountArgs, made: Rollback) -> Result<ExitCode> {
    let log = paths::log_file(&args.dir)?;
    let errors = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(&log)
        .with_context(|| log.display().to_string())?;
    let program = std::env::current_exe().context("where is this program?")?;
    let mut command = Command::new(program);
    command.arg("mount").arg("--tell");
    if !args.options.is_empty() {
        command.arg("-o").arg(args.options.join(","));
    }
    command.arg("--").arg(&args.path).arg(&args.dir);
    // A few threads that hardly allocate at once need no arena each.
    command.env("MALLOC_ARENA_MAX", "2");
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
        // It may serve all the same.
        made.keep_changes();
        return Err(error).context("what the daemon says cannot be read");
    }
    let said = said.trim();
    if said == READY {
        made.keep_changes();
        return Ok(ExitCode::SUCCESS);
    }
    let _ = child.wait();
    if said.is_empty() {
        // It may have come far.
        made.keep_changes();
        bail!("the daemon ended without a word; see {}", log.display());
    }
    bail!("{}", said.strip_prefix("teal: ").unwrap_or(said))
}
