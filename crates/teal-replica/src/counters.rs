//! What has passed between this replica and the server, in numbers.

use std::sync::atomic::{AtomicU64, Ordering};
use teal_proto::{ClientRequest, REQUEST_KINDS};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// What has passed between this replica and the server since the program began.
        #[derive(Debug, Default)]
        pub(crate) struct Counters {
            /// Requests made of it, by kind.
            asked: [AtomicU64; REQUEST_KINDS.len()],
            $($(#[$doc])* pub(crate) $name: AtomicU64,)*
        }

        impl Counters {
            pub(crate) fn list(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name.load(Ordering::Relaxed)),)*]
            }
        }
    };
}

counters! {
    /// Times an operation had to wait for it.
    waits,
    /// Microseconds of all these together.
    waited_us,
    /// Batches committed.
    batches,
    /// Operations in them.
    ops,
    /// Bytes of chunks sent.
    sent_bytes,
    /// Chunks sent.
    chunks,
    /// Bytes of content fetched.
    fetched,
    /// Directories listed.
    listings,
    /// Answers with news installed.
    pulls,
    /// Bytes of content that made way for other.
    evicted,
    /// Objects offered again to a restored server.
    offered,
}

impl Counters {
    /// Returns the requests that were made, by kind.
    pub(crate) fn requests(&self) -> [u64; REQUEST_KINDS.len()] {
        std::array::from_fn(|kind| self.asked[kind].load(Ordering::Relaxed))
    }

    pub(crate) fn asked(&self, request: &ClientRequest) {
        self.asked[request.kind()].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn sent(&self, chunks: usize, bytes: u64) {
        self.chunks.fetch_add(chunks as u64, Ordering::Relaxed);
        self.sent_bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}
