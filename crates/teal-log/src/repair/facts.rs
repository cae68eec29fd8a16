//! The facts about every object that the inode map, the log and the directories tell, as far as
//! they can be read.
//!
//! # Rules
//! 1. A page of the inode map that can be read is the truth: what it does not have is gone.
//! 2. An object whose page of the map or whose record is lost is *missing*. If the log behind the
//!    checkpoint has a whole record of it, that one and what follows it are its newest state, and
//!    it is missing no more. Otherwise the newest record in the segments is *uncertain*.
//! 3. A name is certain if the object and its directory agree on it, or if the object has it and
//!    the page of the directory is lost.

use crate::error::StoreError;
use crate::format::codec::COUNTER_LIMIT;
use crate::format::delta::{Delta, decode_body};
use crate::format::imap::RecordHome;
use crate::format::inode::DirectoryEntry;
use crate::format::page::NodeItems;
use crate::object::deferred::DeferredDelta;
use crate::object::directory::{DirectoryContent, DirectoryEntries};
use crate::object::redo::ObjectRedo;
use crate::object::state::{ObjectContent, ObjectState};
use crate::repair::findings::{RepairPhase, RepairProgress};
use crate::repair::records::find_records;
use crate::seeded::{Bug, bug};
use crate::store::handle::Store;
use crate::tree::inode_map::InodeMap;
use std::collections::{BTreeMap, BTreeSet};
use teal_types::{FileType, Name, ObjectNo};

/// Objects between two reports of progress.
const STEP: u64 = 256;

/// A name of an object: the directory and what it is called there.
pub(super) type ObjectName = (ObjectNo, Name);

/// The facts about an object that can be read.
#[derive(Debug)]
pub(super) struct ObjectFacts {
    pub(super) kind: FileType,
    /// The length of a file, or the number of entries of a directory.
    pub(super) size: u64,
    /// The names that the object says it has.
    pub(super) links: Vec<ObjectName>,
}

impl ObjectFacts {
    fn of_state(state: &ObjectState) -> Self {
        let links = state.links.iter();
        Self {
            kind: state.core.kind,
            size: state.core.size,
            links: links.map(|link| (link.parent, link.name.clone())).collect(),
        }
    }
}

/// How far a name that an object says it has can be believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NameVerdict {
    /// The directory says so too, or its page is lost.
    Certain,
    /// The directory itself is missing.
    DirectoryLost,
    /// The directory says otherwise, or is gone.
    Contradicted,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct SurveyedObjects {
    /// Objects whose newest state is known.
    pub(super) known: BTreeMap<ObjectNo, ObjectFacts>,
    /// Objects that were there and whose newest state cannot be read.
    pub(super) missing: BTreeSet<ObjectNo>,
    /// Names by which directories know missing objects.
    pub(super) names_of_missing: BTreeMap<ObjectNo, Vec<ObjectName>>,
    /// Names of objects that are gone, or that do not have the name.
    pub(super) stale_names: Vec<(ObjectNo, ObjectName)>,
    /// Directories of which pages are lost.
    pub(super) torn_directories: BTreeSet<ObjectNo>,
    /// States that only records lead to: of known objects and of uncertain ones.
    pub(super) from_records: BTreeMap<ObjectNo, ObjectState>,
    /// The missing objects of which an older state, or what may be one, was found.
    pub(super) uncertain: BTreeMap<ObjectNo, ObjectFacts>,
}

impl SurveyedObjects {
    /// Reads everything that can be read.
    pub(super) fn read(
        store: &Store,
        log_losses: u32,
        progress: &mut dyn FnMut(RepairProgress),
    ) -> Self {
        let mut found = Self::default();
        let objects = store.objects();
        // First what the log says behind the checkpoint; what cannot be redone stays in the list.
        objects.redo_each_deferred();
        let (numbers, has_whole_map) = object_numbers(store);
        let total = numbers.len() as u64;
        for (done, no) in (0..).zip(numbers) {
            if done % STEP == 0 {
                progress(RepairProgress {
                    phase: RepairPhase::Objects,
                    done,
                    total,
                });
            }
            found.look_at(store, no);
        }
        found.read_directories(store);
        // With nothing missing, no record can say anything new.
        if !has_whole_map || !found.missing.is_empty() {
            progress(RepairProgress {
                phase: RepairPhase::Records,
                done: 0,
                total: 1,
            });
            found.search_records(store, log_losses);
        }
        found
    }

    fn look_at(&mut self, store: &Store, no: ObjectNo) {
        let objects = store.objects();
        match objects.with_state(no, |state| Ok(ObjectFacts::of_state(state))) {
            Ok(facts) => drop(self.known.insert(no, facts)),
            // Removed behind the checkpoint.
            Err(StoreError::NotFound(_)) => {}
            // Its page of the map or its record is lost: the log may have all of it.
            Err(_) => match newest_by_log(store, no) {
                LoggedObject::Whole(state) => {
                    self.known.insert(no, ObjectFacts::of_state(&state));
                    self.from_records.insert(no, *state);
                }
                LoggedObject::Gone => {}
                LoggedObject::Unknown => drop(self.missing.insert(no)),
            },
        }
    }

    /// Returns the state of a known object, as the store or the records say.
    pub(super) fn with_state<T>(
        &self,
        store: &Store,
        no: ObjectNo,
        look: &mut dyn FnMut(&ObjectState) -> T,
    ) -> Option<T> {
        with_state_of(store, &self.from_records, no, look)
    }

    /// Goes through the entries of all directories that can be read.
    fn read_directories(&mut self, store: &Store) {
        // Those that are known by now: the entries of others cannot be read.
        let directories: Vec<ObjectNo> = self
            .known
            .iter()
            .filter(|(_, facts)| facts.kind.is_dir())
            .map(|(no, _)| *no)
            .collect();
        for dir in directories {
            let listed = self.with_state(store, dir, &mut |state| match &state.content {
                ObjectContent::Dir(content) => readable_entries(store, content),
                _ => (Vec::new(), false),
            });
            // A page that cannot be read hides only its own entries.
            let (entries, is_torn) = listed.unwrap_or_default();
            if is_torn {
                self.torn_directories.insert(dir);
            }
            for entry in entries {
                let name = (dir, entry.name);
                match self.known.get(&entry.child) {
                    Some(facts) if facts.links.contains(&name) => {}
                    Some(_) => self.stale_names.push((entry.child, name)),
                    None if self.is_missing(store, entry.child) => {
                        self.missing.insert(entry.child);
                        let names = self.names_of_missing.entry(entry.child).or_default();
                        names.push(name);
                    }
                    None => self.stale_names.push((entry.child, name)),
                }
            }
        }
    }

    /// Returns whether an object that is not known may be there.
    fn is_missing(&self, store: &Store, no: ObjectNo) -> bool {
        let map = store.objects().inode_map.read();
        self.missing.contains(&no)
            || is_possible(no) && map.get(&store.objects().reader, no).is_err()
    }

    /// Searches the segments for what is missing.
    fn search_records(&mut self, store: &Store, log_losses: u32) {
        let mut is_wanted = |no: ObjectNo| {
            !self.known.contains_key(&no)
                && is_possible(no)
                && (self.is_missing(store, no) || bug(Bug::DeletedRepaired))
        };
        let homes = find_records(store, log_losses, &mut is_wanted);
        debug_assert!(homes.keys().all(|no| !self.known.contains_key(no)));
        for (no, home) in homes {
            let Some(state) = state_of_record(store, no, home) else {
                continue;
            };
            // Without a name it was deleted already, and only open files kept it.
            if state.links.is_empty() && no != ObjectNo::ROOT {
                self.missing.remove(&no);
                continue;
            }
            // The object is still missing: what was found may not be its newest state.
            let facts = ObjectFacts::of_state(&state);
            self.missing.insert(no);
            if bug(Bug::DeletedRepaired) {
                self.known.insert(no, facts);
            } else {
                self.uncertain.insert(no, facts);
            }
            self.from_records.insert(no, state);
        }
    }

    /// Returns how far a name of a known object can be believed.
    pub(super) fn judge_name(&self, store: &Store, no: ObjectNo, name: &ObjectName) -> NameVerdict {
        let (dir, name) = name;
        // There always is a root directory, whatever is lost of it.
        if *dir == ObjectNo::ROOT && !self.known.contains_key(dir) {
            return NameVerdict::Certain;
        }
        if !self.known.contains_key(dir) {
            return if self.is_missing(store, *dir) {
                NameVerdict::DirectoryLost
            } else {
                NameVerdict::Contradicted
            };
        }
        // The directory is asked for this name only: other pages of it may be lost.
        let objects = store.objects();
        let entry = self.with_state(store, *dir, &mut |state| match &state.content {
            ObjectContent::Dir(content) => {
                content.find_entry(&objects.reader, *dir, objects.name_hash, name)
            }
            _ => Ok(None),
        });
        match entry {
            Some(Ok(Some((_, entry)))) if entry.child == no => NameVerdict::Certain,
            // The page that would have it is lost.
            Some(Err(_)) => NameVerdict::Certain,
            _ if bug(Bug::DeletedRepaired) => NameVerdict::Certain,
            _ => NameVerdict::Contradicted,
        }
    }
}

/// Returns whether a program can have given an object this number.
fn is_possible(no: ObjectNo) -> bool {
    (ObjectNo::ROOT.get()..COUNTER_LIMIT).contains(&no.get())
}

/// Looks at the state of an object, as records or the store say.
pub(super) fn with_state_of<T>(
    store: &Store,
    from_records: &BTreeMap<ObjectNo, ObjectState>,
    no: ObjectNo,
    look: &mut dyn FnMut(&ObjectState) -> T,
) -> Option<T> {
    if let Some(state) = from_records.get(&no) {
        return Some(look(state));
    }
    store.objects().with_state(no, |state| Ok(look(state))).ok()
}

/// Returns all numbers that the readable part of the inode map and the log name, and whether all
/// pages of the map can be read.
fn object_numbers(store: &Store) -> (BTreeSet<ObjectNo>, bool) {
    let objects = store.objects();
    // Damaged pages are passed by: each hides the objects below it.
    let mut numbers = BTreeSet::new();
    let mut is_whole = true;
    let map = objects.inode_map.read();
    map.tree.walk_nodes(
        &objects.reader,
        &mut |_, node| {
            let NodeItems::Leaf(items) = &node.items else {
                return;
            };
            for (no, value) in items {
                // An item that makes no sense is of an object that is missing.
                if !matches!(InodeMap::decode(*no, value), Ok(None)) {
                    numbers.insert(ObjectNo::new(*no));
                }
            }
        },
        &mut |_, _| is_whole = false,
    );
    // Changes since the checkpoint are newer than the tree.
    for (no, home) in map.newer_than_tree() {
        match home {
            Some(_) => numbers.insert(no),
            None => numbers.remove(&no),
        };
    }
    drop(map);
    // And those that only the log knows.
    numbers.extend(objects.unfolded.numbers());
    numbers.extend(objects.deferred.numbers(ObjectNo::new(0)));
    // Other numbers can be given by no program: the page is made up.
    numbers.retain(|no| is_possible(*no));
    (numbers, is_whole)
}

/// Returns the entries of a directory that can be read, and whether some cannot.
fn readable_entries(store: &Store, content: &DirectoryContent) -> (Vec<DirectoryEntry>, bool) {
    let mut is_torn = false;
    let mut entries = Vec::new();
    match &content.entries {
        DirectoryEntries::Few(map) => entries.extend(map.values().cloned()),
        DirectoryEntries::Tree(tree) => {
            let mut is_damaged = false;
            tree.walk_nodes(
                &store.objects().reader,
                &mut |_, node| {
                    let NodeItems::Leaf(items) = &node.items else {
                        return;
                    };
                    for (cookie, value) in items {
                        match DirectoryEntry::decode_at(*cookie, value) {
                            Some(entry) => entries.push(entry),
                            None => is_damaged = true,
                        }
                    }
                },
                &mut |_, _| is_torn = true,
            );
            is_torn |= is_damaged;
        }
    }
    (entries, is_torn)
}

/// The newest word of the log behind the checkpoint on an object.
enum LoggedObject {
    Whole(Box<ObjectState>),
    Gone,
    /// The log has no whole record of it, or lost records may have changed it.
    Unknown,
}

/// Returns what the log behind the checkpoint says of an object without its older state.
fn newest_by_log(store: &Store, no: ObjectNo) -> LoggedObject {
    let deltas = deferred_deltas(store, no);
    let is_whole =
        |delta: &DeferredDelta| has_kind(delta, &|delta| matches!(delta, Delta::Inode(_)));
    let is_free = |delta: &DeferredDelta| has_kind(delta, &|delta| matches!(delta, Delta::Free));
    if deltas.last().is_some_and(is_free) {
        return LoggedObject::Gone;
    }
    // From its first whole record on, the log needs nothing older.
    let Some(first) = deltas.iter().position(is_whole) else {
        return LoggedObject::Unknown;
    };
    let mut redo = ObjectRedo::new(&store.objects().reader, no, None);
    let redone = deltas[first..]
        .iter()
        .try_for_each(|delta| redo.redo_delta(delta))
        .and_then(|()| redo.check_losses());
    match (redone, redo.state) {
        (Ok(()), Some(state)) => LoggedObject::Whole(Box::new(state)),
        (Ok(()), None) => LoggedObject::Gone,
        (Err(_), _) => LoggedObject::Unknown,
    }
}

fn has_kind(delta: &DeferredDelta, is_kind: &dyn Fn(&Delta<'_>) -> bool) -> bool {
    let placed = delta
        .delta_bytes()
        .and_then(|bytes| decode_body(bytes, 1).next())
        .and_then(Result::ok);
    placed.is_some_and(|placed| is_kind(&placed.delta))
}

fn deferred_deltas(store: &Store, no: ObjectNo) -> Vec<DeferredDelta> {
    let list = store.objects().deferred.lock();
    list.get(&no).cloned().unwrap_or_default()
}

/// Returns an object as its record says, with the changes in the log that are newer.
fn state_of_record(store: &Store, no: ObjectNo, home: RecordHome) -> Option<ObjectState> {
    let objects = store.objects();
    let mut redo = ObjectRedo::new(&objects.reader, no, Some(objects.read_home(no, home).ok()?));
    // Changes that the record has already are not made again.
    let newer = deferred_deltas(store, no)
        .into_iter()
        .filter(|delta| delta.lsn > home.lsn);
    for delta in newer {
        if redo.redo_delta(&delta).is_err() {
            // The record by itself is an older state, but a whole one.
            return objects.read_home(no, home).ok();
        }
    }
    redo.state
}
