//! Tracks a set of files while it is used: existing, missing and busy ones, and the next in turn.
//!
//! # Guarantees
//! 1. A picked entry belongs to one thread until it is released. A busy entry is neither in the
//!    existing nor in the missing.
//! 2. Without an index the turn goes round: the next entry that fits, from the rotor on.
//! 3. *Cheap*: picking looks at a few words, however many entries there are, and does not allocate.
//! 3. Picking looks at a few words, however many entries there are, and makes nothing on the heap.

use super::error::RunError;
use super::index_set::IndexSet;
use super::layout::TreeLayout;
use super::plan::OpenAccess;
use super::waiting::StopFlag;
use parking_lot::{Condvar, Mutex, MutexGuard};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

/// Time after which a pick looks whether the run is over.
const LOOK: Duration = Duration::from_millis(50);

/// Names a kind of entry: a file, or a leaf directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EntryKind {
    File,
    Leaf,
}

/// Selects the entry that a pick prefers.
#[derive(Debug)]
pub(super) enum PickTurn<'a> {
    /// The next one of the set's own rotor.
    Next,
    /// The next one of a rotor of the thread.
    Own(&'a mut usize),
    /// The first one from this index on.
    Index(usize),
}

#[derive(Debug)]
struct EntryPool {
    existing: IndexSet,
    missing: IndexSet,
    /// Rotors of the existing and of the missing entries.
    rotors: [usize; 2],
    busy: usize,
    waiting: usize,
}

/// Holds a pool, and wakes the threads that wait for an entry in it.
#[derive(Debug)]
struct SharedPool {
    /// Guards the pool, and is held for a few instructions only.
    pool: Mutex<EntryPool>,
    changed: Condvar,
}

impl SharedPool {
    fn new(len: usize) -> Self {
        Self {
            pool: Mutex::new(EntryPool::new(len)),
            changed: Condvar::new(),
        }
    }

    fn wait_for_change(&self, pool: &mut MutexGuard<'_, EntryPool>) {
        // The count spares a notification when no thread waits.
        pool.waiting += 1;
        let _ = self.changed.wait_for(pool, LOOK);
        pool.waiting -= 1;
    }
}

impl EntryPool {
    fn new(len: usize) -> Self {
        let mut missing = IndexSet::new(len);
        // Everything is missing at first; populating marks what exists.
        (0..len).for_each(|at| missing.insert(at));
        Self {
            existing: IndexSet::new(len),
            missing,
            rotors: [0; 2],
            busy: 0,
            waiting: 0,
        }
    }

    fn existing_or_missing(&mut self, existing: bool) -> &mut IndexSet {
        if existing {
            &mut self.existing
        } else {
            &mut self.missing
        }
    }
}

/// Holds a set of files in use.
#[derive(Debug)]
pub(super) struct FilesetState {
    pub(super) name: String,
    pub(super) root: PathBuf,
    pub(super) access: OpenAccess,
    /// Root directory, once it is open; a device has none.
    pub(super) dir: Option<OwnedFd>,
    /// Is true when the root is a block device, which is the one file.
    pub(super) device: bool,
    pub(super) layout: TreeLayout,
    /// Paths of directories below the root, each with a slash at its end.
    paths: Vec<Box<[u8]>>,
    /// Number of open descriptors of each file.
    open: Vec<AtomicU32>,
    files: SharedPool,
    leaves: SharedPool,
    dir_rotor: AtomicUsize,
}

impl FilesetState {
    pub(super) fn new(name: &str, root: PathBuf, access: OpenAccess, layout: TreeLayout) -> Self {
        let mut paths: Vec<Box<[u8]>> = vec![Box::default()];
        // Parents come before their children, so a parent's path is known.
        for dir in &layout.dirs[1..] {
            let parent = &paths[dir.parent as usize];
            paths.push(
                format!("{}{:08}/", String::from_utf8_lossy(parent), dir.number)
                    .into_bytes()
                    .into(),
            );
        }
        // Everything starts closed and missing; `open_root` and populating change that.
        Self {
            name: name.to_owned(),
            root,
            access,
            dir: None,
            device: false,
            paths,
            open: layout.files.iter().map(|_| AtomicU32::new(0)).collect(),
            files: SharedPool::new(layout.files.len()),
            leaves: SharedPool::new(layout.leaves.len()),
            layout,
            dir_rotor: AtomicUsize::new(0),
        }
    }

    /// Opens the root, to which all paths are relative.
    pub(super) fn open_root(&mut self) -> Result<(), RunError> {
        if !self.device {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let dir = rustix::fs::open(&self.root, flags, Mode::empty());
            self.dir = Some(dir.map_err(|e| RunError::at_path("opening", &self.root, e))?);
        }
        Ok(())
    }

    /// Closes the root, so that the file system can be unmounted.
    pub(super) fn close_root(&mut self) {
        self.dir = None;
    }

    fn pool_of(&self, what: EntryKind) -> &SharedPool {
        match what {
            EntryKind::File => &self.files,
            EntryKind::Leaf => &self.leaves,
        }
    }

    pub(super) fn entry_count(&self, what: EntryKind) -> usize {
        match what {
            EntryKind::File => self.layout.files.len(),
            EntryKind::Leaf => self.layout.leaves.len(),
        }
    }

    /// Returns the number of entries that exist and are not busy.
    #[cfg(test)]
    pub(super) fn existing_count(&self, what: EntryKind) -> usize {
        self.pool_of(what).pool.lock().existing.len()
    }

    /// Marks an entry that exists from the beginning.
    pub(super) fn mark_existing(&self, what: EntryKind, index: usize) {
        let mut pool = self.pool_of(what).pool.lock();
        pool.missing.remove(index);
        pool.existing.insert(index);
    }

    /// Picks an entry that exists, or one that does not, and makes it busy. Returns `None` if there
    /// is none, and no busy one that might become one.
    pub(super) fn pick_entry(
        &self,
        what: EntryKind,
        existing: bool,
        mut turn: PickTurn<'_>,
        stop: &StopFlag,
    ) -> Option<usize> {
        let turns = self.pool_of(what);
        let mut pool = turns.pool.lock();
        loop {
            let from = match &turn {
                PickTurn::Next => pool.rotors[usize::from(existing)],
                PickTurn::Own(rotor) => **rotor,
                PickTurn::Index(index) => *index,
            };
            if let Some(found) = pool.existing_or_missing(existing).next(from) {
                pool.existing_or_missing(existing).remove(found);
                pool.busy += 1;
                // The rotor moves on only when an entry was found.
                match &mut turn {
                    PickTurn::Next => pool.rotors[usize::from(existing)] = found + 1,
                    PickTurn::Own(rotor) => **rotor = found + 1,
                    PickTurn::Index(_) => {}
                }
                return Some(found);
            }
            // A busy entry may be released as one that fits; without one, waiting would never end.
            if pool.busy == 0 || stop.is_set() {
                return None;
            }
            turns.wait_for_change(&mut pool);
        }
    }

    /// Waits until an existing file is not busy, and makes it busy; returns false if it does not
    /// exist.
    pub(super) fn claim_file(&self, index: usize, stop: &StopFlag) -> bool {
        let mut pool = self.files.pool.lock();
        loop {
            if pool.existing.remove(index) {
                pool.busy += 1;
                return true;
            }
            if pool.missing.contains(index) || stop.is_set() {
                return false;
            }
            self.files.wait_for_change(&mut pool);
        }
    }

    /// Releases a busy entry, which exists now or does not.
    pub(super) fn release_entry(&self, what: EntryKind, index: usize, exists: bool) {
        let turns = self.pool_of(what);
        let mut pool = turns.pool.lock();
        pool.existing_or_missing(exists).insert(index);
        debug_assert!(pool.busy > 0, "a released entry was busy before");
        pool.busy -= 1;
        if pool.waiting > 0 {
            turns.changed.notify_all();
        }
    }

    pub(super) fn note_opened(&self, index: usize) {
        self.open[index].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn note_closed(&self, index: usize) {
        self.open[index].fetch_sub(1, Ordering::Relaxed);
    }

    /// Returns the number of open descriptors of a file. While the file is busy, it cannot grow.
    pub(super) fn times_open(&self, index: usize) -> u32 {
        self.open[index].load(Ordering::Relaxed)
    }

    /// Returns the next directory, in turn.
    pub(super) fn next_dir(&self) -> usize {
        self.dir_rotor.fetch_add(1, Ordering::Relaxed) % self.paths.len()
    }

    /// Returns the directory that paths are relative to.
    pub(super) fn root_fd(&self) -> BorrowedFd<'_> {
        self.dir.as_ref().map_or(rustix::fs::CWD, AsFd::as_fd)
    }

    /// Writes the path of an entry below the root, with a zero at its end.
    pub(super) fn write_path(&self, what: EntryKind, index: usize, into: &mut Vec<u8>) {
        into.clear();
        if self.device {
            into.extend_from_slice(self.root.as_os_str().as_encoded_bytes());
            into.push(0);
            return;
        }
        let entry = match what {
            EntryKind::File => self.layout.files[index],
            EntryKind::Leaf => self.layout.leaves[index],
        };
        into.extend_from_slice(&self.paths[entry.dir as usize]);
        // Formatted by hand: this runs for each operation, and must not allocate.
        let mut digits = [b'0'; 10];
        let (mut rest, mut at) = (entry.number, digits.len());
        while rest > 0 || at > 2 {
            at -= 1;
            digits[at] = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        into.extend_from_slice(&digits[at..]);
        into.push(0);
    }

    /// Writes the path of a directory below the root, with a zero at its end.
    pub(super) fn write_dir_path(&self, dir: usize, into: &mut Vec<u8>) {
        into.clear();
        match &self.paths[dir][..] {
            [] => into.push(b'.'),
            path => into.extend_from_slice(path),
        }
        into.push(0);
    }

    /// Returns the full path, for messages.
    pub(super) fn display_path(&self, path: &[u8]) -> String {
        let path = String::from_utf8_lossy(path.strip_suffix(&[0]).unwrap_or(path)).into_owned();
        self.root.join(path).display().to_string()
    }
}

#[cfg(test)]
mod tests;
