//! What an operation may take in the log, as it is promised before it begins.

/// What an operation may take in the log, at worst.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cost {
    /// Bytes.
    pub bytes: u64,
    /// What it does to the space in use in the end.
    pub purpose: Purpose,
}

impl Cost {
    /// An operation on `objects` objects and their entries.
    pub const fn names(objects: u64) -> Self {
        Self {
            bytes: objects * 12288,
            purpose: Purpose::Grows,
        }
    }
    /// A write of `len` bytes.
    pub const fn data(len: u64) -> Self {
        Self {
            bytes: len + 20480,
            purpose: Purpose::Grows,
        }
    }
    /// The same, for an operation that gives space back.
    #[must_use]
    pub const fn freeing(mut self) -> Self {
        self.purpose = Purpose::Frees;
        self
    }
}

/// What an operation does to the space in use, and so how far into the reserve it may go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// May take more: nothing of the reserve.
    Grows,
    /// Takes about what it gives back: a quarter of it.
    Replaces,
    /// Gives back: half of it.
    Frees,
}
