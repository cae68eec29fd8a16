//! What the answers of a control socket come to: one state of several, where flags of an answer say
//! more than one thing.

use super::messages::{MachineShown, MountStatus, UpstreamShown};

/// Returns the counter of that name; 0 if there is none.
pub(crate) fn count_of(counters: &[(String, u64)], name: &str) -> u64 {
    for (known, count) in counters {
        if known == name {
            return *count;
        }
    }
    // A daemon of an earlier version does not count everything.
    0
}

/// The state of a store that is mounted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StoreState {
    /// Writing has ended after a failure of the disk.
    Failed,
    /// The store is mounted for reading only.
    ReadOnly,
    /// Changes of the last seconds are not on the disk yet.
    Uncommitted,
    /// Everything is on the disk.
    Durable,
}

impl MountStatus {
    /// Returns the state of the store: the worst one that applies.
    pub(crate) fn store_state(&self) -> StoreState {
        // A store that has failed takes no writes either, and may have changes that were never
        // written: the failure is what a person has to know.
        if self.failed {
            StoreState::Failed
        } else if self.read_only {
            StoreState::ReadOnly
        } else if self.uncommitted {
            StoreState::Uncommitted
        } else {
            StoreState::Durable
        }
    }
}

/// The state of the server towards this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ServerState<'a> {
    /// The server runs in this process, and listens there.
    InThisProcess {
        address: &'a str,
    },
    /// The server has not answered this mount yet.
    NotReachedYet,
    Connected,
    /// The server takes nothing from this machine any more.
    Refuses {
        why: &'a str,
    },
    OutOfReach {
        why: &'a str,
    },
}

/// The answer to the question whether this machine may be lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SafetyVerdict {
    /// The server has not been told yet of everything there is.
    Announcing,
    /// Something is only here, and the server refuses this machine.
    OnlyHereAndRefused,
    /// The server had everything before it refused this machine.
    UnknownToRefused,
    /// Something is only here, and a flush sends it.
    OnlyHere,
    /// The server had everything, and cannot read some of it any more.
    ServerDamaged,
    /// The server has everything, but not everything can be brought here.
    NotAllHere,
    /// The server has everything.
    Safe,
}

impl UpstreamShown {
    /// Returns how the server stands with this machine.
    pub(crate) fn server_state(&self) -> ServerState<'_> {
        // Trouble comes first: a server in this process, too, may be one that cannot be asked.
        match (&self.trouble, &self.served) {
            (Some(why), _) if self.denied => ServerState::Refuses { why },
            (Some(why), _) => ServerState::OutOfReach { why },
            (None, Some(address)) => ServerState::InThisProcess { address },
            (None, None) if self.connected => ServerState::Connected,
            (None, None) => ServerState::NotReachedYet,
        }
    }

    /// Returns whether the server has everything: the most urgent of the answers that fit.
    pub(crate) fn safety(&self) -> SafetyVerdict {
        // Before everything was announced, the number of objects that are only here says nothing.
        match (self.only_here, self.denied) {
            _ if self.announcing => SafetyVerdict::Announcing,
            // What the server has made of them since is not known here.
            (0, true) => SafetyVerdict::UnknownToRefused,
            (_, true) => SafetyVerdict::OnlyHereAndRefused,
            (0, false) if self.server_damaged_chunks > 0 => SafetyVerdict::ServerDamaged,
            (0, false) if self.stuck_count > 0 => SafetyVerdict::NotAllHere,
            (0, false) => SafetyVerdict::Safe,
            (_, false) => SafetyVerdict::OnlyHere,
        }
    }
}

/// The state of a machine of the volume, as its server sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MachineState {
    ThisMachine,
    ShutOut,
    Connected,
    /// The machine is not connected.
    Away,
}

impl MachineShown {
    /// Returns the state of the machine: the first one that applies.
    pub(crate) fn state(&self) -> MachineState {
        // The serving machine cannot be shut out, and is connected as long as it serves.
        if self.local {
            MachineState::ThisMachine
        } else if self.revoked {
            MachineState::ShutOut
        } else if self.connected {
            MachineState::Connected
        } else {
            MachineState::Away
        }
    }
}
