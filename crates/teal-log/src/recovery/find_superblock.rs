//! Finds the superblock of a disk: the first copy that can be read, or why there is none.

use crate::error::{DiskRequest, StoreError};
use crate::format::superblock::{self, Refused, Superblock};
use crate::recovery::refusal::OpenError;
use std::sync::Arc;
use teal_env::Disk;
use teal_types::{SECTOR, Sector};

/// Reads the superblock, the first copy or the second.
///
/// # Errors
/// [`OpenError`] when neither can be used.
pub fn read_superblock(disk: &dyn Disk) -> Result<Superblock, OpenError> {
    let sectors = disk.shape().sectors;
    if sectors * SECTOR < superblock::BYTES as u64 {
        return Err(OpenError::TooShort(sectors * SECTOR));
    }
    let (mut first, mut unread) = (None, None);
    for at in [Sector::new(0), Superblock::second_copy(sectors)] {
        let mut bytes = vec![0; superblock::BYTES];
        if let Err(source) = disk.read_at(at, &mut bytes) {
            let source = Arc::new(source);
            unread = Some(StoreError::Io {
                doing: DiskRequest::Read,
                at: at.get(),
                source,
            });
            continue;
        }
        match Superblock::decode(&bytes) {
            Ok(sb) if sb.sectors <= sectors => return Ok(sb),
            Ok(sb) => {
                return Err(OpenError::Truncated {
                    have: sectors * SECTOR,
                    want: sb.sectors * SECTOR,
                });
            }
            Err(e) if first.is_none() => first = Some(e),
            Err(_) => {}
        }
    }
    if let Some(unread) = unread {
        return Err(OpenError::Store(unread));
    }
    Err(match first {
        Some(Refused::Version(v)) if v < superblock::VERSION => OpenError::Older(v),
        Some(Refused::Version(v)) => OpenError::Newer(v),
        Some(Refused::Features(bits)) => OpenError::Features(bits),
        Some(Refused::Geometry(what)) => OpenError::Geometry(what),
        Some(Refused::Damaged) => OpenError::Superblocks,
        Some(Refused::NotTeal) | None => OpenError::NotTeal,
    })
}
