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
use crate::format::geometry::Segment;
use crate::object::estimate::with_waste;
use crate::seeded::{Bug, bug};
use crate::space::ledger::MEM_PAGES;
use crate::space::segments::victims::{Victim, VictimPolicy};
use crate::store::handle::Store;
use crate::store::relocate::SegmentImage;
use crate::tree::page_bounds::{LeafSpread, PAGE};

/// Checkpoints after a round: the first is counted with what it folds. The last may be that of
/// closing.
const CHECKPOINTS: u64 = 3;
/// A victim gives something if that is more than this part of a segment.
const GAIN_PART: u64 = 16;
/// Segments that a round reads at most and does not move.
const LOOKS: usize = 64;
const LOOKS_AHEAD: usize = 4;

/// The room that a round leaves, beside the promised room and that of a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CleaningReserve {
    /// Half of what is set aside for cleaning: the rest is the way out of a full store.
    Half,
    /// Room for the checkpoints after the round, and half a segment for the cleaner between two
    /// looks at the room. An operation is on that way.
    Least,
}

/// Which of the victims a round takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum VictimFilter {
    /// Cleans the victims that certainly give more than they take.
    Gain,
    /// All that have room.
    Any,
}

/// What becomes of a victim that was looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum VictimVerdict {
    Move,
    /// Another one may be better.
    Skip,
    /// No other one will be better.
    Stop,
}

impl Store {
    fn commit_round(
        &self,
        held: Option<&mut Committer>,
        kind: BatchKind,
    ) -> Result<(), StoreError> {
        match held {
            Some(committer) => self.log.commit_as(committer, kind),
            // The caller does not hold the committer.
            None => {
                let mut committer = self.log.committer();
                self.log.durability.check_writable()?;
                self.log.commit_as(&mut committer, kind)
            }
        }
    }

    /// Cleans one round that is to gain `want` bytes. Returns whether it did anything. A caller
    /// that holds the committer hands it in.
    pub(crate) fn clean_round(
        &self,
        mut held: Option<&mut Committer>,
        want: u64,
        choice: VictimPolicy,
        left: CleaningReserve,
    ) -> Result<bool, StoreError> {
        let objects = self.objects();
        // Deferred changes may free whole segments.
        if !bug(Bug::DeferredUncleaned) {
            objects.redo_all_deferred();
        }
        // Segments that will be free without cleaning are part of the gain.
        let ripening = objects.segments.lock().ripening_segments() as u64;
        let ripening_bytes = ripening * objects.geometry.segment_bytes();
        let mut worked = false;
        objects.ledger.cleaner_owes_nothing();
        if ripening_bytes < want {
            worked = self.move_round(held.as_deref_mut(), want - ripening_bytes, choice, left)?;
        }
        worked |= self.ripen_victims(held, choice)?;
        objects.ledger.cleaner_owes_nothing();
        objects.refresh_budget();
        Ok(worked)
    }

    /// Writes what lives in victims elsewhere, so that their places are dead. Returns whether
    /// anything was moved.
    fn move_round(
        &self,
        mut held: Option<&mut Committer>,
        want: u64,
        choice: VictimPolicy,
        left: CleaningReserve,
    ) -> Result<bool, StoreError> {
        let objects = self.objects();
        let room = objects.batch_takes() + 2 * objects.cleaner_bytes();
        let room = room + objects.ledger.set_aside_bytes();
        objects.host.allocate_until_ready(&objects.segments, room);
        // Changes of operations first, so that the round's bytes are its own.
        if objects.has_changes() {
            self.commit_round(held.as_deref_mut(), BatchKind::Batch)?;
        }
        // Victims that surely give more than they take may use the room there is: the larger a
        // round by cost and benefit, the less its checkpoints cost for each segment. Cleaning
        // ahead takes nothing else, because no operation waits for it.
        let lends = if choice == VictimPolicy::Emptiest {
            left
        } else {
            CleaningReserve::Least
        };
        let by_gain = (choice, VictimFilter::Gain);
        let mut worked = self.move_victims(held.as_deref_mut(), want, by_gain, lends)?;
        // An operation waits: any victim is better than none.
        if !worked && held.is_some() {
            let any = (choice, VictimFilter::Any);
            worked = self.move_victims(held.as_deref_mut(), want, any, left)?;
        }
        // The moved content is written, so that its old places are dead.
        if worked && objects.has_changes() {
            self.commit_round(held, BatchKind::Batch)?;
        }
        Ok(worked)
    }

    /// Makes the checkpoints that set victims free. Returns whether there was one.
    fn ripen_victims(
        &self,
        mut held: Option<&mut Committer>,
        choice: VictimPolicy,
    ) -> Result<bool, StoreError> {
        let objects = self.objects();
        let mut worked = false;
        // A segment is free two checkpoints after it died: up to three of them.
        for turn in 0..3 {
            // Pages in memory take room that a checkpoint gives back.
            let owes = turn == 0
                && choice == VictimPolicy::Emptiest
                && objects.fold_bytes() > objects.usage_bytes();
            if objects.segments.lock().ripening_segments() == 0 && !owes {
                break;
            }
            self.commit_round(held.as_deref_mut(), BatchKind::Checkpoint)?;
            worked = true;
        }
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
        let objects = self.objects();
        let segment = objects.geometry.segment_bytes();
        // Bounded work: cleaning ahead looks at few victims.
        let looks_max = if held.is_some() { LOOKS } else { LOOKS_AHEAD };
        let mut looks = 0;
        let mut gained = 0;
        let mut worked = false;
        // Each victim changes leaves of the inode map; shared leaves count once.
        let mut places = objects.inode_map.read().changed_places().clone();
        for victim in self.choose_victims(want, choice, left) {
            if gained >= want || looks > looks_max {
                break;
            }
            if choice != VictimPolicy::Emptiest && !self.victim_fits(&victim, victim.live, left) {
                break;
            }
            let Some((read, more)) = self.look_at_victim(victim.segment, &places) else {
                continue;
            };
            // The moved bytes, and the leaves that they change.
            let takes = victim.live + (more.leaves() - places.leaves()) * PAGE;
            match self.judge_victim(&victim, takes, (choice, taken), left) {
                VictimVerdict::Move => {}
                VictimVerdict::Skip => {
                    looks += 1;
                    continue;
                }
                VictimVerdict::Stop => break,
            }
            places = more;
            gained += segment.saturating_sub(takes).max(segment / GAIN_PART);
            // Marked before it is moved, so that it is not picked twice.
            objects.segments.lock().set_cleaning(victim.segment);
            objects.ledger.lend_to_cleaner(victim.live);
            self.clean_segment(&read, left)?;
            worked = true;
            // A large batch is written in between, so that memory stays bounded.
            if objects.relocating_bytes() >= self.settings().batch_bytes {
                self.commit_round(held.as_deref_mut(), BatchKind::Batch)?;
            }
        }
        Ok(worked)
    }

    /// Reads a victim. Returns it with the places at which the inode map will change once it is
    /// moved, `places` among them. Sets a segment aside that cannot be read.
    fn look_at_victim(
        &self,
        victim: Segment,
        places: &LeafSpread,
    ) -> Option<(SegmentImage, LeafSpread)> {
        let read = self.read_victim(victim)?;
        let mut more = places.clone();
        if let Err(e) = self.leaves_of(&read, &mut more) {
            self.set_aside(victim, &e);
            return None;
        }
        Some((read, more))
    }

    /// Decides about a victim that takes so many bytes.
    fn judge_victim(
        &self,
        victim: &Victim,
        takes: u64,
        (choice, taken): (VictimPolicy, VictimFilter),
        left: CleaningReserve,
    ) -> VictimVerdict {
        let is_fit = self.victim_fits(victim, takes, left);
        if !is_fit && choice != VictimPolicy::Emptiest {
            return VictimVerdict::Stop;
        }
        // A victim that takes as much as it gives is no gain.
        let segment = self.objects().geometry.segment_bytes();
        let is_gain = takes + segment / GAIN_PART <= segment;
        if is_fit && (taken == VictimFilter::Any || is_gain) {
            VictimVerdict::Move
        } else {
            VictimVerdict::Skip
        }
    }

    /// Returns whether a victim may be moved now: its blocks, a page for each of them, what the
    /// inode map takes, and the checkpoints after it have room.
    fn victim_fits(&self, victim: &Victim, takes: u64, left: CleaningReserve) -> bool {
        // Pages in memory are bounded, too.
        let is_memory = self.objects().ledger.memory_pages() < 2 * MEM_PAGES;
        is_memory
            && self.has_room(
                with_waste(
                    // Moved bytes are written once and counted once more until the old ones are
                    // dead.
                    takes.max(2 * victim.live),
                    self.objects().geometry.segment_bytes(),
                ),
                left,
            )
    }

    /// Returns whether so much more may be moved: it, the open batch, what is promised and the
    /// checkpoints after it have room.
    pub(crate) fn has_room(&self, more: u64, left: CleaningReserve) -> bool {
        let ledger = &self.objects().ledger;
        let taken =
            self.objects().batch_takes() + ledger.promised_bytes() + ledger.set_aside_bytes();
        taken + more + self.bytes_left(left) <= self.objects().segments.lock().ready_bytes()
    }

    pub(crate) fn bytes_left(&self, left: CleaningReserve) -> u64 {
        let segment = self.objects().geometry.segment_bytes();
        // Three checkpoints, until the victims' segments are free.
        let least = CHECKPOINTS * with_waste(self.objects().usage_bytes(), segment) + segment / 2;
        if left == CleaningReserve::Half {
            least.max(self.objects().cleaner_bytes() / 2)
        } else {
            least
        }
    }

    /// Returns victims, the best first; of those that are enough for this gain, the oldest.
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
        let set_aside = self.objects().ledger.set_aside_bytes();
        let taken = self.objects().batch_takes() + set_aside + self.bytes_left(left);
        let mut room = ready.saturating_sub(taken);
        let mut gain = 0;
        let enough = victims.iter().position(|victim| {
            // A margin for headers and pages.
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
        // Only the emptiest ones may be tried beyond the gain.
        if !matches!(choice, VictimPolicy::Emptiest) {
            victims.truncate(enough);
        }
        victims[..enough].sort_by_key(|victim| victim.born);
        victims
    }
}
