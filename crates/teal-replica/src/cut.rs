//! The cut: what is dirty becomes a batch, all at one moment.
//!
//! # Guarantees
//! 1. Names are cut together: under the exclusive `namespace` lock, so that the server sees a state
//!    of the tree that there was here.
//! 2. A batch is closed: with an object go the new directories it lies in and the objects whose
//!    names it took.
//! 3. What is in flight is noted before anything is sent; a crash at any point finds it again.
//!
//! # How
//! A new batch is announced in the identity first (without parts), then every object's note is
//! changed. Should the program end in between, the notes name a batch that was never sent, and
//! everything is taken back.

use super::large::{BatchSplit, NamesAtServer};
use super::note::{ComponentsInFlight, DirtyContent, ObjectNote, UnsentComponents};
use super::stuck::OBJECTS_MAX;
use super::{Replica, SyncError};
use crate::seeded::{Bug, bug};
use std::collections::{BTreeSet, HashMap};
use std::ops::ControlFlow;
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
    /// Whether more is dirty than fits.
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

/// What of all that is dirty goes into a batch.
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
    /// What is dirty besides goes at once after the batch.
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
        let BatchChoice {
            objects: chosen,
            rest,
        } = self.choose_objects()?;
        let is_partial = rest == BatchRest::Waits;
        self.state().cut_taken(is_partial, self.monotonic());
        if chosen.is_empty() {
            return Ok(None);
        }
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
                cut.truncate_to(before);
                self.hold_unread(no, e)
            });
            if let Err(e) = done {
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

    /// Numbers of all objects of which something is dirty.
    pub(crate) fn dirty_objects(&self) -> Result<Vec<ObjectNo>, SyncError> {
        let mut dirty = Vec::new();
        self.store().each_note(ObjectNo::ROOT, &mut |no, head| {
            if ObjectNote::summary(head).is_dirty {
                dirty.push(no);
            }
            ControlFlow::Continue(())
        })?;
        Ok(dirty)
    }

    /// Numbers of the objects that are to go: all that are dirty, or a closed part of them.
    fn choose_objects(&self) -> Result<BatchChoice, SyncError> {
        let all = self.dirty_objects()?;
        let dirty = self.free_of_held(all.clone())?;
        if dirty.is_empty() {
            return self.choose_held(&all);
        }
        let limit = self.stuck().batch_limit();
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

    /// The next of what is held back, by itself with what it needs.
    fn choose_held(&self, all: &[ObjectNo]) -> Result<BatchChoice, SyncError> {
        let Some(no) = self.next_held()? else {
            return Ok(BatchChoice::all([]));
        };
        let NamesAtServer { had, .. } = self.names_at_server(all)?;
        let mut chosen = BTreeSet::new();
        self.close_over(no, &had, &mut chosen)?;
        Ok(BatchChoice::part(chosen))
    }

    /// A few objects, those with the least content first; removals when nothing else is left,
    /// children before their directories.
    fn choose_few(&self, dirty: Vec<ObjectNo>, limit: usize) -> Result<BatchChoice, SyncError> {
        let NamesAtServer { gone, .. } = self.names_at_server(&dirty)?;
        if gone.len() < dirty.len() {
            let mut by_content = Vec::new();
            for no in dirty {
                by_content.push((self.unsent_bytes(no)?, no));
            }
            by_content.sort_unstable();
            return self.choose_some(by_content.into_iter().map(|(_, no)| no).collect(), limit);
        }
        let mut above: HashMap<ObjectNo, ObjectNo> = HashMap::new();
        for no in &gone {
            above.extend(
                self.note_of(*no)?
                    .dirty
                    .links
                    .and_then(|(_, had)| had.first().map(|link| (*no, link.dir))),
            );
        }
        let depth = |no: &ObjectNo| {
            std::iter::successors(above.get(no), |dir| above.get(dir))
                .take(gone.len())
                .count()
        };
        let mut by_depth: Vec<(usize, ObjectNo)> = gone.iter().map(|no| (depth(no), *no)).collect();
        by_depth.sort_unstable_by(|a, b| b.cmp(a));
        let is_partial = by_depth.len() > limit;
        let first = by_depth.into_iter().take(limit).map(|(_, no)| no);
        Ok(if is_partial {
            BatchChoice::part(first)
        } else {
            BatchChoice::all(first)
        })
    }

    /// At most so many objects and what they need.
    fn choose_some(&self, dirty: Vec<ObjectNo>, limit: usize) -> Result<BatchChoice, SyncError> {
        // Who takes the name that another had goes with it.
        let NamesAtServer { had, gone } = self.names_at_server(&dirty)?;
        let last: BTreeSet<ObjectNo> = gone.into_iter().collect();
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
        let mut with = vec![no];
        while let Some(no) = with.pop() {
            if !chosen.insert(no) {
                continue;
            }
            with.extend(self.required_objects(no, had)?);
        }
        Ok(())
    }

    /// The names of an object, if it is there.
    pub(crate) fn links_here(&self, no: ObjectNo) -> Result<Vec<HardLink>, SyncError> {
        match self.store().names(no) {
            Err(StoreError::NotFound(_)) => Ok(Vec::new()),
            names => Ok(names?
                .into_iter()
                .map(|(dir, name)| HardLink { dir, name })
                .collect()),
        }
    }

    /// Lets what is dirty of one object go in flight.
    fn cut_one(&self, cut: &mut BatchCut, no: ObjectNo) -> Result<(), SyncError> {
        let mut note = self.note_of(no)?;
        let cost = Cost::note().with_note(note.encode().len() + 4096).freeing();
        let op = self.begin_operation(cost)?;
        let locked = match op.lock(&[no]) {
            Err(StoreError::NotFound(_)) => None,
            locked => Some(locked?),
        };
        // Under the object's lock it is what it is.
        note = self.note_of(no)?;
        let sent = locked
            .as_ref()
            .map_or_else(Vec::new, |locked| names(locked, no));
        let is_lost = note.needs_look && !note.dirty.gone;
        if note.in_flight.is_some()
            || ((note.dirty.created || is_lost) && sent.is_empty() && no != ObjectNo::ROOT)
        {
            // A file without a name stays here until it gets one; so does one that lost it to
            // another of the server's.
            return Ok(());
        }
        let mut part = std::mem::take(&mut note.dirty);
        if sent.is_empty() && no != ObjectNo::ROOT {
            part = UnsentComponents {
                gone: part.gone,
                links: part.links,
                ..UnsentComponents::default()
            };
        }
        if let (
            Some(locked),
            Some(DirtyContent {
                tail: Some(tail), ..
            }),
        ) = (&locked, &mut part.data)
        {
            // What comes behind it from here on goes in another batch.
            tail.to = locked.attr(no).size;
        }
        cut.objects.push(no);
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
        let attr = locked.attr(no);
        if part.created {
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
                cut.contents.push((
                    no,
                    DirtyContent {
                        base: CommitSeq::default(),
                        least_size: 0,
                        ranges: ByteRanges::whole_file(),
                        tail: None,
                    },
                ));
            }
            return Ok(());
        }
        if sent.is_empty() && no != ObjectNo::ROOT {
            return Ok(());
        }
        if let Some(base) = part.attributes {
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

fn names(locked: &LockedObjects<'_>, no: ObjectNo) -> Vec<HardLink> {
    locked
        .names(no)
        .into_iter()
        .map(|(dir, name)| HardLink { dir, name })
        .collect()
}

/// The difference between the names the server has and those that are here: as many moves as
/// possible. They were made at `time`, or before: what nobody changes must not get younger by being
/// sent.
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
    loop {
        match (gone.next(), new.next()) {
            (Some(from), Some(to)) => {
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
