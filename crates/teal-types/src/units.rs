//! Sizes and addresses: bytes, 512-byte sectors of a device, 4 KiB blocks of a file.

/// Bytes in a [`Sector`], the unit of log addresses.
pub const SECTOR: u64 = 512;
/// Bytes in a file data [`Block`].
pub const BLOCK: u64 = 4096;

/// A count of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Bytes(u64);

impl Bytes {
    /// Wraps a count.
    pub const fn new(raw: u64) -> Self {
        Self(raw)
    }
    /// Returns the count.
    pub const fn get(self) -> u64 {
        self.0
    }
}

/// A sector address on a device (48 bits are stored).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Sector(u64);

impl Sector {
    /// Exclusive upper bound: addresses have 48 bits.
    pub const LIMIT: Self = Self(1 << 48);
    /// Wraps a sector number.
    pub const fn new(raw: u64) -> Self {
        Self(raw)
    }
    /// Returns the sector number.
    pub const fn get(self) -> u64 {
        self.0
    }
    /// Returns the byte offset on the device.
    pub const fn byte_offset(self) -> u64 {
        self.0 * SECTOR
    }
    /// Returns the sector that is `count` sectors further.
    #[must_use]
    pub const fn plus(self, count: u64) -> Self {
        Self(self.0 + count)
    }
}

/// The number of a 4 KiB block inside a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Block(u64);

impl Block {
    /// Wraps a block number.
    pub const fn new(raw: u64) -> Self {
        Self(raw)
    }
    /// Returns the block number.
    pub const fn get(self) -> u64 {
        self.0
    }
    /// Returns the byte offset in the file.
    pub const fn byte_offset(self) -> u64 {
        self.0 * BLOCK
    }
    /// Returns the block that holds byte `offset`.
    pub const fn containing(offset: u64) -> Self {
        Self(offset / BLOCK)
    }
}
