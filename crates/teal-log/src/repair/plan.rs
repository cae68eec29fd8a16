//! The plan of the new store: its objects and their names.

use crate::repair::content::LostContent;
use crate::repair::facts::ObjectName;
use teal_types::{Name, ObjectNo};

/// The name of the file that says that a store is the unfinished copy of a damaged one.
pub const UNFINISHED: &str = "UNFINISHED REPAIR - run teal repair again";

/// Returns the name of the file that says that a copy is unfinished.
pub(super) fn mark_name() -> Name {
    Name::new(UNFINISHED.as_bytes()).expect("a valid name")
}

/// The source of an object of the new store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ObjectSource {
    /// The damaged store, or its records.
    Found,
    /// A directory that was not there before.
    MadeDirectory,
    /// The report of what is lost.
    Report,
}

/// An object of the new store.
#[derive(Debug)]
pub(super) struct PlannedObject {
    /// Its number is the one it had.
    pub(super) no: ObjectNo,
    pub(super) source: ObjectSource,
    pub(super) names: Vec<ObjectName>,
    /// The object is in its place, as it was.
    pub(super) is_in_tree: bool,
    /// The parts of its content that could be read.
    pub(super) content: LostContent,
}

/// The objects of the new store.
#[derive(Debug)]
pub(super) struct RepairPlan {
    /// Each behind the one it is in; without the root.
    pub(super) directories: Vec<PlannedObject>,
    pub(super) others: Vec<PlannedObject>,
    /// The number of the file that says that the copy is unfinished.
    pub(super) mark: ObjectNo,
}

impl RepairPlan {
    /// Returns all objects in the order in which they are made.
    pub(super) fn all_objects(&self) -> impl Iterator<Item = &PlannedObject> {
        self.directories.iter().chain(&self.others)
    }

    /// Returns a number that tells this plan from another one of the same store, of which more or
    /// less could be read.
    pub(super) fn digest(&self) -> u32 {
        let add = |digest, number: u64| crc32c::crc32c_append(digest, &number.to_le_bytes());
        let mut digest = add(0, self.mark.get());
        for planned in self.all_objects() {
            let source = match planned.source {
                ObjectSource::Found => 0,
                ObjectSource::MadeDirectory => 1,
                ObjectSource::Report => 2,
            };
            let LostContent { bytes, read, pages } = planned.content;
            let is_in_tree = u64::from(planned.is_in_tree);
            let count = planned.names.len() as u64;
            for number in [
                planned.no.get(),
                source,
                is_in_tree,
                bytes,
                read,
                pages,
                count,
            ] {
                digest = add(digest, number);
            }
            // Each with its length, so that no two lists of names look alike.
            for (dir, name) in &planned.names {
                digest = add(digest, dir.get());
                digest = add(digest, name.as_bytes().len() as u64);
                digest = crc32c::crc32c_append(digest, name.as_bytes());
            }
        }
        digest
    }

    /// Checks that every object has a name in a directory that is made before it, and a number of
    /// its own.
    pub(super) fn check(&self) {
        let mut made = std::collections::BTreeSet::from([ObjectNo::ROOT]);
        for planned in self.all_objects() {
            assert!(
                !planned.names.is_empty(),
                "an object without a name is gone"
            );
            for (dir, _) in &planned.names {
                assert!(
                    made.contains(dir),
                    "a directory is made before what is in it"
                );
            }
            let is_new = made.insert(planned.no);
            assert!(is_new, "each object is made once");
        }
        assert!(
            !made.contains(&self.mark),
            "the mark has a number of its own"
        );
    }
}
