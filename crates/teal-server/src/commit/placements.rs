//! Names that come: placements, and the second halves of moves.
//!
//! # Guarantees
//! 1. What is placed gets a name, whatever others have done: in a directory that lives again if it
//!    must, under the conflict name if the wanted one is taken.
//! 2. A directory has one name, and is never below itself.

use super::execution::BatchExecution;
use super::finish::number_name;
use crate::refusal::{Outcome, bad_request};
use crate::seeded::{Bug, bug};
use std::collections::HashSet;
use teal_proto::{ConflictKind, conflict_name};
use teal_types::limits::LINKS_MAX;
use teal_types::{CommitSeq, HardLink, ObjectNo, Op, Timestamp};

impl BatchExecution<'_> {
    /// Carries out the placements of a batch. `found`: the moves that have taken their old name
    /// away.
    pub(super) fn carry_out_placements(
        &mut self,
        ops: &[Op],
        found: &HashSet<usize>,
    ) -> Outcome<()> {
        // The order of the batch is kept, because a later name may lie below an earlier one.
        for (at, op) in ops.iter().enumerate() {
            match op {
                Op::Place {
                    object, link, time, ..
                } => self.place_object(*object, link, *time)?,
                Op::Move {
                    object,
                    from,
                    to,
                    time,
                    ..
                } if found.contains(&at) => {
                    self.finish_move(*object, from, to, *time)?;
                }
                Op::Move {
                    object,
                    base,
                    to,
                    time,
                    ..
                } => self.late_move(*object, *base, to, *time)?,
                _ => {}
            }
        }
        Ok(())
    }

    fn place_object(&mut self, object: ObjectNo, link: &HardLink, time: Timestamp) -> Outcome<()> {
        // The name is there already, which is all that was wanted.
        if self.object_named(link)? == Some(object) {
            return Ok(());
        }
        if !self.is_live(object)? {
            let number = HardLink {
                dir: ObjectNo::ROOT,
                name: number_name(object)?,
            };
            if *link == number && self.author_seen.contains_key(&object) {
                // A replica that knows no better place for what it has changed: its state brings it
                // back where it belongs.
                return Ok(());
            }
            if !self.revive_for_name(object, &link.name)? {
                return Ok(());
            }
        }
        let names = self.txn.links_of(object)?.len();
        let is_full = names >= LINKS_MAX && !bug(Bug::LimitsDiffer);
        // A directory has one name, and other objects at most as many as a client can hold.
        if (self.is_dir(object)? && names > 0) || is_full {
            let lost = match is_full {
                true => format!(
                    "the name {}: the object has {LINKS_MAX} others, and can have no more",
                    link.name
                ),
                false => format!("the name {}: the directory has another one", link.name),
            };
            self.note_conflict(ConflictKind::Move, object, None, lost);
            return Ok(());
        }
        // The directory may have been removed meanwhile; then the name brings it back.
        let dir = self.live_directory(link.dir)?;
        if self.is_below(dir, object)? {
            let lost = format!("the name {}, which would be inside of itself", link.name);
            self.note_conflict(ConflictKind::Move, object, None, lost);
            // The directory is live again with its entries, so it needs some place.
            return self.put_name(
                object,
                &HardLink {
                    dir: ObjectNo::ROOT,
                    name: link.name.clone(),
                },
                time,
            );
        }
        self.put_name(
            object,
            &HardLink {
                dir,
                name: link.name.clone(),
            },
            time,
        )
    }

    /// Finishes a move that has found the old name in its place.
    fn finish_move(
        &mut self,
        object: ObjectNo,
        from: &HardLink,
        to: &HardLink,
        time: Timestamp,
    ) -> Outcome<()> {
        // The batch came twice, or another machine has made the same move.
        if self.object_named(to)? == Some(object) {
            return Ok(());
        }
        if self.is_dir(object)? && !self.txn.links_of(object)?.is_empty() {
            let lost = format!(
                "the move to {}: the directory has another name by now",
                to.name
            );
            self.note_conflict(ConflictKind::Move, object, None, lost);
            return Ok(());
        }
        // The target may have been removed meanwhile.
        let dir = self.live_directory(to.dir)?;
        if self.is_dir(object)? && self.is_below(dir, object)? {
            let lost = format!(
                "the move to {}, which would be inside of itself by now",
                to.name
            );
            self.note_conflict(ConflictKind::Move, object, None, lost);
            // The directory stays where it was.
            let dir = self.live_directory(from.dir)?;
            return self.put_name(
                object,
                &HardLink {
                    dir,
                    name: from.name.clone(),
                },
                time,
            );
        }
        self.put_name(
            object,
            &HardLink {
                dir,
                name: to.name.clone(),
            },
            time,
        )
    }

    /// Carries out a move that comes too late: another commit has taken the old name away.
    fn late_move(
        &mut self,
        object: ObjectNo,
        base: CommitSeq,
        to: &HardLink,
        time: Timestamp,
    ) -> Outcome<()> {
        if !self.is_live(object)? || self.object_named(to)? == Some(object) {
            return self.place_object(object, to, time);
        }
        let (links, mut has_moved) = (self.txn.links_of(object)?, false);
        for (_, seq) in &links {
            has_moved |= self.is_unseen(*seq, base)?;
        }
        // The first move wins.
        if has_moved || (self.is_dir(object)? && !links.is_empty()) {
            let lost = format!(
                "the move to {}: it has been moved elsewhere meanwhile",
                to.name
            );
            self.note_conflict(ConflictKind::Move, object, None, lost);
            return Ok(());
        }
        // The object is live and only its name is gone: the author's move counts more than the
        // removal.
        let lost = format!(
            "the removal of a name, which was moved to {} meanwhile",
            to.name
        );
        self.note_conflict(ConflictKind::Removal, object, None, lost);
        self.place_object(object, to, time)
    }

    /// Returns the directory if it is live, revives it if it was removed, and returns another one
    /// if it never existed.
    pub(super) fn live_directory(&mut self, dir: ObjectNo) -> Outcome<ObjectNo> {
        if !self.is_live(dir)? {
            return self.revive_directory(dir);
        }
        if !self.is_dir(dir)? {
            return bad_request(format!("a name in object {dir}, which is no directory"));
        }
        Ok(dir)
    }

    /// Returns whether `dir` is `object` or lies below it.
    ///
    /// Names only come while placements are carried out, so an ancestor that was found stays one:
    /// each directory on the way is given a shorter way to the highest that was reached, and a
    /// batch of `n` directories in one another costs about `n` steps, not the square of that.
    pub(super) fn is_below(&mut self, dir: ObjectNo, object: ObjectNo) -> Outcome<bool> {
        if dir == object || !self.is_dir(object)? {
            return Ok(dir == object);
        }
        // Something that has a name now may lie between two ends of a shortened way.
        let is_highest = self.txn.links_of(object)?.is_empty();
        let mut way = Vec::new();
        // The tree has no cycles, so that this ends; the set is for trees that are damaged.
        let mut seen = HashSet::new();
        let mut at = dir;
        while at != ObjectNo::ROOT && at != object && seen.insert(at) {
            self.ancestor_steps += 1;
            // A shortened way is used only where it cannot pass over `object`.
            let above = match self.ancestors.get(&at).filter(|_| is_highest) {
                Some(above) => Some(*above),
                None => self
                    .txn
                    .links_of(at)?
                    .into_iter()
                    .next()
                    .map(|(link, _)| link.dir),
            };
            let Some(above) = above else { break };
            way.push(at);
            at = above;
        }
        if is_highest {
            self.ancestors
                .extend(way.into_iter().map(|below| (below, at)));
        }
        Ok(at == object)
    }

    /// Gives an object a name: this one, or the conflict name if another has it. A directory that
    /// would be inside of itself comes into the root: it is there again, or there still, and what
    /// it was in has been moved into it meanwhile.
    pub(super) fn put_name(
        &mut self,
        object: ObjectNo,
        wanted: &HardLink,
        time: Timestamp,
    ) -> Outcome<()> {
        let is_inside = self.is_dir(object)? && self.is_below(wanted.dir, object)?;
        let dir = if is_inside {
            ObjectNo::ROOT
        } else {
            wanted.dir
        };
        let wanted = &HardLink {
            dir,
            name: wanted.name.clone(),
        };
        match self.object_named(wanted)? {
            // The name is taken, and the first object keeps it.
            Some(other) if other != object => {
                let link = self.free_name(wanted)?;
                self.add_name(&link, object, time)?;
                let lost = format!("the name {}, which another object has", wanted.name);
                self.note_conflict(ConflictKind::Name, other, Some(object), lost);
                Ok(())
            }
            _ => self.add_name(wanted, object, time),
        }
    }

    /// Returns the first conflict name of `wanted` that is free.
    pub(super) fn free_name(&self, wanted: &HardLink) -> Outcome<HardLink> {
        // Some number is free, because a directory has fewer entries than there are numbers.
        for number in 1..=u32::MAX {
            let name = conflict_name(&wanted.name, &self.device, self.now, number);
            let link = HardLink {
                dir: wanted.dir,
                name,
            };
            if self.object_named(&link)?.is_none() {
                return Ok(link);
            }
        }
        bad_request(format!("there is no free name left beside {}", wanted.name))
    }
}
