//! The samples of `cargo xtask bench portable`, and the activity that is replayed.

use super::session::ReplayStep;

/// The devices that content can come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ContentOrigin {
    Server,
    Drive,
    Both,
}

impl ContentOrigin {
    pub(super) const ALL: [Self; 3] = [Self::Server, Self::Drive, Self::Both];

    pub(super) fn label(self) -> &'static str {
        match self {
            Self::Server => "no drive",
            Self::Drive => "drive only",
            Self::Both => "both",
        }
    }
}

/// One replay.
#[derive(Debug)]
pub(super) struct ReplaySample {
    pub(super) from: ContentOrigin,
    /// The bandwidth in Mbit/s.
    pub(super) rate: f64,
    pub(super) delay: u64,
    pub(super) round: usize,
    pub(super) seconds: f64,
    /// The number of times an operation waited for the server.
    pub(super) waits: u64,
    pub(super) requests: u64,
    pub(super) fetched: u64,
}

/// The activity that is replayed.
#[derive(Debug, Default)]
pub(super) struct RecordedActivity {
    pub(super) steps: Vec<ReplayStep>,
    pub(super) files: u64,
    pub(super) bytes: u64,
}
