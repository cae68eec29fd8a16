//! How many bytes of content are here and not at the server.
//!
//! # Invariants
//! 1. What is counted is never less than what is only here: what is written is added as it comes,
//!    and the rest only a count of the notes takes away.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// What is counted of the backlog.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    /// At least what is only here.
    bytes: AtomicU64,
    /// It may be less by now.
    is_estimate: AtomicBool,
}

impl Backlog {
    /// Returns at least what is only here.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Adds what was written. Returns how much was counted before.
    pub(crate) fn add(&self, bytes: u64) -> u64 {
        let before = self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.set_rough();
        before
    }

    /// Notes that it may be less than what is counted.
    pub(crate) fn set_rough(&self) {
        self.is_estimate.store(true, Ordering::Relaxed);
    }

    /// Returns whether it may be less than what is counted.
    pub(crate) fn is_rough(&self) -> bool {
        self.is_estimate.load(Ordering::Relaxed)
    }

    /// Counts anew. What is written during the count makes it rough again.
    ///
    /// # Errors
    /// What counting met.
    pub(crate) fn recount<E>(&self, count: impl FnOnce() -> Result<u64, E>) -> Result<u64, E> {
        self.is_estimate.store(false, Ordering::Relaxed);
        let bytes = count()?;
        self.bytes.store(bytes, Ordering::Relaxed);
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_while_the_notes_are_counted_is_counted_again() {
        let backlog = Backlog::default();
        assert_eq!((backlog.add(10), backlog.add(5)), (0, 10));
        assert!(backlog.is_rough());
        let counted = backlog.recount(|| Ok::<_, ()>(7));
        assert_eq!(
            (counted, backlog.bytes(), backlog.is_rough()),
            (Ok(7), 7, false)
        );
        let counted = backlog.recount(|| {
            backlog.add(3);
            Ok::<_, ()>(7)
        });
        assert!(counted == Ok(7) && backlog.is_rough());
    }
}
