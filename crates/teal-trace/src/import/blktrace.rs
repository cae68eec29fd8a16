//! `blktrace`: what a Linux block device was asked, as the kernel told it (`struct blk_io_trace` of
//! `linux/blktrace_api.h`).
//!
//! | at | bytes | field |
//! |---:|---:|---|
//! | 0 | 4 | magic 0x656174 in the high bytes, version 7 in the lowest |
//! | 4 | 4 | number of the event on its processor |
//! | 8 | 8 | time, nanoseconds |
//! | 16 | 8 | sector |
//! | 24 | 4 | length in bytes |
//! | 28 | 4 | what happened: the step in the low half, the categories in the high half |
//! | 32 | 4 | who did it |
//! | 36 | 4 | device number |
//! | 40 | 4 | processor |
//! | 44 | 2 | error at completion |
//! | 46 | 2 | bytes that follow the record |
//!
//! In the byte order of the machine, which the magic shows.
//!
//! # How
//! 1. The files of the processors are merged by time; what is out of order by less than a window
//!    (65,536 records) is put right.
//! 2. A request begins where it is issued to the driver (or, if asked for, where it is queued) and
//!    ends with the completion for the same device, sector and direction. Requests without a
//!    completion have no outcome.

use super::outcome::{ImportError, ImportSummary, TraceOrigin};
use super::records::{RecordReader, packed_form};
use super::window::{SortingWindow, TooLate, WINDOW};
use crate::event::{
    Action, EventOutcome, Level, Text, TraceEvent, TraceHeader, TraceItem, TracedProcess,
};
use crate::order::{EventTicket, InOrder};
use crate::write::TraceWriter;
use std::collections::{HashMap, VecDeque};
use std::io::{Read, Write};
use std::time::Duration;
use teal_types::Timestamp;

const RECORD: usize = 48;
const MAGIC: u32 = 0x6561_7400;
const VERSION: u32 = 7;
/// Requests on their way at once; beyond, the oldest is not waited for.
const PENDING_MAX: usize = 1 << 16;

// Steps.
const QUEUE: u32 = 1;
const REQUEUE: u32 = 6;
const ISSUE: u32 = 7;
const COMPLETE: u32 = 8;
/// The bytes that follow begin with a control group's number.
const CGROUP: u32 = 1 << 8;
// Categories.
const WRITE: u32 = 1 << 1;
const FLUSH: u32 = 1 << 2;
const PASSTHROUGH: u32 = 1 << 9;
const NOTIFY: u32 = 1 << 10;
const DISCARD: u32 = 1 << 13;
const FUA: u32 = 1 << 15;
// What a notification says.
const NOTE_PROCESS: u32 = 0;
const NOTE_TIME: u32 = 1;
const NOTE_MESSAGE: u32 = 2;

/// Where a request begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RequestStage {
    /// Where it is given to the driver: after merging and scheduling. What the device sees.
    #[default]
    Issue,
    /// Where it is queued: what the file system asks. The only one on stacked devices, which have
    /// no driver.
    Queue,
}

/// One record, in this machine's byte order.
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

/// One processor's file.
struct ProcessorFile<R> {
    records: RecordReader<R>,
    swapped: Option<bool>,
    next: Option<(u64, BlktraceRecord)>,
}

impl<R: Read> ProcessorFile<R> {
    fn advance(&mut self) -> Result<(), ImportError> {
        let mut raw = [0; RECORD];
        self.next = None;
        if !self.records.next(&mut raw)? {
            return Ok(());
        }
        let magic = u32::from_le_bytes([raw[0], raw[1], raw[2], raw[3]]);
        let is_swapped =
            |magic: u32| match (magic & !0xff == MAGIC, magic.swap_bytes() & !0xff == MAGIC) {
                (true, _) => Some(false),
                (_, true) => Some(true),
                _ => None,
            };
        let Some(swapped) =
            is_swapped(magic).filter(|found| self.swapped.is_none_or(|before| before == *found))
        else {
            if self.swapped.is_none() {
                let what = packed_form(&raw)
                    .unwrap_or_else(|| format!("it begins with {:02x?}", &raw[..4]));
                return Err(ImportError::Foreign {
                    format: "blktrace",
                    what,
                });
            }
            return Err(self
                .records
                .record_error(format!("no record begins with {:02x?}", &raw[..4])));
        };
        self.swapped = Some(swapped);
        let u32_at = |at: usize| {
            let value = u32::from_le_bytes([raw[at], raw[at + 1], raw[at + 2], raw[at + 3]]);
            if swapped { value.swap_bytes() } else { value }
        };
        let u64_at = |at: usize| {
            let (low, high) = if swapped { (at + 4, at) } else { (at, at + 4) };
            u64::from(u32_at(high)) << 32 | u64::from(u32_at(low))
        };
        let u16_at = |at: usize| {
            let value = u16::from_le_bytes([raw[at], raw[at + 1]]);
            if swapped { value.swap_bytes() } else { value }
        };
        let version = u32_at(0) & 0xff;
        if version != VERSION {
            return Err(self.records.record_error(format!(
                "blktrace version {version}; version {VERSION} is read"
            )));
        }
        let action = u32_at(28);
        let mut text = vec![0; u16_at(46).into()];
        self.records.read_more(&mut text)?;
        if action & CGROUP != 0 {
            text.drain(..text.len().min(8));
        }
        if swapped && action >> 16 & NOTIFY != 0 && action & 0xff == NOTE_TIME {
            text.chunks_exact_mut(4).for_each(<[u8]>::reverse);
        }
        let note = BlktraceRecord {
            sector: u64_at(16),
            bytes: u32_at(24),
            step: action & 0xff,
            categories: action >> 16,
            process: u32_at(32),
            device: u32_at(36),
            error: u16_at(44),
            text,
        };
        self.next = Some((u64_at(8), note));
        Ok(())
    }
}

/// Imports what `blktrace` wrote, one input for each processor's file, as a trace at block level.
///
/// # Errors
/// [`ImportError`]; its places are those of the input that is refused.
pub fn import_blktrace<R: Read>(
    inputs: impl IntoIterator<Item = R>,
    stage: RequestStage,
    origin: TraceOrigin,
    out: impl Write,
) -> Result<ImportSummary, ImportError> {
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

/// Which request: device, sector, direction.
type Key = (u32, u64, u32);

struct BegunRequest {
    key: Option<Key>,
    event: TraceEvent,
}

/// Requests from their beginnings to their ends.
struct RequestMatcher<W> {
    stage: RequestStage,
    /// For the header, until the first event is there.
    origin: Option<(TraceOrigin, W)>,
    writer: Option<TraceWriter<W>>,
    /// Time of the earliest record: everything counts from there.
    first: u64,
    /// When (nanoseconds of the trace) it was what time.
    clock: Option<(u64, Timestamp)>,
    order: InOrder<BegunRequest, Option<TraceEvent>>,
    pending: HashMap<Key, VecDeque<EventTicket>>,
    /// Requests that were queued, whatever the stage.
    queued: u64,
    done: ImportSummary,
}

impl<W: Write> RequestMatcher<W> {
    fn new(stage: RequestStage, origin: TraceOrigin, out: W) -> Self {
        Self {
            stage,
            origin: Some((origin, out)),
            writer: None,
            first: 0,
            clock: None,
            order: InOrder::new(PENDING_MAX),
            pending: HashMap::new(),
            queued: 0,
            done: ImportSummary::default(),
        }
    }

    /// The time of day may be told by a record behind the first ones.
    fn look_ahead(&mut self, time: u64, note: &BlktraceRecord) {
        if note.categories & NOTIFY != 0
            && note.step == NOTE_TIME
            && let Some((secs, nanos)) = note.text.first_chunk::<8>().map(|t| t.split_at(4))
        {
            let [secs, nanos] = [secs, nanos].map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]));
            self.clock
                .get_or_insert((time, Timestamp::new(secs.into(), nanos)));
        }
    }

    fn begin_trace(&mut self, first: u64) -> Result<(), ImportError> {
        let Some((TraceOrigin { machine, source }, out)) = self.origin.take() else {
            return Ok(());
        };
        self.first = first;
        let start = self.clock.map_or(Timestamp::default(), |(at, clock)| {
            let told = i128::from(clock.secs) * 1_000_000_000 + i128::from(clock.nanos);
            let start = told - i128::from(at) + i128::from(first);
            Timestamp::new(
                start.div_euclid(1_000_000_000) as i64,
                start.rem_euclid(1_000_000_000) as u32,
            )
        });
        let header = TraceHeader {
            level: Level::Block,
            anonymous: false,
            start,
            machine,
            source,
        };
        self.writer = Some(TraceWriter::new(out, &header)?);
        Ok(())
    }

    fn take_record(&mut self, time: u64, note: BlktraceRecord) -> Result<(), ImportError> {
        self.begin_trace(time)?;
        let at = Duration::from_nanos(time - self.first);
        if note.categories & NOTIFY != 0 {
            return self.take_notification(at, &note);
        }
        let direction = note.categories & (WRITE | DISCARD);
        let is_flush = note.bytes == 0 && note.categories & FLUSH != 0;
        let key = (
            note.device,
            if is_flush { 0 } else { note.sector },
            if is_flush { FLUSH } else { direction },
        );
        let begins = match self.stage {
            RequestStage::Issue => ISSUE,
            RequestStage::Queue => QUEUE,
        };
        self.queued += u64::from(note.step == QUEUE);
        match note.step {
            step if step == begins => match requested_action(&note) {
                Some(action) => self.begin_request(at, key, &note, action),
                None => self.count_skipped(),
            },
            COMPLETE => self.end_request(key, |event| Some(completed_event(event, at, &note))),
            REQUEUE if self.stage == RequestStage::Issue => {
                // It will be issued again.
                self.done.skipped += 1;
                self.end_request(key, |_| None)
            }
            _ => self.count_skipped(),
        }
    }

    fn count_skipped(&mut self) -> Result<(), ImportError> {
        self.done.skipped += 1;
        Ok(())
    }

    fn take_notification(
        &mut self,
        at: Duration,
        note: &BlktraceRecord,
    ) -> Result<(), ImportError> {
        match note.step {
            NOTE_PROCESS => {
                let name = note.text.split(|b| *b == 0).next().unwrap_or_default();
                let (id, name) = (note.process, Text::truncated(name));
                let item = TraceItem::Process(TracedProcess {
                    id,
                    leader: id,
                    session: 0,
                    name,
                });
                self.writer
                    .as_mut()
                    .map_or(Ok(()), |writer| writer.write_item(&item))?;
                Ok(())
            }
            NOTE_MESSAGE => {
                let action = Action::Mark {
                    text: Text::truncated(&note.text),
                };
                self.make_room()?;
                let (process, object) = (note.process, note.device.into());
                let event = TraceEvent {
                    at,
                    process,
                    object,
                    action,
                    outcome: EventOutcome::Unknown,
                    latency: None,
                };
                if let Some(ticket) = self.order.push_begun(BegunRequest { key: None, event }) {
                    self.order
                        .mark_done(ticket, |begun| Some(begun.event.clone()));
                }
                self.write_finished()
            }
            _ => self.count_skipped(),
        }
    }

    fn begin_request(
        &mut self,
        at: Duration,
        key: Key,
        note: &BlktraceRecord,
        action: Action,
    ) -> Result<(), ImportError> {
        self.make_room()?;
        let (process, object) = (note.process, note.device.into());
        let event = TraceEvent {
            at,
            process,
            object,
            action,
            outcome: EventOutcome::Unknown,
            latency: None,
        };
        if let Some(ticket) = self.order.push_begun(BegunRequest {
            key: Some(key),
            event,
        }) {
            self.pending.entry(key).or_default().push_back(ticket);
        }
        Ok(())
    }

    fn end_request(
        &mut self,
        key: Key,
        done: impl FnOnce(&TraceEvent) -> Option<TraceEvent>,
    ) -> Result<(), ImportError> {
        if let Some(tickets) = self.pending.get_mut(&key) {
            if let Some(ticket) = tickets.pop_front() {
                self.order.mark_done(ticket, |begun| done(&begun.event));
            }
            if tickets.is_empty() {
                self.pending.remove(&key);
            }
        }
        self.write_finished()
    }

    /// Makes room for one more by not waiting for the oldest.
    fn make_room(&mut self) -> Result<(), ImportError> {
        if self.order.is_full() {
            self.give_up();
            self.write_finished()?;
        }
        Ok(())
    }

    fn give_up(&mut self) {
        let pending = &mut self.pending;
        self.order.give_up(|begun| {
            if let Some(key) = begun.key
                && let Some(tickets) = pending.get_mut(&key)
            {
                tickets.pop_front();
                if tickets.is_empty() {
                    pending.remove(&key);
                }
            }
            Some(begun.event.clone())
        });
    }

    fn write_finished(&mut self) -> Result<(), ImportError> {
        while let Some(done) = self.order.pop() {
            if let (Some(event), Some(writer)) = (done, &mut self.writer) {
                writer.write_item(&TraceItem::Event(event))?;
                self.done.events += 1;
            }
        }
        Ok(())
    }

    fn finish(mut self) -> Result<ImportSummary, ImportError> {
        while !self.order.is_empty() {
            self.give_up();
            self.write_finished()?;
        }
        if self.done.events == 0 {
            let hint = if self.queued > 0 {
                "; there are queued ones: import them with --at queue"
            } else {
                ""
            };
            return Err(ImportError::Nothing(format!("no request is in it{hint}")));
        }
        if let Some(writer) = self.writer.take() {
            writer.finish()?;
        }
        Ok(self.done)
    }
}

/// Returns what is asked; `None` for what is no request to the medium.
fn requested_action(note: &BlktraceRecord) -> Option<Action> {
    let (sector, bytes) = (note.sector, note.bytes.into());
    let has = |category: u32| note.categories & category != 0;
    Some(match note.bytes {
        _ if has(PASSTHROUGH) => return None,
        0 if has(FLUSH) => Action::Flush {},
        0 => return None,
        _ if has(DISCARD) => Action::Discard { sector, bytes },
        _ if has(WRITE) => Action::WriteSectors {
            sector,
            bytes,
            flush: has(FLUSH),
            fua: has(FUA),
        },
        _ => Action::ReadSectors { sector, bytes },
    })
}

fn completed_event(event: &TraceEvent, at: Duration, note: &BlktraceRecord) -> TraceEvent {
    let outcome = match note.error {
        0 => EventOutcome::Done(note.bytes.into()),
        // The kernel stores a negative errno in 16 bits.
        error => EventOutcome::Failed((error as i16).unsigned_abs()),
    };
    TraceEvent {
        outcome,
        latency: at.checked_sub(event.at),
        ..event.clone()
    }
}
