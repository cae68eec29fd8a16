//! The client behind a request.

use teal_types::{Author, Incarnation, ReplicaNo, VolumeId};

/// The replica that a request comes from, as the transport has verified it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Peer {
    /// The volume that the replica belongs to, the only one it may see.
    pub volume: VolumeId,
    /// The number of the replica in its volume.
    pub replica: ReplicaNo,
}

impl Peer {
    /// Returns the author that an incarnation of this replica is.
    pub(crate) const fn author(self, incarnation: Incarnation) -> Author {
        Author {
            replica: self.replica,
            incarnation,
        }
    }
}
