//! What has happened to objects that may have affinity to a drive, until the drive is told.

use teal_types::ObjectNo;

/// What has happened to what may have affinity, until the drive is told.
#[derive(Debug, Default)]
pub(super) struct AffinitySuccessions {
    /// What takes over the affinity of what.
    pub(super) successors: Vec<(ObjectNo, ObjectNo)>,
    /// What is no more.
    pub(super) ended: Vec<ObjectNo>,
}
