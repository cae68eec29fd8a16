//! A cell in a guest: user-mode Linux on this machine's own files, its disk a modelled one over the network block device protocol.
//!
//! Three processes, each the parent of the next:
//! 1. this one;
//! 2. `teal lab phases-host` (`host.rs`), first in process and network namespaces of its own: it models the disk, serves it and watches over the guest;
//! 3. `linux.uml`, whose first program is `teal lab phases-guest` (`inside.rs`): it makes the file system, carries out the phases, and tells when each begins and ends.
//!
//! # Guarantees
//! 1. The guest sees the files of this machine read-only, and no network but the one to its host.
//! 2. It ends: with its cell, with this process however that ends, or when it has asked nothing of its disk for five minutes. It leaves nothing.
//! 3. No mount of this machine is held by it: it has no mount namespace.

use crate::cli::lab::PhasesCell;
use crate::cli::lab::PhasesMode;
use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;
use teal_lab::matrix::Kind;
use teal_lab::phases::Measured;

/// How often it is looked whether somebody wants an end.
const LOOK: Duration = Duration::from_millis(200);
/// Where Debian has the modules of its user-mode Linux.
pub(super) const MODULES: &str = "/usr/lib/uml/modules";

/// The host's address and its guest's.
pub(super) const ADDRESSES: [&str; 2] = ["10.78.0.1", "10.78.0.2"];
/// Where the host serves the disk, and where it is told of phases.
pub(super) const PORTS: [u16; 2] = [10809, 10810];

/// What a guest came to.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Outcome {
    pub(super) kernel: String,
    pub(super) phases: Vec<Measured>,
}

/// The program, where it is, or the Debian package that has it.
pub(super) fn program(name: &str, package: &str) -> Result<PathBuf> {
    let path = super::ground::found(name);
    path.with_context(|| format!("{name} is not installed; on Debian: apt-get install {package}"))
}

/// Whether this machine's kernel has it.
pub(super) fn kernel_has(kind: Kind) -> bool {
    let known = std::fs::read_to_string("/proc/filesystems").unwrap_or_default();
    known.lines().any(|line| line.split_whitespace().last() == Some(kind.name()))
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

/// Whether a guest can be had here, and can make this file system.
pub(super) fn check(kind: Kind) -> Result<()> {
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

/// The arguments that mean a cell.
pub(super) fn arguments(of: &PhasesCell) -> Vec<String> {
    let mode = match of.mode {
        PhasesMode::T => "t",
        PhasesMode::F => "f",
        PhasesMode::C => "c",
    };
    let (scale, size) = (of.scale.to_string(), of.size.to_string());
    let pairs = [
        ("--kind", of.kind.as_str()),
        ("--group", &of.group),
        ("--mode", mode),
        ("--scale", &scale),
        ("--profile", &of.profile),
        ("--size", &size),
    ];
    pairs.iter().flat_map(|(name, value)| [(*name).to_owned(), (*value).to_owned()]).collect()
}

/// Measures a cell; gives the guest's kernel, and what came of the phases.
pub(super) fn run(of: &PhasesCell, ended: &AtomicBool) -> Result<(String, Vec<Measured>)> {
    let exe = std::env::current_exe().context("where is this program?")?;
    let mut command = Command::new(program("unshare", "util-linux")?);
    command.args(["--net", "--pid", "--fork", "--kill-child", "--"]).arg(exe).args(["lab", "phases-host"]);
    command.args(arguments(of)).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().context("cannot start the host of a guest")?;
    // It ends when this is closed.
    let input = child.stdin.take();
    let (out, mut err) = (child.stdout.take().context("piped")?, child.stderr.take().context("piped")?);
    let (tell, told) = mpsc::channel();
    let complaint = std::thread::Builder::new().name("complaints".to_owned()).spawn(move || {
        let mut text = String::new();
        let _ = err.read_to_string(&mut text);
        text
    })?;
    std::thread::Builder::new().name("outcome".to_owned()).spawn(move || {
        BufReader::new(out).lines().map_while(Result::ok).for_each(|line| drop(tell.send(line)));
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
    let Some(outcome) = outcome else {
        let complaint = complaint.trim();
        bail!("the guest failed ({status}): {}", complaint.strip_prefix("teal: ").unwrap_or(complaint));
    };
    let Outcome { kernel, phases } = serde_json::from_str(&outcome).context("the guest's host cannot be understood")?;
    Ok((kernel, phases))
}
