//! `teal doctor`: looks at this machine's mounts of TealFS, and says for each trouble what it means
//! and the way out.
//!
//! # Guarantees
//! 1. *It only looks*: it changes nothing; the way out is a command that a person runs.
//! 2. *It does not hang with what hangs*: daemons are asked with a short patience, and a mount with
//!    a daemon that may be stuck is touched by a thread of its own, which is left behind.
//! 3. *It says what it looked at*: "nothing is wrong" counts the mounts and connections it saw.

use crate::control::{self, ControlAnswer, ControlRequest, MountStatus};
use crate::namespace;
use anyhow::Result;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc;
use std::time::Duration;
use teal_command::mount_table::{self, MountEntry};
use teal_command::say::{count_noun, escape_control, say, shell_quoted, shown_path};
use teal_command::size::human_size;
use teal_env::{Clock as _, SystemClock, Timer as _};

/// The time that a daemon, or the kernel about a mount, may take to answer.
const PATIENCE: Duration = Duration::from_secs(3);
/// Requests that wait as long as this are not just being answered.
const STUCK_AFTER: Duration = Duration::from_secs(1);
/// The directory in which the kernel shows the connections between mounts and daemons.
const CONNECTIONS: &str = "/sys/fs/fuse/connections";
/// Bits of a device number in the name of a connection that are the minor number.
const MINOR_BITS: u32 = 20;

/// One trouble, and the way out of it.
#[derive(Debug, PartialEq, Eq)]
struct MountTrouble {
    trouble: String,
    /// Sentences or commands, a line each.
    way_out: Vec<String>,
}

impl MountTrouble {
    fn new(trouble: impl Into<String>, way_out: impl Into<Vec<String>>) -> Self {
        Self {
            trouble: trouble.into(),
            way_out: way_out.into(),
        }
    }
}

/// A connection of the kernel to the daemon of one FUSE mount, of TealFS or of anything else.
type ConnectionNo = u64;

/// Shows every trouble that it finds. Ends with 1 if there is one.
pub(crate) fn run_doctor() -> Result<ExitCode> {
    let mounts: Vec<MountEntry> = mount_table::list_mounts()?;
    let waiting = stuck_connections();
    let mut findings = Vec::new();
    findings.extend(fuse_device());
    if waiting.is_none() {
        findings.push(MountTrouble::new(
            format!(
                "{CONNECTIONS} is not there, so that connections without a daemon cannot be seen"
            ),
            [format!("mount -t fusectl none {CONNECTIONS}")],
        ));
    }
    let waiting = waiting.unwrap_or_default();
    // A copy of a mount has the same device; the first one is looked at.
    let mut seen = BTreeSet::new();
    let ours = mounts.iter().filter(|mount| mount.is_teal());
    let ours: Vec<&MountEntry> = ours.filter(|mount| seen.insert(mount.device)).collect();
    for mount in &ours {
        findings.extend(inspect_mount(mount, &waiting));
    }
    findings.extend(hidden_connections(&mounts, &waiting));
    for finding in &findings {
        say!("{}", finding.trouble);
        for line in &finding.way_out {
            say!("    {line}");
        }
    }
    if !ours.is_empty() && !namespace::is_first() {
        say!(
            "note: these mounts are in a mount namespace of their own; \
             sync(2) does not reach those of type fuse.teal"
        );
    }
    let looked_at = count_noun(ours.len() as u64, "TealFS mount");
    if findings.is_empty() {
        say!("nothing is wrong with {looked_at}, /dev/fuse and the kernel's connections");
        return Ok(ExitCode::SUCCESS);
    }
    say!(
        "{} in {looked_at}",
        count_noun(findings.len() as u64, "trouble")
    );
    Ok(ExitCode::FAILURE)
}

/// Says what keeps this user from mounting anything.
fn fuse_device() -> Option<MountTrouble> {
    use rustix::fs::{Access, access};
    const DEVICE: &str = "/dev/fuse";
    if !Path::new(DEVICE).exists() {
        return Some(MountTrouble::new(
            format!("{DEVICE} is missing: nothing can be mounted"),
            [
                "load the kernel's module: modprobe fuse; a container needs --device /dev/fuse"
                    .to_owned(),
            ],
        ));
    }
    // Asked with the rights of this user, which mounting needs.
    let denied = access(DEVICE, Access::READ_OK | Access::WRITE_OK).is_err();
    denied.then(|| {
        MountTrouble::new(
            format!("this user may not open {DEVICE}: nothing can be mounted"),
            [format!("as root: chmod 666 {DEVICE}")],
        )
    })
}

/// Looks at one mount: its daemon, and what that says of itself.
fn inspect_mount(mount: &MountEntry, waiting: &BTreeMap<ConnectionNo, u64>) -> Vec<MountTrouble> {
    // A busy mount has waiting requests whenever one looks, so the daemon is asked first.
    let silence = match control::ask_within(&mount.point, &ControlRequest::Status, PATIENCE) {
        Ok(Some(ControlAnswer::Status(status))) => return from_status(&status),
        Ok(Some(_)) | Err(_) => {
            format!("its daemon does not answer within {} s", PATIENCE.as_secs())
        }
        Ok(None) => match waiting.get(&connection_of(mount)) {
            Some(requests) => {
                let requests = count_noun(*requests, "request");
                format!("{requests} unanswered for over {} s", STUCK_AFTER.as_secs())
            }
            None => return vec![without_socket(mount)],
        },
    };
    vec![MountTrouble::new(
        format!("{}: {silence}", shown_path(&mount.point)),
        abort_commands(connection_of(mount), Some(&mount.point)),
    )]
}

/// Says what a mount is that no control socket of this user belongs to.
fn without_socket(mount: &MountEntry) -> MountTrouble {
    let point = shown_path(&mount.point);
    let user = mount
        .user
        .filter(|user| *user != rustix::process::geteuid().as_raw());
    if let Some(user) = user {
        return MountTrouble::new(
            format!(
                "{point}: another user's mount (number {user}), which only that user can ask about"
            ),
            [format!(
                "as that user: teal status {}",
                shell_quoted(&point)
            )],
        );
    }
    // A mount of this user without a socket: its daemon is dead, hidden or stuck.
    match is_dead(mount.point.clone()) {
        Some(true) => MountTrouble::new(
            format!("{point}: its daemon is gone; what was synced is in the store"),
            [format!("teal down {}", shell_quoted(&point))],
        ),
        Some(false) => MountTrouble::new(
            format!(
                "{point}: its daemon lives, and its control socket is not in this user's directory"
            ),
            ["set XDG_RUNTIME_DIR as it was when the mount was made".to_owned()],
        ),
        None => MountTrouble::new(
            format!(
                "{point}: its daemon does not answer within {} s",
                PATIENCE.as_secs()
            ),
            abort_commands(connection_of(mount), Some(&mount.point)),
        ),
    }
}

/// Returns whether a mount has lost its daemon; `None` if even that gets no answer.
fn is_dead(point: PathBuf) -> Option<bool> {
    let (answer, answered) = mpsc::channel();
    let ask = move || {
        // An answer that comes too late is lost: the receiver is gone.
        let _ = answer.send(teal_fuse::is_dead(&point));
    };
    std::thread::Builder::new().spawn(ask).ok()?;
    answered.recv_timeout(PATIENCE).ok()
}

/// Returns the troubles that a daemon knows of.
fn from_status(status: &MountStatus) -> Vec<MountTrouble> {
    let point = shown_path(&status.mount_point);
    let mut found = Vec::new();
    if status.failed {
        found.push(MountTrouble::new(
            format!(
                "{point}: the disk refused a write; what was synced before is safe, \
                and nothing more is written"
            ),
            [
                format!("teal down {}", shell_quoted(&point)),
                format!(
                    "look at the disk, then: teal check {}",
                    shell_quoted(&shown_path(&status.store))
                ),
            ],
        ));
    }
    if status.host_lacks_bytes > 0 {
        found.push(MountTrouble::new(
            format!(
                "{point}: the disk under the store is too full for {} that the store could still \
                 take",
                human_size(status.host_lacks_bytes)
            ),
            [format!(
                "make room on the file system that holds {}",
                shown_path(&status.store)
            )],
        ));
    }
    if let Some(why) = &status.upstream_unknown {
        found.push(MountTrouble::new(
            format!(
                "{point}: it is not known what only this machine has: {}",
                escape_control(why)
            ),
            [format!(
                "teal down {}, then mount it again",
                shell_quoted(&point)
            )],
        ));
    }
    let Some(upstream) = &status.upstream else {
        return found;
    };
    // A server that refuses and one that cannot be reached need the same first look.
    if let Some(why) = upstream.trouble.as_ref().or(upstream.stuck.as_ref()) {
        found.push(MountTrouble::new(
            format!(
                "{point}: the server does not take this machine's changes: {}",
                escape_control(why)
            ),
            [format!(
                "what only this machine has: teal status {}",
                shell_quoted(&point)
            )],
        ));
    }
    if upstream.stuck_count > 0 {
        found.push(MountTrouble::new(
            format!(
                "{point}: {} cannot be sent",
                count_noun(upstream.stuck_count as u64, "file")
            ),
            [format!(
                "which, and why: teal status {}",
                shell_quoted(&point)
            )],
        ));
    }
    found
}

/// Returns the troubles of connections that have no mount in this mount namespace.
fn hidden_connections(
    mounts: &[MountEntry],
    waiting: &BTreeMap<ConnectionNo, u64>,
) -> Vec<MountTrouble> {
    // The kernel shows the connections of all mount namespaces, this process only its own mounts.
    let visible: BTreeSet<ConnectionNo> = mounts.iter().map(connection_of).collect();
    let hidden = waiting
        .iter()
        .filter(|(number, _)| !visible.contains(number));
    let finding = |(number, requests): (&ConnectionNo, &u64)| {
        MountTrouble::new(
            format!(
                "connection {number} of a FUSE mount that is not to be seen from here: \
                 {} unanswered for over {} s. A daemon \
                 (of TealFS or of another program) may have been killed with its mount namespace; \
                 sync(2) hangs then",
                count_noun(*requests, "request"),
                STUCK_AFTER.as_secs()
            ),
            abort_commands(*number, None),
        )
    };
    hidden.map(finding).collect()
}

/// Returns the commands that end a connection, and with it the waiting of all programs.
fn abort_commands(number: ConnectionNo, point: Option<&Path>) -> Vec<String> {
    let mut commands = vec![format!("as root: echo 1 > {CONNECTIONS}/{number}/abort")];
    if let Some(point) = point {
        commands.push(format!(
            "then: teal down {}",
            shell_quoted(&shown_path(point))
        ));
    }
    commands.push("everything that was synced before is in the store".to_owned());
    commands
}

/// Returns the number of the kernel's connection of a FUSE mount: its device number, as the kernel
/// keeps it.
fn connection_of(mount: &MountEntry) -> ConnectionNo {
    let (major, minor) = mount.device;
    (u64::from(major) << MINOR_BITS) | u64::from(minor)
}

/// Returns the connections with requests that have waited for [`STUCK_AFTER`], and the number of
/// these requests; `None` if the kernel does not show connections.
fn stuck_connections() -> Option<BTreeMap<ConnectionNo, u64>> {
    let first = waiting_requests(Path::new(CONNECTIONS))?;
    if first.is_empty() {
        return Some(first);
    }
    SystemClock.wait_until(SystemClock.monotonic_time() + STUCK_AFTER);
    let later = waiting_requests(Path::new(CONNECTIONS))?;
    let stuck = first.into_iter().filter_map(|(number, requests)| {
        let still = later.get(&number)?;
        Some((number, requests.min(*still)))
    });
    Some(stuck.collect())
}

/// Reads how many requests of each connection wait, where any does.
fn waiting_requests(dir: &Path) -> Option<BTreeMap<ConnectionNo, u64>> {
    let entries = std::fs::read_dir(dir).ok()?;
    let number_and_count = |entry: std::fs::DirEntry| -> Option<(ConnectionNo, u64)> {
        let number = entry.file_name().to_str()?.parse().ok()?;
        let text = std::fs::read_to_string(entry.path().join("waiting")).ok()?;
        let requests = text.trim().parse().ok()?;
        (requests > 0).then_some((number, requests))
    };
    Some(
        entries
            .filter_map(Result::ok)
            .filter_map(number_and_count)
            .collect(),
    )
}
