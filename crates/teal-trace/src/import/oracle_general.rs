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
    // The header needs the time of the first record.
    if !records.next(&mut bytes)? {
        return Err(ImportError::Nothing("the file is empty".into()));
    }
    // A packed file is told by its first bytes, because its records make no sense.
    if let Some(what) = packed_form(&bytes) {
        return Err(ImportError::Foreign {
            format: "oracleGeneral",
            what,
        });
    }
    let first = CacheAccess::decode(&bytes);
    first.check(0, 0).map_err(|why| records.record_error(why))?;
    let mut writer = TraceWriter::new(out, &trace_header(unit, first.secs, &origin))?;
    let mut access = first;
    loop {
        let last = access.secs;
        done.records += 1;
        match access.to_event(first.secs, unit) {
            // An access of no bytes asks for nothing.
            _ if access.size == 0 => done.skipped += 1,
            Some(event) => {
                writer.write_item(&TraceItem::Event(event))?;
                done.events += 1;
            }
            None => {
                let why = format!("place {} is beyond any device", access.object);
                return Err(records.record_error(why));
            }
        }
        if !records.next(&mut bytes)? {
            break;
        }
        access = CacheAccess::decode(&bytes);
        access
            .check(done.records, last)
            .map_err(|why| records.record_error(why))?;
    }
    writer.finish()?;
    Ok(done)
}

/// Holds a record: an access to an object of a cache.
#[derive(Debug, Clone, Copy, Default)]
struct CacheAccess {
    secs: u32,
    object: u64,
    size: u32,
    /// Number of the record in which the object is wanted next.
    next: i64,
}

impl CacheAccess {
    fn decode(bytes: &[u8; RECORD]) -> Self {
        let mut fields = FieldReader(bytes);
        let mut decode = || {
            Some(Self {
                secs: fields.u32()?,
                object: fields.u64()?,
                size: fields.u32()?,
                next: fields.u64()? as i64,
            })
        };
        decode().unwrap_or_default()
    }

    /// Checks what no record of this format has: a next access that is not later than the records
    /// so far, or an earlier time than the last record. Returns the fault.
    fn check(&self, records: u64, last: u32) -> Result<(), String> {
        if !is_possible_next(self.next, records) {
            return Err(format!(
                "next access {} is neither -1 nor later: this is no oracleGeneral trace",
                self.next
            ));
        }
        if self.secs < last {
            return Err(format!(
                "time {} s comes after {last} s: this is no oracleGeneral trace",
                self.secs
            ));
        }
        Ok(())
    }

    /// Returns it as an event; `None` if its place is beyond any device. Times count from the first
    /// record.
    fn to_event(self, first_secs: u32, unit: Option<u64>) -> Option<TraceEvent> {
        let (object, action) = access_of(self.object, self.size, unit)?;
        Some(TraceEvent {
            at: Duration::from_secs((self.secs - first_secs).into()),
            process: 0,
            object,
            action,
            outcome: EventOutcome::Unknown,
            latency: None,
        })
    }
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
