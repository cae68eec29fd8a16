//! Bugs to switch on: a test harness is itself tested by breaking the code on purpose and seeing it caught.
//!
//! Without the cargo feature `seeded-bugs` every hook is the constant `false`.

#[cfg(feature = "seeded-bugs")]
use std::sync::atomic::{AtomicU8, Ordering::SeqCst};

/// A bug that can be switched on. Each breaks one rule of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Bug {
    /// A commit is answered before it is durable.
    AnsweredTooEarly = 1,
    /// A batch that comes again is carried out again.
    BatchTwice,
    /// Half of a large batch is carried out.
    HalfABatch,
    /// The later content replaces the first.
    LastWriterWins,
    /// A conflict copy has only what its author changed, not what he had seen.
    CopyWithoutBase,
    /// What another has changed is removed all the same.
    ChangedRemoved,
    /// Content of another commit than was asked for is given.
    OtherContent,
    /// History is given to whoever has not said hello, and goes on from another one.
    OtherHistory,
}

impl Bug {
    /// Every bug.
    pub const ALL: [Self; 8] = [
        Self::AnsweredTooEarly,
        Self::BatchTwice,
        Self::HalfABatch,
        Self::LastWriterWins,
        Self::CopyWithoutBase,
        Self::ChangedRemoved,
        Self::OtherContent,
        Self::OtherHistory,
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
