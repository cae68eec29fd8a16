//! The `oracleGeneral` format of libCacheSim: accesses to objects of a cache.
//!
//! | at | bytes | field |
//! |---:|---:|---|
//! | 0 | 4 | time, seconds |
//! | 4 | 8 | object |
//! | 12 | 4 | its size |
//! | 16 | 8 | number of the record in which it is wanted next, signed; -1 never |
//!
//! Little-endian, without a header. The last field is checked, so that a foreign file is noticed,
//! and not kept: it follows from the rest.

use super::outcome::{ImportError, ImportSummary, TraceOrigin};
use super::records::{RecordReader, packed_form};
use crate::event::{Action, EventOutcome, Level, TraceEvent, TraceHeader, TraceItem};
use crate::format::Take;
use crate::write::TraceWriter;
use std::io::{Read, Write};
use std::time::Duration;
use teal_types::Timestamp;

const RECORD: usize = 24;
const NEVER: i64 = -1;
/// No trace has that many records; text, taken for a number, is larger.
const RECORDS_MAX: u64 = 1 << 48;

/// Imports accesses as reads. Without `unit`, each reads a whole object, at file level; with it,
/// objects are places on a device, in units of so many bytes (a multiple of 512), at block level.
///
/// # Errors
/// [`ImportError`].
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
        if done.records == 0
            && let Some(what) = packed_form(&bytes)
        {
            return Err(ImportError::Foreign {
                format: "oracleGeneral",
                what,
            });
        }
        let is_later = |next: i64| {
            u64::try_from(next).is_ok_and(|next| (done.records + 1..RECORDS_MAX).contains(&next))
        };
        if next != NEVER && next != i64::MAX && !is_later(next) {
            return Err(records.record_error(format!(
                "next access {next} is neither -1 nor later: this is no oracleGeneral trace"
            )));
        }
        if secs < last {
            return Err(records.record_error(format!(
                "time {secs} s comes after {last} s: this is no oracleGeneral trace"
            )));
        }
        last = secs;
        let writer = match (&mut writer, out.take()) {
            (Some(writer), _) => writer,
            (none, Some(out)) => {
                first = secs;
                let level = if unit.is_some() {
                    Level::Block
                } else {
                    Level::File
                };
                let start = Timestamp::new(secs.into(), 0);
                let TraceOrigin { machine, source } = origin.clone();
                none.insert(TraceWriter::new(
                    out,
                    &TraceHeader {
                        level,
                        anonymous: false,
                        start,
                        machine,
                        source,
                    },
                )?)
            }
            (None, None) => unreachable!("taken once, with the first record"),
        };
        done.records += 1;
        if size == 0 {
            done.skipped += 1;
            continue;
        }
        let (object, action) = match unit {
            None => (
                object,
                Action::Read {
                    offset: 0,
                    length: size.into(),
                },
            ),
            Some(unit) => {
                let byte = object.checked_mul(unit).ok_or_else(|| {
                    records.record_error(format!("place {object} is beyond any device"))
                })?;
                (
                    0,
                    Action::ReadSectors {
                        sector: byte / teal_types::SECTOR,
                        bytes: size.into(),
                    },
                )
            }
        };
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

fn decode_fields(bytes: &[u8; RECORD]) -> (u32, u64, u32, i64) {
    let mut t = Take(bytes);
    let mut all = || Some((t.u32()?, t.u64()?, t.u32()?, t.u64()? as i64));
    all().unwrap_or_default()
}
