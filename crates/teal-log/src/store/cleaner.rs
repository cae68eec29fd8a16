//! Rounds of cleaning: victims, batches of what lives in them, and the checkpoints that set them
//! free.
//!
//! # How
//! 1. What is new is committed first: what is moved fills records and segments of its own.
//! 2. Victims are the segments with the best cost-benefit (Rosenblum and Ousterhout), or the
//!    emptiest when room is short. They are moved oldest first, so that neighbours on the disk are
//!    of one age.
//! 3. A victim is moved only if all it may take fits into what is ready, pages and the next two
//!    checkpoints included, and [`CleaningReserve`] stays.
//! 4. Victims that take less than they give come first: a segment of inode records may change a
//!    leaf of the inode map for each of them. What is in a segment is looked at before it is moved.
//!    When room is short, what is not folded yet is folded by the round's checkpoints even if
//!    nothing could be moved: it may have been what left no room.
//! 5. Two checkpoints free all victims at once. The second one writes next to nothing.

use crate::commit::committer::{BatchKind, Committer};
use crate::error::StoreError;
use crate::object::estimate::with_waste;
use crate::seeded::{Bug, bug};
use crate::space::ledger::MEM_PAGES;
use crate::space::segments::victims::{Victim, VictimPolicy};
use crate::store::handle::Store;
use crate::tree::page_bounds::PAGE;

/// Checkpoints after a round: the first is counted with what it folds. The last may be that of
/// closing.
const CHECKPOINTS: u64 = 3;
/// A victim gives something if that is more than this part of a segment.
const GAIN_PART: u64 = 16;
/// Segments that a round reads at most and does not move.
const LOOKS: usize = 64;
const LOOKS_AHEAD: usize = 4;

/// What a round leaves of the room there is, beside what is promised and what a checkpoint takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CleaningReserve {
    /// Half of what is set aside for cleaning: the rest is the way out of a full store.
    Half,
    /// What the checkpoints after the round take, and half a segment for what the cleaner takes
    /// between two looks at the room: an operation is on that way.
    Least,
}

/// Which of the victims a round takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum VictimFilter {
    /// Those that give more than they take, for certain.
    Gain,
    /// All that have room.
    Any,
}

impl Store {
    fn commit_round(
        &self,
        held: Option<&mut Committer>,
        kind: BatchKind,
    ) -> Result<(), StoreError> {
        match held {
            Some(committer) => self.log.commit_as(committer, kind),
            None => {
                let mut committer = self.log.committer();
                self.log.durability.check_writable()?;
                self.log.commit_as(&mut committer, kind)
            }
        }
    }

    /// One round that is to gain `want` bytes; says whether it did anything. A caller that holds
    /// the committer hands it in.
    pub(crate) fn clean_round(
        &self,
        mut held: Option<&mut Committer>,
        want: u64,
        choice: VictimPolicy,
        left: CleaningReserve,
    ) -> Result<bool, StoreError> {
        if !bug(Bug::DeferredUncleaned) {
            self.objects().redo_all_deferred();
        }
        let ripening = self.objects().segments.lock().ripening_segments() as u64
            * self.objects().geometry.segment_bytes();
        let mut worked = false;
        self.objects().ledger.cleaner_owes_nothing();
        if ripening < want {
            self.objects().host.allocate_until_ready(
                &self.objects().segments,
                self.objects().batch_takes() + 2 * self.objects().cleaner_bytes(),
            );
            if self.objects().has_changes() {
                self.commit_round(held.as_deref_mut(), BatchKind::Batch)?;
            }
            // What surely gives more than it takes may use the room there is: the larger a round by
            // cost and benefit, the less its checkpoints cost for each segment. No operation waits
            // for what is done ahead: it takes nothing else.
            let lends = if choice == VictimPolicy::Emptiest {
                left
            } else {
                CleaningReserve::Least
            };
            worked = self.move_victims(
                held.as_deref_mut(),
                want - ripening,
                (choice, VictimFilter::Gain),
                lends,
            )?;
            if !worked && held.is_some() {
                worked = self.move_victims(
                    held.as_deref_mut(),
                    want - ripening,
                    (choice, VictimFilter::Any),
                    left,
                )?;
            }
            if worked && self.objects().has_changes() {
                self.commit_round(held.as_deref_mut(), BatchKind::Batch)?;
            }
        }
        for turn in 0..3 {
            let owes = turn == 0
                && choice == VictimPolicy::Emptiest
                && self.objects().fold_bytes() > self.objects().usage_bytes();
            if self.objects().segments.lock().ripening_segments() == 0 && !owes {
                break;
            }
            self.commit_round(held.as_deref_mut(), BatchKind::Checkpoint)?;
            worked = true;
        }
        self.objects().ledger.cleaner_owes_nothing();
        self.objects().refresh_budget();
        Ok(worked)
    }

    /// Moves what lives in victims into batches until so much is gained; says whether any was
    /// moved.
    fn move_victims(
        &self,
        mut held: Option<&mut Committer>,
        want: u64,
        (choice, taken): (VictimPolicy, VictimFilter),
        left: CleaningReserve,
    ) -> Result<bool, StoreError> {
        let segment = self.objects().geometry.segment_bytes();
        let (mut looks, mut gained, mut worked) = (0, 0, false);
        let mut places = self.objects().inode_map.read().changed_places().clone();
        for victim in self.choose_victims(want, choice, left) {
            if gained >= want || looks > if held.is_some() { LOOKS } else { LOOKS_AHEAD } {
                break;
            }
            if choice != VictimPolicy::Emptiest && !self.victim_fits(&victim, victim.live, left) {
                break;
            }
            let Some(read) = self.read_victim(victim.segment) else {
                continue;
            };
            let mut more = places.clone();
            if let Err(e) = self.leaves_of(&read, &mut more) {
                self.set_aside(victim.segment, &e);
                continue;
            }
            let takes = victim.live + (more.leaves() - places.leaves()) * PAGE;
            let is_fit = self.victim_fits(&victim, takes, left);
            if !is_fit && choice != VictimPolicy::Emptiest {
                break;
            }
            if !is_fit || (taken == VictimFilter::Gain && takes + segment / GAIN_PART > segment) {
                looks += 1;
                continue;
            }
            places = more;
            gained += segment.saturating_sub(takes).max(segment / GAIN_PART);
            self.objects().segments.lock().set_cleaning(victim.segment);
            self.objects().ledger.lend_to_cleaner(victim.live);
            self.clean_segment(&read, left)?;
            worked = true;
            if self.objects().relocating_bytes() >= self.settings().batch_bytes {
                self.commit_round(held.as_deref_mut(), BatchKind::Batch)?;
            }
        }
        Ok(worked)
    }

    /// Returns whether a victim may be moved now: its blocks, a page for each of them, what the
    /// inode map takes, and the checkpoints after it have room.
    fn victim_fits(&self, victim: &Victim, takes: u64, left: CleaningReserve) -> bool {
        let is_memory = self.objects().ledger.memory_pages() < 2 * MEM_PAGES;
        is_memory
            && self.has_room(
                with_waste(
                    takes.max(2 * victim.live),
                    self.objects().geometry.segment_bytes(),
                ),
                left,
            )
    }

    /// Returns whether so much more may be moved: it, the open batch, what is promised and the
    /// checkpoints after it have room.
    pub(crate) fn has_room(&self, more: u64, left: CleaningReserve) -> bool {
        let taken = self.objects().batch_takes() + self.objects().ledger.promised_bytes();
        taken + more + self.bytes_left(left) <= self.objects().segments.lock().ready_bytes()
    }

    pub(crate) fn bytes_left(&self, left: CleaningReserve) -> u64 {
        let segment = self.objects().geometry.segment_bytes();
        let least = CHECKPOINTS * with_waste(self.objects().usage_bytes(), segment) + segment / 2;
        if left == CleaningReserve::Half {
            least.max(self.objects().cleaner_bytes() / 2)
        } else {
            least
        }
    }

    /// Victims, the best first; of those that are enough for this gain, the oldest.
    fn choose_victims(
        &self,
        want: u64,
        choice: VictimPolicy,
        left: CleaningReserve,
    ) -> Vec<Victim> {
        let segment = self.objects().geometry.segment_bytes();
        let now = self.objects().numbers.next_lsn();
        let mut victims = self.objects().segments.lock().rank_victims(now, choice);
        let ready = self.objects().segments.lock().ready_bytes();
        let mut room = ready.saturating_sub(self.objects().batch_takes() + self.bytes_left(left));
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
        let enough = enough.unwrap_or(victims.len()).max(1).min(victims.len());
        if !matches!(choice, VictimPolicy::Emptiest) {
            victims.truncate(enough);
        }
        victims[..enough].sort_by_key(|victim| victim.born);
        victims
    }
}
