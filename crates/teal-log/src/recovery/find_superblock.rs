//! Finds the superblock of a disk: the first copy that can be read, or why there is none.

use crate::error::{DiskRequest, StoreError};
use crate::format::superblock::{self, Superblock, SuperblockRefusal};
use crate::recovery::refusal::StoreOpenError;
use std::sync::Arc;
use teal_env::Disk;
use teal_types::{SECTOR, Sector};

/// Reads the superblock, the first copy or the second.
///
/// # Errors
/// [`StoreOpenError`] when neither can be used.
pub fn read_superblock(disk: &dyn Disk) -> Result<Superblock, StoreOpenError> {
    let sectors = disk.shape().sectors;
    if sectors * SECTOR < superblock::BYTES as u64 {
        return Err(StoreOpenError::TooShort(sectors * SECTOR));
    }
    let mut first = None;
    let mut unread = None;
    // A disk may be longer than its store; then a first copy that is not whole says where the
    // second one is.
    let mut places = vec![Superblock::second_copy(sectors), Sector::new(0)];
    while let Some(at) = places.pop() {
        let bytes = match read_copy(disk, at) {
            Ok(bytes) => bytes,
            Err(e) => {
                unread = Some(e);
                continue;
            }
        };
        let claimed = Superblock::claimed_second_copy(&bytes);
        if at == Sector::new(0)
            && let Some(claimed) = claimed
            && claimed < places[0]
        {
            places.insert(0, claimed);
        }
        // A valid superblock of a longer disk means that the disk was cut.
        match Superblock::decode(&bytes) {
            Ok(sb) if sb.sectors <= sectors => return Ok(sb),
            Ok(sb) => {
                return Err(StoreOpenError::Truncated {
                    have: sectors * SECTOR,
                    want: sb.sectors * SECTOR,
                });
            }
            // The error of the first copy is the one that is reported.
            Err(e) if first.is_none() => first = Some(e),
            Err(_) => {}
        }
    }
    // An unreadable copy may be the whole one.
    if let Some(unread) = unread {
        return Err(StoreOpenError::Store(unread));
    }
    Err(refusal_of(first))
}

/// Returns the copy of the superblock at `at` as it is on the disk.
fn read_copy(disk: &dyn Disk, at: Sector) -> Result<Vec<u8>, StoreError> {
    let mut bytes = vec![0; superblock::BYTES];
    match disk.read_at(at, &mut bytes) {
        Ok(()) => Ok(bytes),
        Err(source) => Err(StoreError::Io {
            doing: DiskRequest::Read,
            at: at.get(),
            source: Arc::new(source),
        }),
    }
}

/// Returns why a disk is not opened whose first copy was refused for this reason; `None` if there
/// is no copy at all.
fn refusal_of(first: Option<SuperblockRefusal>) -> StoreOpenError {
    match first {
        Some(SuperblockRefusal::Version(v)) if v < superblock::VERSION => StoreOpenError::Older(v),
        Some(SuperblockRefusal::Version(v)) => StoreOpenError::Newer(v),
        Some(SuperblockRefusal::Features(bits)) => StoreOpenError::Features(bits),
        Some(SuperblockRefusal::Geometry(what)) => StoreOpenError::Geometry(what),
        Some(SuperblockRefusal::Damaged) => StoreOpenError::Superblocks,
        Some(SuperblockRefusal::NotTeal) | None => StoreOpenError::NotTeal,
    }
}
