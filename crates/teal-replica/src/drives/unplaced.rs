//! Content that has affinity to a drive and found no space on it.
//!
//! # Guarantees
//! 1. The log names it once, and the drive's status until the content is on the drive or need not
//!    be.
//! 2. Copying is tried again when there is more space than before, when the drive is detached, and
//!    when it is attached.

use super::attached::AttachedDrive;
use super::queue::QUEUE_MAX;
use std::collections::BTreeMap;
use teal_types::ObjectNo;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct UnplacedFiles {
    /// The bytes of each file that are missing on the drive.
    files: BTreeMap<ObjectNo, u64>,
    /// Bytes that were free when it was tried last.
    free: u64,
    is_said: bool,
}

impl AttachedDrive {
    /// Notes how many bytes of an object have found no space; 0 removes the object.
    pub(super) fn set_unplaced(&self, no: ObjectNo, bytes: u64) {
        let files = &mut self.short().files;
        // No bytes are lacking any more.
        if bytes == 0 {
            files.remove(&no);
        } else if files.len() < QUEUE_MAX {
            files.insert(no, bytes);
        }
    }

    /// Returns how many files, and bytes of them.
    pub(super) fn count_unplaced(&self) -> (u64, u64) {
        let short = self.short();
        (short.files.len() as u64, short.files.values().sum())
    }

    pub(super) fn is_unplaced(&self, no: ObjectNo) -> bool {
        self.short().files.contains_key(&no)
    }

    /// Returns what is to be tried again: all, or what may find room now.
    pub(super) fn unplaced_to_retry(&self, all: bool) -> Vec<ObjectNo> {
        let free = self.drive.capacity().free;
        let short = self.short();
        // Without more free space than at the last attempt, it would fail again.
        if all || free > short.free {
            short.files.keys().copied().collect()
        } else {
            Vec::new()
        }
    }

    /// Reports files without space in the log, after all were tried.
    pub(super) fn report_unplaced(&self) {
        let free = self.drive.capacity().free;
        let mut short = self.short();
        short.free = free;
        short.is_said = short.is_said && !short.files.is_empty();
        // Said once until all files are on the drive.
        if !short.files.is_empty() && !std::mem::replace(&mut short.is_said, true) {
            let files = short.files.len();
            let bytes = short.files.values().sum::<u64>();
            log::warn!(
                "the drive {} is full: {files} files with affinity ({bytes} bytes) are not on it",
                self.name
            );
        }
    }
}
