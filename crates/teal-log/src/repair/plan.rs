//! The plan of the new store: its objects and their names.

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
