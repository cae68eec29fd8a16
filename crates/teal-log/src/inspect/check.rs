//! `check`: looks at everything an open store consists of and says what is wrong with it. Changes
//! nothing.
//!
//! # Guarantees
//! 1. *Complete*: every page, inode record, entry, link, extent and segment that the newest state
//!    refers to is looked at; with [`CheckOptions::verify_data`] every byte of it is read from the
//!    disk, not from a cache.
//! 2. *Undeterred*: a damaged thing is one problem; whatever can be reached without it is still
//!    checked.
//! 3. *Bounded*: memory grows with the number of objects and extents (some 100 bytes each), the
//!    list of problems by [`PROBLEMS_MAX`].
//!
//! # How
//! 1. `fixed` reads superblocks and anchors.
//! 2. `objects` walks the store-wide trees and every object, notes every live range, and adds up
//!    what entries and links say of each.
//! 3. `shared` holds the table of shared extents against the references of all files.
//! 4. `names` compares the two and finds what cannot be reached.
//! 5. `space` sorts the live ranges: none overlaps another or leaves its segment, and their sum per
//!    segment is what the usage table says.

mod copies;
mod fixed;
mod names;
mod objects;
mod places;
mod shared;
mod space;

use crate::error::StoreError;
use crate::format::page::TreeKind;
use crate::object::objects::ObjectStore;
use crate::store::handle::Store;
use crate::tree::Tree;
use parking_lot::Mutex;
use std::collections::HashMap;
use teal_types::{FileType, ObjectNo, SECTOR};

pub use places::DiskPlace;

/// Problems kept in a [`CheckReport`]; further ones are only counted.
pub const PROBLEMS_MAX: usize = 1000;

/// The options of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CheckOptions {
    /// Reads all file content and compares its checksums, and walks the records of every segment in
    /// use.
    pub verify_data: bool,
}

/// The phase of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckPhase {
    /// Superblocks and anchors.
    Fixed,
    /// Objects: `done` of `total`.
    Objects,
    /// Names against links, and what can be reached: `done` of `total` objects.
    Names,
    /// Segments: `done` of `total`.
    Space,
}

/// The progress of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CheckProgress {
    /// The present phase.
    pub phase: CheckPhase,
    /// The part of the phase that is done.
    pub done: u64,
    /// Out of how much.
    pub total: u64,
}

/// The severity of a problem.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Normal after a power cut; said for completeness. Does not make a store unclean.
    Note,
    /// Space is counted wrongly; nothing a user can see.
    Space,
    /// Structures contradict each other: a name, an attribute or an object may be wrong.
    Inconsistent,
    /// Something that was durable cannot be read.
    Damage,
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckProblem {
    /// The severity.
    pub severity: Severity,
    /// The problem, as a sentence without its end.
    pub what: String,
    /// The object it belongs to, if known.
    pub object: Option<ObjectNo>,
    /// A path of that object, as far as it can be found.
    pub path: Option<String>,
    /// The place on the disk, if known.
    pub sector: Option<u64>,
}

impl std::fmt::Display for CheckProblem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}: {}", self.severity, self.what)?;
        if let Some(path) = &self.path {
            write!(f, " ({path})")?;
        }
        self.sector
            .map_or(Ok(()), |sector| write!(f, " at sector {sector}"))
    }
}

/// The findings of a check.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CheckReport {
    /// The first [`PROBLEMS_MAX`] problems and notes.
    pub problems: Vec<CheckProblem>,
    /// The number of problems, notes not counted.
    pub total: u64,
    /// Objects looked at.
    pub objects: u64,
    /// Directory entries looked at.
    pub entries: u64,
    /// Extents looked at.
    pub extents: u64,
    /// Tree pages on disk looked at.
    pub pages: u64,
    /// Second copies of pages looked at.
    pub copies: u64,
    /// The bytes of file content that were compared with their checksums.
    pub verified: u64,
    /// Bytes the newest state refers to.
    pub live: u64,
}

impl CheckReport {
    /// Returns whether there was no problem.
    pub fn is_clean(&self) -> bool {
        self.total == 0
    }
}

/// The use of a live range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum RangeUse {
    Page(TreeKind),
    SecondCopy(TreeKind),
    Inode,
    Content,
    /// Given up by a tree in memory, not yet by the usage table.
    Leaving,
}

/// Bytes on the disk that the newest state refers to.
#[derive(Debug, Clone, Copy)]
struct LiveRange {
    byte: u64,
    bytes: u32,
    of: RangeUse,
    owner: ObjectNo,
}

/// The facts about an object that are known after all objects have been seen.
#[derive(Debug, Clone, Copy, Default)]
struct ObjectFacts {
    /// `None`: only entries speak of it.
    kind: Option<FileType>,
    orphan: bool,
    /// Names its own links have, and names that entries give it.
    links: u32,
    named: u32,
    /// Sum over links minus sum over entries of the fingerprints of (directory, name): 0 when they
    /// are the same.
    fingerprint: u64,
    /// A directory with an entry for it.
    in_dir: u64,
}

struct StoreChecker<'s> {
    store: &'s ObjectStore,
    usage_tree: &'s Mutex<Tree>,
    options: CheckOptions,
    report: CheckReport,
    ranges: Vec<LiveRange>,
    facts: HashMap<ObjectNo, ObjectFacts>,
    highest_lsn: u64,
    shared: HashMap<u64, shared::CountedExtent>,
    /// Pages that should have a second copy and have none.
    without_copy: u64,
    /// Blocks for which room is set aside.
    unwritten_blocks: u64,
}

impl Store {
    /// Checks the whole store, roll-forward state included. Changes nothing, but has to have the
    /// store for itself: what operations change meanwhile is reported as contradictions.
    pub fn check(
        &self,
        options: CheckOptions,
        progress: &mut dyn FnMut(CheckProgress),
    ) -> CheckReport {
        // Commits and checkpoints would change what is compared.
        let _committer = self.log.committer();
        // Read from the disk, not from memory.
        self.objects().reader.forget_caches();
        let mut checker = StoreChecker::new(self, options);
        // Objects that cannot be brought up to date are reported first.
        for (no, error) in self.objects().redo_each_deferred() {
            checker.add_damage(Some(no), &error);
        }
        progress(CheckProgress {
            phase: CheckPhase::Fixed,
            done: 0,
            total: 1,
        });
        // From fixed places to objects, from objects to names, from all of them to space.
        checker.check_fixed();
        checker.check_objects(progress);
        checker.note_missing_copies();
        checker.check_names(progress);
        checker.check_space(progress);
        let mut report = checker.report;
        // Only now that no object is locked.
        for problem in &mut report.problems {
            problem.path = problem.object.map(|no| self.path_of(no));
        }
        report
    }
}

impl<'s> StoreChecker<'s> {
    fn new(store: &'s Store, options: CheckOptions) -> Self {
        let report = CheckReport::default();
        Self {
            store: store.objects(),
            usage_tree: &store.log.usage,
            options,
            report,
            ranges: Vec::new(),
            facts: HashMap::new(),
            highest_lsn: 0,
            shared: HashMap::new(),
            without_copy: 0,
            unwritten_blocks: 0,
        }
    }

    fn add_problem(
        &mut self,
        severity: Severity,
        object: Option<ObjectNo>,
        sector: Option<u64>,
        what: impl Into<String>,
    ) {
        // Notes are no problems.
        self.report.total += u64::from(severity > Severity::Note);
        // The list is bounded; the total counts all.
        if self.report.problems.len() < PROBLEMS_MAX {
            self.report.problems.push(CheckProblem {
                severity,
                what: what.into(),
                object,
                path: None,
                sector,
            });
        }
    }

    fn add_contradiction(&mut self, no: ObjectNo, what: impl Into<String>) {
        self.add_problem(Severity::Inconsistent, Some(no), None, what);
    }

    fn add_damage(&mut self, no: Option<ObjectNo>, error: &StoreError) {
        let (at, object) = match error {
            StoreError::Corrupt { at, object, .. } => (Some(*at), *object),
            StoreError::Io { at, .. } => (Some(*at), None),
            _ => (None, None),
        };
        self.add_problem(Severity::Damage, no.or(object), at, error.to_string());
    }

    fn add_live_range(&mut self, byte: u64, bytes: u64, of: RangeUse, owner: ObjectNo) {
        let disk = self.store.sb.sectors * SECTOR;
        // A damaged address must not enter the ranges, which are compared with segments.
        if byte.checked_add(bytes).is_none_or(|end| end > disk) {
            self.add_problem(
                Severity::Inconsistent,
                Some(owner),
                Some(byte / SECTOR),
                "it lies behind the end of the disk",
            );
            return;
        }
        if bytes > self.store.geometry.segment_bytes() {
            self.add_problem(
                Severity::Inconsistent,
                Some(owner),
                Some(byte / SECTOR),
                "something is longer than a segment",
            );
            return;
        }
        self.ranges.push(LiveRange {
            byte,
            bytes: bytes as u32,
            of,
            owner,
        });
    }
}
