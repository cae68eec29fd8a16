//! A point in civil time with nanoseconds, as files carry it.

use serde::{Deserialize, Serialize};

/// Seconds and nanoseconds since 1970-01-01 UTC; seconds may be negative.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Timestamp {
    /// Whole seconds, rounded down.
    pub secs: i64,
    /// Nanoseconds within the second, below 10^9.
    pub nanos: u32,
}

impl Timestamp {
    /// A point in time; nanoseconds of a second or more are carried over.
    pub const fn new(secs: i64, nanos: u32) -> Self {
        Self { secs: secs.saturating_add((nanos / 1_000_000_000) as i64), nanos: nanos % 1_000_000_000 }
    }
}
