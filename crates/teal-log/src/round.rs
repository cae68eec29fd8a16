//! Rounds of cleaning: victims, batches of what lives in them, and the checkpoints that set them free.
//!
//! # How
//! 1. What is new is committed first: what is moved fills records and segments of its own.
//! 2. Victims are the segments with the best cost-benefit (Rosenblum and Ousterhout), or the emptiest when room is short. They are moved
//!    oldest first, so that neighbours on the disk are of one age.
//! 3. A victim is moved only if all it may take fits into what is ready, pages and the next two checkpoints included.
//! 4. Two checkpoints free all victims at once. The second one writes next to nothing.

use crate::commit::{Committer, Kind};
use crate::error::StoreError;
use crate::seeded::{Bug, bug};
use crate::segments::Victim;
use crate::space::MEM_PAGES;
use crate::store::Store;
use crate::weight::with_waste;
use std::sync::atomic::Ordering;
use teal_types::Lsn;

/// How to choose victims.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Choice {
    /// By cost and benefit, at most this full.
    CostBenefit(f64),
    /// The emptiest: room is short.
    Emptiest,
}

/// A fuller segment gives nothing back: what describes its content, and the ends of records, take the rest.
pub(crate) const FULLEST: f64 = 0.97;
/// Segments left for the checkpoints after a round.
const LEFT: u64 = 2;

impl Store {
    fn commit_round(&self, held: Option<&mut Committer>, kind: Kind) -> Result<(), StoreError> {
        match held {
            Some(committer) => self.commit_as(committer, kind),
            None => {
                let mut committer = self.commit.lock();
                self.writable()?;
                self.commit_as(&mut committer, kind)
            }
        }
    }

    /// One round that is to gain `want` bytes; says whether it did anything. Whoever holds the committer hands it in.
    pub(crate) fn clean_round(
        &self,
        mut held: Option<&mut Committer>,
        want: u64,
        choice: Choice,
    ) -> Result<bool, StoreError> {
        if !bug(Bug::DeferredUncleaned) {
            self.settle_all()?;
        }
        let segment = self.geometry.segment_bytes();
        let ripening = self.segments.lock().ripening() as u64 * segment;
        let mut worked = false;
        self.lent.store(0, Ordering::Relaxed);
        if ripening < want {
            self.host_more(self.batch_takes() + 2 * self.cleaner_bytes());
            if self.has_changes() {
                self.commit_round(held.as_deref_mut(), Kind::Batch)?;
            }
            for victim in self.victims(want - ripening, choice) {
                if !self.fits(&victim) {
                    break;
                }
                self.segments.lock().moving.insert(victim.segment.0);
                self.lent.fetch_add(victim.live as i64, Ordering::Relaxed);
                self.clean_segment(victim.segment)?;
                worked = true;
                let moving = self.moved.load(Ordering::Relaxed) + self.reader.shared.moving_takes() as i64;
                if moving >= self.settings().batch_bytes as i64 {
                    self.commit_round(held.as_deref_mut(), Kind::Batch)?;
                }
            }
            if worked && self.has_changes() {
                self.commit_round(held.as_deref_mut(), Kind::Batch)?;
            }
        }
        for _ in 0..3 {
            if self.segments.lock().ripening() == 0 {
                break;
            }
            self.commit_round(held.as_deref_mut(), Kind::Checkpoint)?;
            worked = true;
        }
        self.lent.store(0, Ordering::Relaxed);
        self.refresh_budget();
        Ok(worked)
    }

    /// Whether a victim may be moved now: its blocks, a page for each of them, and the checkpoints after it have room.
    fn fits(&self, victim: &Victim) -> bool {
        let is_memory = self.mem_pages.load(Ordering::Relaxed) < 2 * MEM_PAGES;
        is_memory && self.has_room(with_waste(2 * victim.live, self.geometry.segment_bytes()))
    }

    /// Whether so much more may be moved: it, the open batch, what is promised and the checkpoints after it have room.
    pub(crate) fn has_room(&self, more: u64) -> bool {
        let taken = self.batch_takes() + self.promised.load(Ordering::Relaxed).max(0) as u64;
        let left = self.usage_bytes() + LEFT * self.geometry.segment_bytes();
        taken + more + left <= self.segments.lock().ready_bytes()
    }

    /// Enough victims for this gain, oldest first.
    fn victims(&self, want: u64, choice: Choice) -> Vec<Victim> {
        let segment = self.geometry.segment_bytes();
        let now = Lsn::new(self.next_lsn.load(Ordering::Relaxed));
        let mut victims = self.segments.lock().victims(now, choice);
        let ready = self.segments.lock().ready_bytes();
        let mut room = ready.saturating_sub(self.batch_takes() + self.usage_bytes() + LEFT * segment);
        let mut gain = 0;
        let enough = victims.iter().position(|victim| {
            let takes = victim.live + victim.live / 4;
            if gain >= want || takes > room {
                return true;
            }
            room -= takes;
            gain += segment.saturating_sub(victim.live + victim.live / 32);
            false
        });
        // The first one always: whether it fits is looked at again.
        victims.truncate(enough.unwrap_or(victims.len()).max(1));
        victims.sort_by_key(|victim| victim.born);
        victims
    }
}
