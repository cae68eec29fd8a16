//! What has affinity to a drive and found no room on it.
//!
//! # Guarantees
//! 1. It is said: once in the log, and to whoever asks, until it is on the drive or is not to be.
//! 2. It is tried again when there is more room than there was, when the drive is detached, and
//!    when it is attached.

use super::attached::AttachedDrive;
use super::queue::QUEUE_MAX;
use std::collections::BTreeMap;
use teal_types::ObjectNo;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct UnplacedFiles {
    /// How many bytes of it are not there.
    files: BTreeMap<ObjectNo, u64>,
    /// Bytes that were free when it was tried last.
    free: u64,
    is_said: bool,
}

impl AttachedDrive {
    /// So much of an object has found no room.
    pub(super) fn set_unplaced(&self, no: ObjectNo, bytes: u64) {
        let files = &mut self.unplaced.lock().files;
        if bytes == 0 {
            files.remove(&no);
        } else if files.len() < QUEUE_MAX {
            files.insert(no, bytes);
        }
    }

    /// Returns how many files, and bytes of them.
    pub(super) fn count_unplaced(&self) -> (u64, u64) {
        let short = self.unplaced.lock();
        (short.files.len() as u64, short.files.values().sum())
    }

    pub(super) fn is_unplaced(&self, no: ObjectNo) -> bool {
        self.unplaced.lock().files.contains_key(&no)
    }

    /// Returns what is to be tried again: all, or what may find room now.
    pub(super) fn unplaced_to_retry(&self, all: bool) -> Vec<ObjectNo> {
        let free = self.drive.capacity().free;
        let short = self.unplaced.lock();
        if all || free > short.free {
            short.files.keys().copied().collect()
        } else {
            Vec::new()
        }
    }

    /// After all was tried.
    pub(super) fn report_unplaced(&self) {
        let free = self.drive.capacity().free;
        let mut short = self.unplaced.lock();
        (short.free, short.is_said) = (free, short.is_said && !short.files.is_empty());
        if !short.files.is_empty() && !std::mem::replace(&mut short.is_said, true) {
            let (files, bytes) = (short.files.len(), short.files.values().sum::<u64>());
            log::warn!(
                "the drive {} is full: {files} files with affinity ({bytes} bytes) are not on it",
                self.name
            );
        }
    }
}
