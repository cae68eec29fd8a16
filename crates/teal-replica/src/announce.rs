//! A volume that lived alone gets a server: everything in it is to be sent.
//!
//! # Guarantees
//! 1. All objects are noted as new before anything is fetched or sent: nothing of the server's is
//!    taken for this volume's, no name that is here gives way to one from there, and no batch names
//!    what the server has never heard of.
//! 2. What a crash interrupts goes on where it was.

use super::{ObjectNote, Replica, SyncError};
use teal_log::{Cost, StoreError};
use teal_types::{CommitSeq, LEASE, ObjectNo};
use teal_volume::FsError;

/// Objects noted in one operation.
const STEP: usize = 256;
/// The commit with which the server makes a volume: an empty root.
const FOUNDED: CommitSeq = CommitSeq::new(1);

impl Replica {
    /// Makes a replica of a store that was none.
    pub(crate) fn begin_replica(&self, joins: bool) -> Result<(), FsError> {
        if joins && self.store().space().objects > 1 {
            return Err(FsError::NotEmpty);
        }
        if self.store().next_number() > LEASE {
            log::error!(
                "the volume has numbered more than {LEASE} objects: it cannot have a server"
            );
            return Err(FsError::NoSpace);
        }
        self.announce_root(joins)?;
        self.update_identity(|identity| {
            identity.announce = if joins { 0 } else { ObjectNo::ROOT.get() }
        })?;
        // The note itself must be there, even where nothing of it differs from none.
        let op = self.begin_operation(Cost::note())?;
        self.own_identity().keep(&op)?;
        drop(op);
        self.volume().sync()
    }

    /// The root is there on both sides: of one that joins the server's holds, otherwise this one's
    /// attributes do.
    fn announce_root(&self, joins: bool) -> Result<(), FsError> {
        let root = ObjectNo::ROOT;
        let cost = Cost::note()
            .with_note(4096)
            .with_head(self.store().head_bytes(root)?);
        let op = self.begin_operation(cost)?;
        let locked = op.lock(&[root])?;
        let mut note = ObjectNote {
            unlisted: joins,
            ..ObjectNote::default()
        };
        if !joins {
            note.dirty.attributes = Some(FOUNDED);
            note.dirty.xattrs = locked
                .xattr_names(root)
                .into_iter()
                .map(|name| (name, FOUNDED))
                .collect();
        }
        Ok(self.set_note(&locked, root, &note)?)
    }

    /// Notes everything there is as new, if that is still to be done.
    pub(crate) fn announce_some(&self) -> Result<(), SyncError> {
        let mut from = self.identity().announce;
        while from != 0 {
            let objects = self.store().objects_from(ObjectNo::new(from), STEP)?;
            let cost = Cost::note().with_notes(objects.len(), 64).freeing();
            {
                let op = self.begin_operation(cost)?;
                // Those of other leases have come from the server, or are noted already.
                for no in objects
                    .iter()
                    .filter(|no| **no != ObjectNo::ROOT && no.get() < LEASE)
                {
                    let locked = match op.lock(&[*no]) {
                        Err(StoreError::NotFound(_)) => continue,
                        locked => locked?,
                    };
                    let mut note = ObjectNote::default();
                    note.dirty.created = true;
                    self.set_note(&locked, *no, &note)?;
                }
            }
            from = objects.last().map_or(0, |last| last.get() + 1);
            self.update_identity(|identity| identity.announce = from)?;
            self.becomes_dirty(self.monotonic());
        }
        Ok(())
    }
}
