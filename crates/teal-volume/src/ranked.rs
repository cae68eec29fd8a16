//! Locks with a rank: a thread takes them in ascending order, so no two threads wait for each
//! other.
//!
//! # Guarantees
//! 1. In debug builds, a thread that takes a lock whose rank is not above all ranks it holds panics
//!    at once, whether or not another thread is there to deadlock with.
//! 2. In release builds the locks are those of `parking_lot` and cost nothing more.

use parking_lot::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::ops::{Deref, DerefMut};

/// The place of a lock in the order; the crate's documentation says what each guards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LockRank {
    /// A burst to a drive.
    DriveBurst,
    /// What has affinity to a drive.
    DriveMarks,
    /// A flush to the server.
    Flush,
    /// The position in history.
    Apply,
    /// The choice of what to fetch ahead.
    Prefetch,
    /// All names of the volume.
    Namespace,
    /// Which directory lies in which.
    Moves,
    /// Whether the content of an object is here.
    Content,
    /// A step of giving space back.
    Reclaim,
}

/// The ranks that this thread holds.
#[cfg(debug_assertions)]
mod held {
    use super::LockRank;
    use std::cell::RefCell;

    thread_local! {
        static HELD: RefCell<Vec<LockRank>> = const { RefCell::new(Vec::new()) };
    }

    /// One rank that is held until this is dropped.
    #[derive(Debug)]
    pub(super) struct Held(LockRank);

    impl Held {
        pub(super) fn enter(rank: LockRank) -> Self {
            HELD.with_borrow(|held| {
                let highest = held.iter().max().copied();
                assert!(
                    highest.is_none_or(|highest| highest < rank),
                    "the lock {rank:?} is taken under {highest:?}, which comes after it"
                );
            });
            Self::note(rank)
        }

        /// Notes a lock that was taken without waiting.
        pub(super) fn note(rank: LockRank) -> Self {
            HELD.with_borrow_mut(|held| held.push(rank));
            Self(rank)
        }
    }

    impl Drop for Held {
        fn drop(&mut self) {
            HELD.with_borrow_mut(|held| {
                let at = held.iter().rposition(|rank| *rank == self.0);
                if let Some(at) = at {
                    held.remove(at);
                }
            });
        }
    }
}

/// Release builds keep no account of what a thread holds.
#[cfg(not(debug_assertions))]
mod held {
    use super::LockRank;

    #[derive(Debug)]
    pub(super) struct Held;

    impl Held {
        pub(super) const fn enter(_: LockRank) -> Self {
            Self
        }

        pub(super) const fn note(_: LockRank) -> Self {
            Self
        }
    }
}

use held::Held;

/// A mutex with a rank.
#[derive(Debug)]
pub struct RankedMutex<T> {
    rank: LockRank,
    inner: Mutex<T>,
}

impl<T> RankedMutex<T> {
    /// Returns an unlocked mutex.
    pub const fn new(rank: LockRank, value: T) -> Self {
        Self {
            rank,
            inner: Mutex::new(value),
        }
    }

    /// Waits for the lock.
    pub fn lock(&self) -> RankedMutexGuard<'_, T> {
        let held = Held::enter(self.rank);
        RankedMutexGuard {
            inner: self.inner.lock(),
            _held: held,
        }
    }

    /// Takes the lock if it is free. Nothing waits, so the order does not matter here; it does for
    /// what is taken under this lock.
    pub fn try_lock(&self) -> Option<RankedMutexGuard<'_, T>> {
        let inner = self.inner.try_lock()?;
        Some(RankedMutexGuard {
            inner,
            _held: Held::note(self.rank),
        })
    }

    /// Returns whether a thread has the lock now.
    pub fn is_locked(&self) -> bool {
        self.inner.is_locked()
    }
}

/// A reader-writer lock with a rank.
#[derive(Debug)]
pub struct RankedRwLock<T> {
    rank: LockRank,
    inner: RwLock<T>,
}

impl<T> RankedRwLock<T> {
    /// Returns an unlocked lock.
    pub const fn new(rank: LockRank, value: T) -> Self {
        Self {
            rank,
            inner: RwLock::new(value),
        }
    }

    /// Waits for shared access.
    pub fn read(&self) -> RankedReadGuard<'_, T> {
        let held = Held::enter(self.rank);
        RankedReadGuard {
            inner: self.inner.read(),
            _held: held,
        }
    }

    /// Waits for exclusive access.
    pub fn write(&self) -> RankedWriteGuard<'_, T> {
        let held = Held::enter(self.rank);
        RankedWriteGuard {
            inner: self.inner.write(),
            _held: held,
        }
    }

    /// Takes exclusive access if it is free. Nothing waits, so the order does not matter here; it
    /// does for what is taken under this lock.
    pub fn try_write(&self) -> Option<RankedWriteGuard<'_, T>> {
        let inner = self.inner.try_write()?;
        Some(RankedWriteGuard {
            inner,
            _held: Held::note(self.rank),
        })
    }
}

/// Exclusive access to the value of a [`RankedMutex`].
#[derive(Debug)]
#[must_use = "the lock is given back when this is dropped"]
pub struct RankedMutexGuard<'a, T> {
    inner: MutexGuard<'a, T>,
    _held: Held,
}

/// Shared access to the value of a [`RankedRwLock`].
#[derive(Debug)]
#[must_use = "the lock is given back when this is dropped"]
pub struct RankedReadGuard<'a, T> {
    inner: RwLockReadGuard<'a, T>,
    _held: Held,
}

/// Exclusive access to the value of a [`RankedRwLock`].
#[derive(Debug)]
#[must_use = "the lock is given back when this is dropped"]
pub struct RankedWriteGuard<'a, T> {
    inner: RwLockWriteGuard<'a, T>,
    _held: Held,
}

impl<T> Deref for RankedMutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> DerefMut for RankedMutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

impl<T> Deref for RankedReadGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> Deref for RankedWriteGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> DerefMut for RankedWriteGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ascending_ranks_are_taken_and_given_back_in_any_order() {
        let names = RankedRwLock::new(LockRank::Namespace, ());
        let (moves, content) = (
            RankedMutex::new(LockRank::Moves, ()),
            RankedRwLock::new(LockRank::Content, ()),
        );
        let (names_guard, moves_guard) = (names.read(), moves.lock());
        let content_guard = content.write();
        drop(names_guard);
        drop(content_guard);
        // What is above all that is still held may be taken again.
        assert!(content.try_write().is_some());
        drop(moves_guard);
        assert!(!moves.is_locked());
        drop(names.write());
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "the lock Namespace is taken under Some(Content)")]
    fn a_descending_rank_panics_without_a_second_thread() {
        let names = RankedRwLock::new(LockRank::Namespace, ());
        let content = RankedRwLock::new(LockRank::Content, ());
        let _content = content.read();
        let _names = names.read();
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "the lock Content is taken under Some(Content)")]
    fn the_same_rank_twice_panics() {
        let (one, other) = (
            RankedRwLock::new(LockRank::Content, ()),
            RankedRwLock::new(LockRank::Content, ()),
        );
        let _one = one.write();
        let _other = other.write();
    }

    #[test]
    fn ranks_are_held_by_threads_not_by_the_process() {
        let content = RankedRwLock::new(LockRank::Content, ());
        let names = RankedRwLock::new(LockRank::Namespace, ());
        let _content = content.read();
        std::thread::scope(|scope| {
            scope.spawn(|| drop(names.write()));
        });
    }
}
