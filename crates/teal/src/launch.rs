//! `teal mount`: in the foreground, or as a daemon whose start is waited for.

use crate::cli::Mount;
use crate::paths::{self, Point};
use crate::{daemon, options, status};
use anyhow::{Context, Result, bail};
use std::io::{BufRead, BufReader};
use std::process::{Command, ExitCode, Stdio};

/// What the daemon prints when the mount is there.
pub(crate) const READY: &str = "ready";

/// Whether the kernel offers FUSE here.
pub(crate) fn fuse_is_there() -> bool {
    std::path::Path::new("/dev/fuse").exists()
}

/// Runs the command.
pub(crate) fn mount(mut args: Mount) -> Result<ExitCode> {
    args.path = paths::absolute(&args.path)?;
    args.dir = paths::absolute(&args.dir)?;
    let parsed = options::parse(&args.options)?;
    if parsed.remount {
        return remount(&args, &parsed);
    }
    match paths::look_at(&args.dir)? {
        Point::Missing => bail!("{} does not exist; make the directory first", args.dir.display()),
        Point::NotDirectory => bail!("{} is no directory; a mount point must be one", args.dir.display()),
        Point::NotEmpty => bail!("{} is not empty; choose an empty directory", args.dir.display()),
        Point::Mounted => bail!("something is mounted on {} already", args.dir.display()),
        Point::Dead => status::repair(&args.dir)?,
        Point::Empty => {}
    }
    if !fuse_is_there() {
        bail!("/dev/fuse is missing: this kernel or container has no FUSE; load the module `fuse` or allow the device");
    }
    if args.foreground || args.tell {
        return daemon::serve(&args, parsed);
    }
    detach(&args)
}

/// Changes the kernel's flags of a mount; a store opened read-only stays read-only.
fn remount(args: &Mount, options: &options::MountOptions) -> Result<ExitCode> {
    use rustix::mount::MountFlags;
    let flags = [
        (options.read_only, MountFlags::RDONLY),
        (options.nosuid, MountFlags::NOSUID),
        (options.nodev, MountFlags::NODEV),
        (options.noexec, MountFlags::NOEXEC),
        (options.noatime, MountFlags::NOATIME),
    ];
    let flags = flags.into_iter().filter(|(set, _)| *set).fold(MountFlags::empty(), |all, (_, flag)| all | flag);
    rustix::mount::mount_remount(&args.dir, flags, "").with_context(|| format!("remounting {}", args.dir.display()))?;
    Ok(ExitCode::SUCCESS)
}

/// Starts the daemon and waits until it serves or says why it cannot.
fn detach(args: &Mount) -> Result<ExitCode> {
    let log = paths::log_file(&args.dir)?;
    let errors =
        std::fs::OpenOptions::new().create(true).append(true).open(&log).with_context(|| log.display().to_string())?;
    let program = std::env::current_exe().context("where is this program?")?;
    let mut command = Command::new(program);
    command.arg("mount").arg("--tell");
    if !args.options.is_empty() {
        command.arg("-o").arg(args.options.join(","));
    }
    command.arg("--").arg(&args.path).arg(&args.dir);
    // A few threads that hardly allocate at once need no arena each.
    command.env("MALLOC_ARENA_MAX", "2");
    command.current_dir("/").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(errors);
    let mut child = command.spawn().context("cannot start the daemon")?;
    let mut said = String::new();
    if let Some(out) = child.stdout.take() {
        BufReader::new(out).read_line(&mut said).context("the daemon says nothing")?;
    }
    let said = said.trim();
    if said == READY {
        return Ok(ExitCode::SUCCESS);
    }
    let _ = child.wait();
    if said.is_empty() {
        bail!("the daemon ended without a word; see {}", log.display());
    }
    bail!("{}", said.strip_prefix("teal: ").unwrap_or(said))
}
