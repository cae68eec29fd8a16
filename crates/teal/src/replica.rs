//! The files that belong to a store of a served volume, in a directory beside the store, `STORE.d`.
//!
//! | file | holds |
//! |---|---|
//! | `replica.toml` | [`ReplicaSetting`]: if the volume is served here or was joined, and how |
//! | `identity/` | of a joined volume: key and certificates |
//!
//! # Guarantees
//! 1. `teal up` and `teal mount` of such a store serve the volume, or connect to its server,
//!    without being told again.

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use teal_device::{RemoteServer, Upstream};
use teal_env::{Clock, ExistingFile, replace_file};
use teal_net::{Channel, ClientIdentity, TransportLimits};
use teal_posix::FileSystem;
use teal_proto::{ConflictKind, MESSAGE_MAX, REQUEST_KINDS};
use teal_replica::{PinStatus, ServerConnection, StuckDirection, StuckObject, UpstreamStatus};
use teal_server::{ReplicaNote, ServerCounts};
use tokio::runtime::Runtime;

use crate::control::{ConflictShown, MachineShown, StuckShown, UnsentChanges, UpstreamShown};
use crate::private;
use crate::serving::RunningServer;
use teal_command::path_context::PathContext as _;
use teal_command::paths;
use teal_command::say::shown_path;
use teal_types::VolumeId;

/// The place of a volume's server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub(crate) enum ReplicaSetting {
    /// In the process that mounts it.
    Served {
        /// The address on which the server listens.
        listen: String,
        /// Its data.
        #[serde(with = "teal_command::place_text")]
        data: PathBuf,
        /// The volume, in hexadecimal digits.
        volume: String,
        /// This machine's name.
        device: String,
    },
    /// On another machine.
    Joined {
        /// The address of the server.
        address: String,
        /// This machine's name there.
        device: String,
    },
}

/// Returns the directory beside a store.
pub(crate) fn directory_beside(store: &Path) -> Result<PathBuf> {
    // A device has no place for a directory beside it, so its files lie with the stores of `teal
    // up`.
    let is_device = std::fs::metadata(store).is_ok_and(|meta| meta.file_type().is_block_device());
    if is_device {
        return Ok(paths::store_for(store)?.with_extension("d"));
    }
    let mut name = store.as_os_str().to_owned();
    name.push(".d");
    Ok(name.into())
}

fn setting_file(store: &Path) -> Result<PathBuf> {
    Ok(directory_beside(store)?.join("replica.toml"))
}

/// Loads the setting of a store; `None` if its volume has no server.
pub(crate) fn load_setting(store: &Path) -> Result<Option<ReplicaSetting>> {
    let file = setting_file(store)?;
    match std::fs::read_to_string(&file) {
        Ok(text) => Ok(Some(toml::from_str(&text).with_path(&file)?)),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e).with_path(&file),
    }
}

/// Keeps the setting of a store.
pub(crate) fn save_setting(store: &Path, setting: &ReplicaSetting) -> Result<()> {
    let dir = directory_beside(store)?;
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&dir)
        .with_path(&dir)?;
    let file = setting_file(store)?;
    let text = toml::to_string(setting).context("the setting cannot be written as text")?;
    replace_file(&file, text.as_bytes(), ExistingFile::Replace)
        .with_context(|| format!("writing {}", file.display()))
}

/// Removes the setting of a store, and the directory beside it if nothing else is in it.
pub(crate) fn remove_setting(store: &Path) -> Result<()> {
    let file = setting_file(store)?;
    // A setting that is missing already is as wanted.
    match std::fs::remove_file(&file) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            return Err(e).with_path(&file);
        }
        _ => {}
    }
    // Not empty: the server's data is in it.
    let _ = std::fs::remove_dir(directory_beside(store)?);
    Ok(())
}

/// Returns where the identity of a joined store is kept.
pub(crate) fn identity_dir(store: &Path) -> Result<PathBuf> {
    Ok(directory_beside(store)?.join("identity"))
}

/// The parts that run for a replica while it is mounted.
pub(crate) struct ReplicaRuntime {
    pub(crate) upstream: Arc<dyn Upstream>,
    pub(crate) device: String,
    /// True if a store that is no replica yet takes the volume over from the server, false if it
    /// brings the volume there.
    pub(crate) joins: bool,
    /// The server, if it is in this process.
    pub(crate) serving: Option<RunningServer>,
    runtime: Runtime,
}

impl ReplicaRuntime {
    /// Ends the server, if it is here, and the network; what still waits for either is not waited
    /// for.
    pub(crate) fn stop(self) {
        if let Some(serving) = self.serving {
            serving.stop();
        }
        self.runtime.shutdown_background();
    }
}

/// A thread that answers a request, or waits for news.
const STACK: usize = 1 << 20;

/// Builds the runtime for the network and for object stores. It has a thread for every request that
/// may wait in a server.
pub(crate) fn build_runtime() -> Result<Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        // Every request may occupy a thread while it waits; the others are for the chunks.
        .max_blocking_threads(TransportLimits::default().requests + 64)
        .thread_stack_size(STACK)
        .thread_name("teal-net")
        .enable_all()
        .build()
        .context("the threads for the network cannot be started")
}

/// Starts what a store's volume needs; `None`: it has no server.
pub(crate) fn start(
    store: &Path,
    clock: &Arc<dyn Clock>,
    delay: Duration,
) -> Result<Option<ReplicaRuntime>> {
    let Some(setting) = load_setting(store)? else {
        return Ok(None);
    };
    // The directory holds private keys, and perhaps the server's data.
    private::enforce_below(&directory_beside(store)?)?;
    let runtime = build_runtime()?;
    Ok(Some(match setting {
        ReplicaSetting::Served {
            listen,
            data,
            volume,
            device,
        } => {
            let number = u32::from_str_radix(&volume, 16)
                .with_context(|| format!("'{volume}' is no volume"))?;
            let volume = VolumeId::new(number);
            let serving =
                RunningServer::start(runtime.handle(), &data, &listen, volume, &device, clock)?;
            ReplicaRuntime {
                upstream: serving.local_upstream(),
                device,
                joins: false,
                serving: Some(serving),
                runtime,
            }
        }
        ReplicaSetting::Joined { address, device } => {
            let dir = identity_dir(store)?;
            let identity = ClientIdentity::load(&dir)?;
            let options = teal_net::ChannelOptions {
                message_bytes: MESSAGE_MAX,
                delay,
                ..teal_net::ChannelOptions::default()
            };
            let channel = Channel::new(runtime.handle(), address, identity, options);
            // A renewed certificate that is lost costs a new enrolment, so it is saved at once.
            let keep = move |identity: &ClientIdentity| {
                if let Err(error) = identity.save(&dir) {
                    log::error!("the renewed certificate cannot be kept: {error}");
                }
            };
            let upstream = Arc::new(RemoteServer::new(channel, Arc::clone(clock), keep));
            ReplicaRuntime {
                upstream,
                device,
                joins: true,
                serving: None,
                runtime,
            }
        }
    }))
}

/// Returns the name of this machine.
pub(crate) fn device_name(given: Option<&str>) -> Result<String> {
    let name = match given {
        Some(name) => name.to_owned(),
        None => rustix::system::uname()
            .nodename()
            .to_string_lossy()
            .into_owned(),
    };
    // The host name of a machine may be longer than conflict names have room for.
    if !teal_proto::is_device_name(&name) {
        bail!(
            "'{name}' is no name for a device: at most {} bytes without slashes; \
             give one with --device",
            teal_proto::DEVICE_NAME_MAX
        );
    }
    Ok(name)
}

/// Returns what the server of a volume lacks.
pub(crate) fn unsent_changes(client: &FileSystem) -> UnsentChanges {
    let Some(replica) = client.replica() else {
        return UnsentChanges::NoServer;
    };
    match replica.left_to_send() {
        Ok(left) if left.announcing => UnsentChanges::Announcing,
        Ok(left) if left.objects > 0 => UnsentChanges::Some {
            objects: left.objects,
            bytes: left.bytes,
        },
        Ok(_) => UnsentChanges::Nothing,
        Err(e) => UnsentChanges::Unknown { why: e.to_string() },
    }
}

/// Returns why a mount of a volume with a server does not ask the server.
pub(crate) fn why_server_is_not_asked(store: &Path, read_only: bool) -> String {
    if read_only {
        return "this mount is read-only and does not ask it".to_owned();
    }
    let file = match setting_file(store) {
        Ok(file) => shown_path(&file),
        Err(_) => "the setting beside the store".to_owned(),
    };
    format!("it is not known where it is: {file} was missing when the volume was mounted")
}

/// Returns the state of a replica as it is shown to people.
pub(crate) fn upstream_shown(
    status: &UpstreamStatus,
    serving: Option<&RunningServer>,
) -> UpstreamShown {
    debug_assert!(
        status.stuck_objects.1.len() <= status.stuck_objects.0,
        "some of all are shown"
    );
    let (trouble, denied) = match &status.connection {
        ServerConnection::Up => (None, false),
        ServerConnection::Down { why, .. } => (Some(why.clone()), false),
        ServerConnection::Denied { why } => (Some(why.clone()), true),
    };
    // Only the server knows its machines; a failure to list them must not hide the rest.
    let (mut machines, mut counts) = (Vec::new(), Vec::new());
    if let Some(serving) = serving {
        machines = serving
            .server
            .replicas(serving.volume())
            .unwrap_or_default();
        counts = server_counts(&serving.server.counts());
    }
    UpstreamShown {
        served: serving.map(|serving| serving.address().to_string()),
        replica: status.author.replica,
        incarnation: status.author.incarnation,
        seen: status.seen.get(),
        only_here: status.only_here,
        only_here_bytes: status.only_here_bytes,
        trouble,
        denied,
        stuck: status.stuck.clone(),
        stuck_files: status.stuck_objects.1.iter().map(stuck_shown).collect(),
        stuck_count: status.stuck_objects.0,
        connected: status.is_connected,
        live: status.is_live,
        announcing: status.announcing,
        pinned: status.pins.paths.clone(),
        pinned_missing: why_pinned_is_missing(&status.pins),
        last_flush_secs: status.last_flush.map(|time| time.as_secs()),
        counts: named_counts(&status.counts, &status.requests),
        machines: machines.into_iter().map(machine_shown).collect(),
        server_counts: counts,
        server_damaged_chunks: serving.map_or(0, |serving| serving.server.damaged_chunks()),
    }
}

/// Returns why not all that is pinned is here; `None` if it is.
fn why_pinned_is_missing(pins: &PinStatus) -> Option<String> {
    // What keeps content away is worth more than that some of it is coming.
    if let Some(why) = &pins.trouble {
        return Some(why.clone());
    }
    pins.is_coming.then(|| "it is on its way".to_owned())
}

fn stuck_shown(object: &StuckObject) -> StuckShown {
    let way = match object.direction {
        StuckDirection::Sending => "sending",
        StuckDirection::Installing => "installing",
    };
    StuckShown {
        path: object.path.clone(),
        way: way.to_owned(),
        why: object.why.clone(),
    }
}

fn machine_shown(note: ReplicaNote) -> MachineShown {
    MachineShown {
        replica: note.replica,
        device: note.device,
        connected: note.is_live,
        revoked: note.is_revoked,
        local: note.is_local,
        position: note.position.get(),
        last_heard: teal_command::say::date_and_time(note.seen),
    }
}

fn server_counts(of: &ServerCounts) -> Vec<(String, u64)> {
    let done = [
        ("refused", of.refused),
        ("commits", of.commits),
        ("ops", of.ops),
        ("conflicts", of.conflicts),
        ("received_bytes", of.received_bytes),
        ("sent_bytes", of.sent_bytes),
    ];
    named_counts(&done, &of.requests)
}

/// Returns the counters in `done`, the number of all requests, and that of each kind.
fn named_counts(done: &[(&str, u64)], requests: &[u64; REQUEST_KINDS.len()]) -> Vec<(String, u64)> {
    let mut named = Vec::new();
    for (name, count) in done {
        named.push(((*name).to_owned(), *count));
    }
    // The sum stands before its parts, and people need not add them up.
    named.push(("requests".to_owned(), requests.iter().sum()));
    for (kind, count) in REQUEST_KINDS.iter().zip(requests) {
        named.push((format!("request_{kind}"), *count));
    }
    named
}

/// Returns the open conflicts of a volume, for people.
pub(crate) fn open_conflicts(client: &FileSystem) -> Result<Vec<ConflictShown>> {
    // A volume without a server has one history and no conflicts.
    let Some(replica) = client.replica() else {
        return Ok(Vec::new());
    };
    let mut shown = Vec::new();
    for conflict in replica.unresolved_conflicts()? {
        let note = conflict.note;
        shown.push(ConflictShown {
            id: note.id,
            kind: conflict_words(note.kind).to_owned(),
            device: note.device,
            time: teal_command::say::date_and_time(note.time),
            path: note.path,
            is_removed: conflict.is_removed,
            copy_path: note.copy_path,
            is_copy_removed: conflict.is_copy_removed,
            lost: note.lost,
        });
    }
    Ok(shown)
}

fn conflict_words(kind: ConflictKind) -> &'static str {
    match kind {
        ConflictKind::Content => "two contents",
        ConflictKind::Attributes => "two sets of attributes",
        ConflictKind::Xattr => "two values of an extended attribute",
        ConflictKind::Name => "two files of one name",
        ConflictKind::Removal => "removed and changed",
        ConflictKind::Move => "moved to two places",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_is_found_again_beside_the_store() {
        let dir = tempfile::tempdir().unwrap();
        let store = dir.path().join("a.teal");
        assert_eq!(load_setting(&store).unwrap(), None);
        let joined = ReplicaSetting::Joined {
            address: "nas:4717".into(),
            device: "laptop".into(),
        };
        save_setting(&store, &joined).unwrap();
        assert_eq!(load_setting(&store).unwrap(), Some(joined));
        assert_eq!(
            directory_beside(&store).unwrap(),
            dir.path().join("a.teal.d")
        );
    }
}
