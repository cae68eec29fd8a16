//! The results of `cargo xtask bench andrew`, as they are collected.

use super::build;
use super::cold::ColdMachines;
use super::pair::UpstreamCounts;
use super::peers;

/// The place where the tree is built.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BuildPlace {
    Ext4,
    /// A replica, with this round trip to its server in milliseconds.
    Teal(u64),
}

impl BuildPlace {
    pub(super) fn label(self) -> String {
        match self {
            Self::Ext4 => "ext4".to_owned(),
            Self::Teal(delay) => format!("teal, {delay} ms"),
        }
    }
}

/// One build in one place.
#[derive(Debug)]
pub(super) struct BuildSample {
    pub(super) place: BuildPlace,
    pub(super) round: usize,
    /// Wall seconds of each phase, in the order of [`build::PHASES`].
    pub(super) phases: [f64; build::PHASES.len()],
    /// Processor seconds of the build.
    pub(super) client_cpu: f64,
    /// Processor seconds of the replica's daemon, and of the one that serves.
    pub(super) daemons: (f64, f64),
    /// The counters of the requests between replica and server from the first phase to the end of
    /// the last.
    pub(super) counts: UpstreamCounts,
    /// The same counters until a flush after the build had ended, and the seconds of the flush.
    pub(super) drained: (UpstreamCounts, f64),
    /// The load of the machine at the end.
    pub(super) load: f64,
}

/// All that was measured so far.
#[derive(Debug, Default)]
pub(super) struct AndrewResults {
    pub(super) samples: Vec<BuildSample>,
    pub(super) cold: Option<ColdMachines>,
    pub(super) peers: Vec<peers::PeerSample>,
}
