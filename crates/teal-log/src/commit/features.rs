//! Features that a store gets while it is in use: the superblocks say so before the first structure
//! of them is written.
//!
//! # Guarantee
//! One superblock is whole at any time.

use crate::commit::committer::Committer;
use crate::commit::log::CommitLog;
use crate::error::StoreError;
use crate::format::superblock::{self, Superblock, UNWRITTEN_EXTENTS};
use std::sync::atomic::Ordering::{Acquire, Release};
use teal_types::Sector;

impl CommitLog {
    /// Sets incompatible feature bits in the superblocks, where they are not set yet. The log of
    /// this opening may have begun: nothing else writes superblocks.
    ///
    /// Returns the error of a superblock that could not be written: the store is not surely marked
    /// then.
    ///
    /// # Errors
    /// [`StoreError::Io`] if the disk cannot be synced.
    pub(crate) fn mark_features(
        &self,
        committer: &mut Committer,
        bits: u64,
    ) -> Result<Option<StoreError>, StoreError> {
        let sb = &self.objects.sb;
        let known = sb.incompatible | committer.marked_features();
        if known & bits == bits {
            return Ok(None);
        }
        let marked = Superblock {
            incompatible: known | bits,
            ..sb.clone()
        };
        let reader = &self.objects.reader;
        let (first, second) = (Sector::new(0), Superblock::second_copy(sb.sectors));
        let mut found = vec![0; superblock::BYTES];
        let is_whole =
            reader.read_raw(first, &mut found).is_ok() && Superblock::decode(&found).is_ok();
        // One that is damaged is written before the whole one.
        let order = if is_whole {
            [second, first]
        } else {
            [first, second]
        };
        let bytes = marked.encode();
        for at in order {
            if let Err(error) = reader.write(at, bytes.clone().into()) {
                // The other one stays as it is: it may be the only whole one now. Programs that
                // know the features find them by the structures.
                log::warn!("the store is not marked as one with new features: {error}");
                return Ok(Some(error));
            }
            reader.sync()?;
        }
        committer.note_features(bits);
        Ok(None)
    }

    /// Lets files have unwritten extents from now on.
    ///
    /// # Errors
    /// As [`CommitLog::commit`], and the error of a superblock that cannot be written: an older
    /// program would take the store for one without such extents.
    pub(crate) fn permit_unwritten(&self) -> Result<(), StoreError> {
        // The common case: an earlier call, or an earlier opening, has marked the store.
        if self.permits_unwritten.load(Acquire) {
            return Ok(());
        }
        let mut committer = self.committer();
        self.durability.check_writable()?;
        // No other opening may have written before the superblocks are.
        self.begin_log(&mut committer)?;
        let unmarked = self
            .mark_features(&mut committer, UNWRITTEN_EXTENTS)
            .inspect_err(|e| self.durability.poison(e))?;
        if let Some(error) = unmarked {
            return Err(error);
        }
        self.permits_unwritten.store(true, Release);
        Ok(())
    }
}
