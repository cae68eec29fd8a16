//! The kernel's view of a file whose content is replaced by that of another replica.
//!
//! # Guarantees
//! 1. A write through a descriptor that was open before is based on the last state that the kernel
//!    can have been given, never on a later one.
//! 2. Content that is installed a second time counts as given: a machine meets no conflict with
//!    itself because of it.

use super::Replica;
use super::acknowledge::InstallableContent;
use super::note::ObjectNote;
use teal_types::{CommitSeq, ObjectVersion};
use teal_volume::Invalidation;

impl Replica {
    /// Returns the last commit up to which the kernel can have been given the content of a file that
    /// is about to be replaced by that of `version`. `was_sent`: content of this machine was in the
    /// batch that is settled.
    pub(super) fn content_given(
        &self,
        version: &ObjectVersion,
        note: &ObjectNote,
        content: InstallableContent,
        was_sent: bool,
    ) -> CommitSeq {
        // Content that is installed once more is the very state that the kernel had been given.
        let is_same_again = version.data_seq <= self.position()
            && !matches!(content, InstallableContent::BehindTail(_))
            && !was_sent
            && note.behind_since.is_none();
        if is_same_again {
            version.data_seq
        } else {
            CommitSeq::new(version.data_seq.get().saturating_sub(1))
        }
    }

    /// Notes that the content of a locked file was replaced that had `size` bytes before: the
    /// kernel holds an old state of it. `given`: the last commit whose content it can have been given, if
    /// the position has come that far.
    pub(super) fn content_replaced(
        &self,
        version: &ObjectVersion,
        size: u64,
        given: CommitSeq,
        invalidations: &mut Vec<Invalidation>,
    ) {
        let no = version.object;
        // A program that has the file open saw the old content: its writes must be based on that.
        if self.volume().references().is_held(no) {
            let given = given.min(self.position());
            self.volume()
                .stale_files()
                .note_replaced(no, size, given, version.data_seq);
        }
        invalidations.push(Invalidation::Data(no, 0, 0));
        if version.size > size {
            invalidations.push(Invalidation::Grown(no, version.size));
        }
    }
}
