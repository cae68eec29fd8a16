//! What a disk was asked and what it spent: in all, and since the last mark.

use teal_energy::ledger::{EnergyLedger, EnergyUse};
use teal_types::{Energy, Span};

/// Requests counted by kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RequestCounts {
    /// Reads.
    pub reads: u64,
    /// Sectors read.
    pub sectors_read: u64,
    /// Writes.
    pub writes: u64,
    /// Sectors written.
    pub sectors_written: u64,
    /// Flushes.
    pub flushes: u64,
    /// Discards.
    pub discards: u64,
    /// Times it was woken.
    pub wakes: u64,
}

/// An account at one point.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DriveAccount {
    /// What was asked.
    pub requests: RequestCounts,
    /// Where time and energy went.
    pub ledger: EnergyLedger,
}

impl DriveAccount {
    /// Returns what came since an earlier state of the same account: each use with its count, time
    /// and energy.
    pub fn since(&self, earlier: &Self) -> (RequestCounts, Vec<(EnergyUse, u64, Span, Energy)>) {
        let (now, then) = (&self.requests, &earlier.requests);
        let requests = RequestCounts {
            reads: now.reads - then.reads,
            sectors_read: now.sectors_read - then.sectors_read,
            writes: now.writes - then.writes,
            sectors_written: now.sectors_written - then.sectors_written,
            flushes: now.flushes - then.flushes,
            discards: now.discards - then.discards,
            wakes: now.wakes - then.wakes,
        };
        let uses = self.ledger.entries().map(|(used, entry)| {
            let before = earlier.ledger.entry(used);
            let energy = entry.energy().less(before.energy());
            (
                used,
                entry.count - before.count,
                entry.time.less(before.time),
                energy,
            )
        });
        (requests, uses.collect())
    }
}
