//! Upkeep of the chunk store without a request: merges small packs, and collects chunks that
//! nothing names.
//!
//! # Guarantees
//! 1. *Nothing that is named goes*: what history names is marked after the collection has begun,
//!    and what is committed meanwhile is pinned.
//! 2. *Nothing that is going to be named goes*: uploads in progress are left alone (`uploads`).
//! 3. *A crash is harmless*: every step of a collection or a merge stands for itself.
//! 4. *Quiet*: while nothing is sent, nothing is done; and then no more than half of the time,
//!    unless there is no room.

use crate::refusal::{Outcome, RequestRefusal};
use crate::server::Server;
use std::time::Duration;
use teal_chunk::{CollectionReport, MarkPhase, SweepPhase};
use teal_meta::PastPlace;
use teal_types::VolumeId;

/// The number of history's rows that one transaction looks at.
const ROWS: usize = 4096;
/// The time after which something that failed is tried again.
const RETRY_AFTER: Duration = Duration::from_secs(30);
/// The longest pause after a step.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Says whether a sweep pauses between its steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SweepPace {
    /// The sweep takes half of the time, so that requests go on meanwhile.
    Paused,
    /// A machine waits for free space, and the sweep takes all of the time.
    Unpaused,
}

impl Server {
    /// Looks after the chunks for as long as the server lives; meant for a thread of its own.
    pub fn run_upkeep(&self) {
        loop {
            let wait = match self.do_due_upkeep() {
                Ok(wait) => wait,
                Err(refusal) => {
                    log::warn!("the chunks could not be looked after: {}", refusal.0.words);
                    Some(RETRY_AFTER)
                }
            };
            if !self.await_upkeep(wait) {
                return;
            }
        }
    }

    /// Waits until there may be work; returns `false` when the server has stopped.
    fn await_upkeep(&self, at_most: Option<Duration>) -> bool {
        let mut uploads = self.uploads.lock();
        if self.has_stopped() {
            return false;
        }
        // Work that has become due since the last step must not be slept over.
        let is_due = uploads.wants_merge()
            || uploads.time_until_collection(self.clock().monotonic_time()) == Some(Duration::ZERO);
        match at_most {
            _ if is_due && at_most != Some(RETRY_AFTER) => {}
            Some(wait) => drop(self.upkeep_due.wait_for(&mut uploads, wait)),
            None => self.upkeep_due.wait(&mut uploads),
        }
        drop(uploads);
        !self.has_stopped()
    }

    /// Merges small packs and collects unnamed chunks if that is due, and returns when something
    /// will be due next.
    ///
    /// # Errors
    /// Returns the failure in words; nothing is lost, and the work can be done again.
    pub fn look_after_chunks(&self) -> Result<Option<Duration>, teal_proto::RefusalReply> {
        Ok(self.do_due_upkeep()?)
    }

    fn do_due_upkeep(&self) -> Outcome<Option<Duration>> {
        if self.uploads.lock().wants_merge() {
            self.merge_packs()?;
        }
        let due = self
            .uploads
            .lock()
            .time_until_collection(self.clock().monotonic_time());
        if due == Some(Duration::ZERO) {
            // A failed collection is due again, and `run_upkeep` pauses before it.
            self.collect_chunks().inspect_err(|_| {
                self.uploads
                    .lock()
                    .retry_collection(self.clock().monotonic_time())
            })?;
        }
        Ok(self
            .uploads
            .lock()
            .time_until_collection(self.clock().monotonic_time()))
    }

    fn merge_packs(&self) -> Outcome<()> {
        self.uploads.lock().begin_merge();
        while self.chunks().is_scattered() {
            let before = self.chunks().usage().packs;
            let merged = self.sweep_chunks(self.chunks().begin_merge()?, SweepPace::Paused)?;
            log::debug!(
                "{} small packs became {}",
                merged.rewritten_packs,
                merged.new_packs
            );
            // Another round would not help if this one has not made the packs fewer.
            if self.chunks().usage().packs >= before || self.has_stopped() {
                break;
            }
        }
        Ok(())
    }

    fn collect_chunks(&self) -> Outcome<()> {
        let now = self.clock().monotonic_time();
        // The time is taken before the marking, so that chunks sent meanwhile are kept.
        let (since, pace) = {
            let mut uploads = self.uploads.lock();
            let pace = if uploads.is_short() {
                SweepPace::Unpaused
            } else {
                SweepPace::Paused
            };
            let since = uploads.keep_since(now);
            uploads.begin_collection(now);
            (since, pace)
        };
        let mut marking = self.chunks().begin_collection_before(since)?;
        let mut volumes = self.meta().volumes()?;
        // The server's own rows have a number that the list of volumes does not contain.
        volumes.push(crate::domain::SERVER_VOLUME);
        for volume in volumes {
            self.mark_volume(&mut marking, volume)?;
        }
        let collected = self.sweep_chunks(marking.begin_sweep(), pace)?;
        // A missing chunk is damage, of which a person has to hear.
        if collected.missing_count > 0 {
            log::error!(
                "{} chunks that history names are not there; the first is {}",
                collected.missing_count,
                collected.missing[0]
            );
        }
        if collected.freed > 0 {
            log::info!(
                "{} bytes that nothing named are free again",
                collected.freed
            );
        }
        // Chunks that the sweep has removed do not count as unnamed any more.
        let now = self.clock().monotonic_time();
        self.uploads
            .lock()
            .retain_present(now, |chunks| self.chunks().peek_present(chunks));
        Ok(())
    }

    /// Marks what the history of a volume names, some rows at a time: rows are added to it and
    /// never changed, and a commit that adds one has pinned the chunks it names.
    fn mark_volume(&self, marking: &mut MarkPhase, volume: VolumeId) -> Outcome<()> {
        let mut after: Option<PastPlace> = None;
        loop {
            // Each page has a transaction of its own, so that commits go on meanwhile.
            let rows = self.read(volume, |txn| Ok(txn.named_chunks(after, ROWS)?))?;
            let Some((last, _)) = rows.last() else {
                return Ok(());
            };
            after = Some(*last);
            marking.mark_live(rows.into_iter().map(|(_, chunk)| chunk));
        }
    }

    fn sweep_chunks(&self, mut sweep: SweepPhase, pace: SweepPace) -> Outcome<CollectionReport> {
        loop {
            let begun = self.clock().monotonic_time();
            // The server may end between two steps; the rest is done another time.
            if !sweep.run_step().map_err(RequestRefusal::from)? || self.has_stopped() {
                return Ok(sweep.report().clone());
            }
            // Rests as long as the step took, so that requests have half of the time.
            if pace == SweepPace::Paused {
                let took = self.clock().monotonic_time().saturating_sub(begun);
                self.pause(took.min(PAUSE_MAX));
            }
        }
    }

    fn has_stopped(&self) -> bool {
        self.presence.lock().is_stopping()
    }
}
