//! The changes of a transaction in memory.

use super::{MemoryTables, MemoryTransaction, parts_of};
use crate::error::Result;
use crate::meta::{ReadTransaction as _, WriteTransaction};
use crate::row::{
    BatchRow, CommitRow, ConflictRow, EntryRow, ExtentRow, NameTally, ObjectRow, PastExtent,
    Ranges, ReplicaRow, TokenRow, VolumeRow, XattrRow,
};
use teal_types::{BatchId, CommitSeq, HardLink, LeaseNo, ObjectNo, ReplicaNo};

impl WriteTransaction for MemoryTransaction<&mut MemoryTables> {
    fn put_volume(&mut self, row: &VolumeRow) -> Result<()> {
        self.state
            .volumes
            .set_row((self.volume, ()), Some(row.clone()));
        Ok(())
    }

    fn put_setting(&mut self, key: &str, value: &[u8]) -> Result<()> {
        self.state
            .settings
            .set_row((self.volume, key.to_owned()), Some(value.to_vec()));
        Ok(())
    }

    fn put_object(&mut self, object: ObjectNo, row: Option<&ObjectRow>) -> Result<()> {
        self.state
            .objects
            .set_row((self.volume, object), row.cloned());
        Ok(())
    }

    fn put_entry(&mut self, link: &HardLink, row: Option<EntryRow>) -> Result<()> {
        let key = (self.volume, link.clone());
        // The index by object follows the entries.
        if let Some(old) = self.state.entries.get(&key).copied() {
            self.state
                .links
                .set_row((self.volume, (old.object, link.clone())), None);
        }
        if let Some(row) = row {
            self.state
                .links
                .set_row((self.volume, (row.object, link.clone())), Some(()));
        }
        self.state.entries.set_row(key, row);
        Ok(())
    }

    fn put_xattr(&mut self, object: ObjectNo, name: &[u8], row: Option<&XattrRow>) -> Result<()> {
        self.state
            .xattrs
            .set_row((self.volume, (object, name.to_vec())), row.cloned());
        Ok(())
    }

    fn put_extent(&mut self, object: ObjectNo, extent: &ExtentRow) -> Result<()> {
        self.state
            .extents
            .set_row((self.volume, (object, extent.offset)), Some(*extent));
        Ok(())
    }

    fn drop_extent(&mut self, object: ObjectNo, offset: u64) -> Result<()> {
        self.state
            .extents
            .set_row((self.volume, (object, offset)), None);
        Ok(())
    }

    fn drop_content(&mut self, object: ObjectNo) -> Result<()> {
        // Keys begin with the object: everything up to the next one belongs to it.
        let next = ObjectNo::new(object.get() + 1);
        let extents = self
            .state
            .extents
            .range((self.volume, (object, 0))..(self.volume, (next, 0)));
        let extents: Vec<_> = extents.map(|(key, _)| *key).collect();
        extents
            .into_iter()
            .for_each(|key| self.state.extents.set_row(key, None));
        let xattrs = (self.volume, (object, Vec::new()))..(self.volume, (next, Vec::new()));
        let xattrs: Vec<_> = self
            .state
            .xattrs
            .range(xattrs)
            .map(|(key, _)| key.clone())
            .collect();
        xattrs
            .into_iter()
            .for_each(|key| self.state.xattrs.set_row(key, None));
        Ok(())
    }

    fn remember_object(
        &mut self,
        object: ObjectNo,
        seq: CommitSeq,
        row: Option<&ObjectRow>,
    ) -> Result<()> {
        self.state
            .past_objects
            .set_row((self.volume, (object, seq)), Some(row.cloned()));
        Ok(())
    }

    fn remember_entry(
        &mut self,
        link: &HardLink,
        seq: CommitSeq,
        object: Option<ObjectNo>,
    ) -> Result<()> {
        if let Some(object) = object {
            self.state
                .past_links
                .set_row((self.volume, (object, seq, link.clone())), Some(()));
        }
        self.state.past_names.set_row(
            (self.volume, (link.dir, seq, link.name.clone())),
            Some(object),
        );
        self.state
            .past_entries
            .set_row((self.volume, (link.clone(), seq)), Some(object));
        Ok(())
    }

    fn remember_names(&mut self, dir: ObjectNo, seq: CommitSeq) -> Result<()> {
        // The snapshot holds the live names at this moment.
        let names = self.entries_after(dir, None, usize::MAX)?;
        let names = names
            .into_iter()
            .map(|(name, entry)| (name, entry.object))
            .collect();
        self.state
            .snapshots
            .set_row((self.volume, (dir, seq)), Some(names));
        Ok(())
    }

    fn put_tally(&mut self, dir: ObjectNo, tally: NameTally) -> Result<()> {
        self.state.tallies.set_row((self.volume, dir), Some(tally));
        Ok(())
    }

    fn remember_xattr(
        &mut self,
        object: ObjectNo,
        name: &[u8],
        seq: CommitSeq,
        value: Option<&[u8]>,
    ) -> Result<()> {
        let key = (self.volume, (object, name.to_vec(), seq));
        self.state
            .past_xattrs
            .set_row(key, Some(value.map(<[u8]>::to_vec)));
        Ok(())
    }

    fn remember_extent(&mut self, object: ObjectNo, extent: &PastExtent) -> Result<()> {
        self.state.past_extents.set_row(
            (self.volume, (object, extent.seq, extent.offset)),
            Some(*extent),
        );
        Ok(())
    }

    fn add_commit(&mut self, seq: CommitSeq, row: &CommitRow) -> Result<()> {
        self.state.commits.set_row((self.volume, seq), Some(*row));
        Ok(())
    }

    fn add_change(&mut self, seq: CommitSeq, object: ObjectNo, ranges: &Ranges) -> Result<()> {
        self.state
            .changes
            .set_row((self.volume, (seq, object)), Some(ranges.clone()));
        Ok(())
    }

    fn add_batch(&mut self, batch: BatchId, row: &BatchRow) -> Result<()> {
        self.state.batches.set_row((self.volume, batch), Some(*row));
        Ok(())
    }

    fn stage_part(&mut self, batch: BatchId, part: u32, bytes: &[u8]) -> Result<()> {
        self.state
            .staged
            .set_row((self.volume, (batch, part)), Some(bytes.to_vec()));
        Ok(())
    }

    fn drop_staged(&mut self, batch: BatchId) -> Result<()> {
        let range = parts_of(self.volume, batch.replica);
        let parts = self.state.staged.range(range).map(|(key, _)| *key);
        // Parts of other incarnations can never be committed any more.
        let old: Vec<_> = parts
            .filter(|(_, (of, _))| of.incarnation != batch.incarnation || of.batch <= batch.batch)
            .collect();
        old.into_iter()
            .for_each(|key| self.state.staged.set_row(key, None));
        Ok(())
    }

    fn put_replica(&mut self, replica: ReplicaNo, row: &ReplicaRow) -> Result<()> {
        self.state
            .replicas
            .set_row((self.volume, replica), Some(row.clone()));
        Ok(())
    }

    fn put_token(&mut self, hash: &[u8; 32], row: &TokenRow) -> Result<()> {
        self.state.tokens.set_row((self.volume, *hash), Some(*row));
        Ok(())
    }

    fn put_lease(&mut self, lease: LeaseNo, replica: ReplicaNo) -> Result<()> {
        self.state
            .leases
            .set_row((self.volume, lease), Some(replica));
        Ok(())
    }

    fn put_conflict(&mut self, id: u64, row: Option<&ConflictRow>) -> Result<()> {
        self.state
            .conflicts
            .set_row((self.volume, id), row.cloned());
        Ok(())
    }
}
