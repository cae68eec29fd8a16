//! Counters of the store's work since it was opened.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// Live counters; every one only grows.
        #[derive(Debug, Default)]
        pub(crate) struct StoreCounters { $(pub(crate) $name: AtomicU64,)* }

        /// The counters at one moment.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        pub struct StoreCounts { $($(#[$doc])* pub $name: u64,)* }

        impl StoreCounters {
            pub(crate) fn get(&self) -> StoreCounts {
                StoreCounts { $($name: self.$name.load(Relaxed),)* }
            }
        }

        impl StoreCounts {
            /// Returns what has been added since an earlier moment of the same opening.
            #[must_use]
            pub fn since(&self, before: &Self) -> Self {
                Self { $($name: self.$name - before.$name,)* }
            }

            /// Returns every counter with its name.
            pub fn each(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name),)*].into_iter()
            }
        }
    };
}

counters! {
    /// Times the device was told to make everything durable.
    barriers,
    /// Write requests.
    writes,
    /// Bytes written, all kinds.
    bytes_written,
    /// Bytes of file content written.
    bytes_data,
    /// Bytes of pages written.
    bytes_pages,
    /// Bytes of inode records written, whole ones or deltas.
    bytes_inodes,
    /// Bytes of record headers and other deltas written, padding included.
    bytes_records,
    /// Bytes of second copies of pages written, padding included.
    bytes_copies,
    /// Bytes of anchors written.
    bytes_anchors,
    /// Read requests.
    reads,
    /// Bytes read.
    bytes_read,
    /// Writes that did not start where the one before ended.
    repositionings,
    /// Batches committed.
    batches,
    /// Commits that a caller waited for.
    syncs,
    /// Checkpoints completed.
    checkpoints,
    /// Segments cleaned.
    segments_cleaned,
    /// Bytes that lived in them.
    bytes_cleaned,
    /// Bytes of file content the cleaner moved.
    bytes_moved,
    /// Bytes copied by sharing them.
    bytes_shared,
    /// Times an operation had to wait for room.
    waits,
    /// Operations applied.
    ops,
    /// Reads that failed or met a checksum that did not match.
    damaged,
    /// Pages that could not be read, and whose second copy was read instead.
    second_copies_read,
    /// Pages written without a second copy, for want of a place.
    second_copies_missing,
}

/// Adds to a counter.
pub(crate) fn add_to_counter(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Relaxed);
}
