//! Noting what changes here, in the batch of the change.
//!
//! # Guarantees
//! 1. A component that the server does not have is pending, with the position in history at its first change as its base.
//! 2. A file that is only appended to keeps a *tail* in its note, until something else is done to its content.
//! 3. What was made and removed between two flushes leaves no trace.

use super::note::{Dirty, Tail};
use super::{Note, ranges::Ranges};
use crate::Client;
use crate::seeded::{Bug, bug};
use teal_log::{Locked, StoreError};
use teal_types::{CommitSeq, Link, ObjectNo};

/// What of an object has changed.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Pend<'a> {
    /// It was made.
    Created,
    /// Its attributes.
    Attributes,
    /// Content from an offset to another.
    Data(u64, u64),
    /// Content that was put behind its end, from there to another offset.
    Append(u64, u64),
    /// Its size was less meanwhile, or is now.
    Cut(u64),
    /// An extended attribute.
    Xattr(&'a [u8]),
    /// Its names: to be said before they change.
    Links,
    /// The object itself is gone.
    Gone,
}

/// Changed content is noted in blocks, so that a small change costs the server as little.
const BLOCK: u64 = 4 << 10;
/// What is written at the end is noted in pieces of this size, so that appends in a row change the note rarely: behind the end nothing is sent.
const GRAIN: u64 = 256 << 10;
/// The most ranges of changed content; beyond, the smallest gaps are sent too.
const DIRTY_MAX: usize = 64;

/// Up to where content is noted that has changed up to `to`.
fn noted_end(to: u64, size: u64) -> u64 {
    to.next_multiple_of(if to >= size { GRAIN } else { BLOCK })
}

fn links(locked: &Locked<'_>, no: ObjectNo) -> Vec<Link> {
    locked
        .names(no)
        .into_iter()
        .map(|(dir, name)| Link { dir, name })
        .collect()
}

impl Client {
    /// Notes that something of a locked object changes. Without a server nothing happens.
    pub(crate) fn pend(
        &self,
        locked: &mut Locked<'_>,
        no: ObjectNo,
        what: Pend<'_>,
    ) -> Result<(), StoreError> {
        let Some(replica) = &self.replica else {
            return Ok(());
        };
        let before = self.note(no)?;
        let mut note = before.clone();
        // What came since was not seen here, though the position has passed it.
        let base = note.behind.unwrap_or(replica.seen());
        match what {
            Pend::Data(from, to) | Pend::Append(from, to) => replica.queued(to - from),
            Pend::Cut(_) | Pend::Gone => replica.unqueued(),
            _ => {}
        }
        match what {
            Pend::Created => note.pending.created = true,
            Pend::Gone if bug(Bug::RemovalNotNoted) => note = Note::default(),
            Pend::Gone => {
                bury(&mut note);
                if note.is_empty() {
                    // Nobody will hear of it.
                    replica.drives.ends(no);
                }
            }
            _ if note.pending.created => absorb(&mut note, what),
            Pend::Attributes => drop(note.pending.attributes.get_or_insert(base)),
            Pend::Data(from, to) | Pend::Append(from, to) => {
                let is_first = note.pending.data.is_none();
                let tail = &mut dirty(&mut note, base).tail;
                match what {
                    Pend::Append(..) if is_first => *tail = Some(Tail::open(from, from)),
                    Pend::Append(..) => {}
                    _ if bug(Bug::RewriteTakenForAppend) => {}
                    _ => *tail = None,
                }
                dirty(&mut note, base)
                    .ranges
                    .add(from / BLOCK * BLOCK, noted_end(to, locked.attr(no).size));
                dirty(&mut note, base).ranges.coarsen(DIRTY_MAX);
                note.absent.remove(from, to);
            }
            Pend::Cut(size) => {
                let dirty = dirty(&mut note, base);
                dirty.cut = size.min(dirty.cut);
                dirty.tail = None;
                note.absent.remove(size, super::ranges::END);
            }
            Pend::Xattr(name) => {
                if !note.pending.xattrs.iter().any(|(known, _)| known == name) {
                    note.pending.xattrs.push((name.to_vec(), base));
                }
            }
            Pend::Links => {
                if note.pending.links.is_none() {
                    note.pending.links = Some((base, links(locked, no)));
                }
            }
        }
        if note != before {
            self.set_note(locked, no, &note)?;
            if note.is_ours() {
                replica.has_pending(self.clock.monotonic());
            }
        }
        Ok(())
    }

    /// Sets the note of an object under an operation.
    pub(crate) fn set_note(
        &self,
        locked: &Locked<'_>,
        no: ObjectNo,
        note: &Note,
    ) -> Result<(), StoreError> {
        let bytes = (!note.is_empty()).then(|| note.encode());
        locked.set_note(no, bytes.as_deref())
    }
}

fn dirty(note: &mut Note, base: CommitSeq) -> &mut Dirty {
    note.pending.data.get_or_insert_with(|| Dirty {
        base,
        cut: u64::MAX,
        ranges: Ranges::default(),
        tail: None,
    })
}

/// All of a new object is pending anyway.
fn absorb(note: &mut Note, what: Pend<'_>) {
    match what {
        Pend::Data(from, to) | Pend::Append(from, to) => note.absent.remove(from, to),
        Pend::Cut(size) => note.absent.remove(size, super::ranges::END),
        _ => {}
    }
}

/// The object is given back: only that the server must hear of it is left.
fn bury(note: &mut Note) {
    note.absent = Ranges::default();
    note.unlisted = false;
    if note.pending.created && note.flying.is_none() {
        // The server never heard of it.
        *note = Note {
            again: note.again,
            ..Note::default()
        };
        return;
    }
    let (first, links) = (note.pending.first_base(), note.pending.links.take());
    note.pending = super::note::Part {
        gone: links.is_some(),
        links,
        ..Default::default()
    };
    note.pending.removed_since(first);
}
