//! `teal lab disk`: modelled disks, started, looked at and stopped by name.

pub(super) mod backing;
mod daemon;
mod leftovers;
pub(super) mod model;
mod nbd;
pub(super) mod report;
mod start;

use crate::paths;
use crate::say::say;
use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use model::Model;
use report::Report;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use teal_emulator::log::{LogError, LogReader};
use teal_env::{Clock as _, SystemClock, Timer as _};

/// The longest name of a disk.
const NAME_MAX: usize = 32;
/// How long the end of a disk may take: dirty data of its device is written first.
const PATIENCE_SECS: i64 = 60;
/// How long a device may be held that is mounted nowhere here: by a file system that is still closing, or in a namespace that had the mount and goes.
const CLOSING: Duration = Duration::from_secs(10);

#[derive(Debug, Subcommand)]
pub(crate) enum Disk {
    /// Make a modelled disk and print its block device (root)
    Start(Start),
    /// The disks that are there
    Ls,
    /// Requests, seeks and joules, in all and since the last mark
    Stat {
        /// The disk
        name: String,
        /// For programs
        #[arg(long)]
        json: bool,
    },
    /// Put a label into the log and begin to count anew
    Mark {
        /// The disk
        name: String,
        /// Any text of at most 255 bytes
        label: String,
    },
    /// Let virtual time pass in which nothing is asked of the disk
    Idle {
        /// The disk
        name: String,
        /// How long
        seconds: f64,
    },
    /// Send the disk to its lowest state; the next request wakes it
    Sleep {
        /// The disk
        name: String,
    },
    /// Show a log for people and scripts
    Log {
        /// The file given to `start --log`
        file: PathBuf,
    },
    /// Serve a modelled disk over the network block device protocol, in virtual time, until it is interrupted
    Nbd {
        #[command(flatten)]
        model: Model,
        /// Address and port, such as 127.0.0.1:10809
        #[arg(long)]
        listen: std::net::SocketAddr,
    },
    /// Take the disk away, or what a killed one has left
    Stop {
        /// The disk
        name: String,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Start {
    #[command(flatten)]
    pub(crate) model: Model,
    /// Answer when the modelled drive would; otherwise at once, and time is virtual
    #[arg(long)]
    pub(crate) real_time: bool,
    /// How to call it
    pub(crate) name: String,
    /// Tell the parent on standard output once it is there
    #[arg(long, hide = true)]
    pub(crate) tell: bool,
}

/// Runs the command.
pub(crate) fn disk(what: Disk) -> Result<ExitCode> {
    match what {
        Disk::Start(start) => return start::start(start),
        Disk::Nbd { model, listen } => nbd::nbd(&model, listen)?,
        Disk::Ls => ls()?,
        Disk::Stat { name, json } => {
            let report = Report::read(&place(&name)?).with_context(|| unknown(&name))?;
            if json {
                say!("{}", serde_json::to_string_pretty(&report)?)
            } else {
                report.show()
            }
        }
        Disk::Mark { name, label } => command(&name, &format!("mark {label}"))?,
        Disk::Idle { name, seconds } => {
            if !(0.0..1e9).contains(&seconds) {
                bail!("{seconds} seconds cannot pass");
            }
            command(&name, &format!("idle {:.0}", seconds * 1e9))?;
        }
        Disk::Sleep { name } => command(&name, "sleep")?,
        Disk::Log { file } => log(&file)?,
        Disk::Stop { name } => stop(&name)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Where a disk is mounted.
fn place(name: &str) -> Result<PathBuf> {
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

fn unknown(name: &str) -> String {
    format!("there is no disk {name}; `teal lab disk ls` lists those that are there")
}

fn command(name: &str, what: &str) -> Result<()> {
    tell(name, what)?.with_context(|| format!("disk {name}: {what}"))
}

/// Tells a disk something, and gives its answer.
fn tell(name: &str, what: &str) -> Result<rustix::io::Result<()>> {
    let control = place(name)?.join("control");
    // Nothing is made or cut off: the file is there or the disk is not.
    let file = std::fs::OpenOptions::new()
        .write(true)
        .open(&control)
        .map_err(|_| anyhow::anyhow!(unknown(name)))?;
    Ok(rustix::io::write(&file, what.as_bytes()).map(drop))
}

fn ls() -> Result<()> {
    let dir = paths::disks_dir()?;
    let mut names: Vec<_> = std::fs::read_dir(&dir)
        .with_context(|| dir.display().to_string())?
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    for name in names {
        match Report::read(&dir.join(&name)) {
            Ok(report) => say!("{}", report.line()),
            Err(_) => say!(
                "{name}: its process is gone; `teal lab disk stop {name}` takes away what it left"
            ),
        }
    }
    Ok(())
}

fn log(file: &Path) -> Result<()> {
    let input = std::fs::OpenOptions::new()
        .read(true)
        .open(file)
        .with_context(|| file.display().to_string())?;
    let reader = LogReader::new(std::io::BufReader::new(input))
        .with_context(|| file.display().to_string())?;
    let header = reader.header();
    let time = if header.real_time { "real" } else { "virtual" };
    say!(
        "# {} of {} sectors, write cache {} B, {time} time; joules modelled by the profile",
        header.profile,
        header.sectors,
        header.write_cache
    );
    say!("# kind sector sectors asked_ns start_ns done_ns uJ total_uJ label");
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    for record in reader {
        let r = match record {
            Ok(record) => record,
            Err(LogError::CutOff { at }) => {
                log::warn!("{} ends at byte {at}: its disk was killed", file.display());
                break;
            }
            Err(error) => return Err(error).with_context(|| file.display().to_string()),
        };
        let numbers = [
            r.at.get(),
            r.count,
            r.asked.get(),
            r.start.get(),
            r.done.get(),
            r.energy.get(),
            r.total.get(),
        ];
        let numbers = numbers.map(|n| n.to_string()).join(" ");
        use std::io::Write as _;
        match writeln!(out, "{} {numbers} {}", r.kind.name(), r.label) {
            Err(e) if e.kind() == ErrorKind::BrokenPipe => return Ok(()),
            done => done.context("standard output")?,
        }
    }
    Ok(())
}

fn stop(name: &str) -> Result<()> {
    let dir = place(name)?;
    if !dir.exists() && !teal_fuse::is_dead(&dir) {
        bail!("{}", unknown(name));
    }
    let Ok(report) = Report::read(&dir) else {
        leftovers::clear(&dir)?;
        say!("the process of disk {name} was gone; what it left is cleared away");
        return Ok(());
    };
    let pid = Pid::from_raw(report.pid).context("no process is 0")?;
    // Taken while it lives, so that it means this process for ever.
    let daemon = rustix::process::pidfd_open(pid, PidfdFlags::empty())
        .context("watching the disk's process")?;
    let clock = SystemClock;
    let until = clock.monotonic() + CLOSING;
    loop {
        match tell(name, "stop")? {
            Err(Errno::BUSY)
                if !leftovers::mounted_from(&report.device)?.is_empty()
                    || clock.monotonic() > until =>
            {
                bail!("the device of disk {name} is in use; unmount what is on it first");
            }
            Err(Errno::BUSY) => clock.wait_until(clock.monotonic() + CLOSING / 100),
            told => break told.with_context(|| format!("disk {name}: stop"))?,
        }
    }
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
