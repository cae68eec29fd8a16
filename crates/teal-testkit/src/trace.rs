//! The trace of a disk: everything that happened, in order, with the test's own notes in between.

use crate::content::LayeredContent;
use std::sync::Arc;
use teal_env::DiskShape;
use teal_types::Sector;

/// One event of a disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DiskEvent {
    /// A write returned.
    Write {
        /// The first sector.
        at: Sector,
        /// The bytes written.
        data: Arc<[u8]>,
    },
    /// A sync returned `Ok`.
    Sync,
    /// A sync returned an error.
    SyncFailed,
    /// Host space was allocated.
    Allocate {
        /// The first sector.
        at: Sector,
        /// The number of sectors.
        sectors: u64,
    },
    /// Content was given up.
    Discard {
        /// The first sector.
        at: Sector,
        /// The number of sectors.
        sectors: u64,
    },
    /// A note of the test.
    Mark(u64),
}

/// All events of a disk since it was made, and its content then. Cheap to clone.
#[derive(Debug, Clone)]
pub struct DiskTrace {
    pub(crate) shape: DiskShape,
    pub(crate) start: LayeredContent,
    pub(crate) events: Vec<DiskEvent>,
}

impl DiskTrace {
    /// Returns the shape of the disk.
    pub fn shape(&self) -> DiskShape {
        self.shape
    }

    /// Returns the events, oldest first.
    pub fn events(&self) -> &[DiskEvent] {
        &self.events
    }

    /// Returns the notes made before `point`, oldest first. A point is a number of events that have
    /// happened.
    pub fn marks_before(&self, point: usize) -> impl Iterator<Item = u64> + '_ {
        self.events[..point].iter().filter_map(|event| match event {
            DiskEvent::Mark(note) => Some(*note),
            _ => None,
        })
    }

    /// Returns the points at which a crash shows something new: all but those that a note follows,
    /// since the disk is the same after the note and more has been promised.
    pub fn crash_points(&self) -> impl Iterator<Item = usize> + '_ {
        (0..=self.events.len())
            .filter(|&point| !matches!(self.events.get(point), Some(DiskEvent::Mark(_))))
    }
}
