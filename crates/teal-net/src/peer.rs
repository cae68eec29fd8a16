//! The machine at the other end, by its certificate.

use teal_types::{ReplicaNo, VolumeId};

/// An enrolled machine, as its certificate names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CertifiedPeer {
    /// The volume that the machine takes part in.
    pub volume: VolumeId,
    /// The number of the machine's replica in that volume.
    pub replica: ReplicaNo,
}
