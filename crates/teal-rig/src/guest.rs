//! A guest: user-mode Linux on this machine's own files, its disk a modelled one over the network block device protocol. It does one [`GuestTask`] and ends.
//!
//! Three processes, each the parent of the next:
//! 1. this one;
//! 2. `teal-lab guest-host` (`host.rs`), first in process and network namespaces of its own: it models the disk, serves it, counts, and watches over the guest;
//! 3. `linux.uml`, whose first program is `teal-lab guest` (`inside.rs`): it asks for its task, does it, and tells when each part begins and ends.
//!
//! What is passed on is JSON: the job from 1 to 2 as a line on standard input, the task from 2 to 3 over the network, the outcome all the way back.
//!
//! # Guarantees
//! 1. The guest sees the files of this machine read-only, and no network but the one to its host.
//! 2. It ends: with its task, with this process however that ends, or when it has asked nothing of its disk for longer than its task may be busy without it. It leaves nothing.
//! 3. No mount of this machine is held by it: it has no mount namespace.
//! 4. Joules, requests and their time are counted outside of it, by the modelled disk.

mod host;
mod host_line;
mod inside;
mod runs;

use crate::cell::CellTask;
use crate::command;
use crate::disk::RequestSums;
use crate::phases::PhasesTask;
use crate::testbed;
use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;
use teal_study::matrix::{Kind, Place, System};

pub use host::host;
pub use inside::inside;
pub use runs::{run_cell, run_phases};

pub(crate) use host_line::HostLine;

/// How often it is looked whether somebody wants an end.
const LOOK: Duration = Duration::from_millis(200);
/// Where Debian has the modules of its user-mode Linux.
const MODULES: &str = "/usr/lib/uml/modules";
/// The host's address and its guest's.
const ADDRESSES: [&str; 2] = ["10.78.0.1", "10.78.0.2"];
/// Where the host serves the disk, and where it is told of what happens.
const PORTS: [u16; 2] = [10809, 10810];
/// Memory of a guest, beside what a task wants for itself.
const MEMORY: u64 = 512 << 20;

/// Where file systems are mounted in a guest.
pub const DIR: &str = "/run/mount";

/// What a guest does.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GuestTask {
    /// A cell of `teal lab phases`.
    Phases(PhasesTask),
    /// A run of a matrix's cell.
    Run(Box<CellTask>),
    /// Make this file system and mount it once.
    Try(System),
    /// Nothing but to tell what it has.
    Look,
}

/// A task with what it needs.
#[derive(Debug, Serialize, Deserialize)]
pub struct GuestJob {
    /// The modelled disk: a shipped profile's name, or a file.
    pub profile: String,
    /// Its bytes.
    pub size: u64,
    /// Bytes of memory beside what every guest has.
    pub memory: u64,
    /// Seconds that it may be busy without its disk.
    pub busy: u64,
    /// What is done.
    pub task: GuestTask,
}

/// What the disk was asked in a part of a task: until its last operation, and until nothing was left to be written.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct CountedPart {
    pub(crate) ran: RequestSums,
    pub(crate) all: RequestSums,
}

/// What a guest came to.
#[derive(Debug, Serialize, Deserialize)]
pub struct GuestOutcome {
    /// The guest's kernel.
    pub kernel: String,
    /// By part, in their order.
    pub(crate) counted: Vec<CountedPart>,
    /// What the task itself says.
    pub answer: serde_json::Value,
}

/// What every guest can tell of itself.
#[derive(Debug, Serialize, Deserialize)]
pub struct GuestFeatures {
    /// Schedulers of its disk.
    pub schedulers: Vec<String>,
}

/// The program, where it is, or the Debian package that has it.
fn program(name: &str, package: &str) -> Result<PathBuf> {
    let path = command::found(name);
    path.with_context(|| format!("{name} is not installed; on Debian: apt-get install {package}"))
}

fn package(kind: Kind) -> &'static str {
    match kind {
        Kind::Ext2 | Kind::Ext3 | Kind::Ext4 | Kind::Teal => "e2fsprogs",
        Kind::Xfs => "xfsprogs",
        Kind::Btrfs => "btrfs-progs",
        Kind::Reiserfs => "reiserfsprogs",
        Kind::Jfs => "jfsutils",
        Kind::Nilfs2 => "nilfs-tools",
        Kind::F2fs => "f2fs-tools",
        Kind::Vfat => "dosfstools",
    }
}

/// Returns where a file system runs: where it is said to, else on this machine's kernel if that has it.
pub fn place(system: &System) -> Place {
    let here = || {
        if system.kind.is_ours() || testbed::kernel_has(system.kind) {
            Place::Host
        } else {
            Place::Guest
        }
    };
    system.place.unwrap_or_else(here)
}

/// Refuses a file system that no guest here can make.
///
/// # Errors
/// What is missing.
pub fn check(kind: Kind) -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        bail!("a guest needs root: it gets a network and processes of its own");
    }
    program("linux.uml", "user-mode-linux")?;
    program("nbd-client", "nbd-client")?;
    program("unshare", "util-linux")?;
    program("ip", "iproute2")?;
    program(&format!("mkfs.{}", kind.name()), package(kind))?;
    if !Path::new("/dev/net/tun").exists() {
        bail!(
            "/dev/net/tun is missing: this kernel or container has no TAP devices; load the module `tun` or allow the device"
        );
    }
    Ok(())
}

/// Has a guest do a job; returns `None` if it was ended from outside.
///
/// # Errors
/// There can be no guest here, or its task failed.
pub fn run(job: &GuestJob, ended: &AtomicBool) -> Result<Option<GuestOutcome>> {
    let exe = teal_command::program::this()?;
    let mut command = Command::new(program("unshare", "util-linux")?);
    command
        .args(["--net", "--pid", "--fork", "--kill-child", "--"])
        .arg(exe)
        .arg("guest-host");
    // Ctrl-C is for this process, which ends the guest in its order.
    command.process_group(0);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command
        .spawn()
        .context("cannot start the host of a guest")?;
    let (out, mut err) = (
        child.stdout.take().context("piped")?,
        child.stderr.take().context("piped")?,
    );
    // It ends when this is closed.
    let mut input = child.stdin.take().context("piped")?;
    let told_it = writeln!(input, "{}", serde_json::to_string(job)?);
    let (tell, told) = mpsc::channel();
    let complaint = std::thread::Builder::new()
        .name("complaints".to_owned())
        .spawn(move || {
            let mut text = String::new();
            let _ = err.read_to_string(&mut text);
            text
        })?;
    std::thread::Builder::new()
        .name("outcome".to_owned())
        .spawn(move || {
            BufReader::new(out)
                .lines()
                .map_while(Result::ok)
                .for_each(|line| drop(tell.send(line)));
        })?;
    let outcome = loop {
        match told.recv_timeout(LOOK) {
            Ok(line) => break Some(line),
            Err(RecvTimeoutError::Timeout) if !ended.load(Ordering::Relaxed) => {}
            Err(_) => break None,
        }
    };
    drop(input);
    let status = child.wait().context("waiting for the host of a guest")?;
    let complaint = complaint.join().unwrap_or_default();
    if ended.load(Ordering::Relaxed) {
        return Ok(None);
    }
    let Some(outcome) = outcome else {
        let complaint = complaint.trim();
        told_it
            .with_context(|| format!("the guest's host takes no job ({status}): {complaint}"))?;
        bail!(
            "the guest failed ({status}): {}",
            complaint.strip_prefix("teal: ").unwrap_or(complaint)
        );
    };
    serde_json::from_str(&outcome)
        .map(Some)
        .context("the guest's host cannot be understood")
}
