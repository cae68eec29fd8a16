//! The history of names, and snapshots of directories beside it.
//!
//! History has a row for each change of a name. To list a directory as it was, all of these would
//! have to be read, also those of names long gone. So a directory in which much came and went gets
//! a snapshot, its names after a commit, in the commit's own transaction; a listing reads the
//! newest one before it and the changes since.
//!
//! # Guarantees
//! 1. *When*: after every commit, the changes since the last snapshot of a directory (its beginning
//!    counts as one) are at most `SNAPSHOT_MIN`, or as many as it has names; otherwise that commit
//!    takes one.
//! 2. *Listing costs what was there*: of n names then, a listing reads at most 3 n + 2
//!    `SNAPSHOT_MIN` rows. It reads k <= max(`SNAPSHOT_MIN`, n) changes, by (1), and a snapshot
//!    that k changes have made n names of, which has at most n + k.
//! 3. *Space is that of the changes*: a snapshot has fewer names than there were changes since the
//!    one before it. A directory that only grows never gets one.
//!
//! The numbers behind this rule, a [`NameTally`](teal_meta::NameTally) for each directory, are
//! updated once for each directory and commit.

use super::execution::BatchExecution;
use crate::limits::SNAPSHOT_MIN;
use crate::refusal::Outcome;
use std::collections::BTreeMap;
use teal_types::ObjectNo;

/// The changes that a batch makes to the names of a directory.
#[derive(Debug, Default)]
struct NameTurnover {
    come: u64,
    gone: u64,
    changes: u64,
}

impl BatchExecution<'_> {
    /// Adds a row to history for each name that leads elsewhere than before the batch, and takes
    /// the snapshots that are due.
    pub(super) fn remember_entries(&mut self) -> Outcome<()> {
        let mut dirs: BTreeMap<ObjectNo, NameTurnover> = BTreeMap::new();
        for (link, before) in std::mem::take(&mut self.entries) {
            let now = self.object_named(&link)?;
            // A name that leads where it led before needs no row.
            if now == before {
                continue;
            }
            self.txn.remember_entry(&link, self.seq, now)?;
            let turnover = dirs.entry(link.dir).or_default();
            turnover.come += u64::from(before.is_none());
            turnover.gone += u64::from(now.is_none());
            turnover.changes += 1;
        }
        for (dir, turnover) in dirs {
            // The numbers follow from the batch alone, without a scan of the directory.
            let mut tally = self.txn.name_tally(dir)?;
            tally.names = (tally.names + turnover.come).saturating_sub(turnover.gone);
            tally.changes += turnover.changes;
            // Guarantee 1 wants a snapshot at this commit.
            if tally.changes > tally.names.max(SNAPSHOT_MIN) {
                self.txn.remember_names(dir, self.seq)?;
                tally.changes = 0;
            }
            debug_assert!(
                tally.changes <= tally.names.max(SNAPSHOT_MIN),
                "guarantee 1"
            );
            self.txn.put_tally(dir, tally)?;
        }
        Ok(())
    }
}
