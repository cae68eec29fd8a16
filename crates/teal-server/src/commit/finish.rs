//! The end of a batch: objects are stored, and history gets its rows.
//!
//! # Guarantees
//! 1. History gets one row for each thing that differs from before the batch, and none for what
//!    came and went inside of it.

use super::execution::{BatchExecution, LoadedObject};
use crate::recent::{ChangedRow, CommitConcern};
use crate::refusal::{Outcome, damaged};
use crate::seeded::{Bug, bug};
use std::collections::HashSet;
use teal_meta::{ObjectRow, PastExtent};
use teal_proto::ConflictKind;
use teal_types::{HardLink, Name, ObjectNo, ReplicatedAttributes};

/// Returns a name made of the object's number, for an object that has none.
pub(super) fn number_name(object: ObjectNo) -> Outcome<Name> {
    let name = Name::new(format!("object-{}", object.get()).as_bytes());
    name.map_err(damaged)
}

/// Returns whether at most the times of a directory have changed, because something came or went in
/// it.
fn is_only_entered(of: &LoadedObject) -> bool {
    let (Some(before), Some(now)) = (&of.before, &of.now) else {
        return false;
    };
    // Equal but for these two times means that something came or went.
    let ReplicatedAttributes { mtime, ctime, .. } = now.attributes;
    let attributes = ReplicatedAttributes {
        mtime,
        ctime,
        ..before.attributes
    };
    now.kind.is_dir()
        && ObjectRow {
            attributes,
            ..before.clone()
        } == *now
}

impl BatchExecution<'_> {
    /// Removes objects without a name, unless there is something in it.
    pub(super) fn remove_nameless(&mut self) -> Outcome<()> {
        // Naming an object touches others, so the loop runs over a copy.
        for object in self.touched.clone() {
            if object == ObjectNo::ROOT || !self.is_live(object)? {
                continue;
            }
            let links = self.txn.links_of(object)?;
            // The places are noted while the object still has them.
            let places = links.iter().map(|(link, _)| ChangedRow {
                object,
                dir: link.dir,
            });
            self.changed_places.extend(places);
            if !links.is_empty() {
                continue;
            }
            // A directory with entries cannot go, so it gets a name in the root.
            if self.txn.entries_after(object, None, 1)?.is_empty() {
                self.remove_object(object)?;
            } else {
                let name = number_name(object)?;
                self.put_name(
                    object,
                    &HardLink {
                        dir: ObjectNo::ROOT,
                        name,
                    },
                    self.now,
                )?;
                self.changed_places.insert(ChangedRow {
                    object,
                    dir: ObjectNo::ROOT,
                });
                let lost = "its place: a directory without a name, with something in it".to_owned();
                self.note_conflict(ConflictKind::Name, object, None, lost);
            }
        }
        Ok(())
    }

    /// Notes where changed names led before the batch: a client that kept an object there must
    /// learn that it is gone.
    fn note_old_places(&mut self) {
        if bug(Bug::FilterForgetsOrigin) {
            return;
        }
        for (link, before) in &self.entries {
            if let Some(object) = *before {
                let dir = link.dir;
                self.changed_places.insert(ChangedRow { object, dir });
            }
        }
    }

    /// Stores the state of an object and its history, which change together, and which ranges of
    /// its content have changed.
    fn store_object(&mut self, object: ObjectNo, loaded: &LoadedObject) -> Outcome<()> {
        if loaded.before != loaded.now {
            self.txn.put_object(object, loaded.now.as_ref())?;
            self.txn
                .remember_object(object, self.seq, loaded.now.as_ref())?;
        }
        // `None` tells replicas to fetch all of the content.
        let ranges = match self.changed_ranges.get(&object) {
            _ if self.changed_anywhere.contains(&object) => None,
            Some(changed) => changed.bounded_list(),
            None => Some(Vec::new()),
        };
        Ok(self.txn.add_change(self.seq, object, &ranges)?)
    }

    /// Stores objects and history; what changed, and where that lies.
    pub(super) fn store_history(&mut self) -> Outcome<CommitConcern> {
        self.note_old_places();
        self.remember_entries()?;
        self.remember_xattrs()?;
        self.remember_content()?;
        let seq = self.seq;
        let noted: HashSet<ObjectNo> = self.conflicts.iter().map(|note| note.object).collect();
        let mut concern = CommitConcern {
            seq,
            rows: Vec::new(),
            notable: HashSet::new(),
        };
        for object in std::mem::take(&mut self.touched) {
            let loaded = self.load_object(object)?.clone();
            // The object came and went within the batch.
            if loaded.before.is_none() && loaded.now.is_none() {
                continue;
            }
            self.store_object(object, &loaded)?;
            let rows = self.rows_of_change(object);
            // Quiet changes notify no pull, unless a conflict of the object is to be shown.
            if !is_only_entered(&loaded) || noted.contains(&object) {
                let notable = rows.iter().flat_map(|row| [row.object, row.dir]);
                concern.notable.extend(notable);
            }
            concern.rows.extend(rows);
        }
        Ok(concern)
    }

    /// Returns a changed object with each directory in which it lay or lies.
    fn rows_of_change(&self, object: ObjectNo) -> Vec<ChangedRow> {
        let first = ChangedRow {
            object,
            dir: ObjectNo::new(0),
        };
        let last = ChangedRow {
            object,
            dir: ObjectNo::new(u64::MAX),
        };
        let mut rows: Vec<ChangedRow> = self.changed_places.range(first..=last).copied().collect();
        // An object without a place concerns only the clients that keep the object itself.
        if rows.is_empty() {
            rows.push(ChangedRow {
                object,
                dir: object,
            });
        }
        rows
    }

    fn remember_xattrs(&mut self) -> Outcome<()> {
        for ((object, name), before) in std::mem::take(&mut self.xattrs) {
            let live = self.txn.xattrs(object)?;
            let now = live
                .into_iter()
                .find(|(of, _)| *of == name)
                .map(|(_, row)| row.value);
            // A value that was set and set back needs no row.
            if now != before {
                self.txn
                    .remember_xattr(object, &name, self.seq, now.as_deref())?;
            }
        }
        Ok(())
    }

    fn remember_content(&mut self) -> Outcome<()> {
        let seq = self.seq;
        for (object, changed) in &self.changed_ranges {
            for (start, end) in changed.iter() {
                // Holes get rows, too, because a row has to cover what was there before.
                let mut at = start;
                for extent in self.txn.extents(*object, start..end)? {
                    let (from, to) = (
                        extent.offset.max(start),
                        (extent.offset + extent.len).min(end),
                    );
                    if from > at {
                        let hole = PastExtent {
                            seq,
                            offset: at,
                            len: from - at,
                            source: None,
                        };
                        self.txn.remember_extent(*object, &hole)?;
                    }
                    let inside = u32::try_from(from - extent.offset).unwrap_or(0);
                    let source = Some((extent.chunk, extent.start + inside));
                    self.txn.remember_extent(
                        *object,
                        &PastExtent {
                            seq,
                            offset: from,
                            len: to - from,
                            source,
                        },
                    )?;
                    at = to;
                }
                if end > at {
                    let hole = PastExtent {
                        seq,
                        offset: at,
                        len: end - at,
                        source: None,
                    };
                    self.txn.remember_extent(*object, &hole)?;
                }
            }
        }
        Ok(())
    }
}
