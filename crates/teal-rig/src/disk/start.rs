//! Starts a modelled disk: makes checks, then starts a process of its own and waits for it.

use super::model::{DiskModel, WriteCache};
use super::{daemon, leftovers, mount_point};
use anyhow::{Context, Result, bail};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use teal_command::say::say;
use teal_command::{READY, fuse_is_there, paths, program};
use teal_energy::Profile;

/// Describes the start of a disk.
#[derive(Debug)]
pub struct DiskStart {
    /// Disk that is started.
    pub model: DiskModel,
    /// Is true when it answers at the time of the modelled drive. Otherwise it answers at once, and
    /// time is virtual.
    pub real_time: bool,
    /// Name of the disk.
    pub name: String,
    /// Is true in the disk's own process: it serves, and tells its parent on standard output once
    /// it does.
    pub is_daemon: bool,
}

/// Starts a disk and prints its block device; in its own process, serves it until it is stopped.
///
/// # Errors
/// Returns the reason why there can be no such disk here.
pub fn start_disk(mut args: DiskStart) -> Result<ExitCode> {
    // Validated before anything is made.
    let setup = args.model.build_setup()?;
    let dir = mount_point(&args.name)?;
    for path in [&mut args.model.log, &mut args.model.image]
        .into_iter()
        .flatten()
    {
        // The disk's process has another working directory.
        *path = paths::absolute_path(path)?;
    }
    if args.is_daemon {
        return daemon::serve_disk(&args, setup, &dir);
    }
    if !rustix::process::geteuid().is_root() {
        bail!("a modelled disk needs root: it is a loop device");
    }
    if !fuse_is_there() {
        bail!(
            "/dev/fuse is missing: this kernel or container has no FUSE; load the module `fuse` \
             or allow the device"
        );
    }
    if !Path::new("/dev/loop-control").exists() {
        bail!(
            "/dev/loop-control is missing: this kernel or container has no loop devices; load the \
             module `loop`"
        );
    }
    // A killed disk of that name must not stand in the way.
    if teal_fuse::is_dead(&dir) || dir.exists() && !dir.join("stat").exists() {
        leftovers::clear_leftovers(&dir)?;
    }
    if dir.exists() {
        bail!(
            "there is a disk {0} already; choose another name, or `teal lab disk stop {0}`",
            args.name
        );
    }
    std::fs::create_dir(&dir).with_context(|| dir.display().to_string())?;
    let started = spawn_daemon(&args, &dir);
    if started.is_err() {
        // The directory is empty, and the process it was made for is gone.
        let _ = std::fs::remove_dir(&dir);
    }
    say!("{}", started?);
    Ok(ExitCode::SUCCESS)
}

/// Returns the command of the process that serves, with the options of the disk.
fn daemon_command(args: &DiskStart) -> Result<Command> {
    let mut command = Command::new(program::current_program()?);
    command
        .args(["disk", "start", "--tell", "--profile"])
        .arg(absolute_profile(&args.model.profile)?);
    command.args(["--size", &args.model.size.to_string()]);
    let cache = match args.model.cache {
        WriteCache::Off => "off",
        _ => "on",
    };
    command.args(["--cache", cache]);
    if let Some(seconds) = args.model.spin_down {
        command.args(["--spin-down", &seconds.to_string()]);
    }
    if args.real_time {
        command.arg("--real-time");
    }
    for (option, path) in [("--log", &args.model.log), ("--image", &args.model.image)] {
        if let Some(path) = path {
            command.arg(option).arg(path);
        }
    }
    command.arg("--").arg(&args.name);
    // A daemon with many threads would hold an arena of memory for each.
    command.env("MALLOC_ARENA_MAX", "2");
    command
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    Ok(command)
}

/// Starts the process that serves, and returns the device it prints.
fn spawn_daemon(args: &DiskStart, dir: &Path) -> Result<String> {
    let log = paths::log_file(dir)?;
    let errors = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(&log)
        .with_context(|| log.display().to_string())?;
    let mut child = daemon_command(args)?
        .stderr(errors)
        .spawn()
        .context("cannot start the disk's process")?;
    // The first line tells whether the disk is ready, or why it is not.
    let mut said = String::new();
    if let Some(out) = child.stdout.take() {
        BufReader::new(out)
            .read_line(&mut said)
            .context("the disk's process says nothing")?;
    }
    let said = said.trim();
    if let Some(device) = said.strip_prefix(READY) {
        return Ok(device.trim().to_owned());
    }
    // The process has ended, or is about to: its exit status adds nothing to its words.
    let _ = child.wait();
    if said.is_empty() {
        bail!(
            "the disk's process ended without a word; see {}",
            log.display()
        );
    }
    bail!("{}", said.strip_prefix("teal: ").unwrap_or(said))
}

/// Returns a shipped name as it is, and a file's path as an absolute one.
fn absolute_profile(name: &str) -> Result<std::path::PathBuf> {
    if Profile::find_shipped(name).is_some() {
        Ok(name.into())
    } else {
        paths::absolute_path(Path::new(name))
    }
}
