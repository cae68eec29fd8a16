//! The tree while a batch is carried out on it: what it was before, and what it is now.
//!
//! # Guarantees
//! 1. Names, extents and extended attributes are changed in the transaction at once, objects at the
//!    end; reading shows the changes.
//! 2. Whatever changes is noted with its state before the batch, so that history gets one row for
//!    each, of the state after it.

use crate::recent::ChangedRow;
use crate::refusal::Outcome;
use crate::rules::changed_ranges::ChangedRanges;
use crate::seeded::{Bug, bug};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use teal_chunk::ChunkStore;
use teal_meta::{CommitRow, ConflictRow, EntryRow, ObjectRow, VolumeRow, WriteTransaction};
use teal_proto::ConflictKind;
use teal_types::{Author, CommitSeq, HardLink, ObjectNo, Timestamp};

/// Later than any commit.
pub(super) const END_OF_TIME: CommitSeq = CommitSeq::new(i64::MAX as u64);

/// An object the batch has to do with.
#[derive(Debug, Clone)]
pub(super) struct LoadedObject {
    pub(super) before: Option<ObjectRow>,
    pub(super) now: Option<ObjectRow>,
}

/// One batch being carried out.
pub(crate) struct BatchExecution<'a> {
    pub(super) txn: &'a mut dyn WriteTransaction,
    /// Content, of which merging appends looks at a little.
    pub(super) chunks: &'a ChunkStore,
    pub(super) volume: VolumeRow,
    pub(super) author: Author,
    pub(super) device: String,
    /// The commit this becomes.
    pub(super) seq: CommitSeq,
    /// Its time.
    pub(super) now: Timestamp,
    /// At random: where a free lease is looked for.
    pub(super) draw: u32,
    pub(super) objects: HashMap<ObjectNo, LoadedObject>,
    /// Names that have been changed, and where they led before.
    pub(super) entries: BTreeMap<HardLink, Option<ObjectNo>>,
    /// Extended attributes that have been changed, with the values before.
    pub(super) xattrs: BTreeMap<(ObjectNo, Vec<u8>), Option<Vec<u8>>>,
    /// The ranges in which content has changed.
    pub(super) changed_ranges: BTreeMap<ObjectNo, ChangedRanges>,
    /// Objects that count as changed, even if their rows are as before.
    pub(super) touched: BTreeSet<ObjectNo>,
    /// Objects with content that may differ anywhere from that of some replica: they live again, or
    /// have lost a change.
    pub(super) changed_anywhere: BTreeSet<ObjectNo>,
    /// The commit up to which the author had seen each object that the batch changes: its content,
    /// or the rest of its state if only that changes.
    pub(super) author_seen: HashMap<ObjectNo, CommitSeq>,
    /// Which object takes the content that came too late for another.
    pub(super) conflict_copies: HashMap<ObjectNo, ObjectNo>,
    /// Objects for which the late content equals the present one.
    pub(super) confirmed: BTreeSet<ObjectNo>,
    /// The objects that have changed, each with the directories in which it lay before and lies at
    /// the end.
    pub(super) changed_places: BTreeSet<ChangedRow>,
    pub(super) conflicts: Vec<ConflictRow>,
    /// Directories that lie above others, at any distance; forgotten whenever a name goes.
    pub(super) ancestors: HashMap<ObjectNo, ObjectNo>,
    /// Directories passed on the way up, to see that none is put into itself.
    pub(super) ancestor_steps: u64,
}

impl<'a> BatchExecution<'a> {
    /// Begins the commit after the newest one of a volume. `author` has the name of its device;
    /// `clock` and `draw` are the time and a number drawn at random.
    pub(super) fn new(
        txn: &'a mut dyn WriteTransaction,
        chunks: &'a ChunkStore,
        volume: VolumeRow,
        (author, device): (Author, String),
        (clock, draw): (Timestamp, u32),
    ) -> Self {
        Self {
            author,
            device,
            // Commits are numbered without gaps.
            seq: CommitSeq::new(volume.head.get() + 1),
            // Time in history never goes back, even if the clock does.
            now: clock.max(volume.time),
            draw,
            volume,
            txn,
            chunks,
            objects: HashMap::new(),
            entries: BTreeMap::new(),
            xattrs: BTreeMap::new(),
            changed_ranges: BTreeMap::new(),
            touched: BTreeSet::new(),
            changed_anywhere: BTreeSet::new(),
            author_seen: HashMap::new(),
            conflict_copies: HashMap::new(),
            confirmed: BTreeSet::new(),
            changed_places: BTreeSet::new(),
            conflicts: Vec::new(),
            ancestors: HashMap::new(),
            ancestor_steps: 0,
        }
    }
}

impl BatchExecution<'_> {
    pub(super) fn load_object(&mut self, object: ObjectNo) -> Outcome<&mut LoadedObject> {
        if !self.objects.contains_key(&object) {
            // The state before the batch is kept beside the present one, so that history gets one
            // row.
            let row = self.txn.object(object)?;
            self.objects.insert(
                object,
                LoadedObject {
                    before: row.clone(),
                    now: row,
                },
            );
        }
        Ok(self.objects.entry(object).or_insert(LoadedObject {
            before: None,
            now: None,
        }))
    }

    /// Returns the object's present state, if it is live.
    pub(super) fn object(&mut self, object: ObjectNo) -> Outcome<Option<&mut ObjectRow>> {
        Ok(self.load_object(object)?.now.as_mut())
    }

    pub(super) fn is_live(&mut self, object: ObjectNo) -> Outcome<bool> {
        Ok(self.object(object)?.is_some())
    }

    /// Returns whether this very batch has removed it.
    pub(super) fn is_removed_here(&mut self, object: ObjectNo) -> Outcome<bool> {
        let loaded = self.load_object(object)?;
        Ok(loaded.before.is_some() && loaded.now.is_none())
    }

    pub(super) fn is_dir(&mut self, object: ObjectNo) -> Outcome<bool> {
        Ok(self.object(object)?.is_some_and(|row| row.kind.is_dir()))
    }

    pub(super) fn set_object(&mut self, object: ObjectNo, row: Option<ObjectRow>) -> Outcome<()> {
        self.load_object(object)?.now = row;
        self.touched.insert(object);
        Ok(())
    }

    /// Returns whether the author of the batch, which had applied history up to `base`, has not
    /// seen the commit. An author has seen its own commits.
    pub(super) fn is_unseen(&self, seq: CommitSeq, base: CommitSeq) -> Outcome<bool> {
        // A batch knows its own commit.
        if seq <= base || seq == self.seq {
            return Ok(false);
        }
        Ok(bug(Bug::OwnUnseen) || !self.is_own_commit(seq)?)
    }

    /// Returns whether the author of this batch has sent the commit.
    pub(super) fn is_own_commit(&self, seq: CommitSeq) -> Outcome<bool> {
        let sent_by = |commit: CommitRow| commit.batch.author();
        Ok(self.txn.commit(seq)?.map(sent_by) == Some(self.author))
    }

    /// Returns whether another has changed it since its author looked, but for its names.
    pub(super) fn is_changed_since(&mut self, object: ObjectNo, base: CommitSeq) -> Outcome<bool> {
        let Some(row) = self.object(object)? else {
            return Ok(false);
        };
        let mut seqs = vec![row.attr_seq, row.data_seq];
        // Extended attributes are looked through only if one of them is newer.
        if row.xattr_seq > base {
            seqs.extend(
                self.txn
                    .xattrs_at(object, END_OF_TIME)?
                    .into_iter()
                    .map(|(_, seq, _)| seq),
            );
        }
        for seq in seqs {
            if self.is_unseen(seq, base)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn set_entry(
        &mut self,
        link: &HardLink,
        object: Option<ObjectNo>,
        time: Timestamp,
    ) -> Outcome<()> {
        let before = self.txn.entry(link)?.map(|entry| entry.object);
        self.entries.entry(link.clone()).or_insert(before);
        self.txn.put_entry(
            link,
            object.map(|object| EntryRow {
                object,
                seq: self.seq,
            }),
        )?;
        let seq = self.seq;
        // Both objects, the one that had the name and the one that gets it, have other names now.
        for object in before.into_iter().chain(object) {
            if let Some(row) = self.object(object)? {
                row.link_seq = seq;
                row.attributes.ctime = row.attributes.ctime.max(time);
            }
            self.touched.insert(object);
        }
        if let Some(dir) = self.object(link.dir)? {
            dir.attributes.mtime = dir.attributes.mtime.max(time);
            dir.attributes.ctime = dir.attributes.ctime.max(time);
        }
        self.touched.insert(link.dir);
        Ok(())
    }

    /// Puts a name there; it leads nowhere yet.
    pub(super) fn add_name(
        &mut self,
        link: &HardLink,
        object: ObjectNo,
        time: Timestamp,
    ) -> Outcome<()> {
        self.set_entry(link, Some(object), time)
    }

    /// Takes a name away. The object lives on.
    pub(super) fn remove_name(&mut self, link: &HardLink, time: Timestamp) -> Outcome<()> {
        // A remembered ancestor may have been found through this name.
        self.ancestors.clear();
        self.set_entry(link, None, time)
    }

    /// Removes an object that has no names.
    pub(super) fn remove_object(&mut self, object: ObjectNo) -> Outcome<()> {
        // History keeps the content; only the live rows go.
        debug_assert_ne!(
            object,
            ObjectNo::ROOT,
            "the root has no name that could be removed"
        );
        self.txn.drop_content(object)?;
        self.changed_ranges.remove(&object);
        self.xattrs.retain(|(of, _), _| *of != object);
        self.set_object(object, None)
    }

    /// Returns where a name leads now.
    pub(super) fn object_named(&self, link: &HardLink) -> Outcome<Option<ObjectNo>> {
        Ok(self.txn.entry(link)?.map(|entry| entry.object))
    }

    /// Notes a conflict that is shown to people. The object counts as changed, so that the author
    /// learns its real state.
    pub(super) fn note_conflict(
        &mut self,
        kind: ConflictKind,
        object: ObjectNo,
        copy: Option<ObjectNo>,
        lost: String,
    ) {
        // The author has another state than the server now, so the object is told again.
        self.touched.insert(object);
        let device = self.device.clone();
        self.conflicts.push(ConflictRow {
            kind,
            seq: self.seq,
            time: self.now,
            device,
            object,
            copy,
            lost,
        });
    }
}
