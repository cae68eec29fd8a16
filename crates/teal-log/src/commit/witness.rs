//! Which machine has a store open, so that no other one opens it at the same time: over a shared
//! disk, or from a copy of it.
//!
//! # Guarantees
//! 1. *Marked before written*: from the first write of an opening until its clean end, the last
//!    record on the disk names the machine.
//! 2. *Refused elsewhere*: another machine does not open a store for writing that is marked, unless
//!    it is told to take it over.
//! 3. *Silence*: an opening that writes nothing leaves no mark, and the mark costs no write and no
//!    barrier.
//!
//! # How
//! 1. Each record's header names the machine, the boot and the machine's name ([`Owner`]). The
//!    first commit of an opening is preceded by the record of a fresh epoch, which is synced: that
//!    is the mark. The clean record at the end, the same bytes with another flag, takes it away.
//!    All records in between carry the mark, so that it is found whichever of them is the last.
//! 2. Opening looks at the last record that follows the chain, whether or not its batch is whole:
//!    the mark of a machine that has just begun is the record of its epoch, which belongs to no
//!    batch yet.
//! 3. Two machines may have opened an unmarked store before either writes. So an opening remembers
//!    what lay where it will write first, and the newest anchor; if either has changed by then,
//!    another opening has written, and this one writes nothing ([`OverwriteWitness::still_holds`]).
//!
//! # Why a crash at any point is harmless
//! - Before the barrier of the epoch record: no mark, and nothing written but leftovers, as without
//!   marks.
//! - Behind it: the mark is this machine's own, which opens the store again without a word, after a
//!   reboot too.
//! - In the clean record: it is whole, and the store is unmarked, or it is not, and the record
//!   before it is the mark.

use crate::commit::anchors::Anchors;
use crate::error::StoreError;
use crate::format::record::{self, HEADER};
use crate::object::objects::ObjectStore;
use crate::space::segments::LogHead;
use teal_types::Sector;

/// What lay on the disk where an opening writes first, when it was opened: digests of the first
/// sectors of both runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OverwriteWitness([Option<u64>; 2]);

impl OverwriteWitness {
    pub(crate) fn read_from(objects: &ObjectStore, head: LogHead) -> Self {
        let sector = |at: Sector| {
            let mut bytes = vec![0; HEADER];
            objects.reader.read_raw(at, &mut bytes).ok()?;
            Some(record::header_digest(&bytes, &objects.sb.uuid))
        };
        Self([head.a, head.b].map(|run| (run.sectors > 0).then(|| sector(run.addr)).flatten()))
    }

    /// Returns whether something else lies there now. What could not be read tells nothing.
    fn differs_from(self, now: Self) -> bool {
        self.0
            .into_iter()
            .zip(now.0)
            .any(|(then, now)| then.is_some() && now.is_some() && then != now)
    }

    /// Before the first write of an opening: checks that no other opening has written since. The
    /// newest checkpoint known here is `checkpoint`.
    ///
    /// # Errors
    /// [`StoreError::WrittenElsewhere`]; nothing has been written then.
    pub(crate) fn still_holds(
        self,
        objects: &ObjectStore,
        checkpoint: u64,
    ) -> Result<(), StoreError> {
        let head = objects.segments.lock().log_head();
        // The anchors tell of an opening that has written so much that what it wrote first is gone.
        let anchors = Anchors::read(&objects.reader, &objects.sb, &objects.geometry);
        let is_newer = anchors
            .newest()
            .is_some_and(|anchor| anchor.checkpoint > checkpoint);
        if is_newer || self.differs_from(Self::read_from(objects, head)) {
            Err(StoreError::WrittenElsewhere)
        } else {
            Ok(())
        }
    }
}
