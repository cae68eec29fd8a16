//! Room on a drive: second chance, as BlueFS has it (4.3.4).
//!
//! # Guarantees
//! 1. From 90 % on, what was neither read nor installed since it was last looked at goes; what has
//!    affinity stays.
//! 2. A search ends: it looks at each object twice at most.

use super::Drive;
use super::object_note::HeldObject;
use crate::seeded::{Bug, bug};
use teal_log::StoreError;
use teal_types::{ObjectNo, Ranges};

/// This share stays free.
const FREE_SHARE: u64 = 10;
/// The most objects whose use is remembered.
const USED_MAX: usize = 100_000;
/// Objects looked at in one go.
const SCAN_BATCH: usize = 256;

impl Drive {
    /// An object is read or installed.
    pub(super) fn record_use(&self, no: ObjectNo) {
        let mut used = self.used.lock();
        if used.len() < USED_MAX {
            used.insert(no);
        }
    }

    /// Sees to it that there is room for so many bytes of an object.
    pub(super) fn make_room(&self, of: ObjectNo, bytes: u64) -> Result<(), StoreError> {
        let (total, free) = self.store.room();
        let want = bytes.saturating_add(total / FREE_SHARE);
        if free >= want {
            return Ok(());
        }
        let mut hand = self.clock_hand.lock();
        // A little more at once.
        let want = want.saturating_add(total / 64);
        let mut rounds = 0;
        while self.store.room().1 < want {
            let numbers =
                self.held_numbers(ObjectNo::new((*hand).max(ObjectNo::ROOT.get())), SCAN_BATCH)?;
            let Some(last) = numbers.last() else {
                rounds += 1;
                if rounds > 2 || *hand == 0 {
                    break;
                }
                *hand = 0;
                continue;
            };
            *hand = last.get() + 1;
            for no in numbers {
                if no == of || self.used.lock().remove(&no) {
                    continue;
                }
                self.evict_object(no)?;
                if self.store.room().1 >= want {
                    *hand = no.get() + 1;
                    break;
                }
            }
        }
        if self.store.room().1 < bytes {
            Err(StoreError::NoSpace)
        } else {
            Ok(())
        }
    }

    fn evict_object(&self, no: ObjectNo) -> Result<(), StoreError> {
        let Some(_shard) = self.shard_of(no).try_write() else {
            return Ok(());
        };
        let held = self.held_object(no)?;
        if held.affinity && !bug(Bug::AffinityEvicted) {
            return Ok(());
        }
        if bug(Bug::EvictedNoted)
            && let Some(content) = &held.content
        {
            return self.reduce_to(no, &held, &content.present);
        }
        self.reduce_to(no, &HeldObject::default(), &Ranges::default())
    }
}
