//! The twin of the database in memory, for tests and simulations.
//!
//! # Guarantees
//! 1. *The same contract*: it passes the suite that the database passes.
//! 2. *Power cuts*: [`Memory::crash`] gives what a power cut now would leave: everything that was
//!    durable, nothing else.

mod read;
mod table;
mod write;

use crate::error::Result;
use crate::meta::{Durability, Meta, Read, Write};
use crate::row::{
    BatchRow, CommitRow, ConflictRow, EntryRow, ExtentRow, ObjectRow, PastExtent, Ranges,
    ReplicaRow, Tally, TokenRow, VolumeRow, XattrRow,
};
use parking_lot::RwLock;
use std::ops::RangeInclusive;
use std::sync::Arc;
use table::Table;
use teal_types::{
    Author, BatchId, BatchNo, CommitSeq, Incarnation, Link, Name, ObjectNo, ReplicaNo, VolumeId,
};

/// The keys of one volume.
type In<K> = (VolumeId, K);
/// A staged part: its batch, and its number there.
type PartKey = (BatchId, u32);

/// A row of an extended attribute's history.
type XattrKey = (ObjectNo, Vec<u8>, CommitSeq);

/// The names of a snapshot.
type Names = Arc<[(Name, ObjectNo)]>;

/// Every table. History has its commit last in the key.
#[derive(Debug, Clone, Default)]
struct State {
    settings: Table<In<String>, Vec<u8>>,
    volumes: Table<In<()>, VolumeRow>,
    objects: Table<In<ObjectNo>, ObjectRow>,
    entries: Table<In<Link>, EntryRow>,
    links: Table<In<(ObjectNo, Link)>, ()>,
    xattrs: Table<In<(ObjectNo, Vec<u8>)>, XattrRow>,
    extents: Table<In<(ObjectNo, u64)>, ExtentRow>,
    past_objects: Table<In<(ObjectNo, CommitSeq)>, Option<ObjectRow>>,
    past_entries: Table<In<(Link, CommitSeq)>, Option<ObjectNo>>,
    /// The same by commit.
    past_names: Table<In<(ObjectNo, CommitSeq, Name)>, Option<ObjectNo>>,
    snapshots: Table<In<(ObjectNo, CommitSeq)>, Names>,
    tallies: Table<In<ObjectNo>, Tally>,
    past_links: Table<In<(ObjectNo, CommitSeq, Link)>, ()>,
    past_xattrs: Table<In<XattrKey>, Option<Vec<u8>>>,
    past_extents: Table<In<(ObjectNo, CommitSeq, u64)>, PastExtent>,
    commits: Table<In<CommitSeq>, CommitRow>,
    changes: Table<In<(CommitSeq, ObjectNo)>, Ranges>,
    batches: Table<In<BatchId>, BatchRow>,
    staged: Table<In<PartKey>, Vec<u8>>,
    replicas: Table<In<ReplicaNo>, ReplicaRow>,
    tokens: Table<In<[u8; 32]>, TokenRow>,
    leases: Table<In<u32>, ReplicaNo>,
    conflicts: Table<In<u64>, ConflictRow>,
}

/// Does the same with every table.
macro_rules! each_table {
    ($state:expr, $table:ident => $what:expr) => {
        each_table!(@ $state, $table => $what; settings volumes objects entries links xattrs extents past_objects past_entries
            past_names snapshots tallies past_links past_xattrs past_extents commits changes batches staged replicas tokens leases conflicts)
    };
    (@ $state:expr, $table:ident => $what:expr; $($name:ident)*) => {{
        $({ let $table = &mut $state.$name; $what; })*
    }};
}

/// Metadata in memory. Clones are the same.
#[derive(Debug, Clone, Default)]
pub struct Memory(Arc<RwLock<State>>);

/// One transaction.
struct Txn<S> {
    state: S,
    volume: VolumeId,
}

impl Memory {
    /// Without any volume.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns what a power cut now would leave, as a store of its own; this one goes on.
    #[must_use]
    pub fn crash(&self) -> Self {
        let mut state = self.0.read().clone();
        each_table!(state, table => table.undo());
        Self(Arc::new(RwLock::new(state)))
    }
}

/// Returns the keys of all that a replica has staged.
fn parts_of(volume: VolumeId, replica: ReplicaNo) -> RangeInclusive<In<PartKey>> {
    let of = |incarnation, batch, part| {
        let author = Author {
            replica,
            incarnation: Incarnation::new(incarnation),
        };
        (volume, (author.batch(BatchNo::new(batch)), part))
    };
    of(0, 0, 0)..=of(u32::MAX, u64::MAX, u32::MAX)
}

impl Meta for Memory {
    fn volumes(&self) -> Result<Vec<VolumeId>> {
        Ok(self
            .0
            .read()
            .volumes
            .all()
            .map(|((volume, ()), _)| *volume)
            .collect())
    }

    fn write(
        &self,
        volume: VolumeId,
        durability: Durability,
        work: &mut dyn FnMut(&mut dyn Write) -> bool,
    ) -> Result<()> {
        let mut state = self.0.write();
        each_table!(state, table => table.begin());
        if !work(&mut Txn {
            state: &mut *state,
            volume,
        }) {
            each_table!(state, table => table.roll_back());
        } else if durability == Durability::Now {
            each_table!(state, table => table.make_durable());
        }
        Ok(())
    }

    fn read(&self, volume: VolumeId, work: &mut dyn FnMut(&dyn Read)) -> Result<()> {
        work(&Txn {
            state: &*self.0.read(),
            volume,
        });
        Ok(())
    }
}

/// The shortest name in the order of bytes, to begin with. It names nothing that is before it.
fn first_name() -> Name {
    Name::new(&[1]).expect("one byte that is no slash is a name")
}
