//! Names that go: removals, and the first halves of moves.
//!
//! # Guarantees
//! 1. A name that is not there any more, or leads elsewhere by now, is nothing.
//! 2. What another has changed since is not removed with its last name; nor is a directory with
//!    something in it.

use super::execution::BatchExecution;
use crate::refusal::Outcome;
use crate::seeded::{Bug, bug};
use std::collections::{HashMap, HashSet};
use teal_proto::ConflictKind;
use teal_types::{CommitSeq, HardLink, ObjectNo, Op, Timestamp};

/// The removal of a directory, waiting for it to become empty.
struct PendingRemoval<'a> {
    link: &'a HardLink,
    base: CommitSeq,
    time: Timestamp,
}

/// Returns whether a batch changes more of an object than its names: then it lives on, where the
/// batch was made.
fn is_changed(ops: &[Op], object: ObjectNo) -> bool {
    ops.iter().any(|op| {
        let is_state = matches!(
            op,
            Op::SetContent { .. }
                | Op::Append { .. }
                | Op::SetAttributes { .. }
                | Op::SetXattr { .. }
        );
        is_state && op.object() == object
    })
}

impl BatchExecution<'_> {
    /// Carries out the removals of a batch. Returns which moves have found the name they take away.
    pub(super) fn carry_out_removals(
        &mut self,
        ops: &[Op],
        named: &HashSet<ObjectNo>,
    ) -> Outcome<HashSet<usize>> {
        let (mut found, mut dirs) = (HashSet::new(), HashMap::new());
        for (at, op) in ops.iter().enumerate() {
            match op {
                Op::Remove {
                    object,
                    base,
                    link,
                    time,
                } if self.object_named(link)? == Some(*object) => {
                    // A directory may become empty only when the other removals of the batch are
                    // done.
                    if self.is_dir(*object)? && !named.contains(object) {
                        dirs.insert(
                            *object,
                            PendingRemoval {
                                link,
                                base: *base,
                                time: *time,
                            },
                        );
                    } else {
                        let is_kept = is_changed(ops, *object);
                        self.carry_out_removal(*object, *base, link, *time, (named, is_kept))?;
                    }
                }
                Op::Move {
                    object, from, time, ..
                } if self.object_named(from)? == Some(*object) => {
                    // The object is placed when all old names are gone.
                    self.remove_name(from, *time)?;
                    found.insert(at);
                }
                _ => {}
            }
        }
        self.remove_dirs(dirs)?;
        Ok(found)
    }

    fn carry_out_removal(
        &mut self,
        object: ObjectNo,
        base: CommitSeq,
        link: &HardLink,
        time: Timestamp,
        (named, is_kept): (&HashSet<ObjectNo>, bool),
    ) -> Outcome<()> {
        // Only with its last name does the object itself go.
        let is_last = !named.contains(&object) && self.txn.links_of(object)?.len() == 1;
        if is_last && !bug(Bug::ChangedRemoved) && self.is_changed_since(object, base)? {
            let lost = format!(
                "the removal of {}, which had been changed elsewhere meanwhile",
                link.name
            );
            self.note_conflict(ConflictKind::Removal, object, None, lost);
            return Ok(());
        }
        if is_last && is_kept {
            // The author has changed the object under another name, which another replica has
            // removed meanwhile.
            let lost = format!(
                "the removal of {}, the last name by now of what its author has changed",
                link.name
            );
            self.note_conflict(ConflictKind::Removal, object, None, lost);
            return Ok(());
        }
        self.remove_name(link, time)?;
        if is_last {
            self.remove_object(object)?;
        }
        Ok(())
    }

    /// Removes directories as they become empty: each is looked at again when one below it has
    /// gone.
    fn remove_dirs(&mut self, mut dirs: HashMap<ObjectNo, PendingRemoval<'_>>) -> Outcome<()> {
        // The order does not depend on the hash map, so that a batch has the same result on every
        // run.
        let mut order: Vec<ObjectNo> = dirs.keys().copied().collect();
        order.sort_unstable_by(|a, b| b.cmp(a));
        let mut queue = order.clone();
        while let Some(dir) = queue.pop() {
            // A directory with entries waits: removing another one may empty it.
            if !dirs.contains_key(&dir) || !self.txn.entries_after(dir, None, 1)?.is_empty() {
                continue;
            }
            let Some(PendingRemoval { link, base, time }) = dirs.remove(&dir) else {
                continue;
            };
            self.carry_out_removal(dir, base, link, time, (&HashSet::new(), false))?;
            // Its parent may be empty now.
            queue.push(link.dir);
        }
        for dir in order.into_iter().rev() {
            if let Some(PendingRemoval { link, .. }) = dirs.remove(&dir) {
                let lost = format!(
                    "the removal of the directory {}, which is not empty here",
                    link.name
                );
                self.note_conflict(ConflictKind::Removal, dir, None, lost);
            }
        }
        Ok(())
    }
}
