//! Imports `blktrace`: the requests of a Linux block device, as the kernel traced them. The bytes
//! of a record are in `record`.
//!
//! # How
//! 1. The files of the processors are merged by time. Records that are out of order by less than a
//!    window (65,536 records) are put right.
//! 2. A request begins where it is issued to the driver (or, if asked for, where it is queued). It
//!    ends with the completion for the same device, sector and direction. A request without a
//!    completion has no outcome.

mod record;
mod requests;

pub use requests::RequestStage;

use super::error::ImportError;
use super::origin::TraceOrigin;
use super::records::{RecordReader, packed_form};
use super::summary::ImportSummary;
use super::window::{SortingWindow, TooLate, WINDOW};
use record::{
    BlktraceRecord, CGROUP, NOTE_TIME, NOTIFY, RECORD, RawRecord, VERSION, detect_swapped,
};
use requests::RequestMatcher;
use std::io::{Read, Write};

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
