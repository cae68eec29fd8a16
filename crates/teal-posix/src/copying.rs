//! Copying between files: by sharing content where whole blocks meet, by reading and writing
//! elsewhere.
//!
//! # Guarantees
//! 1. A copy may end early and says how far it came. What is shared takes no room for content and
//!    no time that grows with its bytes.
//! 2. Copy and original change independently from then on.
//! 3. No lock is held for longer than a step of the store takes, however long the range is.
//!
//! # How
//! 1. Offsets that are equal modulo the block size meet: the bytes up to the first whole block are
//!    copied, then blocks are shared, the end of the file with them when the target ends there too;
//!    what is left is copied.
//! 2. What the source has in memory only would be written twice: if that is much, it is committed
//!    first.
//! 3. Where the store can share nothing (small files, offsets that do not meet, a block that has
//!    been shared too often), bytes are copied.

use crate::attributes::require_file;
use crate::{FileSystem, WriteFlags, flags as inode_flags};
use teal_log::Cost;
use teal_types::{BLOCK, ObjectNo};
use teal_volume::ObjectChange;
use teal_volume::{FsError, WRITE_STEP};

/// Most bytes one copy moves by reading and writing before it answers.
const COPY_MAX: u64 = 16 << 20;
/// Most bytes one copy shares before it answers.
const SHARE_MAX: u64 = 1 << 30;
/// Sharing less takes more room than a copy of it.
const SHARE_LEAST: u64 = 4 * BLOCK;
/// Uncommitted bytes in a step that are worth a commit of their own.
const COMMIT_FROM: u64 = 64 * BLOCK;

/// A place in a file.
type FilePlace = (ObjectNo, u64);

fn advance_place((no, at): FilePlace, done: u64) -> FilePlace {
    (no, at.saturating_add(done))
}

/// The progress of a copy.
#[derive(Default)]
struct CopyProgress {
    /// Bytes done, and of them those that were read and written.
    done: u64,
    copied: u64,
    has_committed: bool,
}

impl FileSystem {
    /// Copies from one file to another, or to another place in the same one; says how much: it ends
    /// at the end of the source, and early after 1 GiB, or 16 MiB of what cannot be shared.
    ///
    /// # Errors
    /// [`FsError::Invalid`] for overlapping ranges of one file, and as [`write`](Self::write).
    pub fn copy_file_range(
        &self,
        from: FilePlace,
        to: FilePlace,
        len: u64,
        flags: WriteFlags,
    ) -> Result<u64, FsError> {
        let source = self.getattr(from.0)?;
        require_file(&source)?;
        require_file(&self.getattr(to.0)?)?;
        // Never behind the end of the source.
        let len = len.min(source.size.saturating_sub(from.1));
        // A range that overlaps itself has no order of copying that is right.
        if from.0 == to.0 && from.1.abs_diff(to.1) < len {
            return Err(FsError::Invalid);
        }
        let mut progress = CopyProgress::default();
        // One call copies a bounded amount; the caller asks again.
        while progress.done < len.min(SHARE_MAX) && progress.copied < COPY_MAX {
            let step = self
                .residency
                .wait_for_queue(len - progress.done)
                .and_then(|()| {
                    self.copy_step(
                        advance_place(from, progress.done),
                        advance_place(to, progress.done),
                        len,
                        flags,
                        &mut progress,
                    )
                });
            match step {
                Ok(0) => break,
                Ok(n) => progress.done += n,
                // A copy that did a part succeeds with that part.
                Err(e) if progress.done == 0 => return Err(e),
                Err(_) => break,
            }
        }
        // Shared content was not read through the file system, which would have noted the access.
        if progress.done > progress.copied {
            self.note_access(&source);
        }
        Ok(progress.done)
    }

    fn copy_step(
        &self,
        from: FilePlace,
        to: FilePlace,
        len: u64,
        flags: WriteFlags,
        progress: &mut CopyProgress,
    ) -> Result<u64, FsError> {
        debug_assert!(progress.done <= len);
        let left = len - progress.done;
        debug_assert!(left > 0, "an empty step does not end");
        let inside = from.1 % BLOCK;
        // Sharing needs the same offset within a block on both sides.
        let meets =
            inside == to.1 % BLOCK && (left >= SHARE_LEAST || progress.done > progress.copied);
        if meets && inside == 0 {
            let shared = self
                .volume
                .name_damage(from.0, || self.share_step(from, to, left, flags, progress))?;
            if shared > 0 {
                return Ok(shared);
            }
        }
        // Up to the next block boundary, so that the rest can be shared.
        let head = if meets && inside > 0 {
            BLOCK - inside
        } else {
            left
        };
        // A bounded buffer.
        let step = head.min(left).min(WRITE_STEP as u64) as usize;
        let bytes = self.read(from.0, from.1, step)?;
        let n = self.write(to.0, to.1, &bytes, flags)? as u64;
        progress.copied += n;
        Ok(n)
    }

    fn share_step(
        &self,
        from: FilePlace,
        to: FilePlace,
        len: u64,
        flags: WriteFlags,
        progress: &mut CopyProgress,
    ) -> Result<u64, FsError> {
        let mut sharing = self.store().plan_share(from, to, len)?;
        // Dirty blocks cannot be shared. Many of them are committed first, once for each copy.
        if sharing.uncommitted >= COMMIT_FROM
            && !std::mem::replace(&mut progress.has_committed, true)
        {
            self.store().commit()?;
            sharing = self.store().plan_share(from, to, len)?;
        }
        if sharing.bytes == 0 {
            return Ok(0);
        }
        let cost = sharing
            .cost
            .and_also(self.cost_of_content(to.0, Cost::write(0))?);
        // No content of the target may be fetched or evicted while it is replaced.
        let _absence = self.residency.lock_for_changing(to.0);
        let op = self.begin_operation(cost)?;
        let mut locked = op.lock(&[from.0, to.0])?;
        inode_flags::check_content(&locked, to.0, false)?;
        if self
            .residency
            .absent_ranges(from.0)?
            .overlaps(from.1, from.1.saturating_add(len))
        {
            // Not all of it is here: reading it fetches it.
            return Ok(0);
        }
        let done = locked.share(from, to, len, &sharing)?;
        if done > 0 {
            let base = self.base_of(to.0, to.1, locked.attr(to.0).size);
            let changed = ObjectChange::Data {
                from: to.1,
                to: to.1 + done,
                base,
            };
            self.content_changed(&mut locked, to.0, changed, flags.kill_suidgid)?;
            self.note_kernel_extended(&locked, to.0, to.1 + done);
            // The log grows by the operation's records only.
            self.count_written(cost.bytes());
        }
        Ok(done)
    }
}
