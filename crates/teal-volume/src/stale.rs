//! Files of which the kernel may still hold an older state than the one that is here.
//!
//! The kernel keeps sizes and content without a time limit, takes the size it holds for the end of
//! a file when a program appends, and hears of a change elsewhere a moment after it was installed.
//! Programs act on what the kernel was last given; so does this module.
//!
//! # Rules
//! 1. A file that is not listed has the size in the kernel that it has here.
//! 2. A file is listed under its lock when its content is replaced, with the size it had. Sizes the
//!    kernel may take for the end of the file are added until it is certain which one it holds: the
//!    kernel was told of a size and took it, or wrote beyond all of them.
//! 3. A write *appends* if its file is open with `O_APPEND`, it does not come out of the page
//!    cache, and its offset is the end of the file here or a listed size. It goes to the end of the
//!    file. Every other write goes where it says.
//! 4. The base of a write that does not append is the state the kernel was last given: until the
//!    kernel asks for attributes or content again, no program can have seen a newer one.
//!
//! # Bounds
//! At most [`FILES_MAX`] files are listed, those that changed last, and [`SIZES_MAX`] sizes of
//! each.

use parking_lot::{Mutex, MutexGuard};
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use teal_types::{CommitSeq, ObjectNo};

/// Files listed at most.
const FILES_MAX: usize = 1 << 16;
/// Sizes kept of one file at most; the oldest makes way.
const SIZES_MAX: usize = 4;

/// A moment in the order of all replacements of content: a request that began at it knows of all
/// that were before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Moment(u64);

#[derive(Debug, Clone)]
struct StaleFile {
    /// The sizes that the kernel may take for the end of the file, the newest last.
    sizes: Vec<u64>,
    /// The last commit that the kernel can know the content of, until it asks again.
    given: Option<CommitSeq>,
    /// The commit of the content that is here.
    installed: CommitSeq,
    /// When it was replaced last.
    replaced: Moment,
}

impl StaleFile {
    /// Notes that the kernel has raised the size it holds to `size`, if it was less.
    fn raised_to(&mut self, size: u64) {
        for listed in self.sizes.iter_mut() {
            *listed = size.max(*listed);
        }
        debug_assert!(self.sizes.iter().all(|listed| *listed >= size));
        self.sizes.dedup();
    }
}

/// The place to which a write goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WritePlacement {
    /// To the end of the file, which is where the kernel believes it to be, or was when it was last
    /// told.
    End,
    /// To its offset. With a commit: the write was made without knowing of any later one.
    Offset(Option<CommitSeq>),
}

#[derive(Debug, Default)]
struct StaleFileList {
    files: HashMap<ObjectNo, StaleFile>,
    by_moment: BTreeMap<Moment, ObjectNo>,
}

impl StaleFileList {
    fn remove(&mut self, no: ObjectNo) {
        if let Some(file) = self.files.remove(&no) {
            self.by_moment.remove(&file.replaced);
        }
    }

    /// Asserts that every file is found by its moment, and that the bounds hold.
    fn check(&self) {
        debug_assert_eq!(self.files.len(), self.by_moment.len());
        debug_assert!(self.files.len() <= FILES_MAX);
        debug_assert!(
            self.files
                .values()
                .all(|file| file.sizes.len() <= SIZES_MAX)
        );
    }
}

/// The list; see the module. Nothing else is done under its lock.
#[derive(Debug, Default)]
pub struct StaleFiles {
    listed: Mutex<StaleFileList>,
    /// The number of listed files: mostly none, and then no thread takes the lock.
    count: AtomicUsize,
    now: AtomicU64,
}

impl StaleFiles {
    /// Returns whether no file is listed.
    pub fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// Locks the list, if there is anything in it.
    fn lock_list(&self) -> Option<MutexGuard<'_, StaleFileList>> {
        // The common case without a lock: nothing is stale.
        (!self.is_empty()).then(|| self.listed.lock())
    }

    /// Publishes the number of files after the list has changed.
    fn publish_count(&self, listed: &StaleFileList) {
        // The count is set after the table, so that a reader that sees it finds the entry.
        listed.check();
        self.count.store(listed.files.len(), Ordering::Release);
    }

    /// Returns the present moment.
    pub fn current_moment(&self) -> Moment {
        Moment(self.now.load(Ordering::Acquire))
    }

    /// Lists a file with content that is being replaced, under its lock. `size` is the one it had,
    /// `given` the last commit up to which the kernel can have seen its content, and `installed`
    /// the commit of the new content.
    pub fn note_replaced(&self, no: ObjectNo, size: u64, given: CommitSeq, installed: CommitSeq) {
        self.add_file(no, size, Some(given), installed);
    }

    /// Notes that the kernel may hold a size that the file has not any more: the file was cut while
    /// the kernel was told of it.
    pub fn note_possible_size(&self, no: ObjectNo, size: u64) {
        self.add_file(no, size, None, CommitSeq::default());
    }

    fn add_file(&self, no: ObjectNo, size: u64, given: Option<CommitSeq>, installed: CommitSeq) {
        let mut listed = self.listed.lock();
        // Moments only grow, so each listing has its own.
        let moment = Moment(self.now.fetch_add(1, Ordering::AcqRel) + 1);
        let before = listed.files.get(&no).cloned();
        // Listed anew, with its new moment.
        listed.remove(no);
        let mut file = before.unwrap_or(StaleFile {
            sizes: Vec::new(),
            given: None,
            installed,
            replaced: moment,
        });
        file.sizes.retain(|listed| *listed != size);
        // The oldest of several sizes is the least likely one to be used.
        if file.sizes.len() == SIZES_MAX {
            file.sizes.remove(0);
        }
        file.sizes.push(size);
        // If the kernel has not heard of two replacements, the first one decides which state
        // programs have seen.
        file.given = file.given.or(given);
        file.installed = installed.max(file.installed);
        file.replaced = moment;
        // A full table drops its oldest entry: the kernel has most likely forgotten it.
        if listed.files.len() == FILES_MAX
            && let Some((_, oldest)) = listed.by_moment.pop_first()
        {
            listed.files.remove(&oldest);
        }
        listed.files.insert(no, file);
        listed.by_moment.insert(moment, no);
        self.publish_count(&listed);
    }

    /// Decides where a write goes, under the file's lock. `size`: that of the file. `asks_for_end`:
    /// whether it is open with `O_APPEND`.
    pub fn place_write(
        &self,
        no: ObjectNo,
        offset: u64,
        size: u64,
        asks_for_end: bool,
    ) -> WritePlacement {
        let listed = self.lock_list();
        let file = listed.as_ref().and_then(|listed| listed.files.get(&no));
        // The writer may have seen any of the sizes that the kernel once had.
        let is_end = offset == size || file.is_some_and(|file| file.sizes.contains(&offset));
        if asks_for_end && is_end {
            return WritePlacement::End;
        }
        // A write that begins at the end takes nothing away, whatever its author has seen.
        let given = file.filter(|_| offset != size).and_then(|file| file.given);
        WritePlacement::Offset(given)
    }

    /// Returns the commit of the content that was installed last, of a listed file.
    pub fn installed_commit(&self, no: ObjectNo) -> Option<CommitSeq> {
        self.lock_list()?.files.get(&no).map(|file| file.installed)
    }

    /// Notes that the kernel holds at least `end` for the size of the file: it was told so, or it
    /// is the end of its own write. `size` is the size of the file here.
    pub fn note_kernel_size(&self, no: ObjectNo, end: u64, size: u64) {
        let Some(mut listed) = self.lock_list() else {
            return;
        };
        let Some(file) = listed.files.get_mut(&no) else {
            return;
        };
        file.raised_to(end);
        // All sizes agree with the true one: nothing is stale any more.
        if file.given.is_none() && file.sizes == [size] {
            listed.remove(no);
            self.publish_count(&listed);
        }
    }

    /// Notes that the kernel is about to be given attributes or content of the file, by the answer
    /// to a request that began at `since`. An answer that may be older than what is here changes
    /// nothing.
    ///
    /// The kernel drops a size that comes after it was told of a change, and which of two it holds
    /// then cannot be known: the sizes stay listed.
    pub fn note_given(&self, no: ObjectNo, since: Moment) {
        let Some(mut listed) = self.lock_list() else {
            return;
        };
        if let Some(file) = listed.files.get_mut(&no)
            && file.replaced <= since
        {
            file.given = None;
        }
    }

    /// Returns whether the content of a listed file was replaced after `since`: what a request of
    /// that moment was answered may be an older state.
    pub fn was_replaced_after(&self, no: ObjectNo, since: Moment) -> bool {
        self.lock_list().is_some_and(|listed| {
            let file = listed.files.get(&no);
            file.is_some_and(|file| since < file.replaced)
        })
    }

    /// Removes a file from the list: the kernel has forgotten it, or was given its size in the
    /// answer to its own change of it.
    pub fn forget_file(&self, no: ObjectNo) {
        let Some(mut listed) = self.lock_list() else {
            return;
        };
        listed.remove(no);
        self.publish_count(&listed);
    }
}

#[cfg(test)]
mod tests;
