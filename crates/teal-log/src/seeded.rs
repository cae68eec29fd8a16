//! Bugs to switch on: a test harness is itself tested by breaking the code on purpose and seeing it caught.
//!
//! Without the cargo feature `seeded-bugs` every hook is the constant `false`.

#[cfg(feature = "seeded-bugs")]
use std::sync::atomic::{AtomicU8, Ordering::SeqCst};

/// A bug that can be switched on. Each breaks one rule of crash recovery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Bug {
    /// Payloads above the watermark are not verified: a torn one is read as data.
    PayloadUnverified = 1,
    /// A torn tail is an error instead of the end.
    TornTailRefused,
    /// No fresh epoch, and leftovers are not told apart by digest either (each guards alone).
    LeftoversLineUp,
    /// What is known durable is not used: a flipped bit cuts silently.
    NoWatermark,
    /// A failed write or sync does not poison.
    FailureForgotten,
    /// A clean end leaves no record.
    NoCleanRecord,
    /// The anchor goes out before the checkpoint's barrier.
    AnchorTooEarly,
    /// A freed segment is reused at once, not after two checkpoints.
    ReuseAtOnce,
    /// Opening does not sync first.
    NoSyncOnOpen,
    /// Half of a batch is applied.
    CommitFlagIgnored,
    /// Roll-forward forgets holes.
    HolesNotRedone,
    /// Overwritten content stays counted as live.
    OverwrittenCounted,
    /// Bytes behind a new end of a file stay.
    TailNotZeroed,
    /// Joining or leaving the orphan set is not recorded.
    OrphanNotRecorded,
    /// Notes are not recorded.
    NoteNotRecorded,
    /// An entry removed is not recorded.
    RemovalNotRecorded,
    /// What is left of a reference to a shared extent in two places counts as one.
    SplitNotCounted,
    /// A shared extent goes while one still refers to it.
    SharedFreedEarly,
    /// Changes of the table of shared extents are not recorded.
    SharedNotRecorded,
    /// What is written counts as durable before its barrier.
    WrittenPromised,
    /// A checkpoint forgets the changes that still wait since the store was opened.
    DeferredForgotten,
    /// Who makes an object does not look whether changes wait for one that had its number.
    DeferredOutlived,
    /// The cleaner looks at objects for which changes wait.
    DeferredUncleaned,
    /// What changes that wait will give back counts as in use.
    DeferredCounted,
}

impl Bug {
    /// Every bug.
    pub const ALL: [Self; 24] = [
        Self::PayloadUnverified,
        Self::TornTailRefused,
        Self::LeftoversLineUp,
        Self::NoWatermark,
        Self::FailureForgotten,
        Self::NoCleanRecord,
        Self::AnchorTooEarly,
        Self::ReuseAtOnce,
        Self::NoSyncOnOpen,
        Self::CommitFlagIgnored,
        Self::HolesNotRedone,
        Self::OverwrittenCounted,
        Self::TailNotZeroed,
        Self::OrphanNotRecorded,
        Self::NoteNotRecorded,
        Self::RemovalNotRecorded,
        Self::SplitNotCounted,
        Self::SharedFreedEarly,
        Self::SharedNotRecorded,
        Self::WrittenPromised,
        Self::DeferredForgotten,
        Self::DeferredOutlived,
        Self::DeferredUncleaned,
        Self::DeferredCounted,
    ];
}

#[cfg(feature = "seeded-bugs")]
static SEEDED: AtomicU8 = AtomicU8::new(0);

/// Switches one bug on for the whole process, or all off.
#[cfg(feature = "seeded-bugs")]
pub fn seed(bug: Option<Bug>) {
    SEEDED.store(bug.map_or(0, |bug| bug as u8), SeqCst);
}

/// Whether this bug is switched on.
#[cfg(feature = "seeded-bugs")]
pub(crate) fn bug(bug: Bug) -> bool {
    SEEDED.load(SeqCst) == bug as u8
}

/// Whether this bug is switched on: never.
#[cfg(not(feature = "seeded-bugs"))]
pub(crate) const fn bug(_: Bug) -> bool {
    false
}
