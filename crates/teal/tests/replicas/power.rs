//! Power that fails between any two things a machine or the server does, also in the middle of an
//! operation.
//!
//! # Guarantees
//! 1. *Nothing after*: once it is off, nothing reaches a disk, the metadata, the chunks or the
//!    network; reading goes on, to no effect.
//! 2. *The last one*: of what was being done when it failed, all or nothing may have happened, and
//!    on a disk any part.

use std::io::{self, IoSlice};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use teal_chunk::{MemoryShelf, Shelf, ShelfError, ShelfObject};
use teal_env::{Disk, DiskShape};
use teal_meta::{
    CommitDurability, MemoryMeta, MetaError, MetaStore, ReadTransaction, WriteTransaction,
};
use teal_testkit::RecordingDisk;
use teal_types::{Sector, VolumeId};

const ON: u64 = u64::MAX;

/// The power of one machine. Clones are the same.
#[derive(Debug, Clone)]
pub(crate) struct Power(Arc<AtomicU64>);

impl Power {
    pub(crate) fn new() -> Self {
        Self(Arc::new(AtomicU64::new(ON)))
    }

    /// Makes the power fail with the last of so many actions from now; 0: now.
    pub(crate) fn fails_after(&self, actions: u64) {
        self.0.store(actions, SeqCst);
    }

    pub(crate) fn stays(&self) {
        self.fails_after(ON);
    }

    pub(crate) fn is_off(&self) -> bool {
        self.0.load(SeqCst) == 0
    }

    /// One more action: whether it begins, and whether it ends.
    pub(crate) fn act(&self) -> (bool, bool) {
        let left = self.0.load(SeqCst);
        if left != ON {
            self.0.store(left.saturating_sub(1), SeqCst);
        }
        (left > 0, left > 1)
    }

    /// Returns what `look` does is no action.
    pub(crate) fn spare<T>(&self, look: impl FnOnce() -> T) -> T {
        let left = self.0.swap(ON, SeqCst);
        let seen = look();
        self.0.store(left, SeqCst);
        seen
    }
}

/// A machine's disk: unflushed sectors may be lost, torn and reordered when its power fails.
pub(crate) struct PoweredDisk {
    pub(crate) disk: RecordingDisk,
    pub(crate) power: Power,
}

impl PoweredDisk {
    fn act(&self, action: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let (begins, ends) = self.power.act();
        if begins {
            action()?;
        }
        if ends {
            Ok(())
        } else {
            Err(io::Error::other("the power has gone"))
        }
    }
}

impl Disk for PoweredDisk {
    fn shape(&self) -> DiskShape {
        self.disk.shape()
    }
    fn read_at(&self, at: Sector, buf: &mut [u8]) -> io::Result<()> {
        self.disk.read_at(at, buf)
    }
    fn write_at(&self, at: Sector, parts: &[IoSlice<'_>]) -> io::Result<()> {
        self.act(|| self.disk.write_at(at, parts))
    }
    fn sync(&self) -> io::Result<()> {
        self.act(|| self.disk.sync())
    }
    fn allocate(&self, at: Sector, sectors: u64) -> io::Result<()> {
        self.act(|| self.disk.allocate(at, sectors))
    }
    fn discard(&self, at: Sector, sectors: u64) -> io::Result<()> {
        self.act(|| self.disk.discard(at, sectors))
    }
}

/// The server's metadata: the last transaction happens whole, and durably if it was to, or not at
/// all.
pub(crate) struct PoweredMeta {
    pub(crate) memory: MemoryMeta,
    pub(crate) power: Power,
    pub(crate) is_last_kept: bool,
}

fn cut() -> MetaError {
    MetaError::Io {
        file: "memory".into(),
        source: "the power has gone".into(),
    }
}

impl MetaStore for PoweredMeta {
    fn volumes(&self) -> Result<Vec<VolumeId>, MetaError> {
        self.memory.volumes()
    }
    fn write(
        &self,
        volume: VolumeId,
        durability: CommitDurability,
        work: &mut dyn FnMut(&mut dyn WriteTransaction) -> bool,
    ) -> Result<(), MetaError> {
        let (begins, ends) = self.power.act();
        if ends || (begins && self.is_last_kept) {
            self.memory.write(volume, durability, work)?;
        }
        if ends { Ok(()) } else { Err(cut()) }
    }
    fn read(
        &self,
        volume: VolumeId,
        work: &mut dyn FnMut(&dyn ReadTransaction),
    ) -> Result<(), MetaError> {
        if self.power.is_off() {
            Err(cut())
        } else {
            self.memory.read(volume, work)
        }
    }
    fn check_integrity(&self) -> Result<Vec<String>, MetaError> {
        self.memory.check_integrity()
    }
}

/// The server's chunks: the last object is put, or it is not.
pub(crate) struct PoweredShelf {
    pub(crate) shelf: MemoryShelf,
    pub(crate) power: Power,
    pub(crate) is_last_kept: bool,
}

impl Shelf for PoweredShelf {
    fn place(&self) -> String {
        self.shelf.place()
    }
    fn put(&self, name: &str, bytes: Vec<u8>) -> Result<(), ShelfError> {
        let (begins, ends) = self.power.act();
        if ends || (begins && self.is_last_kept) {
            self.shelf.put(name, bytes)?;
        }
        let gone = || ShelfError::Unreachable {
            name: name.into(),
            source: Arc::new(cut()),
        };
        if ends { Ok(()) } else { Err(gone()) }
    }
    fn read(&self, name: &str, range: Range<u64>) -> Result<Vec<u8>, ShelfError> {
        self.shelf.read(name, range)
    }
    fn list_objects(&self) -> Result<Vec<ShelfObject>, ShelfError> {
        self.shelf.list_objects()
    }
    fn remove(&self, name: &str) -> Result<(), ShelfError> {
        self.shelf.remove(name)
    }
}
