//! Numbers of volumes and of the objects in them.

use serde::{Deserialize, Serialize};

/// Names a volume: one directory tree with one history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct VolumeId(u32);

impl VolumeId {
    /// Wraps the raw number.
    pub const fn new(raw: u32) -> Self {
        Self(raw)
    }
    /// Returns the raw number, as stored.
    pub const fn get(self) -> u32 {
        self.0
    }
}

/// Names an object inside its volume. Never reused. `st_ino` is this number; numbers from 2^63 up
/// are for synthetic nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ObjectNo(u64);

impl ObjectNo {
    /// The root directory of every volume.
    pub const ROOT: Self = Self(1);
    /// The first number a volume may give to a new object; those below are reserved.
    pub const FIRST_FREE: Self = Self(16);
    /// Exclusive upper bound of stored objects.
    pub const LIMIT: Self = Self(1 << 63);

    /// Wraps the raw number.
    pub const fn new(raw: u64) -> Self {
        Self(raw)
    }
    /// Returns the raw number, as stored and as shown in `st_ino`.
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl std::fmt::Display for ObjectNo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "#{}", self.0)
    }
}
