//! Imports `blktrace`: the requests of a Linux block device, as the kernel traced them (`struct
//! blk_io_trace` of `linux/blktrace_api.h`).
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
//!
//! # How
//! 1. The files of the processors are merged by time. Records that are out of order by less than a
//!    window (65,536 records) are put right.
//! 2. A request begins where it is issued to the driver (or, if asked for, where it is queued). It
//!    ends with the completion for the same device, sector and direction. A request without a
//!    completion has no outcome.

mod requests;

use super::records::{RecordReader, packed_form};
use super::window::{SortingWindow, TooLate, WINDOW};
use super::{ImportError, ImportSummary, TraceOrigin};
use requests::RequestMatcher;
use std::io::{Read, Write};

const RECORD: usize = 48;
const MAGIC: u32 = 0x6561_7400;
const VERSION: u32 = 7;

// Steps.
const QUEUE: u32 = 1;
const REQUEUE: u32 = 6;
const ISSUE: u32 = 7;
const COMPLETE: u32 = 8;
/// The data begins with a control group's number.
const CGROUP: u32 = 1 << 8;
// Categories.
const WRITE: u32 = 1 << 1;
const FLUSH: u32 = 1 << 2;
const PASSTHROUGH: u32 = 1 << 9;
const NOTIFY: u32 = 1 << 10;
const DISCARD: u32 = 1 << 13;
const FUA: u32 = 1 << 15;
// Kinds of notifications.
const NOTE_PROCESS: u32 = 0;
const NOTE_TIME: u32 = 1;
const NOTE_MESSAGE: u32 = 2;

/// Names the point at which a request begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RequestStage {
    /// The driver gets it, after merging and scheduling. This is the device's view.
    #[default]
    Issue,
    /// The file system queues it. This is the only point on stacked devices, which have no driver.
    Queue,
}

/// Holds one record, in this machine's byte order.
#[derive(Debug, Clone)]
struct BlktraceRecord {
    sector: u64,
    bytes: u32,
    step: u32,
    categories: u32,
    process: u32,
    device: u32,
    error: u16,
    text: Vec<u8>,
}

/// Holds the fixed part of a record, in the byte order of its machine.
struct RawRecord {
    bytes: [u8; RECORD],
    /// Is true when the bytes of numbers are in the other order.
    swapped: bool,
}

impl RawRecord {
    fn u16_at(&self, at: usize) -> u16 {
        let value = u16::from_le_bytes([self.bytes[at], self.bytes[at + 1]]);
        if self.swapped {
            value.swap_bytes()
        } else {
            value
        }
    }

    fn u32_at(&self, at: usize) -> u32 {
        let bytes = [0, 1, 2, 3].map(|n| self.bytes[at + n]);
        let value = u32::from_le_bytes(bytes);
        if self.swapped {
            value.swap_bytes()
        } else {
            value
        }
    }

    fn u64_at(&self, at: usize) -> u64 {
        // The halves change places too.
        let (low, high) = if self.swapped {
            (at + 4, at)
        } else {
            (at, at + 4)
        };
        u64::from(self.u32_at(high)) << 32 | u64::from(self.u32_at(low))
    }

    /// Decodes the record; `text` is the data behind it.
    fn decode(&self, text: Vec<u8>) -> BlktraceRecord {
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
fn detect_swapped(bytes: &[u8; RECORD]) -> Option<bool> {
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

/// Reads one processor's file.
struct ProcessorFile<R> {
    records: RecordReader<R>,
    /// Byte order of all its records, as the first one has it.
    swapped: Option<bool>,
    next: Option<(u64, BlktraceRecord)>,
}

impl<R: Read> ProcessorFile<R> {
    /// Reads the next record.
    fn advance(&mut self) -> Result<(), ImportError> {
        let mut bytes = [0; RECORD];
        self.next = None;
        if !self.records.next(&mut bytes)? {
            return Ok(());
        }
        // All records of a file have the byte order of the first.
        let found = detect_swapped(&bytes);
        let found = found.filter(|found| self.swapped.is_none_or(|before| before == *found));
        let Some(swapped) = found else {
            return Err(self.foreign_record(&bytes));
        };
        self.swapped = Some(swapped);
        let raw = RawRecord { bytes, swapped };
        let version = raw.u32_at(0) & 0xff;
        if version != VERSION {
            return Err(self.records.record_error(format!(
                "blktrace version {version}; version {VERSION} is read"
            )));
        }
        let action = raw.u32_at(28);
        let mut text = vec![0; raw.u16_at(46).into()];
        self.records.read_more(&mut text)?;
        // The number of the control group is of no use here.
        if action & CGROUP != 0 {
            text.drain(..text.len().min(8));
        }
        // The kernel writes the data of a notification in its own byte order too.
        if swapped && action >> 16 & NOTIFY != 0 && action & 0xff == NOTE_TIME {
            text.chunks_exact_mut(4).for_each(<[u8]>::reverse);
        }
        self.next = Some((raw.u64_at(8), raw.decode(text)));
        Ok(())
    }

    /// Returns the error of a record without the right magic number. If it is the first one, the
    /// file is of another format.
    fn foreign_record(&self, bytes: &[u8; RECORD]) -> ImportError {
        let begin = &bytes[..4];
        if self.swapped.is_some() {
            return self
                .records
                .record_error(format!("no record begins with {begin:02x?}"));
        }
        let what = packed_form(bytes).unwrap_or_else(|| format!("it begins with {begin:02x?}"));
        ImportError::Foreign {
            format: "blktrace",
            what,
        }
    }
}

/// Imports the output of `blktrace`, one input for each processor's file, as a trace at block
/// level.
///
/// # Errors
/// Returns an [`ImportError`]; its places are those of the input that is refused.
pub fn import_blktrace<R: Read>(
    inputs: impl IntoIterator<Item = R>,
    stage: RequestStage,
    origin: TraceOrigin,
    out: impl Write,
) -> Result<ImportSummary, ImportError> {
    // Each file has its next record at hand, so that they can be merged.
    let mut sources = Vec::new();
    for input in inputs {
        let mut source = ProcessorFile {
            records: RecordReader::new(input),
            swapped: None,
            next: None,
        };
        source.advance()?;
        sources.push(source);
    }
    let mut window = SortingWindow::new();
    let mut requests = RequestMatcher::new(stage, origin, out);
    // A few files only, so a linear search for the earliest record is enough.
    let earliest = |sources: &[ProcessorFile<R>]| {
        let times = sources
            .iter()
            .enumerate()
            .filter_map(|(i, s)| s.next.as_ref().map(|(time, _)| (*time, i)));
        times.min().map(|(_, i)| i)
    };
    while let Some(source) = earliest(&sources).map(|i| &mut sources[i]) {
        let Some((time, note)) = source.next.take() else {
            break;
        };
        requests.done.records += 1;
        // The clock may be told by a record behind the first ones, so it is looked for before the
        // window.
        requests.look_ahead(time, &note);
        let late = |TooLate| {
            source.records.record_error(format!(
                "{time} ns is earlier than what is more than {WINDOW} records before"
            ))
        };
        if let Some((at, note)) = window.insert(time, note).map_err(late)? {
            requests.take_record(at, note)?;
        }
        source.advance()?;
    }
    while let Some((at, note)) = window.pop() {
        requests.take_record(at, note)?;
    }
    requests.finish()
}
