//! The list of what is pinned, and what is to be looked at because of it.

use super::SyncError;
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeSet;
use teal_log::StoreError;
use teal_types::ObjectNo;
use teal_volume::FsError;

/// The most pins; their number is stored in a byte. A directory with everything below it is one.
pub(crate) const PINS_MAX: usize = 255;

/// The most objects in the queue. Beyond that, everything below all pins is looked at.
pub(crate) const QUEUE_MAX: usize = 4096;

/// The objects that are pinned, ascending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PinSet {
    numbers: [ObjectNo; PINS_MAX],
    len: usize,
}

impl Default for PinSet {
    fn default() -> Self {
        Self {
            numbers: [ObjectNo::new(0); PINS_MAX],
            len: 0,
        }
    }
}

impl PinSet {
    /// Returns the set of these numbers; `None` if they are too many, or not ascending.
    pub(crate) fn from_numbers(numbers: impl Iterator<Item = u64>) -> Option<Self> {
        let mut pins = Self::default();
        for no in numbers.map(ObjectNo::new) {
            // The stored numbers are ascending; others are damage.
            if pins.as_slice().last().is_some_and(|last| *last >= no) || !pins.insert(no) {
                return None;
            }
        }
        Some(pins)
    }

    pub(crate) fn as_slice(&self) -> &[ObjectNo] {
        &self.numbers[..self.len]
    }

    pub(crate) fn contains(&self, no: ObjectNo) -> bool {
        // The numbers are sorted.
        self.as_slice().binary_search(&no).is_ok()
    }

    /// Adds an object. Returns `false` if there are too many.
    pub(crate) fn insert(&mut self, no: ObjectNo) -> bool {
        let Err(at) = self.as_slice().binary_search(&no) else {
            return true;
        };
        if self.len == PINS_MAX {
            return false;
        }
        self.numbers.copy_within(at..self.len, at + 1);
        self.numbers[at] = no;
        self.len += 1;
        debug_assert!(self.as_slice().is_sorted(), "pins are out of order");
        true
    }

    pub(crate) fn retain_only(&mut self, keep: impl Fn(ObjectNo) -> bool) {
        // The order stays, and so do free places: zeros.
        let mut kept = Self::default();
        for no in self.as_slice().iter().filter(|no| keep(**no)) {
            kept.insert(*no);
        }
        debug_assert!(kept.len <= self.len);
        *self = kept;
    }
}

/// The objects to be looked at because something is pinned.
#[derive(Debug, Default)]
pub(crate) struct PinQueue {
    /// All of it.
    pub(crate) all: bool,
    /// Some of it is being fetched.
    pub(crate) is_busy: bool,
    pub(crate) objects: BTreeSet<ObjectNo>,
    /// Pairs of an object and the object that takes over its pin.
    pub(crate) successors: Vec<(ObjectNo, ObjectNo)>,
    /// Why not all is here.
    pub(crate) trouble: Option<String>,
    pub(crate) stop: bool,
}

/// See the module. `queue` guards itself.
#[derive(Debug)]
pub(crate) struct PinWork {
    pub(crate) queue: Mutex<PinQueue>,
    pub(crate) changed: Condvar,
}

/// The files that a pin covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PinSummary {
    /// Files.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Bytes of them that are still to come.
    pub missing: u64,
}

/// The content that was freed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FreedContent {
    /// Files of which something was given back.
    pub files: u64,
    /// Bytes of the store.
    pub bytes: u64,
    /// Files that stay, because the server does not have them as they are here.
    pub only_here: u64,
    /// Their bytes.
    pub only_here_bytes: u64,
}

/// The state of the pins.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PinStatus {
    /// The paths of the pins.
    pub paths: Vec<String>,
    /// Not all of it has been looked at.
    pub is_coming: bool,
    /// Why not all of it is here.
    pub trouble: Option<String>,
}

/// Why something is not pinned, or given back.
#[derive(Debug, thiserror::Error)]
pub enum PinRefused {
    /// There is nothing to fetch from.
    #[error("this volume has no server: all of it is only here, and stays")]
    Alone,
    /// The content does not fit.
    #[error(
        "{bytes} bytes do not fit: {others} are kept here already, and {room} can be; give \
         something back with `teal free`"
    )]
    TooLarge {
        /// Bytes that are to be pinned.
        bytes: u64,
        /// Bytes that are pinned already.
        others: u64,
        /// Bytes that can be pinned together.
        room: u64,
    },
    /// There are too many.
    #[error(
        "{PINS_MAX} paths are pinned; pin a directory above some of them, which counts as one, or \
         free some"
    )]
    TooMany,
    /// The object is kept because of a directory above it.
    #[error("it is kept here because {0} is pinned: free that")]
    Below(String),
    /// The server could not be asked, or refused; without it nothing can be given back.
    #[error("it is not pinned any more, but nothing was given back: {0}")]
    Server(String),
    /// Any other error.
    #[error(transparent)]
    Fs(#[from] FsError),
}

impl From<StoreError> for PinRefused {
    fn from(e: StoreError) -> Self {
        Self::Fs(e.into())
    }
}

impl From<SyncError> for PinRefused {
    fn from(e: SyncError) -> Self {
        match e {
            SyncError::Fs(e) => Self::Fs(e),
            e => Self::Server(e.to_string()),
        }
    }
}

impl PinWork {
    /// Returns the queue at the beginning of a mount. Changes made while it was not mounted are
    /// unknown, so all pins are looked at.
    pub(super) fn for_pins(pins: &PinSet) -> Self {
        let queue = PinQueue {
            // After a start, everything below the pins is looked at once.
            all: !pins.as_slice().is_empty(),
            ..PinQueue::default()
        };
        Self {
            queue: Mutex::new(queue),
            changed: Condvar::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pins_are_few_and_in_order() {
        let list = |pins: &PinSet| {
            pins.as_slice()
                .iter()
                .map(|no| no.get())
                .collect::<Vec<_>>()
        };
        let mut pins = PinSet::default();
        assert!(
            [7, 3, 7, 5]
                .into_iter()
                .all(|no| pins.insert(ObjectNo::new(no)))
        );
        assert_eq!(list(&pins), [3, 5, 7]);
        pins.retain_only(|no| no.get() != 5);
        assert_eq!(
            (
                list(&pins),
                pins.contains(ObjectNo::new(5)),
                pins.contains(ObjectNo::new(7))
            ),
            (vec![3, 7], false, true)
        );
        assert_eq!(PinSet::from_numbers([3, 7].into_iter()), Some(pins));
        assert_eq!(PinSet::from_numbers([7, 3].into_iter()), None);
        assert_eq!(PinSet::from_numbers(1..=PINS_MAX as u64 + 1), None);
        let mut full = PinSet::from_numbers(1..=PINS_MAX as u64).unwrap();
        assert!(!full.insert(ObjectNo::new(1000)) && full.insert(ObjectNo::new(1)));
    }
}
