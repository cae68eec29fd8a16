//! Imports the `vscsi` formats of CloudPhysics, as libCacheSim reads them: SCSI commands of virtual
//! disks.
//!
//! | field | bytes | at in version 1 (32 bytes) | at in version 2 (40 bytes) |
//! |---|---:|---:|---:|
//! | serial number | 4 | 0 | 4 |
//! | length in bytes | 4 | 4 | 8 |
//! | pieces of memory | 4 | 8 | 12 |
//! | SCSI command | 2 | 12 | 0 |
//! | version in the high byte | 2 | 14 | 2 |
//! | sector | 8 | 16 | 16 |
//! | time, microseconds | 8 | 24 | 24 |
//! | response time, microseconds | 8 | | 32 |
//!
//! Integers are little-endian, without a header. libCacheSim does not use the response time; we
//! assume that it is in microseconds, like the time.

use super::error::ImportError;
use super::origin::TraceOrigin;
use super::records::{RecordReader, packed_form};
use super::summary::ImportSummary;
use super::window::{SortingWindow, TooLate, WINDOW};
use crate::event::{Action, EventOutcome, Level, TraceEvent, TraceHeader, TraceItem};
use crate::field_bytes::FieldReader;
use crate::write::TraceWriter;
use std::io::{self, Read, Write};
use std::time::Duration;
use teal_types::Timestamp;

const V1: usize = 32;
const V2: usize = 40;
/// Commands by their effect; READ and WRITE of 6, 10, 12 and 16 bytes and their relatives.
const READS: [u16; 5] = [0x08, 0x28, 0x2d, 0x88, 0xa8];
const WRITES: [u16; 9] = [0x0a, 0x2a, 0x2e, 0x3f, 0x8a, 0x8e, 0x9a, 0xaa, 0xae];
/// Commands that flush: SYNCHRONIZE CACHE.
const FLUSHES: [u16; 2] = [0x35, 0x91];

#[derive(Debug, Clone, Copy, Default)]
struct ScsiCommand {
    command: u16,
    version: u16,
    bytes: u32,
    sector: u64,
    micros: u64,
    response: Option<u64>,
}

type RecordDecoder = fn(&[u8]) -> Option<ScsiCommand>;

fn version_1(bytes: &[u8]) -> Option<ScsiCommand> {
    let mut t = FieldReader(bytes);
    t.u32()?;
    let bytes = t.u32()?;
    t.u32()?;
    let (command, version) = (t.u16()?, t.u16()?);
    Some(ScsiCommand {
        command,
        version,
        bytes,
        sector: t.u64()?,
        micros: t.u64()?,
        response: None,
    })
}

fn version_2(bytes: &[u8]) -> Option<ScsiCommand> {
    let mut t = FieldReader(bytes);
    let (command, version) = (t.u16()?, t.u16()?);
    t.u32()?;
    let bytes = t.u32()?;
    t.u32()?;
    Some(ScsiCommand {
        command,
        version,
        bytes,
        sector: t.u64()?,
        micros: t.u64()?,
        response: Some(t.u64()?),
    })
}

/// Detects the version by the first two records; returns the bytes of a record, its decoder and the
/// version.
fn detect_version(begins: &[u8]) -> Result<(usize, RecordDecoder, u16), ImportError> {
    // In a record of the other version, this field is the upper half of a number that is small in
    // one of the first two records.
    let is = |decode: RecordDecoder, size, version| {
        let mut whole = begins
            .chunks_exact(size)
            .take(2)
            .filter_map(decode)
            .peekable();
        whole.peek().is_some() && whole.all(|c| c.version >> 8 == version)
    };
    match begins.len() {
        0 => Err(ImportError::Nothing("the file is empty".into())),
        _ if is(version_1, V1, 1) => Ok((V1, version_1, 1)),
        _ if is(version_2, V2, 2) => Ok((V2, version_2, 2)),
        _ => {
            let what = packed_form(begins)
                .unwrap_or_else(|| "its first records are of neither version 1 nor 2".into());
            Err(ImportError::Foreign {
                format: "vscsi",
                what,
            })
        }
    }
}

/// Imports a `vscsi` trace of version 1 or 2 as a trace at block level. Requests may be out of
/// order by up to 65,536 records.
///
/// # Errors
/// Returns an [`ImportError`].
pub fn import_vscsi(
    mut input: impl Read,
    origin: TraceOrigin,
    out: impl Write,
) -> Result<ImportSummary, ImportError> {
    // Two records of the larger version are enough to tell the version.
    let mut begins = Vec::new();
    let read = input.by_ref().take(2 * V2 as u64).read_to_end(&mut begins);
    read.map_err(|source| ImportError::Io {
        record: 0,
        at: 0,
        source,
    })?;
    let (size, decode, version) = detect_version(&begins)?;
    // The bytes that were looked at are read again.
    let mut records = RecordReader::new(io::Cursor::new(begins).chain(input));
    let mut window = SortingWindow::new();
    let mut sink = EventSink {
        origin: Some((origin, out)),
        writer: None,
        first: 0,
        done: ImportSummary::default(),
    };
    let mut bytes = vec![0; size];
    while records.next(&mut bytes)? {
        // A record has its full size here, so decoding cannot fail.
        let command = decode(&bytes).unwrap_or_default();
        if command.version >> 8 != version {
            return Err(records.record_error(format!(
                "version {:#06x} in a trace of version {version}",
                command.version
            )));
        }
        sink.done.records += 1;
        let late = |TooLate| {
            records.record_error(format!(
                "{} us is earlier than what is more than {WINDOW} records before",
                command.micros
            ))
        };
        if let Some((at, command)) = window.insert(command.micros, command).map_err(late)? {
            sink.put_command(at, &command)?;
        }
    }
    // The last records are still in the window.
    while let Some((at, command)) = window.pop() {
        sink.put_command(at, &command)?;
    }
    if let Some(writer) = sink.writer {
        writer.finish()?;
    }
    Ok(sink.done)
}

/// Returns the civil time of a number of microseconds since 1970.
fn civil_time(micros: u64) -> Timestamp {
    Timestamp::new(
        (micros / 1_000_000) as i64,
        (micros % 1_000_000) as u32 * 1000,
    )
}

/// Writes commands as events.
struct EventSink<W> {
    /// Header's texts and output, until the first event is there.
    origin: Option<(TraceOrigin, W)>,
    writer: Option<TraceWriter<W>>,
    first: u64,
    done: ImportSummary,
}

impl<W: Write> EventSink<W> {
    fn put_command(&mut self, micros: u64, command: &ScsiCommand) -> Result<(), ImportError> {
        if let Some((TraceOrigin { machine, source }, out)) = self.origin.take() {
            self.first = micros;
            let header = TraceHeader {
                level: Level::Block,
                anonymous: false,
                start: civil_time(micros),
                machine,
                source,
            };
            self.writer = Some(TraceWriter::new(out, &header)?);
        }
        // Commands that move no data are left out, except flushes.
        let (sector, bytes) = (command.sector, command.bytes.into());
        let action = match command.command {
            code if FLUSHES.contains(&code) => Action::Flush {},
            _ if bytes == 0 => return self.count_skipped(),
            code if READS.contains(&code) => Action::ReadSectors { sector, bytes },
            code if WRITES.contains(&code) => Action::WriteSectors {
                sector,
                bytes,
                flush: false,
                fua: false,
            },
            _ => return self.count_skipped(),
        };
        debug_assert!(micros >= self.first, "the window gives commands in order");
        let at = Duration::from_micros(micros - self.first);
        let latency = command.response.map(Duration::from_micros);
        // The host of a virtual machine knows neither its processes nor its files.
        let event = TraceEvent {
            at,
            process: 0,
            object: 0,
            action,
            outcome: EventOutcome::Unknown,
            latency,
        };
        if let Some(writer) = &mut self.writer {
            writer.write_item(&TraceItem::Event(event))?;
        }
        self.done.events += 1;
        Ok(())
    }

    fn count_skipped(&mut self) -> Result<(), ImportError> {
        self.done.skipped += 1;
        Ok(())
    }
}
