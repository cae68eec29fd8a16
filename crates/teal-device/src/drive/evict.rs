//! Room on a drive: second chance, as BlueFS has it (4.3.4).
//!
//! # Guarantees
//! 1. From 90 % on, objects go that were neither read nor installed since the last search came by;
//!    objects with affinity stay.
//! 2. A search ends: it looks at each object twice at most.

use super::Drive;
use super::object_note::HeldObject;
use crate::seeded::{DriveBug, bug};
use teal_log::StoreError;
use teal_types::{ByteRanges, ObjectNo};

/// One part in so many stays free.
const FREE_SHARE: u64 = 10;
/// The most objects that are remembered as used.
const USED_MAX: usize = 100_000;
/// The number of objects of one step of a search.
const SCAN_BATCH: usize = 256;

impl Drive {
    /// Notes that an object is read or installed.
    pub(super) fn record_use(&self, no: ObjectNo) {
        let mut used = self.used.lock();
        // Beyond the limit, an object counts as unused: it makes way earlier, and nothing breaks.
        if used.len() < USED_MAX {
            used.insert(no);
        }
    }

    /// Sees to it that there is room for so many bytes of an object.
    pub(super) fn make_room(&self, of: ObjectNo, bytes: u64) -> Result<(), StoreError> {
        let (total, free) = self.store.total_and_free();
        let mut wanted = bytes.saturating_add(total / FREE_SHARE);
        if free >= wanted {
            return Ok(());
        }
        // Held across the search: a second one waits, and then usually finds room.
        let mut hand = self.clock_hand.lock();
        // A little more at once, so that not each installation searches.
        wanted = wanted.saturating_add(total / 64);
        let mut rounds = 0;
        while self.free_bytes() < wanted {
            let next = ObjectNo::new((*hand).max(ObjectNo::ROOT.get()));
            let numbers = self.held_numbers(next, SCAN_BATCH)?;
            let Some(last) = numbers.last() else {
                // The second round takes objects that the first has only unmarked.
                rounds += 1;
                if rounds > 2 || *hand == 0 {
                    break;
                }
                *hand = 0;
                continue;
            };
            *hand = last.get() + 1;
            for no in numbers {
                let was_used = self.used.lock().remove(&no);
                if no == of || was_used {
                    continue;
                }
                self.evict_object(no)?;
                if self.free_bytes() >= wanted {
                    *hand = no.get() + 1;
                    break;
                }
            }
        }
        // Less than wanted is enough, if only this content fits.
        if self.free_bytes() < bytes {
            Err(StoreError::NoSpace)
        } else {
            Ok(())
        }
    }

    fn free_bytes(&self) -> u64 {
        let (_, free) = self.store.total_and_free();
        free
    }

    fn evict_object(&self, no: ObjectNo) -> Result<(), StoreError> {
        // An object that is being read or installed is in use, and stays.
        let Some(_shard) = self.shard_of(no).try_write() else {
            return Ok(());
        };
        let held = self.held_object(no)?;
        if held.affinity && !bug(DriveBug::AffinityEvicted) {
            return Ok(());
        }
        if bug(DriveBug::EvictedNoted)
            && let Some(content) = &held.content
        {
            return self.reduce_to(no, &held, &content.present);
        }
        // All of it goes, with its note: a part of an object is seldom worth its place.
        self.reduce_to(no, &HeldObject::default(), &ByteRanges::default())
    }
}
