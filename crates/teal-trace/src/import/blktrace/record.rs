//! Defines the bytes of a `blktrace` record (`struct blk_io_trace` of `linux/blktrace_api.h`).
//!
//! | at | bytes | field |
//! |---:|---:|---|
//! | 0 | 4 | magic 0x656174 in the high bytes, version 7 in the lowest |
//! | 4 | 4 | number of the event on its processor |
//! | 8 | 8 | time, nanoseconds |
//! | 16 | 8 | sector |
//! | 24 | 4 | length in bytes |
//! | 28 | 4 | what happened: the step in the low half, the categories in the high half |
//! | 32 | 4 | process that did it |
//! | 36 | 4 | device number |
//! | 40 | 4 | processor |
//! | 44 | 2 | error at completion |
//! | 46 | 2 | bytes that follow the record |
//!
//! Integers are in the byte order of the machine, which the magic shows.

pub(super) const RECORD: usize = 48;
pub(super) const MAGIC: u32 = 0x6561_7400;
pub(super) const VERSION: u32 = 7;

// Steps.
pub(super) const QUEUE: u32 = 1;
pub(super) const REQUEUE: u32 = 6;
pub(super) const ISSUE: u32 = 7;
pub(super) const COMPLETE: u32 = 8;
/// The data begins with a control group's number.
pub(super) const CGROUP: u32 = 1 << 8;
// Categories.
pub(super) const WRITE: u32 = 1 << 1;
pub(super) const FLUSH: u32 = 1 << 2;
pub(super) const PASSTHROUGH: u32 = 1 << 9;
pub(super) const NOTIFY: u32 = 1 << 10;
pub(super) const DISCARD: u32 = 1 << 13;
pub(super) const FUA: u32 = 1 << 15;
// Kinds of notifications.
pub(super) const NOTE_PROCESS: u32 = 0;
pub(super) const NOTE_TIME: u32 = 1;
pub(super) const NOTE_MESSAGE: u32 = 2;

/// Holds one record, in this machine's byte order.
#[derive(Debug, Clone)]
pub(super) struct BlktraceRecord {
    pub(super) sector: u64,
    pub(super) bytes: u32,
    pub(super) step: u32,
    pub(super) categories: u32,
    pub(super) process: u32,
    pub(super) device: u32,
    pub(super) error: u16,
    pub(super) text: Vec<u8>,
}

/// Holds the fixed part of a record, in the byte order of its machine.
pub(super) struct RawRecord {
    pub(super) bytes: [u8; RECORD],
    /// Is true when the bytes of numbers are in the other order.
    pub(super) swapped: bool,
}

impl RawRecord {
    pub(super) fn u16_at(&self, at: usize) -> u16 {
        let value = u16::from_le_bytes([self.bytes[at], self.bytes[at + 1]]);
        if self.swapped {
            value.swap_bytes()
        } else {
            value
        }
    }

    pub(super) fn u32_at(&self, at: usize) -> u32 {
        let bytes = [0, 1, 2, 3].map(|n| self.bytes[at + n]);
        let value = u32::from_le_bytes(bytes);
        if self.swapped {
            value.swap_bytes()
        } else {
            value
        }
    }

    pub(super) fn u64_at(&self, at: usize) -> u64 {
        // The halves change places too.
        let (low, high) = if self.swapped {
            (at + 4, at)
        } else {
            (at, at + 4)
        };
        u64::from(self.u32_at(high)) << 32 | u64::from(self.u32_at(low))
    }

    /// Decodes the record; `text` is the data behind it.
    pub(super) fn decode(&self, text: Vec<u8>) -> BlktraceRecord {
        let action = self.u32_at(28);
        BlktraceRecord {
            sector: self.u64_at(16),
            bytes: self.u32_at(24),
            step: action & 0xff,
            categories: action >> 16,
            process: self.u32_at(32),
            device: self.u32_at(36),
            error: self.u16_at(44),
            text,
        }
    }
}

/// Returns whether the byte order of a record is the other one; `None` if it has no magic number.
pub(super) fn detect_swapped(bytes: &[u8; RECORD]) -> Option<bool> {
    // The last byte of the number is the version.
    let magic = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    if magic & !0xff == MAGIC {
        Some(false)
    } else if magic.swap_bytes() & !0xff == MAGIC {
        Some(true)
    } else {
        None
    }
}
