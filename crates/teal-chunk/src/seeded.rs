//! Bugs to switch on: a test harness is itself tested by breaking the code on purpose and seeing it caught.
//!
//! Without the cargo feature `seeded-bugs` every hook is the constant `false`.

#[cfg(feature = "seeded-bugs")]
use std::sync::atomic::{AtomicU8, Ordering::SeqCst};

/// A bug that can be switched on. Each breaks one promise of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Bug {
    /// A chunk's content is not held against its name.
    DigestUnverified = 1,
    /// Packs are put without syncing file and directory.
    NotSynced,
    /// A pack that could not be put counts as put.
    FailedPutForgotten,
    /// Chunks can be had before their pack is durable.
    HadTooEarly,
    /// Collection does not look at the pins that there are.
    PinsIgnored,
    /// What is pinned and let go of while a collection runs is not marked.
    PinNotMarked,
    /// Collection takes young packs.
    GraceIgnored,
    /// A half-dead pack is removed before what lives in it is durable elsewhere.
    RemovedTooEarly,
    /// A damaged chunk is still said to be there, so that nobody sends it again.
    DamageHad,
    /// Leftovers of interrupted puts stay.
    LeftoversStay,
}

impl Bug {
    /// Every bug.
    pub const ALL: [Self; 10] = [
        Self::DigestUnverified,
        Self::NotSynced,
        Self::FailedPutForgotten,
        Self::HadTooEarly,
        Self::PinsIgnored,
        Self::PinNotMarked,
        Self::GraceIgnored,
        Self::RemovedTooEarly,
        Self::DamageHad,
        Self::LeftoversStay,
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
