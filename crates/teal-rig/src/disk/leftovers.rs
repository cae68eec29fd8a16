//! Clears away the leftovers of a killed disk.
//!
//! # Guarantees
//! 1. Only devices over this disk's own file are touched, and only mounts of them.

use anyhow::{Context, Result};
use std::path::Path;
use teal_command::mount_table;
use teal_fuse::LoopDevice;

/// Takes away the file systems on the disk's device, the device, and the mount, in this order. None
/// of them has a disk any more.
pub(super) fn clear_leftovers(dir: &Path) -> Result<()> {
    // A device holds the file of the dead mount open, and a mount holds the device.
    for device in LoopDevice::find_over(&dir.join("disk.img")) {
        for point in mounted_from(&device)? {
            log::warn!(
                "{} was on a disk that is gone; it is unmounted",
                point.display()
            );
            let flags = rustix::mount::UnmountFlags::DETACH;
            rustix::mount::unmount(&point, flags).with_context(|| point.display().to_string())?;
        }
        LoopDevice::detach_file(&device).with_context(|| device.display().to_string())?;
    }
    teal_fuse::detach_dead(dir).with_context(|| dir.display().to_string())?;
    match std::fs::remove_dir(dir) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            Err(e).with_context(|| dir.display().to_string())
        }
        _ => Ok(()),
    }
}

/// Returns the mount points of a device in this namespace, the newest first.
pub(super) fn mounted_from(device: &Path) -> Result<Vec<std::path::PathBuf>> {
    let found = mount_table::list_mounts()?
        .into_iter()
        .rev()
        .filter(|mount| mount.source == device);
    Ok(found.map(|mount| mount.point).collect())
}
