//! The twin of the database in memory, for tests and simulations.
//!
//! # Guarantees
//! 1. *The same contract*: it passes the suite that the database passes.
//! 2. *Power cuts*: [`MemoryMeta::after_power_cut`] returns the state that a power cut now would
//!    leave: everything that was durable, nothing else.

mod read;
mod table;
mod write;

use crate::error::Result;
use crate::meta::{CommitDurability, MetaStore, ReadTransaction, WriteTransaction};
use crate::row::{
    BatchRow, CommitRow, ConflictRow, EntryRow, ExtentRow, NameTally, ObjectRow, PastExtent,
    Ranges, ReplicaRow, TokenRow, VolumeRow, XattrRow,
};
use parking_lot::RwLock;
use std::ops::RangeInclusive;
use std::sync::Arc;
use table::UndoTable;
use teal_types::{
    Author, BatchId, BatchNo, CommitSeq, HardLink, Incarnation, LeaseNo, Name, ObjectNo, ReplicaNo,
    VolumeId,
};

/// The keys of one volume.
type InVolume<K> = (VolumeId, K);
/// A staged part: its batch, and its number there.
type PartKey = (BatchId, u32);

/// A row of an extended attribute's history.
type XattrKey = (ObjectNo, Vec<u8>, CommitSeq);

/// The names of a snapshot.
type SnapshotNames = Arc<[(Name, ObjectNo)]>;

/// Every table. History has its commit last in the key.
#[derive(Debug, Clone, Default)]
struct MemoryTables {
    settings: UndoTable<InVolume<String>, Vec<u8>>,
    volumes: UndoTable<InVolume<()>, VolumeRow>,
    objects: UndoTable<InVolume<ObjectNo>, ObjectRow>,
    entries: UndoTable<InVolume<HardLink>, EntryRow>,
    links: UndoTable<InVolume<(ObjectNo, HardLink)>, ()>,
    xattrs: UndoTable<InVolume<(ObjectNo, Vec<u8>)>, XattrRow>,
    extents: UndoTable<InVolume<(ObjectNo, u64)>, ExtentRow>,
    past_objects: UndoTable<InVolume<(ObjectNo, CommitSeq)>, Option<ObjectRow>>,
    past_entries: UndoTable<InVolume<(HardLink, CommitSeq)>, Option<ObjectNo>>,
    /// The rows of `past_entries` by commit.
    past_names: UndoTable<InVolume<(ObjectNo, CommitSeq, Name)>, Option<ObjectNo>>,
    snapshots: UndoTable<InVolume<(ObjectNo, CommitSeq)>, SnapshotNames>,
    tallies: UndoTable<InVolume<ObjectNo>, NameTally>,
    past_links: UndoTable<InVolume<(ObjectNo, CommitSeq, HardLink)>, ()>,
    past_xattrs: UndoTable<InVolume<XattrKey>, Option<Vec<u8>>>,
    past_extents: UndoTable<InVolume<(ObjectNo, CommitSeq, u64)>, PastExtent>,
    commits: UndoTable<InVolume<CommitSeq>, CommitRow>,
    changes: UndoTable<InVolume<(CommitSeq, ObjectNo)>, Ranges>,
    batches: UndoTable<InVolume<BatchId>, BatchRow>,
    staged: UndoTable<InVolume<PartKey>, Vec<u8>>,
    replicas: UndoTable<InVolume<ReplicaNo>, ReplicaRow>,
    tokens: UndoTable<InVolume<[u8; 32]>, TokenRow>,
    leases: UndoTable<InVolume<LeaseNo>, ReplicaNo>,
    conflicts: UndoTable<InVolume<u64>, ConflictRow>,
}

/// Evaluates an expression for every table.
macro_rules! each_table {
    ($state:expr, $table:ident => $what:expr) => {
        each_table!(@ $state, $table => $what;
            settings volumes objects entries links xattrs extents
            past_objects past_entries past_names snapshots tallies
            past_links past_xattrs past_extents
            commits changes batches staged replicas tokens leases conflicts)
    };
    (@ $state:expr, $table:ident => $what:expr; $($name:ident)*) => {{
        $({ let $table = &mut $state.$name; $what; })*
    }};
}

/// Metadata in memory. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct MemoryMeta(Arc<RwLock<MemoryTables>>);

/// One transaction.
struct MemoryTransaction<S> {
    state: S,
    volume: VolumeId,
}

impl MemoryMeta {
    /// Makes a store without any volume.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the state that a power cut now would leave, as a store of its own; this one goes on.
    #[must_use]
    pub fn after_power_cut(&self) -> Self {
        // The copy shares nothing with the store that goes on.
        let mut state = self.0.read().clone();
        each_table!(state, table => table.undo());
        Self(Arc::new(RwLock::new(state)))
    }
}

/// Returns the keys of all that a replica has staged.
fn parts_of(volume: VolumeId, replica: ReplicaNo) -> RangeInclusive<InVolume<PartKey>> {
    let of = |incarnation, batch, part| {
        let author = Author {
            replica,
            incarnation: Incarnation::new(incarnation),
        };
        (volume, (author.batch(BatchNo::new(batch)), part))
    };
    of(0, 0, 0)..=of(u32::MAX, u64::MAX, u32::MAX)
}

impl MetaStore for MemoryMeta {
    fn volumes(&self) -> Result<Vec<VolumeId>> {
        Ok(self
            .0
            .read()
            .volumes
            .iter()
            .map(|((volume, ()), _)| *volume)
            .collect())
    }

    fn write(
        &self,
        volume: VolumeId,
        durability: CommitDurability,
        work: &mut dyn FnMut(&mut dyn WriteTransaction) -> bool,
    ) -> Result<()> {
        let mut state = self.0.write();
        // The lock is held for the whole transaction, as SQLite has one writer at a time.
        each_table!(state, table => table.begin());
        if !work(&mut MemoryTransaction {
            state: &mut *state,
            volume,
        }) {
            each_table!(state, table => table.roll_back());
        } else if durability == CommitDurability::Now {
            each_table!(state, table => table.make_durable());
        }
        Ok(())
    }

    fn read(&self, volume: VolumeId, work: &mut dyn FnMut(&dyn ReadTransaction)) -> Result<()> {
        work(&MemoryTransaction {
            state: &*self.0.read(),
            volume,
        });
        Ok(())
    }

    fn check_integrity(&self) -> Result<Vec<String>> {
        // Maps in memory have no structure that could be damaged.
        Ok(Vec::new())
    }
}

/// Returns the first name in the order of bytes, at which scans begin.
fn first_name() -> Name {
    Name::new(&[1]).expect("one byte that is no slash is a name")
}
