//! The account of a disk: its requests, time and energy, in all and since the last mark.

use crate::log::DiskEventKind;
use teal_energy::ledger::{EnergyLedger, EnergyUse};
use teal_types::{Energy, TimeSpan};

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

impl RequestCounts {
    /// Counts one request of `sectors` sectors. Power changes and discards are counted apart.
    pub(crate) fn count_request(&mut self, kind: DiskEventKind, sectors: u64) {
        match kind {
            DiskEventKind::Read => {
                self.reads += 1;
                self.sectors_read += sectors;
            }
            DiskEventKind::Write | DiskEventKind::WriteThrough => {
                self.writes += 1;
                self.sectors_written += sectors;
            }
            DiskEventKind::Flush => self.flushes += 1,
            DiskEventKind::Discard
            | DiskEventKind::Mark
            | DiskEventKind::Asleep
            | DiskEventKind::Awake => debug_assert!(false, "no request: {kind:?}"),
        }
    }
}

/// An account at one point.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DriveAccount {
    /// The requests.
    pub requests: RequestCounts,
    /// The ledger of time and energy.
    pub ledger: EnergyLedger,
}

impl DriveAccount {
    /// Returns the difference to an earlier state of the same account: each use with its count,
    /// time
    /// and energy.
    pub fn since(
        &self,
        earlier: &Self,
    ) -> (RequestCounts, Vec<(EnergyUse, u64, TimeSpan, Energy)>) {
        // Counters only grow, so that an earlier state of the same account is never greater.
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
            // A use that the earlier state does not have counts from zero.
            let before = earlier.ledger.entry(used);
            let energy = entry.energy().saturating_sub(before.energy());
            (
                used,
                entry.count - before.count,
                entry.time.saturating_sub(before.time),
                energy,
            )
        });
        (requests, uses.collect())
    }
}
