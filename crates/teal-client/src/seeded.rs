//! Bugs to switch on: a test harness is itself tested by breaking the code on purpose and seeing it caught.
//!
//! Without the cargo feature `seeded-bugs` every hook is the constant `false`.

#[cfg(feature = "seeded-bugs")]
use std::sync::atomic::{AtomicU8, Ordering::SeqCst};

/// A bug that can be switched on. Each breaks one rule between a replica and its server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Bug {
    /// What is pending counts as sent when it is cut, before the server has said anything.
    ClearedTooEarly = 1,
    /// The position moves, and is durable, before the states up to it are installed.
    PositionTooEarly,
    /// After a restart numbers are given out again from the beginning of the lease.
    NumbersReused,
    /// What a copied store has made keeps the numbers that the other life used too.
    NotRenumbered,
    /// What another store of this identity has made is not noticed in a pull.
    CopyUnnoticed,
    /// The server's state is installed over content that has changed here since it was sent.
    NewerOverwritten,
    /// The news of the time in which a device was away is not installed.
    NewsSkipped,
    /// What flew when the power failed is not taken back.
    FlyingForgotten,
    /// The batch's name is not durable when the server is asked to commit it.
    UnsyncedCommit,
    /// A removal is not noted.
    RemovalNotNoted,
    /// Content that is fetched is entered whatever commit it is of.
    StaleFetched,
    /// What has changed meanwhile keeps the base it had before its batch landed.
    BaseKept,
}

impl Bug {
    /// Every bug.
    pub const ALL: [Self; 12] = [
        Self::ClearedTooEarly,
        Self::PositionTooEarly,
        Self::NumbersReused,
        Self::NotRenumbered,
        Self::CopyUnnoticed,
        Self::NewerOverwritten,
        Self::NewsSkipped,
        Self::FlyingForgotten,
        Self::UnsyncedCommit,
        Self::RemovalNotNoted,
        Self::StaleFetched,
        Self::BaseKept,
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
