//! The state of a mount, for `teal status`.

use super::volume::ServedVolume;
use crate::config;
use crate::control::{DriveHere, MountStatus, UpstreamShown};
use crate::replica;
use teal_posix::FsError;

/// Returns the state of the mount, its store, its server and its drives, as this process knows it;
/// no device is read.
pub(super) fn mount_status(volume: &ServedVolume) -> MountStatus {
    let store = volume.client.store();
    let space = store.space();
    let superblock = store.superblock();
    // A failure here is shown beside the rest of the state, which is still known.
    let (upstream, upstream_unknown) = match upstream_status(volume) {
        Ok(upstream) => (upstream, None),
        Err(e) => (None, Some(e.to_string())),
    };
    debug_assert!(
        space.free <= space.free_of_capacity,
        "the host can only take space away"
    );
    let mut uuid = String::new();
    for byte in superblock.uuid {
        uuid += &format!("{byte:02x}");
    }
    let mut settings = config::list_settings(&store.settings());
    settings.extend(config::priority_setting(&volume.client));
    let mut counters = Vec::new();
    for (name, count) in store.counter_values().each() {
        counters.push((name.to_owned(), count));
    }
    MountStatus {
        mount_point: volume.args.dir.clone(),
        store: volume.args.path.clone(),
        label: superblock.label.clone(),
        uuid,
        options: volume.args.options.clone(),
        pid: std::process::id(),
        read_only: store.is_read_only(),
        failed: store.is_poisoned(),
        total_bytes: space.total,
        free_bytes: space.free,
        host_lacks_bytes: space.free_of_capacity - space.free,
        live_bytes: space.live,
        objects: space.objects,
        uncommitted: store.is_dirty(),
        orphans: store.orphans().map_or(0, |o| o.len() as u64),
        settings,
        counters,
        requests: volume.mount.request_counts(),
        transport: volume.mount.is_over_rings().into(),
        sync_reach: volume.is_on_device().into(),
        phase: volume.is_ending().into(),
        recording: volume.recordings.progress(),
        upstream,
        upstream_unknown,
        drives: drives_here(volume),
    }
}

fn drives_here(volume: &ServedVolume) -> Vec<DriveHere> {
    let mut drives = Vec::new();
    for (name, place, queued) in volume.drives.attached_places() {
        drives.push(DriveHere {
            name,
            place,
            queued,
        });
    }
    drives
}

/// Returns how the volume stands with its server; `None` if it has none.
fn upstream_status(volume: &ServedVolume) -> Result<Option<UpstreamShown>, FsError> {
    let Some(replica) = volume.client.replica() else {
        return Ok(None);
    };
    let status = replica.upstream_status()?;
    let mut shown = volume.with_server(|serving| replica::upstream_shown(&status, serving));
    // A mount that does not ask its server says so, instead of showing the last state it knew.
    if !volume.asks_server() {
        shown.trouble = Some(volume.why_server_is_not_asked());
    }
    Ok(Some(shown))
}
