//! The contract of stored metadata: transactions on one volume at a time.
//!
//! # Guarantees
//! 1. Every method is about the volume of its transaction; volume 0 holds what belongs to the
//!    server as a whole (settings).
//! 2. Numbers are below 2^63; the caller has seen to it. A larger one to look for is found nowhere.
//! 3. Lists come in ascending order of their keys, names by their bytes.

use crate::MetaError;
use crate::error::Result;
use crate::row::{
    BatchRow, CommitRow, ConflictRow, EntryRow, ExtentRow, NameTally, ObjectRow, PastExtent,
    PastNames, PastPlace, PastXattr, Ranges, ReplicaRow, StagedPart, TokenRow, VolumeRow, XattrRow,
};
use std::ops::Range;
use teal_types::{
    Author, BatchId, BatchNo, ChunkId, CommitSeq, HardLink, LeaseNo, Name, ObjectNo, ReplicaNo,
    VolumeId,
};

/// The moment at which a transaction must be durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommitDurability {
    /// Durable before the answer.
    Now,
    /// Durable with the next transaction that is; until then a power cut may undo it, and
    /// everything written after it.
    Soon,
}

/// Stored metadata of many volumes. Used from many threads: one writes at a time, others read what
/// was before.
pub trait MetaStore: Send + Sync {
    /// Returns every volume.
    ///
    /// # Errors
    /// [`MetaError`].
    fn volumes(&self) -> Result<Vec<VolumeId>>;

    /// Runs one transaction that may change things. `work` is called once, unless there is an error
    /// before; it returns whether to commit. Use [`write()`].
    ///
    /// # Errors
    /// [`MetaError`]; nothing has happened.
    fn write(
        &self,
        volume: VolumeId,
        durability: CommitDurability,
        work: &mut dyn FnMut(&mut dyn WriteTransaction) -> bool,
    ) -> Result<()>;

    /// Runs one transaction that reads. `work` is called once, unless there is an error before. Use
    /// [`read()`].
    ///
    /// # Errors
    /// [`MetaError`].
    fn read(&self, volume: VolumeId, work: &mut dyn FnMut(&dyn ReadTransaction)) -> Result<()>;

    /// Checks the structure of the store itself while others use it, and returns what is wrong, in
    /// words; an empty list says that every page and every index was looked at and fits.
    ///
    /// # Errors
    /// [`MetaError`], if it cannot be read at all.
    fn check_integrity(&self) -> Result<Vec<String>>;
}

/// Reads one state of a volume.
///
/// # Errors
/// The errors of `work`, and [`MetaError`] as the caller's error.
pub fn read<T, E: From<MetaError>>(
    meta: &dyn MetaStore,
    volume: VolumeId,
    work: impl FnOnce(&dyn ReadTransaction) -> std::result::Result<T, E>,
) -> std::result::Result<T, E> {
    // The trait takes a closure without types, so that it can be used as an object; the result
    // leaves through a variable.
    let (mut work, mut outcome) = (Some(work), None);
    meta.read(volume, &mut |txn| {
        outcome = work.take().map(|work| work(txn))
    })?;
    outcome.expect("a transaction without an error calls its work once")
}

fn write_with<T, E: From<MetaError>>(
    meta: &dyn MetaStore,
    volume: VolumeId,
    durability: CommitDurability,
    work: impl FnOnce(&mut dyn WriteTransaction) -> std::result::Result<T, E>,
) -> std::result::Result<T, E> {
    let (mut work, mut outcome) = (Some(work), None);
    meta.write(volume, durability, &mut |txn| {
        outcome = work.take().map(|work| work(txn));
        outcome.as_ref().is_some_and(std::result::Result::is_ok)
    })?;
    outcome.expect("a transaction without an error calls its work once")
}

/// Changes a volume, durably before it returns; not at all if `work` fails.
///
/// # Errors
/// The errors of `work`, and [`MetaError`] as the caller's error.
pub fn write<T, E: From<MetaError>>(
    meta: &dyn MetaStore,
    volume: VolumeId,
    work: impl FnOnce(&mut dyn WriteTransaction) -> std::result::Result<T, E>,
) -> std::result::Result<T, E> {
    write_with(meta, volume, CommitDurability::Now, work)
}

/// Changes a volume as [`write()`] does, but durably only with the next transaction that is
/// durable.
///
/// # Errors
/// As [`write()`].
pub fn write_soon<T, E: From<MetaError>>(
    meta: &dyn MetaStore,
    volume: VolumeId,
    work: impl FnOnce(&mut dyn WriteTransaction) -> std::result::Result<T, E>,
) -> std::result::Result<T, E> {
    write_with(meta, volume, CommitDurability::Soon, work)
}

/// The reads of a transaction. Every method may fail with [`MetaError`].
#[allow(clippy::missing_errors_doc, reason = "said once, above")]
pub trait ReadTransaction {
    /// Returns the row of the volume itself.
    fn volume(&self) -> Result<Option<VolumeRow>>;
    /// Returns a setting.
    fn setting(&self, key: &str) -> Result<Option<Vec<u8>>>;

    /// Returns a live object.
    fn object(&self, object: ObjectNo) -> Result<Option<ObjectRow>>;
    /// Returns live objects behind `after`, at most `limit`.
    fn objects_after(&self, after: ObjectNo, limit: usize) -> Result<Vec<ObjectNo>>;
    /// Returns the object that a live name leads to.
    fn entry(&self, link: &HardLink) -> Result<Option<EntryRow>>;
    /// Returns live names of a directory behind `after`, at most `limit`.
    fn entries_after(
        &self,
        dir: ObjectNo,
        after: Option<&Name>,
        limit: usize,
    ) -> Result<Vec<(Name, EntryRow)>>;
    /// Returns all live names of an object, with the commits that put them there.
    fn links_of(&self, object: ObjectNo) -> Result<Vec<(HardLink, CommitSeq)>>;
    /// Returns all live extended attributes of an object.
    fn xattrs(&self, object: ObjectNo) -> Result<Vec<(Vec<u8>, XattrRow)>>;
    /// Returns the live extents of an object that overlap the range, whole.
    fn extents(&self, object: ObjectNo, range: Range<u64>) -> Result<Vec<ExtentRow>>;

    /// Returns the newest row of an object's history at or before `at`: the commit that made it,
    /// and the state (`None` if the object was gone).
    fn object_at(
        &self,
        object: ObjectNo,
        at: CommitSeq,
    ) -> Result<Option<(CommitSeq, Option<ObjectRow>)>>;
    /// Returns an object's history behind `after`, at most `limit` rows.
    fn object_history(
        &self,
        object: ObjectNo,
        after: CommitSeq,
        limit: usize,
    ) -> Result<Vec<(CommitSeq, Option<ObjectRow>)>>;
    /// Returns the newest row of a name's history at or before `at`: the object it led to, or none.
    fn entry_at(
        &self,
        link: &HardLink,
        at: CommitSeq,
    ) -> Result<Option<(CommitSeq, Option<ObjectNo>)>>;
    /// Returns every name the object has ever had up to `at`, each once.
    fn names_ever(&self, object: ObjectNo, at: CommitSeq) -> Result<Vec<HardLink>>;
    /// Returns the names of a directory after the commit `at`: those of its newest snapshot at or
    /// before that, with the changes since.
    fn names_at(&self, dir: ObjectNo, at: CommitSeq) -> Result<PastNames>;
    /// Returns the last counts of a directory's names; zeros if nothing was counted.
    fn name_tally(&self, dir: ObjectNo) -> Result<NameTally>;
    /// Returns the newest row at or before `at` of each extended attribute the object has ever had.
    fn xattrs_at(&self, object: ObjectNo, at: CommitSeq) -> Result<Vec<PastXattr>>;
    /// Returns every row of an object's content history at or before `at` that overlaps the range,
    /// whole, by commit.
    fn extents_at(
        &self,
        object: ObjectNo,
        range: Range<u64>,
        at: CommitSeq,
    ) -> Result<Vec<PastExtent>>;

    /// Returns chunks that content history names, in an order that stays, at most `limit` rows,
    /// behind `after`; a chunk comes as often as it is named. Live content is in history too.
    fn named_chunks(
        &self,
        after: Option<PastPlace>,
        limit: usize,
    ) -> Result<Vec<(PastPlace, ChunkId)>>;

    /// Returns a commit.
    fn commit(&self, seq: CommitSeq) -> Result<Option<CommitRow>>;
    /// Shows `visit` the objects that the commits in `(after, to]` changed, commit by commit.
    fn visit_changes(
        &self,
        after: CommitSeq,
        to: CommitSeq,
        visit: &mut dyn FnMut(CommitSeq, ObjectNo, Ranges),
    ) -> Result<()>;
    /// Returns a committed batch.
    fn batch(&self, batch: BatchId) -> Result<Option<BatchRow>>;
    /// Returns the highest batch of an author within the history up to `to`.
    fn last_batch(&self, author: Author, to: CommitSeq) -> Result<BatchNo>;
    /// Returns the parts that a replica has staged.
    fn staged_parts(&self, replica: ReplicaNo) -> Result<Vec<StagedPart>>;
    /// Returns the bytes of a staged part.
    fn staged_part(&self, batch: BatchId, part: u32) -> Result<Option<Vec<u8>>>;

    /// Returns a replica.
    fn replica(&self, replica: ReplicaNo) -> Result<Option<ReplicaRow>>;
    /// Returns all replicas.
    fn replicas(&self) -> Result<Vec<(ReplicaNo, ReplicaRow)>>;
    /// Returns a token by its hash.
    fn token(&self, hash: &[u8; 32]) -> Result<Option<TokenRow>>;
    /// Returns the replica that has a lease.
    fn lease(&self, lease: LeaseNo) -> Result<Option<ReplicaNo>>;
    /// Returns a conflict that is not resolved.
    fn conflict(&self, id: u64) -> Result<Option<ConflictRow>>;
    /// Returns conflicts that are not resolved, behind `after`, at most `limit`.
    fn conflicts_after(&self, after: u64, limit: usize) -> Result<Vec<(u64, ConflictRow)>>;
}

/// The changes of a transaction. Every method may fail with [`MetaError`]. Rows are added to
/// history, and never removed from it.
#[allow(clippy::missing_errors_doc, reason = "said once, above")]
pub trait WriteTransaction: ReadTransaction {
    /// Sets the volume's own row.
    fn put_volume(&mut self, row: &VolumeRow) -> Result<()>;
    /// Sets a setting.
    fn put_setting(&mut self, key: &str, value: &[u8]) -> Result<()>;

    /// Sets a live object's row, or removes it.
    fn put_object(&mut self, object: ObjectNo, row: Option<&ObjectRow>) -> Result<()>;
    /// Sets the object that a live name leads to, or removes the name.
    fn put_entry(&mut self, link: &HardLink, row: Option<EntryRow>) -> Result<()>;
    /// Sets a live extended attribute, or removes it.
    fn put_xattr(&mut self, object: ObjectNo, name: &[u8], row: Option<&XattrRow>) -> Result<()>;
    /// Sets a live extent; none overlaps it.
    fn put_extent(&mut self, object: ObjectNo, extent: &ExtentRow) -> Result<()>;
    /// Removes the live extent that begins at `offset`.
    fn drop_extent(&mut self, object: ObjectNo, offset: u64) -> Result<()>;
    /// Removes all live extents and extended attributes of an object.
    fn drop_content(&mut self, object: ObjectNo) -> Result<()>;

    /// Adds a row to an object's history.
    fn remember_object(
        &mut self,
        object: ObjectNo,
        seq: CommitSeq,
        row: Option<&ObjectRow>,
    ) -> Result<()>;
    /// Adds a row to a name's history.
    fn remember_entry(
        &mut self,
        link: &HardLink,
        seq: CommitSeq,
        object: Option<ObjectNo>,
    ) -> Result<()>;
    /// Adds a snapshot of a directory: its live names now are those after the commit `seq`, in
    /// which all its changes up to now lie.
    fn remember_names(&mut self, dir: ObjectNo, seq: CommitSeq) -> Result<()>;
    /// Sets the counts of a directory's names.
    fn put_tally(&mut self, dir: ObjectNo, tally: NameTally) -> Result<()>;
    /// Adds a row to an extended attribute's history.
    fn remember_xattr(
        &mut self,
        object: ObjectNo,
        name: &[u8],
        seq: CommitSeq,
        value: Option<&[u8]>,
    ) -> Result<()>;
    /// Adds a row to content history; the rows of one commit do not overlap.
    fn remember_extent(&mut self, object: ObjectNo, extent: &PastExtent) -> Result<()>;

    /// Adds a commit.
    fn add_commit(&mut self, seq: CommitSeq, row: &CommitRow) -> Result<()>;
    /// Adds an object that a commit changed.
    fn add_change(&mut self, seq: CommitSeq, object: ObjectNo, ranges: &Ranges) -> Result<()>;
    /// Adds a committed batch.
    fn add_batch(&mut self, batch: BatchId, row: &BatchRow) -> Result<()>;
    /// Stages a part, in the place of one of the same number.
    fn stage_part(&mut self, batch: BatchId, part: u32, bytes: &[u8]) -> Result<()>;
    /// Drops what a replica has staged in the incarnation of `batch` up to that batch, and in every
    /// other incarnation.
    fn drop_staged(&mut self, batch: BatchId) -> Result<()>;

    /// Sets a replica.
    fn put_replica(&mut self, replica: ReplicaNo, row: &ReplicaRow) -> Result<()>;
    /// Sets a token.
    fn put_token(&mut self, hash: &[u8; 32], row: &TokenRow) -> Result<()>;
    /// Gives a lease to a replica.
    fn put_lease(&mut self, lease: LeaseNo, replica: ReplicaNo) -> Result<()>;
    /// Sets a conflict, or removes it as resolved.
    fn put_conflict(&mut self, id: u64, row: Option<&ConflictRow>) -> Result<()>;
}
