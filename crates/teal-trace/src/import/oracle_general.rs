//! Imports the `oracleGeneral` format of libCacheSim: accesses to objects of a cache.
//!
//! | at | bytes | field |
//! |---:|---:|---|
//! | 0 | 4 | time, seconds |
//! | 4 | 8 | object |
//! | 12 | 4 | its size |
//! | 16 | 8 | number of the record in which it is wanted next, signed; -1 never |
//!
//! Integers are little-endian, without a header. The last field is checked, so that a foreign file
//! is noticed, but it is not kept: it follows from the rest.

use super::error::ImportError;
use super::origin::TraceOrigin;
use super::records::{RecordReader, packed_form};
use super::summary::ImportSummary;
use crate::event::{Action, EventOutcome, Level, TraceEvent, TraceHeader, TraceItem};
use crate::field_bytes::FieldReader;
use crate::write::TraceWriter;
use std::io::{Read, Write};
use std::time::Duration;
use teal_types::Timestamp;

const RECORD: usize = 24;
const NEVER: i64 = -1;
/// Limits the number of records: text that is taken for a number is larger.
const RECORDS_MAX: u64 = 1 << 48;

/// Imports accesses as reads. Without `unit`, each reads a whole object, at file level. With it,
/// objects are places on a device, in units of this number of bytes (a multiple of 512), at block
/// level.
///
/// # Errors
/// Returns an [`ImportError`].
pub fn import_oracle_general(
    input: impl Read,
    unit: Option<u64>,
    origin: TraceOrigin,
    out: impl Write,
) -> Result<ImportSummary, ImportError> {
    let mut records = RecordReader::new(input);
    let mut done = ImportSummary::default();
    let mut bytes = [0; RECORD];
    let mut writer: Option<TraceWriter<_>> = None;
    let mut out = Some(out);
    let (mut first, mut last) = (0, 0);
    while records.next(&mut bytes)? {
        let (secs, object, size, next) = decode_fields(&bytes);
        // A packed file is told by its first bytes, because its records make no sense.
        if done.records == 0
            && let Some(what) = packed_form(&bytes)
        {
            return Err(ImportError::Foreign {
                format: "oracleGeneral",
                what,
            });
        }
        if !is_possible_next(next, done.records) {
            return Err(records.record_error(format!(
                "next access {next} is neither -1 nor later: this is no oracleGeneral trace"
            )));
        }
        // The format is sorted by time, so an earlier time shows another format.
        if secs < last {
            return Err(records.record_error(format!(
                "time {secs} s comes after {last} s: this is no oracleGeneral trace"
            )));
        }
        last = secs;
        // The header needs the time of the first record.
        let writer = match (&mut writer, out.take()) {
            (Some(writer), _) => writer,
            (none, Some(out)) => {
                first = secs;
                none.insert(TraceWriter::new(out, &trace_header(unit, secs, &origin))?)
            }
            (None, None) => unreachable!("taken once, with the first record"),
        };
        done.records += 1;
        // An access of no bytes asks for nothing.
        if size == 0 {
            done.skipped += 1;
            continue;
        }
        let Some((object, action)) = access_of(object, size, unit) else {
            return Err(records.record_error(format!("place {object} is beyond any device")));
        };
        // Times count from the first record.
        let at = Duration::from_secs((secs - first).into());
        writer.write_item(&TraceItem::Event(TraceEvent {
            at,
            process: 0,
            object,
            action,
            outcome: EventOutcome::Unknown,
            latency: None,
        }))?;
        done.events += 1;
    }
    let writer = writer.ok_or_else(|| ImportError::Nothing("the file is empty".into()))?;
    writer.finish()?;
    Ok(done)
}

/// Returns whether an object's next access may have this number: it is a later record, or never.
fn is_possible_next(next: i64, records: u64) -> bool {
    let is_later = u64::try_from(next).is_ok_and(|next| (records + 1..RECORDS_MAX).contains(&next));
    next == NEVER || next == i64::MAX || is_later
}

/// Returns the header of a trace that begins at this second.
fn trace_header(unit: Option<u64>, secs: u32, origin: &TraceOrigin) -> TraceHeader {
    // Without a unit of places, objects are files.
    let level = if unit.is_some() {
        Level::Block
    } else {
        Level::File
    };
    let TraceOrigin { machine, source } = origin.clone();
    TraceHeader {
        level,
        anonymous: false,
        start: Timestamp::new(secs.into(), 0),
        machine,
        source,
    }
}

/// Returns object and action of an access; `None` if its place is beyond any device.
fn access_of(object: u64, size: u32, unit: Option<u64>) -> Option<(u64, Action)> {
    let bytes = size.into();
    let Some(unit) = unit else {
        let whole = Action::Read {
            offset: 0,
            length: bytes,
        };
        return Some((object, whole));
    };
    let sector = object.checked_mul(unit)? / teal_types::SECTOR;
    Some((0, Action::ReadSectors { sector, bytes }))
}

/// Decodes time, object, size and next access.
fn decode_fields(bytes: &[u8; RECORD]) -> (u32, u64, u32, i64) {
    let mut t = FieldReader(bytes);
    let mut all = || Some((t.u32()?, t.u64()?, t.u32()?, t.u64()? as i64));
    all().unwrap_or_default()
}
