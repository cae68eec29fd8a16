//! The observable content of a store, compared with the content that was once committed.

use crate::store::handle::Store;
use siphasher::sip::SipHasher24;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::Hasher;
use std::ops::ControlFlow;
use teal_types::{Attr, FileType, Name, ObjectNo};

const PIECE: u64 = 16 << 10;
/// Pieces of one file that are looked at, so that a file of any size is read in bounded work.
const PIECES_MAX: usize = 200;
/// Failed reads of one file before it is given up.
const FAILURES_MAX: usize = 5;
/// Entries and objects that are looked at.
const SEEN_MAX: usize = 20_000;

/// Cookie, child, its type, name.
type ObservedEntry = (u64, ObjectNo, FileType, Name);
/// Name and value.
type ObservedXattr = (Vec<u8>, Option<Vec<u8>>);

/// The observable state of one object. Parts that could not be read are `None` or left out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ObservedObject {
    pub(super) attr: Option<Attr>,
    entries: Option<Vec<ObservedEntry>>,
    names: Option<Vec<(ObjectNo, Name)>>,
    xattrs: Option<Vec<ObservedXattr>>,
    /// Digests of pieces by offset.
    content: BTreeMap<u64, u64>,
}

/// The observable state of a store.
#[derive(Debug, Clone, Default)]
pub(super) struct ObservedStore {
    pub(super) things: BTreeMap<ObjectNo, ObservedObject>,
    orphans: Option<Vec<ObjectNo>>,
}

/// Looks at everything that hangs in the tree, and at the orphans.
pub(super) fn observe_store(store: &Store) -> ObservedStore {
    let orphans = store.orphans().ok();
    let mut seen = ObservedStore {
        orphans: orphans.clone(),
        ..ObservedStore::default()
    };
    let mut known: BTreeSet<ObjectNo> = orphans.into_iter().flatten().take(SEEN_MAX).collect();
    let mut waiting: Vec<ObjectNo> = known.iter().copied().collect();
    known.insert(ObjectNo::ROOT);
    waiting.push(ObjectNo::ROOT);
    let mut entries_left = SEEN_MAX;
    // All objects that names and the orphan set lead to, up to a bound.
    while let Some(no) = waiting.pop() {
        let thing = observe_object(store, no, &mut entries_left);
        for (_, child, _, name) in thing.entries.iter().flatten() {
            // Lookups must find what listings show.
            let _ = store.lookup(no, name);
            if known.len() < SEEN_MAX && known.insert(*child) {
                waiting.push(*child);
            }
        }
        seen.things.insert(no, thing);
    }
    seen
}

fn observe_object(store: &Store, no: ObjectNo, entries_left: &mut usize) -> ObservedObject {
    let thing = ObservedObject {
        attr: store.attr(no).ok(),
        names: store.names(no).ok(),
        entries: observe_entries(store, no, entries_left),
        xattrs: observe_xattrs(store, no),
        content: observe_content(store, no),
    };
    // Looked at without comparing it.
    let _ = (store.parent(no), store.path_of(no), store.head_bytes(no));
    if let Some(attr) = thing.attr {
        let _ = store.read(no, attr.size.saturating_sub(100), 5000);
    }
    thing
}

/// Returns the entries of a directory; `None` if its listing fails.
fn observe_entries(
    store: &Store,
    no: ObjectNo,
    entries_left: &mut usize,
) -> Option<Vec<ObservedEntry>> {
    let mut entries = Vec::new();
    let listed = store.each_entry(no, 0, &mut |cookie, child, kind, name| {
        // A bound for all directories together: entries may form circles.
        entries.push((cookie, child, kind, name.clone()));
        *entries_left = entries_left.saturating_sub(1);
        if *entries_left == 0 {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    listed.is_ok().then_some(entries)
}

/// Returns the extended attributes; `None` if one of them cannot be read.
fn observe_xattrs(store: &Store, no: ObjectNo) -> Option<Vec<ObservedXattr>> {
    let mut xattrs = Vec::new();
    for name in store.xattr_names(no).ok()? {
        let value = store.xattr(no, &name).ok()?;
        xattrs.push((name, value));
    }
    Some(xattrs)
}

/// Returns digests of the pieces of a file's content that can be read, by offset.
fn observe_content(store: &Store, no: ObjectNo) -> BTreeMap<u64, u64> {
    let mut content = BTreeMap::new();
    let mut at = Some(0);
    let mut failed = 0;
    for _ in 0..PIECES_MAX {
        let Some(offset) = at else { break };
        match store.read(no, offset, PIECE as usize) {
            Ok(bytes) if bytes.is_empty() => break,
            Ok(bytes) => {
                let mut digest = SipHasher24::new();
                digest.write(&bytes);
                content.insert(offset, digest.finish());
            }
            Err(_) => failed += 1,
        }
        // Over holes of any size.
        let next = store.seek(no, offset + PIECE, false);
        let next = next.unwrap_or(Some(offset + PIECE));
        at = next.map(|next| next / PIECE * PIECE);
        let _ = store.seek(no, offset, true);
        // A damaged file fails everywhere: a few attempts are enough.
        if failed >= FAILURES_MAX {
            break;
        }
    }
    content
}

fn agrees_with<T: PartialEq>(seen: Option<&T>, was: Option<&T>) -> bool {
    // Parts that could not be read may be anything.
    seen.is_none() || seen == was
}

impl ObservedStore {
    /// Returns whether all that could be read is what `was` says.
    pub(super) fn is_part_of(&self, was: &Self) -> bool {
        if !agrees_with(self.orphans.as_ref(), was.orphans.as_ref()) {
            return false;
        }
        let empty = ObservedObject::default();
        for (no, thing) in &self.things {
            let then = was.things.get(no).unwrap_or(&empty);
            if !thing.is_part_of(then) {
                return false;
            }
        }
        true
    }

    /// Returns whether each object has the size and the content that it had in one of these states.
    /// Salvage leaves out what lost records said, so that names and attributes, and objects beside
    /// each other, may be of several times.
    pub(super) fn is_made_of(&self, states: &[Self]) -> bool {
        let empty = ObservedObject::default();
        for (no, thing) in &self.things {
            let is_as_in = |was: &Self| {
                let then = was.things.get(no).unwrap_or(&empty);
                thing.has_size_of(then) && thing.has_content_of(then)
            };
            if !thing.content.is_empty() && !states.iter().any(is_as_in) {
                return false;
            }
        }
        true
    }
}

impl ObservedObject {
    /// Returns whether all that could be read is as it was then.
    fn is_part_of(&self, then: &Self) -> bool {
        agrees_with(self.attr.as_ref(), then.attr.as_ref())
            && agrees_with(self.entries.as_ref(), then.entries.as_ref())
            && agrees_with(self.names.as_ref(), then.names.as_ref())
            && agrees_with(self.xattrs.as_ref(), then.xattrs.as_ref())
            && self.has_content_of(then)
    }

    fn has_size_of(&self, then: &Self) -> bool {
        match (self.attr, then.attr) {
            (Some(now), Some(then)) => now.size == then.size,
            (Some(_), None) => false,
            (None, _) => true,
        }
    }

    /// Returns whether the pieces that could be read are what they were then.
    fn has_content_of(&self, then: &Self) -> bool {
        for (at, digest) in &self.content {
            if then.content.get(at) != Some(digest) {
                return false;
            }
        }
        true
    }
}
