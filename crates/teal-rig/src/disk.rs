//! Manages modelled disks: each is a process that serves a file over FUSE, and a loop device over
//! that file. They are started, looked at and stopped by name.

mod backing;
mod daemon;
mod leftovers;
mod model;
mod nbd;
mod report;
mod start;

pub(crate) use backing::DiskBacking;
pub use model::{DiskModel, WriteCache};
pub use nbd::serve_nbd;
pub(crate) use report::TimeUse;
pub use report::{DiskReport, RequestSums};
pub use start::{DiskStart, start_disk};

use anyhow::{Context, Result, bail};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags};
use std::path::PathBuf;
use std::time::Duration;
use teal_command::paths;
use teal_command::say::say;
use teal_env::{Clock as _, SystemClock, Timer as _};

/// Limits the length of a disk's name.
const NAME_MAX: usize = 32;
/// Seconds that the end of a disk may take: dirty data of its device is written first.
const PATIENCE_SECS: i64 = 60;
/// Time that a device may be held although it is mounted nowhere here: by a file system that is
/// still closing, or by a namespace that had the mount and goes.
const CLOSING: Duration = Duration::from_secs(10);

/// Returns the mount point of a disk of that name, whether it exists or not.
///
/// # Errors
/// Returns an error if the name is not one for a disk.
pub fn mount_point(name: &str) -> Result<PathBuf> {
    let is_fine = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if name.is_empty()
        || name.len() > NAME_MAX
        || name.starts_with(['.', '-'])
        || !name.chars().all(is_fine)
    {
        bail!(
            "'{name}' is no name for a disk: letters, digits, '-', '_' and '.', at most {NAME_MAX}"
        );
    }
    Ok(paths::disks_dir()?.join(name))
}

/// Returns the message that there is no disk of that name.
pub fn no_such_disk(name: &str) -> String {
    format!("there is no disk {name}; `teal lab disk ls` lists those that are there")
}

/// Sends a command to a disk and returns its answer.
///
/// # Errors
/// Returns an error if there is no such disk.
pub fn send_command(name: &str, what: &str) -> Result<rustix::io::Result<()>> {
    let control = mount_point(name)?.join("control");
    // The file is neither made nor truncated: it exists if the disk does.
    let file = std::fs::OpenOptions::new()
        .write(true)
        .open(&control)
        .map_err(|_| anyhow::anyhow!(no_such_disk(name)))?;
    Ok(rustix::io::write(&file, what.as_bytes()).map(drop))
}

/// Stops a disk, or takes away the leftovers of a killed one.
///
/// # Errors
/// Returns an error if there is no such disk, or its device is in use.
pub fn stop_disk(name: &str) -> Result<()> {
    let dir = mount_point(name)?;
    if !dir.exists() && !teal_fuse::is_dead(&dir) {
        bail!("{}", no_such_disk(name));
    }
    let Ok(report) = DiskReport::read(&dir) else {
        leftovers::clear_leftovers(&dir)?;
        say!("the process of disk {name} was gone; what it left is cleared away");
        return Ok(());
    };
    let pid = Pid::from_raw(report.pid).context("no process is 0")?;
    // The descriptor is taken while the process lives, so that it means this process for ever.
    let daemon = rustix::process::pidfd_open(pid, PidfdFlags::empty())
        .context("watching the disk's process")?;
    let clock = SystemClock;
    let until = clock.monotonic_time() + CLOSING;
    // A device that is still closing is busy for a moment; a mounted one stays so.
    loop {
        match send_command(name, "stop")? {
            Err(Errno::BUSY)
                if !leftovers::mounted_from(&report.device)?.is_empty()
                    || clock.monotonic_time() > until =>
            {
                bail!("the device of disk {name} is in use; unmount what is on it first");
            }
            Err(Errno::BUSY) => clock.wait_until(clock.monotonic_time() + CLOSING / 100),
            told => break told.with_context(|| format!("disk {name}: stop"))?,
        }
    }
    // A process that has ended has written everything. The wait has a limit, because a program may
    // hold the device.
    let end = Timespec {
        tv_sec: PATIENCE_SECS,
        tv_nsec: 0,
    };
    if rustix::event::poll(&mut [PollFd::new(&daemon, PollFlags::IN)], Some(&end))
        .context("waiting")?
        == 0
    {
        bail!(
            "{} is still open somewhere; disk {name} goes when it is closed",
            report.device.display()
        );
    }
    Ok(())
}
