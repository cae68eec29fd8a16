//! The cut: everything dirty becomes one batch at one moment (a consistent snapshot of the names).
//!
//! # Guarantees
//! 1. Names are cut together: under the exclusive `namespace` lock, so that the server sees a state
//!    of the tree that there was here.
//! 2. A batch is closed: an object goes together with the new directories it lies in and the
//!    objects that lost their names to it.
//! 3. Components in flight are noted before anything is sent; a crash at any point finds it again.
//!
//! # How
//! A new batch is announced in the identity first (without parts), then every object's note is
//! changed. Should the program end in between, the notes name a batch that was never sent, and
//! everything is taken back.

use super::large::{BatchSplit, NamesAtServer};
use super::note::{ComponentsInFlight, DirtyContent, UnsentComponents, links_of};
use super::stuck::OBJECTS_MAX;
use super::{Replica, SyncError};
use crate::seeded::{Bug, bug};
use std::collections::{BTreeSet, HashMap};
use teal_log::{Cost, LockedObjects, StoreError};
use teal_types::ranges::ByteRanges;
use teal_types::{
    Attr, BatchNo, CommitSeq, FileType, HardLink, ObjectNo, Op, ReplicatedAttributes, Timestamp,
};

/// A batch before its content has been read.
#[derive(Debug, Default)]
pub(crate) struct BatchCut {
    pub(crate) batch: BatchNo,
    /// Everything that is in flight.
    pub(crate) objects: Vec<ObjectNo>,
    pub(crate) creates: Vec<Op>,
    pub(crate) removals: Vec<Op>,
    pub(crate) placements: Vec<Op>,
    pub(crate) others: Vec<Op>,
    pub(crate) contents: Vec<(ObjectNo, DirtyContent)>,
    /// Is true if more is dirty than fits into the batch.
    pub(crate) is_partial: bool,
}

impl BatchCut {
    fn lengths(&self) -> [usize; 6] {
        let Self {
            objects,
            creates,
            removals,
            placements,
            others,
            contents,
            ..
        } = self;
        [
            objects.len(),
            creates.len(),
            removals.len(),
            placements.len(),
            others.len(),
            contents.len(),
        ]
    }

    /// Takes away what came since it had these lengths.
    fn truncate_to(
        &mut self,
        [objects, creates, removals, placements, others, contents]: [usize; 6],
    ) {
        debug_assert!(objects <= self.objects.len() && others <= self.others.len());
        self.objects.truncate(objects);
        self.creates.truncate(creates);
        self.removals.truncate(removals);
        self.placements.truncate(placements);
        self.others.truncate(others);
        self.contents.truncate(contents);
    }
}

pub(crate) fn attributes_of(attr: &Attr) -> ReplicatedAttributes {
    ReplicatedAttributes {
        perm: attr.perm,
        uid: attr.uid,
        gid: attr.gid,
        rdev: attr.rdev,
        mtime: attr.mtime,
        ctime: attr.ctime,
        btime: attr.btime,
    }
}

/// The dirty objects that go into a batch.
#[derive(Debug, PartialEq, Eq)]
struct BatchChoice {
    objects: Vec<ObjectNo>,
    rest: BatchRest,
}

/// Says whether a batch leaves something for the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BatchRest {
    /// Nothing else is dirty.
    Empty,
    /// More is dirty, and is sent right after the batch.
    Waits,
}

impl BatchChoice {
    fn all(objects: impl IntoIterator<Item = ObjectNo>) -> Self {
        Self {
            objects: objects.into_iter().collect(),
            rest: BatchRest::Empty,
        }
    }

    fn part(objects: impl IntoIterator<Item = ObjectNo>) -> Self {
        Self {
            objects: objects.into_iter().collect(),
            rest: BatchRest::Waits,
        }
    }
}

impl Replica {
    /// Takes a cut; `None` when nothing is dirty.
    pub(crate) fn take_cut(&self) -> Result<Option<BatchCut>, SyncError> {
        let _names = self.volume().own_namespace();
        // Under the exclusive lock no name changes: the batch is a snapshot of the tree.
        let BatchChoice {
            objects: chosen,
            rest,
        } = self.choose_objects()?;
        let is_partial = rest == BatchRest::Waits;
        self.state().cut_taken(is_partial, self.monotonic());
        if chosen.is_empty() {
            return Ok(None);
        }
        // The batch is announced before any note changes. After a crash in between, a batch without
        // parts is found and taken back.
        let batch = self
            .update_identity(|identity| {
                (identity.batch, identity.parts) = (identity.batch.next(), 0)
            })?
            .batch;
        let mut cut = BatchCut {
            batch,
            is_partial,
            ..BatchCut::default()
        };
        for no in chosen {
            let before = cut.lengths();
            let done = self.cut_one(&mut cut, no).or_else(|e| {
                // The operations of this object are dropped; the others' are complete.
                cut.truncate_to(before);
                self.hold_unread(no, e)
            });
            if let Err(e) = done {
                // The batch will not be sent, so no object may stay in flight.
                self.take_back_all()?;
                return Err(e);
            }
        }
        if cut.objects.is_empty() {
            // Nothing but files without names: there is nothing to say.
            self.update_identity(|identity| identity.batch = identity.batch.previous())?;
            return Ok(None);
        }
        Ok(Some(cut))
    }

    /// Returns all objects with a dirty component.
    pub(crate) fn dirty_objects(&self) -> Result<Vec<ObjectNo>, SyncError> {
        let dirty = self.noted_objects(|summary| summary.is_dirty)?;
        Ok(dirty)
    }

    /// Returns the objects of the next batch, and whether others stay dirty: all dirty ones, or a
    /// closed part of them.
    fn choose_objects(&self) -> Result<BatchChoice, SyncError> {
        let all = self.dirty_objects()?;
        let dirty = self.free_of_held(all.clone())?;
        // Only held-back objects are left: one of them is tried.
        if dirty.is_empty() {
            return self.choose_held(&all);
        }
        let limit = self.stuck().batch_limit();
        // After a refusal, batches are small, until the operation that the server refuses is found.
        if limit < OBJECTS_MAX {
            return self.choose_few(dirty, limit);
        }
        if dirty.len() <= OBJECTS_MAX {
            let divided = self.split_by_size(&dirty)?;
            let is_large_put_off = self.state().is_large_put_off(divided.is_some());
            return Ok(match divided {
                Some(BatchSplit { first, .. }) if is_large_put_off => BatchChoice::part(first),
                Some(BatchSplit { large, .. }) => BatchChoice::part(large),
                None => BatchChoice::all(dirty),
            });
        }
        self.choose_some(dirty, OBJECTS_MAX)
    }

    /// Returns the next object that is held back, by itself with the objects that it requires.
    fn choose_held(&self, all: &[ObjectNo]) -> Result<BatchChoice, SyncError> {
        let Some(no) = self.next_held()? else {
            return Ok(BatchChoice::all([]));
        };
        // A held-back object goes alone, with those it needs: a second refusal is its own.
        let NamesAtServer { had, .. } = self.names_at_server(all)?;
        let mut chosen = BTreeSet::new();
        self.close_over(no, &had, &mut chosen)?;
        Ok(BatchChoice::part(chosen))
    }

    /// Returns a few objects, those with the least content first. When only removals are left,
    /// children come before their directories.
    fn choose_few(&self, dirty: Vec<ObjectNo>, limit: usize) -> Result<BatchChoice, SyncError> {
        debug_assert!(limit > 0, "a batch of no objects");
        let NamesAtServer { gone, .. } = self.names_at_server(&dirty)?;
        if gone.len() < dirty.len() {
            // The smallest content goes first: one large file does not hold up the rest.
            let mut by_content = Vec::new();
            for no in dirty {
                by_content.push((self.unsent_bytes(no)?, no));
            }
            by_content.sort_unstable();
            return self.choose_some(by_content.into_iter().map(|(_, no)| no).collect(), limit);
        }
        // The deepest go first: a directory must be empty when it is removed.
        let mut removals = self.deepest_first(&gone)?;
        if removals.len() <= limit {
            return Ok(BatchChoice::all(removals));
        }
        removals.truncate(limit);
        Ok(BatchChoice::part(removals))
    }

    /// Orders objects that were removed here by the depth in which they lay for the server, among
    /// each other, the deepest first.
    fn deepest_first(&self, gone: &[ObjectNo]) -> Result<Vec<ObjectNo>, SyncError> {
        let mut above: HashMap<ObjectNo, ObjectNo> = HashMap::new();
        for no in gone {
            if let Some((_, had)) = self.note_of(*no)?.dirty.links
                && let Some(link) = had.first()
            {
                above.insert(*no, link.dir);
            }
        }
        let mut by_depth = Vec::new();
        for no in gone {
            // The walk is bounded: removed directories may have been inside of each other in turn.
            let dirs = std::iter::successors(above.get(no), |dir| above.get(dir));
            by_depth.push((dirs.take(gone.len()).count(), *no));
        }
        by_depth.sort_unstable_by(|a, b| b.cmp(a));
        Ok(by_depth.into_iter().map(|(_, no)| no).collect())
    }

    /// Returns at most `limit` objects, and those that they require.
    fn choose_some(&self, dirty: Vec<ObjectNo>, limit: usize) -> Result<BatchChoice, SyncError> {
        // An object that takes over another's name goes with that object.
        let NamesAtServer { had, gone } = self.names_at_server(&dirty)?;
        let last: BTreeSet<ObjectNo> = gone.into_iter().collect();
        debug_assert!(limit > 0, "a batch of no objects");
        let mut chosen = BTreeSet::new();
        for no in dirty.iter().filter(|no| !last.contains(no)) {
            if chosen.len() >= limit {
                return Ok(BatchChoice::part(chosen));
            }
            self.close_over(*no, &had, &mut chosen)?;
        }
        // Removed directories must be empty at the server by then: removals go when all else has
        // gone.
        if limit < OBJECTS_MAX && !chosen.is_empty() && !last.is_empty() {
            return Ok(BatchChoice::part(chosen));
        }
        chosen.extend(last);
        Ok(BatchChoice::all(chosen))
    }

    pub(crate) fn close_over(
        &self,
        no: ObjectNo,
        had: &HashMap<HardLink, ObjectNo>,
        chosen: &mut BTreeSet<ObjectNo>,
    ) -> Result<(), SyncError> {
        // The closure of `needs`: the object, and all that must be in the same batch.
        let mut with = vec![no];
        while let Some(no) = with.pop() {
            if !chosen.insert(no) {
                continue;
            }
            with.extend(self.required_objects(no, had)?);
        }
        Ok(())
    }

    /// Returns the names of an object; none if the object is not here.
    pub(crate) fn links_here(&self, no: ObjectNo) -> Result<Vec<HardLink>, SyncError> {
        match self.store().names(no) {
            Err(StoreError::NotFound(_)) => Ok(Vec::new()),
            names => Ok(names?
                // Removed meanwhile.
                .into_iter()
                .map(|(dir, name)| HardLink { dir, name })
                .collect()),
        }
    }

    /// Lets what is dirty of one object go in flight.
    fn cut_one(&self, cut: &mut BatchCut, no: ObjectNo) -> Result<(), SyncError> {
        // The note grows by the copy of the dirty components that is in flight.
        let note_bytes = self.note_of(no)?.encode().len() + 4096;
        let cost = Cost::note().with_note(note_bytes).freeing();
        let op = self.begin_operation(cost)?;
        let locked = match op.lock(&[no]) {
            Err(StoreError::NotFound(_)) => None,
            locked => Some(locked?),
        };
        // Under the object's lock it is what it is.
        let mut note = self.note_of(no)?;
        let sent = match &locked {
            Some(locked) => links_of(locked, no),
            None => Vec::new(),
        };
        let is_nameless = sent.is_empty() && no != ObjectNo::ROOT;
        if note.in_flight.is_some() || is_nameless && note.waits_for_name() {
            return Ok(());
        }
        let size = locked.as_ref().map(|locked| locked.attr(no).size);
        let part = note.take_unsent(is_nameless, size);
        cut.objects.push(no);
        // Clocks of two machines may differ: no time of a name is later than the change itself.
        let mut latest = self.volume().now();
        if let Some(locked) = &locked {
            self.cut_state(cut, locked, no, &part, &sent)?;
            latest = latest.min(locked.attr(no).ctime);
        }
        cut_names(cut, no, &part, &sent, |link| {
            self.store()
                .attr(link.dir)
                .map_or(latest, |dir| dir.mtime.min(latest))
        });
        note.in_flight = (!bug(Bug::ClearedTooEarly)).then_some(ComponentsInFlight {
            batch: cut.batch,
            components: part,
            sent_names: sent,
        });
        // From here on a crash finds the components in flight.
        let bytes = note.encode();
        op.set_note(no, Some(&bytes))?;
        Ok(())
    }

    fn cut_state(
        &self,
        cut: &mut BatchCut,
        locked: &LockedObjects<'_>,
        no: ObjectNo,
        part: &UnsentComponents,
        sent: &[HardLink],
    ) -> Result<(), StoreError> {
        if part.created {
            cut_new_object(cut, locked, no);
            return Ok(());
        }
        let attr = locked.attr(no);
        if sent.is_empty() && no != ObjectNo::ROOT {
            return Ok(());
        }
        if let Some(base) = part.attributes {
            // Changes carry their base, by which the server recognises conflicts.
            cut.others.push(Op::SetAttributes {
                object: no,
                base,
                attributes: attributes_of(&attr),
            });
        }
        for (name, base) in &part.xattrs {
            let value = locked.xattr(no, name).map(<[u8]>::to_vec);
            cut.others.push(Op::SetXattr {
                object: no,
                base: *base,
                name: name.clone(),
                value,
            });
        }
        if let Some(dirty) = &part.data {
            cut.contents.push((no, dirty.clone()));
        }
        Ok(())
    }
}

/// Adds all of the state of an object that is new to the server, without bases.
fn cut_new_object(cut: &mut BatchCut, locked: &LockedObjects<'_>, no: ObjectNo) {
    let attr = locked.attr(no);
    let target = if attr.kind == FileType::Symlink {
        locked.target(no)
    } else {
        Vec::new()
    };
    cut.creates.push(Op::Create {
        object: no,
        kind: attr.kind,
        attributes: attributes_of(&attr),
        target,
    });
    for name in locked.xattr_names(no) {
        let value = locked.xattr(no, &name).map(<[u8]>::to_vec);
        cut.others.push(Op::SetXattr {
            object: no,
            base: CommitSeq::default(),
            name,
            value,
        });
    }
    if attr.kind == FileType::File && attr.size > 0 {
        let content = DirtyContent {
            base: CommitSeq::default(),
            least_size: 0,
            ranges: ByteRanges::whole_file(),
            tail: None,
        };
        cut.contents.push((no, content));
    }
}

/// Adds the difference between the names at the server and those here, as many moves as possible.
/// The names were changed at `time` or before: an object must not become younger by being sent.
fn cut_names(
    cut: &mut BatchCut,
    no: ObjectNo,
    part: &UnsentComponents,
    sent: &[HardLink],
    time: impl Fn(&HardLink) -> Timestamp,
) {
    let (base, had) = match &part.links {
        _ if part.created => (CommitSeq::default(), &[][..]),
        Some((base, had)) => (*base, &had[..]),
        None => return,
    };
    let mut gone = had.iter().filter(|link| !sent.contains(link));
    let mut new = sent.iter().filter(|link| !had.contains(link));
    // A lost name and a new one together are a move. The rest are removals and placements.
    loop {
        match (gone.next(), new.next()) {
            (Some(from), Some(to)) => {
                // The earlier of both times: a directory must not change before its entry does.
                let time = time(from).min(time(to));
                cut.removals.push(Op::Move {
                    object: no,
                    base,
                    from: from.clone(),
                    to: to.clone(),
                    time,
                });
            }
            (Some(link), None) => {
                cut.removals.push(Op::Remove {
                    object: no,
                    base,
                    link: link.clone(),
                    time: time(link),
                });
            }
            (None, Some(link)) => {
                cut.placements.push(Op::Place {
                    object: no,
                    base,
                    link: link.clone(),
                    time: time(link),
                });
            }
            (None, None) => return,
        }
    }
}
