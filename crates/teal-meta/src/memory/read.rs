//! The reads of a transaction in memory.

use super::{MemoryTables, MemoryTransaction, PartKey, first_name, parts_of};
use crate::error::Result;
use crate::meta::ReadTransaction;
use crate::row::{
    BatchRow, CommitRow, ConflictRow, EntryRow, ExtentRow, NameTally, ObjectRow, PastExtent,
    PastNames, PastPlace, PastXattr, Ranges, ReplicaRow, StagedPart, TokenRow, VolumeRow, XattrRow,
};
use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Included, Unbounded};
use std::ops::Range;
use teal_types::{
    Author, BatchId, BatchNo, ChunkId, CommitSeq, HardLink, LeaseNo, Name, ObjectNo, ReplicaNo,
};

/// The position before the first commit.
const ZERO: CommitSeq = CommitSeq::new(0);

fn next(object: ObjectNo) -> ObjectNo {
    ObjectNo::new(object.get().saturating_add(1))
}

fn overlaps(offset: u64, len: u64, range: &Range<u64>) -> bool {
    offset < range.end && offset.saturating_add(len) > range.start
}

impl<S: Borrow<MemoryTables>> ReadTransaction for MemoryTransaction<S> {
    fn volume(&self) -> Result<Option<VolumeRow>> {
        Ok(self.state.borrow().volumes.get(&(self.volume, ())).cloned())
    }

    fn setting(&self, key: &str) -> Result<Option<Vec<u8>>> {
        Ok(self
            .state
            .borrow()
            .settings
            .get(&(self.volume, key.to_owned()))
            .cloned())
    }

    fn object(&self, of: ObjectNo) -> Result<Option<ObjectRow>> {
        Ok(self.state.borrow().objects.get(&(self.volume, of)).cloned())
    }

    fn objects_after(&self, after: ObjectNo, limit: usize) -> Result<Vec<ObjectNo>> {
        let rows = self
            .state
            .borrow()
            .objects
            .range((Excluded((self.volume, after)), Unbounded));
        let ours = rows.take_while(|((volume, _), _)| *volume == self.volume);
        Ok(ours.map(|((_, object), _)| *object).take(limit).collect())
    }

    fn entry(&self, link: &HardLink) -> Result<Option<EntryRow>> {
        Ok(self
            .state
            .borrow()
            .entries
            .get(&(self.volume, link.clone()))
            .copied())
    }

    fn entries_after(
        &self,
        dir: ObjectNo,
        after: Option<&Name>,
        limit: usize,
    ) -> Result<Vec<(Name, EntryRow)>> {
        let name = after.cloned().unwrap_or_else(first_name);
        let first = (self.volume, HardLink { dir, name });
        // Without `after` the shortest name itself belongs to the list.
        let first = if after.is_some() {
            Excluded(first)
        } else {
            Included(first)
        };
        let rows = self.state.borrow().entries.range((first, Unbounded));
        let ours = rows.take_while(|((volume, link), _)| *volume == self.volume && link.dir == dir);
        Ok(ours
            .map(|((_, link), row)| (link.name.clone(), *row))
            .take(limit)
            .collect())
    }

    fn links_of(&self, of: ObjectNo) -> Result<Vec<(HardLink, CommitSeq)>> {
        let state = self.state.borrow();
        let first = (
            self.volume,
            (
                of,
                HardLink {
                    dir: ObjectNo::new(0),
                    name: first_name(),
                },
            ),
        );
        let rows = state.links.range(first..).map(|(key, ())| key);
        let ours = rows.take_while(|(volume, (object, _))| *volume == self.volume && *object == of);
        let with_seq = ours.filter_map(|(volume, (_, link))| {
            state
                .entries
                .get(&(*volume, link.clone()))
                .map(|entry| (link.clone(), entry.seq))
        });
        Ok(with_seq.collect())
    }

    fn xattrs(&self, of: ObjectNo) -> Result<Vec<(Vec<u8>, XattrRow)>> {
        let range = (self.volume, (of, Vec::new()))..(self.volume, (next(of), Vec::new()));
        let rows = self.state.borrow().xattrs.range(range);
        Ok(rows
            .map(|((_, (_, name)), row)| (name.clone(), row.clone()))
            .collect())
    }

    fn extents(&self, of: ObjectNo, range: Range<u64>) -> Result<Vec<ExtentRow>> {
        // An extent that covers the beginning starts at most one length before it.
        let first = range.start.saturating_sub(crate::EXTENT_MAX);
        let rows = self
            .state
            .borrow()
            .extents
            .range((self.volume, (of, first))..(self.volume, (of, range.end.max(first))));
        Ok(rows
            .map(|(_, row)| *row)
            .filter(|row| overlaps(row.offset, row.len, &range))
            .collect())
    }

    fn object_at(
        &self,
        of: ObjectNo,
        at: CommitSeq,
    ) -> Result<Option<(CommitSeq, Option<ObjectRow>)>> {
        let rows = self
            .state
            .borrow()
            .past_objects
            .range((self.volume, (of, ZERO))..=(self.volume, (of, at)));
        Ok(rows
            .map(|((_, (_, seq)), row)| (*seq, row.clone()))
            .next_back())
    }

    fn object_history(
        &self,
        of: ObjectNo,
        after: CommitSeq,
        limit: usize,
    ) -> Result<Vec<(CommitSeq, Option<ObjectRow>)>> {
        let range = (
            Excluded((self.volume, (of, after))),
            Excluded((self.volume, (next(of), ZERO))),
        );
        let rows = self.state.borrow().past_objects.range(range);
        Ok(rows
            .map(|((_, (_, seq)), row)| (*seq, row.clone()))
            .take(limit)
            .collect())
    }

    fn entry_at(
        &self,
        link: &HardLink,
        at: CommitSeq,
    ) -> Result<Option<(CommitSeq, Option<ObjectNo>)>> {
        let range = (self.volume, (link.clone(), ZERO))..=(self.volume, (link.clone(), at));
        let rows = self.state.borrow().past_entries.range(range);
        Ok(rows
            .map(|((_, (_, seq)), object)| (*seq, *object))
            .next_back())
    }

    fn names_ever(&self, of: ObjectNo, at: CommitSeq) -> Result<Vec<HardLink>> {
        let none = HardLink {
            dir: ObjectNo::new(0),
            name: first_name(),
        };
        let rows = self
            .state
            .borrow()
            .past_links
            .range((self.volume, (of, ZERO, none))..);
        let ours = rows.take_while(|((volume, (object, seq, _)), ())| {
            *volume == self.volume && *object == of && *seq <= at
        });
        let mut links: Vec<HardLink> = ours.map(|((_, (_, _, link)), ())| link.clone()).collect();
        links.sort_unstable();
        links.dedup();
        Ok(links)
    }

    fn names_at(&self, dir: ObjectNo, at: CommitSeq) -> Result<PastNames> {
        let state = self.state.borrow();
        let taken = (self.volume, (dir, ZERO))..=(self.volume, (dir, at));
        let snapshot = state.snapshots.range(taken).next_back();
        let since = snapshot.map_or(ZERO, |((_, (_, seq)), _)| *seq);
        let names = snapshot
            .into_iter()
            .flat_map(|(_, names)| names.iter().cloned());
        // Behind the last name of one commit is the first of the next.
        let key = |seq: CommitSeq| {
            (
                self.volume,
                (
                    dir,
                    CommitSeq::new(seq.get().saturating_add(1)),
                    first_name(),
                ),
            )
        };
        let changes = state.past_names.range(key(since)..key(at.max(since)));
        Ok(PastNames::new(
            names,
            changes.map(|((_, (_, _, name)), object)| (name.clone(), *object)),
        ))
    }

    fn name_tally(&self, dir: ObjectNo) -> Result<NameTally> {
        Ok(self
            .state
            .borrow()
            .tallies
            .get(&(self.volume, dir))
            .copied()
            .unwrap_or_default())
    }

    fn xattrs_at(&self, of: ObjectNo, at: CommitSeq) -> Result<Vec<PastXattr>> {
        let range =
            (self.volume, (of, Vec::new(), ZERO))..(self.volume, (next(of), Vec::new(), ZERO));
        let rows = self.state.borrow().past_xattrs.range(range);
        // Rows of one name come in the order of commits, so that later ones replace earlier ones.
        let newest: BTreeMap<Vec<u8>, (CommitSeq, Option<Vec<u8>>)> = rows
            .filter(|((_, (_, _, seq)), _)| *seq <= at)
            .map(|((_, (_, name, seq)), value)| (name.clone(), (*seq, value.clone())))
            .collect();
        Ok(newest
            .into_iter()
            .map(|(name, (seq, value))| (name, seq, value))
            .collect())
    }

    fn extents_at(
        &self,
        of: ObjectNo,
        range: Range<u64>,
        at: CommitSeq,
    ) -> Result<Vec<PastExtent>> {
        let all = (self.volume, (of, ZERO, 0))..=(self.volume, (of, at, u64::MAX));
        let rows = self.state.borrow().past_extents.range(all);
        Ok(rows
            .map(|(_, row)| *row)
            .filter(|row| overlaps(row.offset, row.len, &range))
            .collect())
    }

    fn named_chunks(
        &self,
        after: Option<PastPlace>,
        limit: usize,
    ) -> Result<Vec<(PastPlace, ChunkId)>> {
        let state = self.state.borrow();
        let behind = after.map_or(
            Included((self.volume, (ObjectNo::new(0), ZERO, 0))),
            |PastPlace {
                 object,
                 offset,
                 seq,
             }| { Excluded((self.volume, (object, seq, offset))) },
        );
        let last = (
            self.volume,
            (ObjectNo::new(u64::MAX), CommitSeq::new(u64::MAX), u64::MAX),
        );
        let rows = state.past_extents.range((behind, Included(last)));
        let named = rows.filter_map(|((_, (object, seq, offset)), row)| {
            let (chunk, _) = row.source?;
            Some((
                PastPlace {
                    object: *object,
                    offset: *offset,
                    seq: *seq,
                },
                chunk,
            ))
        });
        Ok(named.take(limit).collect())
    }

    fn commit(&self, of: CommitSeq) -> Result<Option<CommitRow>> {
        Ok(self.state.borrow().commits.get(&(self.volume, of)).copied())
    }

    fn visit_changes(
        &self,
        after: CommitSeq,
        to: CommitSeq,
        visit: &mut dyn FnMut(CommitSeq, ObjectNo, Ranges),
    ) -> Result<()> {
        let last = ObjectNo::new(u64::MAX);
        // An empty range with excluded bounds would panic.
        if after < to {
            let range = (
                Excluded((self.volume, (after, last))),
                Included((self.volume, (to, last))),
            );
            let rows = self.state.borrow().changes.range(range);
            rows.for_each(|((_, (seq, object)), ranges)| visit(*seq, *object, ranges.clone()));
        }
        Ok(())
    }

    fn batch(&self, batch: BatchId) -> Result<Option<BatchRow>> {
        Ok(self
            .state
            .borrow()
            .batches
            .get(&(self.volume, batch))
            .copied())
    }

    fn last_batch(&self, author: Author, to: CommitSeq) -> Result<BatchNo> {
        let first = author.batch(BatchNo::NONE);
        let last = author.batch(BatchNo::new(u64::MAX));
        let range = (self.volume, first)..=(self.volume, last);
        // Counters grow with commits: the last row within the history is the highest.
        let mut rows = self.state.borrow().batches.range(range).rev();
        Ok(rows
            .find(|(_, row)| row.seq <= to)
            .map_or(BatchNo::NONE, |((_, batch), _)| batch.batch))
    }

    fn staged_parts(&self, replica: ReplicaNo) -> Result<Vec<StagedPart>> {
        let rows = self
            .state
            .borrow()
            .staged
            .range(parts_of(self.volume, replica));
        let part = |(batch, part): PartKey, bytes: &Vec<u8>| StagedPart {
            incarnation: batch.incarnation,
            batch: batch.batch,
            part,
            len: bytes.len() as u64,
        };
        Ok(rows.map(|((_, key), bytes)| part(*key, bytes)).collect())
    }

    fn staged_part(&self, batch: BatchId, part: u32) -> Result<Option<Vec<u8>>> {
        Ok(self
            .state
            .borrow()
            .staged
            .get(&(self.volume, (batch, part)))
            .cloned())
    }

    fn replica(&self, replica: ReplicaNo) -> Result<Option<ReplicaRow>> {
        Ok(self
            .state
            .borrow()
            .replicas
            .get(&(self.volume, replica))
            .cloned())
    }

    fn replicas(&self) -> Result<Vec<(ReplicaNo, ReplicaRow)>> {
        let rows = self
            .state
            .borrow()
            .replicas
            .range((self.volume, ReplicaNo::new(0))..=(self.volume, ReplicaNo::new(u32::MAX)));
        Ok(rows
            .map(|((_, replica), row)| (*replica, row.clone()))
            .collect())
    }

    fn token(&self, hash: &[u8; 32]) -> Result<Option<TokenRow>> {
        Ok(self
            .state
            .borrow()
            .tokens
            .get(&(self.volume, *hash))
            .copied())
    }

    fn lease(&self, lease: LeaseNo) -> Result<Option<ReplicaNo>> {
        Ok(self
            .state
            .borrow()
            .leases
            .get(&(self.volume, lease))
            .copied())
    }

    fn conflict(&self, id: u64) -> Result<Option<ConflictRow>> {
        Ok(self
            .state
            .borrow()
            .conflicts
            .get(&(self.volume, id))
            .cloned())
    }

    fn conflicts_after(&self, after: u64, limit: usize) -> Result<Vec<(u64, ConflictRow)>> {
        let range = (
            Excluded((self.volume, after)),
            Included((self.volume, u64::MAX)),
        );
        // A range that excludes the greatest key at its beginning would panic.
        let rows = (after < u64::MAX).then(|| self.state.borrow().conflicts.range(range));
        Ok(rows
            .into_iter()
            .flatten()
            .map(|((_, id), row)| (*id, row.clone()))
            .take(limit)
            .collect())
    }
}
