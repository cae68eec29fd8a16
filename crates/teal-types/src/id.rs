//! Numbers of volumes, of the objects in them, of the ranges that object numbers are taken from,
//! and of drives.
//!
//! # Guarantees
//! 1. Numbers of different kinds are different types and never convert into each other.
//! 2. Each is encoded as the bare integer inside it, on disks, between machines and in JSON.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::Range;

/// Names a volume: one directory tree with one history. The server draws the numbers by lot; 0 is
/// no volume of a client.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
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

/// Shows eight hexadecimal digits.
impl fmt::Display for VolumeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.0)
    }
}

/// Object numbers of one lease: an incarnation of a replica takes its new numbers from
/// `[n, n + 1) * LEASE`.
pub const LEASE: u64 = 1 << 30;

/// The number of a lease in its volume: a range of [`LEASE`] object numbers.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct LeaseNo(u32);

impl LeaseNo {
    /// The lease with the numbers of a volume that lived alone before it was served.
    pub const FIRST: Self = Self(0);

    /// Wraps the raw number.
    pub const fn new(raw: u32) -> Self {
        Self(raw)
    }
    /// Returns the raw number, as stored and sent.
    pub const fn get(self) -> u32 {
        self.0
    }
    /// Returns the lease that the number of an object belongs to. All numbers behind the last
    /// lease are taken for those of the last.
    pub fn of_object(object: ObjectNo) -> Self {
        Self(u32::try_from(object.get() / LEASE).unwrap_or(u32::MAX))
    }
    /// Returns the object numbers of the lease.
    pub fn object_numbers(self) -> Range<u64> {
        let first = u64::from(self.0) * LEASE;
        first..first + LEASE
    }
}

/// The number of a drive in its volume. The server gives them, from 1 on, and none twice.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct DriveNo(u32);

impl DriveNo {
    /// Wraps the raw number.
    pub const fn new(raw: u32) -> Self {
        Self(raw)
    }
    /// Returns the raw number, as stored and sent.
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl fmt::Display for DriveNo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
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

impl fmt::Display for ObjectNo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_object_number_belongs_to_the_lease_whose_numbers_it_is_among() {
        let lease = LeaseNo::new(5);
        let numbers = lease.object_numbers();
        assert_eq!(numbers, 5 * LEASE..6 * LEASE);
        assert_eq!(LeaseNo::of_object(ObjectNo::new(numbers.start)), lease);
        assert_eq!(LeaseNo::of_object(ObjectNo::new(numbers.end - 1)), lease);
        assert_eq!(
            LeaseNo::of_object(ObjectNo::new(numbers.end)),
            LeaseNo::new(6)
        );
        assert_eq!(LeaseNo::of_object(ObjectNo::ROOT), LeaseNo::FIRST);
        assert_eq!(LeaseNo::of_object(ObjectNo::LIMIT), LeaseNo::new(u32::MAX));
    }

    #[test]
    fn a_volume_is_shown_in_eight_hexadecimal_digits() {
        assert_eq!(VolumeId::new(0x2a).to_string(), "0000002a");
        assert_eq!(DriveNo::new(42).to_string(), "42");
    }
}
