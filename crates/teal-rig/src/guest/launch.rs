//! Decides on which kernel a file system runs, checks whether a guest can be had here, and has one
//! do a job.

use super::job::{GuestJob, GuestOutcome, require_program};
use crate::testbed;
use anyhow::{Context, Result, bail};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;
use teal_study::matrix::{FileSystemKind, FileSystemSetup, KernelPlace};

/// Time after which the wish to end is looked for.
const LOOK: Duration = Duration::from_millis(200);

fn mkfs_package(kind: FileSystemKind) -> &'static str {
    match kind {
        FileSystemKind::Ext2
        | FileSystemKind::Ext3
        | FileSystemKind::Ext4
        | FileSystemKind::Teal => "e2fsprogs",
        FileSystemKind::Xfs => "xfsprogs",
        FileSystemKind::Btrfs => "btrfs-progs",
        FileSystemKind::Reiserfs => "reiserfsprogs",
        FileSystemKind::Jfs => "jfsutils",
        FileSystemKind::Nilfs2 => "nilfs-tools",
        FileSystemKind::F2fs => "f2fs-tools",
        FileSystemKind::Vfat => "dosfstools",
    }
}

/// Returns the kernel of a file system: the one that its setup names, else this machine's if that
/// has it.
pub fn kernel_place(system: &FileSystemSetup) -> KernelPlace {
    let here = || {
        if system.kind.is_ours() || testbed::kernel_has(system.kind) {
            KernelPlace::Host
        } else {
            KernelPlace::Guest
        }
    };
    system.place.unwrap_or_else(here)
}

/// Refuses a file system that no guest here can make.
///
/// # Errors
/// Returns the missing part.
pub fn check_guest(kind: FileSystemKind) -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        bail!("a guest needs root: it gets a network and processes of its own");
    }
    require_program("linux.uml", "user-mode-linux")?;
    require_program("nbd-client", "nbd-client")?;
    require_program("unshare", "util-linux")?;
    require_program("ip", "iproute2")?;
    require_program(&format!("mkfs.{}", kind.name()), mkfs_package(kind))?;
    if !Path::new("/dev/net/tun").exists() {
        bail!(
            "/dev/net/tun is missing: this kernel or container has no TAP devices; load the \
             module `tun` or allow the device"
        );
    }
    Ok(())
}

/// Starts the process that is the host of a guest, in a network and processes of its own.
fn spawn_host() -> Result<Child> {
    let exe = teal_command::program::current_program()?;
    let mut command = Command::new(require_program("unshare", "util-linux")?);
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
    command.spawn().context("cannot start the host of a guest")
}

/// Has a guest do a job; returns `None` if it was ended from outside.
///
/// # Errors
/// Returns an error if there can be no guest here, or its task failed.
pub fn run_guest(job: &GuestJob, ended: &AtomicBool) -> Result<Option<GuestOutcome>> {
    let mut child = spawn_host()?;
    let (out, mut err) = (
        child.stdout.take().context("piped")?,
        child.stderr.take().context("piped")?,
    );
    // The host ends when its input is closed.
    let mut input = child.stdin.take().context("piped")?;
    // A host that has ended already does not take the job; its complaint says why.
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
    // The outcome is one line; the wish to end is looked for in between.
    let outcome = loop {
        match told.recv_timeout(LOOK) {
            Ok(line) => break Some(line),
            Err(RecvTimeoutError::Timeout) if !ended.load(Ordering::Relaxed) => {}
            Err(_) => break None,
        }
    };
    // Closing the input ends the host, and with it everything in its namespaces.
    drop(input);
    let status = child.wait().context("waiting for the host of a guest")?;
    let complaint = complaint.join().unwrap_or_default();
    if ended.load(Ordering::Relaxed) {
        return Ok(None);
    }
    // The host's complaint tells more than the failed write of the job.
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
