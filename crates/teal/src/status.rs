//! `teal status` and `teal down`.

use crate::control::{
    self, ControlAnswer, ControlRequest, MachineShown, MachineState, MountStatus, RequestTransport,
    SafetyVerdict, ServerState, StoreState, SyncReach, UnmountReport, UnsentChanges, UpstreamShown,
    count_of,
};
use crate::mounts::no_daemon_error;
use crate::second_place;
use anyhow::{Result, bail};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use teal_command::paths::{self, MountPointState};
use teal_command::say::{count_noun as so_many, escape_control, say, shell_quoted, shown_path};
use teal_command::size::human_size;

/// Shows one mount or all.
pub(crate) fn show_statuses(dir: Option<PathBuf>, json: bool) -> Result<ExitCode> {
    let found = match &dir {
        Some(dir) => {
            let dir = paths::absolute_path(dir)?;
            match control::ask(&dir, &ControlRequest::Status)? {
                Some(ControlAnswer::Status(status)) => vec![*status],
                _ => return Err(no_daemon_error(&dir)),
            }
        }
        None => control::all_statuses()?,
    };
    if json {
        say!("{}", serde_json::to_string_pretty(&found)?);
    } else if found.is_empty() {
        say!("nothing is mounted; `teal up` begins");
    }
    // An empty list is valid JSON, and needs no words.
    if !json {
        for status in &found {
            show_mount(status);
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn show_mount(s: &MountStatus) {
    let label = if s.label.is_empty() {
        String::new()
    } else {
        format!(" \"{}\"", s.label)
    };
    say!("{}{label}", shown_path(&s.mount_point));
    say!(
        "  store    {} ({}, process {})",
        shown_path(&s.store),
        s.uuid,
        s.pid
    );
    say!(
        "  space    {} used, {} free of {}; {}",
        human_size(s.live_bytes),
        human_size(s.free_bytes),
        human_size(s.total_bytes),
        so_many(s.objects, "object")
    );
    if s.host_lacks_bytes > 0 {
        say!(
            "           the disk under the store is too full for the other {}",
            human_size(s.host_lacks_bytes)
        );
    }
    let state = match s.store_state() {
        StoreState::Failed => {
            "FAILED: the disk refused a write; what was synced before is safe. Unmount, \
             check the disk, mount again"
        }
        StoreState::ReadOnly => "read-only",
        StoreState::Uncommitted => "changes of the last seconds are on their way to the disk",
        StoreState::Durable => "everything is on the disk",
    };
    say!("  state    {state}");
    // Programs may rely on sync(2), so a volume that it does not reach says so.
    if s.sync_reach == SyncReach::SingleFiles && !s.read_only {
        say!("  sync     sync(2) and syncfs(2) do not reach this volume; fsync(2) does");
    }
    if s.transport == RequestTransport::Rings {
        say!("  kernel   requests come over io_uring");
    }
    if let Some(r) = &s.recording {
        // A recording that has ended well needs no line.
        match (&r.failure, r.ended) {
            (Some(why), _) => say!("  record   to {} ended early: {why}", r.file.display()),
            (None, false) => say!(
                "  record   to {}: {} events so far",
                r.file.display(),
                r.events
            ),
            (None, true) => {}
        }
    }
    match (&s.upstream, &s.upstream_unknown) {
        (Some(upstream), _) => show_upstream(upstream),
        (None, Some(why)) => say!(
            "  safe?    UNKNOWN: what only this machine has cannot be read: {}",
            escape_control(why)
        ),
        (None, None) => {
            // A volume without a server has no copy, which a person has to know.
            say!("  devices  the volume has no server: this store is the only copy of it")
        }
    }
    for drive in &s.drives {
        let (name, place) = (escape_control(&drive.name), escape_control(&drive.place));
        match drive.queued {
            0 => say!("  drive    {name}, in {place}"),
            queued => say!(
                "  drive    {name}, in {place}; {} to be copied to it",
                waiting_objects(queued)
            ),
        }
    }
}

/// Returns the words for objects that wait: `1 object waits`, `2 objects wait`.
pub(crate) fn waiting_objects(objects: u64) -> String {
    format!(
        "{} wait{}",
        so_many(objects, "object"),
        if objects == 1 { "s" } else { "" }
    )
}

/// Shows the first files that cannot be sent or installed, and the number of the others.
fn show_stuck_files(u: &UpstreamShown) {
    for stuck in &u.stuck_files {
        let path = escape_control(&stuck.path);
        let why = escape_control(&stuck.why);
        say!("  stuck    {path} ({}): {why}", stuck.way);
    }
    let others = u.stuck_count.saturating_sub(u.stuck_files.len());
    if others > 0 {
        say!("           and {others} more");
    }
}

/// Shows the state of a mount towards its server, and the server itself if it is in this process.
fn show_upstream(u: &UpstreamShown) {
    match u.server_state() {
        ServerState::InThisProcess { address } => {
            say!("  server   in this process, listening on {address}")
        }
        ServerState::NotReachedYet => say!("  server   not reached yet"),
        ServerState::Connected => say!(
            "  server   connected; history applied up to commit {}",
            u.seen
        ),
        ServerState::Refuses { why } => {
            // The line itself says that the server refuses.
            let why = why.strip_prefix("the server refuses: ").unwrap_or(why);
            say!("  server   REFUSES this machine: {why}");
        }
        ServerState::OutOfReach { why } => say!("  server   out of reach: {why}"),
    }
    if let Some(why) = &u.stuck {
        say!("           and does not take changes: {why}");
    }
    show_stuck_files(u);
    for machine in &u.machines {
        show_machine(machine);
    }
    if u.served.is_some() {
        show_served(&u.server_counts);
    }
    if !u.pinned.is_empty() {
        let all = match &u.pinned_missing {
            None => "all of it is here".to_owned(),
            Some(why) => format!("not all of it is here: {why}"),
        };
        say!("  pinned   {}; {all}", u.pinned.join(", "));
    }
    show_safety(u);
}

/// Shows a machine of the volume, as its server sees it.
fn show_machine(m: &MachineShown) {
    let state = match m.state() {
        MachineState::ThisMachine => "this machine".to_owned(),
        MachineState::ShutOut => "shut out".to_owned(),
        MachineState::Connected => "connected".to_owned(),
        MachineState::Away => format!("last heard of at {}", m.last_heard),
    };
    say!(
        "  machine  {} \"{}\", {state}; history known up to commit {}",
        m.replica,
        m.device,
        m.position
    );
}

/// Shows what a server has done since it was started.
fn show_served(counts: &[(String, u64)]) {
    let came = human_size(count_of(counts, "received_bytes"));
    let went = human_size(count_of(counts, "sent_bytes"));
    say!(
        "  served   {} commits of {} operations with {} conflicts; {came} of content came, \
         {went} went",
        count_of(counts, "commits"),
        count_of(counts, "ops"),
        count_of(counts, "conflicts")
    );
}

/// Says whether the server has everything, and what it lacks.
fn show_safety(u: &UpstreamShown) {
    // The server's data may be on this machine: then both copies are lost with it.
    let (place, means) = match u.served {
        Some(_) => (
            "the server's own store",
            "its data is on this machine: back it up",
        ),
        None => ("the server", "this machine may be unplugged or lost"),
    };
    let bytes = human_size(u.only_here_bytes);
    let only_here = format!("{} ({bytes})", so_many(u.only_here, "object"));
    let (are, them) = if u.only_here == 1 {
        ("is", "it")
    } else {
        ("are", "them")
    };
    match u.safety() {
        SafetyVerdict::Announcing => {
            say!("  safe?    NO: the volume is still on its way to {place}")
        }
        SafetyVerdict::OnlyHereAndRefused => say!(
            "  safe?    NO: {only_here} {are} only here, and the server takes nothing from this \
             machine"
        ),
        SafetyVerdict::UnknownToRefused => say!(
            "  safe?    unknown: the server had taken all changes of this machine, and does not \
             answer it any more"
        ),
        SafetyVerdict::OnlyHere => {
            say!("  safe?    NO: {only_here} {are} only here; `teal flush` sends {them}")
        }
        SafetyVerdict::ServerDamaged => say!(
            "  safe?    NO: {} of content {} damaged in the server's own store; `teal check \
             --server` names the files, and mends what this machine's store has",
            so_many(u.server_damaged_chunks as u64, "chunk"),
            if u.server_damaged_chunks == 1 {
                "is"
            } else {
                "are"
            }
        ),
        SafetyVerdict::NotAllHere => say!(
            "  safe?    NO: {} cannot be brought here as {place} has {}",
            so_many(u.stuck_count as u64, "object"),
            if u.stuck_count == 1 { "it" } else { "them" }
        ),
        SafetyVerdict::Safe => say!("  safe?    yes: {place} has everything; {means}"),
    }
}

/// Unmounts and waits until everything is on the disk.
pub(crate) fn take_down(dir: Option<PathBuf>) -> Result<ExitCode> {
    let dir = paths::mount_point_for(dir)?;
    // Without its daemon, the other places of the mount would be dead.
    if control::ask(&dir, &ControlRequest::Status)?.is_some()
        && let Some(other) = second_place::other_places(&dir)?.first()
    {
        bail!(
            "{} is mounted on {} as well; take that away first: teal down {}",
            shown_path(&dir),
            shown_path(other),
            shell_quoted(&shown_path(other))
        );
    }
    match control::ask_down(&dir)? {
        Some(ControlAnswer::Ended { ended }) => say!("{}", ended_words(&dir, &ended)),
        // A daemon of an earlier version says no more.
        Some(_) => say!(
            "{} is unmounted; everything is on the disk",
            shown_path(&dir)
        ),
        // Without a daemon, its dead mount may still be there.
        None => match paths::inspect_mount_point(&dir)? {
            MountPointState::Dead => {
                free_dead_mount_point(&dir)?;
                say!(
                    "the daemon of {} had been killed; the mount point is free again",
                    shown_path(&dir)
                );
            }
            MountPointState::Mounted => match second_place::take_place_away(&dir)? {
                Some(first) => say!(
                    "{} is unmounted; the volume is still mounted on {}",
                    shown_path(&dir),
                    shown_path(&first)
                ),
                None => bail!(
                    "what is mounted on {} is not TealFS, or belongs to another user",
                    shown_path(&dir)
                ),
            },
            _ => bail!("nothing is mounted on {}", shown_path(&dir)),
        },
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns what is said of a mount that has ended, and where its content is.
fn ended_words(dir: &Path, ended: &UnmountReport) -> String {
    let (point, store) = (
        shell_quoted(&shown_path(dir)),
        shell_quoted(&shown_path(&ended.store)),
    );
    let unmounted = format!(
        "{} is unmounted; everything is on the disk",
        shown_path(dir)
    );
    // The command names the store, which need not be the usual one.
    let again = format!("to send it: teal up {point} --store {store}; teal flush {point}");
    match &ended.unsent {
        UnsentChanges::NoServer => {
            format!("{unmounted}, in {store}, and nowhere else: the volume has no server")
        }
        UnsentChanges::Nothing if ended.served => {
            format!(
                "{unmounted}, and the server's own store on this machine has all of it: \
                 back that up"
            )
        }
        UnsentChanges::Nothing => format!("{unmounted}, and the server has all of it"),
        UnsentChanges::Announcing => {
            format!("{unmounted}, but the server has not been told of all of it; {again}")
        }
        UnsentChanges::Some { objects, bytes } => {
            let are = if *objects == 1 { "is" } else { "are" };
            format!(
                "{unmounted}, but {} ({}) {are} only there; {again}",
                so_many(*objects, "object"),
                human_size(*bytes)
            )
        }
        UnsentChanges::Unknown { why } => {
            format!(
                "{unmounted}, but what the server lacks of it cannot be read ({}); {again}",
                escape_control(why)
            )
        }
    }
}

/// Takes away the mount of a daemon that is gone.
pub(crate) fn free_dead_mount_point(dir: &Path) -> Result<()> {
    teal_fuse::detach_dead(dir).map_err(|e| anyhow::anyhow!("{}: {e}", dir.display()))
}
