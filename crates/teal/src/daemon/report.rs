//! What `teal status` is told of a mount.

use super::volume::ServedVolume;
use crate::config;
use crate::control::{DriveHere, Status, UpstreamShown};
use crate::replica;
use teal_posix::FsError;

/// Returns the state of the mount, its store, its server and its drives, as this process knows it;
/// no device is read.
pub(super) fn status(volume: &ServedVolume) -> Status {
    let store = volume.client.store();
    let space = store.space();
    let superblock = store.superblock();
    let (upstream, upstream_unknown) = match upstream(volume) {
        Ok(upstream) => (upstream, None),
        Err(e) => (None, Some(e.to_string())),
    };
    let uuid: String = superblock.uuid.iter().map(|b| format!("{b:02x}")).collect();
    let of_store = config::list(&store.settings()).into_iter();
    let counted = store.counts();
    let drives = volume.drives.here().into_iter();
    Status {
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
        settings: of_store.chain(config::priority(&volume.client)).collect(),
        counters: counted.each().map(|(k, v)| (k.to_owned(), v)).collect(),
        requests: volume.mount.requests(),
        uring: volume.mount.is_over_rings(),
        syncfs: volume.is_on_device,
        recording: volume.recordings.progress(),
        upstream,
        upstream_unknown,
        drives: drives
            .map(|(name, place, queued)| DriveHere {
                name,
                place,
                queued,
            })
            .collect(),
    }
}

/// Returns how the volume stands with its server; `None` if it has none.
fn upstream(volume: &ServedVolume) -> Result<Option<UpstreamShown>, FsError> {
    let Some(replica) = volume.client.replica() else {
        return Ok(None);
    };
    let status = replica.upstream_status()?;
    let mut shown = volume.with_server(|serving| replica::shown(&status, serving));
    if !volume.asks_server() {
        shown.trouble = Some(volume.why_alone());
    }
    Ok(Some(shown))
}
