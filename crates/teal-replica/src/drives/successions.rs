//! Events that change the affinity of objects to a drive, until the drive is told.

use teal_types::ObjectNo;

/// Events that change affinity and that the drive has not been told.
#[derive(Debug, Default)]
pub(super) struct AffinitySuccessions {
    /// Pairs of an object and the object that takes over its affinity.
    pub(super) successors: Vec<(ObjectNo, ObjectNo)>,
    /// Objects that are gone.
    pub(super) ended: Vec<ObjectNo>,
}
