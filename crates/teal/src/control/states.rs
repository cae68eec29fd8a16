//! States with two cases in the answers of a control socket.
//!
//! # Guarantees
//! 1. A state with two cases is `true` or `false` in JSON, as its field has always been.

use serde::{Deserialize, Serialize};

/// The channel over which the kernel's requests come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "bool", into = "bool")]
pub(crate) enum RequestTransport {
    /// Rings of io_uring; `true` in JSON.
    Rings,
    /// The device `/dev/fuse`.
    #[default]
    Device,
}

impl From<bool> for RequestTransport {
    fn from(is_over_rings: bool) -> Self {
        if is_over_rings {
            Self::Rings
        } else {
            Self::Device
        }
    }
}

impl From<RequestTransport> for bool {
    fn from(transport: RequestTransport) -> Self {
        transport == RequestTransport::Rings
    }
}

/// The calls that make a program's changes durable.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "bool", into = "bool")]
pub(crate) enum SyncReach {
    /// `sync(2)` and `syncfs(2)` reach the volume, as `fsync(2)` does; `true` in JSON.
    WholeVolume,
    /// Only `fsync(2)` reaches the volume.
    #[default]
    SingleFiles,
}

impl From<bool> for SyncReach {
    fn from(has_syncfs: bool) -> Self {
        if has_syncfs {
            Self::WholeVolume
        } else {
            Self::SingleFiles
        }
    }
}

impl From<SyncReach> for bool {
    fn from(reach: SyncReach) -> Self {
        reach == SyncReach::WholeVolume
    }
}

/// The part of a mount's life.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "bool", into = "bool")]
pub(crate) enum MountPhase {
    /// Requests are served.
    #[default]
    Serving,
    /// The mount has been taken away, and the daemon closes the store; `true` in JSON.
    Ending,
}

impl From<bool> for MountPhase {
    fn from(is_ending: bool) -> Self {
        if is_ending {
            Self::Ending
        } else {
            Self::Serving
        }
    }
}

impl From<MountPhase> for bool {
    fn from(phase: MountPhase) -> Self {
        phase == MountPhase::Ending
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_with_two_cases_is_a_truth_value_in_json() {
        let shown = (
            RequestTransport::Rings,
            SyncReach::SingleFiles,
            MountPhase::Ending,
        );
        let text = serde_json::to_string(&shown).unwrap();
        assert_eq!(text, "[true,false,true]");
        let read: (RequestTransport, SyncReach, MountPhase) = serde_json::from_str(&text).unwrap();
        assert_eq!(read, shown);
    }
}
