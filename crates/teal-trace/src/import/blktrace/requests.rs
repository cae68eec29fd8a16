//! Matches the beginnings of requests with their ends, and writes them as events.

use super::record::{
    BlktraceRecord, COMPLETE, DISCARD, FLUSH, FUA, ISSUE, NOTE_MESSAGE, NOTE_PROCESS, NOTE_TIME,
    NOTIFY, PASSTHROUGH, QUEUE, REQUEUE, WRITE,
};
use crate::event::{
    Action, EventOutcome, Level, TraceEvent, TraceHeader, TraceItem, TracedProcess,
};
use crate::field::Text;
use crate::import::error::ImportError;
use crate::import::origin::TraceOrigin;
use crate::import::summary::ImportSummary;
use crate::order::{EventTicket, InOrder};
use crate::write::TraceWriter;
use std::collections::{HashMap, VecDeque};
use std::io::Write;
use std::time::Duration;
use teal_types::Timestamp;

/// Limits the requests in flight; beyond, the oldest is no longer waited for.
const PENDING_MAX: usize = 1 << 16;

/// Names the point at which a request begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RequestStage {
    /// The driver gets it, after merging and scheduling. This is the device's view.
    #[default]
    Issue,
    /// The file system queues it. This is the only point on stacked devices, which have no driver.
    Queue,
}

/// Identifies a request: device, sector, direction.
type RequestKey = (u32, u64, u32);

struct BegunRequest {
    key: Option<RequestKey>,
    event: TraceEvent,
}

/// Matches the beginnings of requests with their ends.
pub(super) struct RequestMatcher<W> {
    stage: RequestStage,
    /// Header's texts and output, until the first event is there.
    origin: Option<(TraceOrigin, W)>,
    writer: Option<TraceWriter<W>>,
    /// Time of the earliest record, from which everything counts.
    first: u64,
    /// Nanoseconds of the trace, and the time of day at this point.
    clock: Option<(u64, Timestamp)>,
    order: InOrder<BegunRequest, Option<TraceEvent>>,
    pending: HashMap<RequestKey, VecDeque<EventTicket>>,
    /// Number of requests that were queued, whatever the stage.
    queued: u64,
    pub(super) done: ImportSummary,
}

impl<W: Write> RequestMatcher<W> {
    pub(super) fn new(stage: RequestStage, origin: TraceOrigin, out: W) -> Self {
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

    /// Looks for the time of day, which a record behind the first ones may tell.
    pub(super) fn look_ahead(&mut self, time: u64, note: &BlktraceRecord) {
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
        // The time of day is known at one point of the trace, and counts back from there.
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

    pub(super) fn take_record(
        &mut self,
        time: u64,
        note: BlktraceRecord,
    ) -> Result<(), ImportError> {
        self.begin_trace(time)?;
        debug_assert!(time >= self.first, "the window gives records in order");
        let at = Duration::from_nanos(time - self.first);
        if note.categories & NOTIFY != 0 {
            return self.take_notification(at, &note);
        }
        let direction = note.categories & (WRITE | DISCARD);
        let is_flush = note.bytes == 0 && note.categories & FLUSH != 0;
        // A flush has no sector of its own, and its data direction means nothing.
        let key = if is_flush {
            (note.device, 0, FLUSH)
        } else {
            (note.device, note.sector, direction)
        };
        // The stage decides which of the two steps makes the event.
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
                // The request will be issued again, so this issue is dropped.
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
                // The kernel pads the name with zeros.
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
                // A mark takes its place in the order, so that it stays between the same requests.
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
        key: RequestKey,
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
        // Equal requests may be in flight at once, so each key has a queue.
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
        key: RequestKey,
        done: impl FnOnce(&TraceEvent) -> Option<TraceEvent>,
    ) -> Result<(), ImportError> {
        if let Some(tickets) = self.pending.get_mut(&key) {
            // The first one that began is the first one to end: the kernel completes equal requests
            // in order.
            if let Some(ticket) = tickets.pop_front() {
                self.order.mark_done(ticket, |begun| done(&begun.event));
            }
            if tickets.is_empty() {
                self.pending.remove(&key);
            }
        }
        self.write_finished()
    }

    /// Makes room for one more by giving up the oldest.
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
        // Only requests that have ended, and nothing older is open, are written.
        while let Some(done) = self.order.pop() {
            if let (Some(event), Some(writer)) = (done, &mut self.writer) {
                writer.write_item(&TraceItem::Event(event))?;
                self.done.events += 1;
            }
        }
        Ok(())
    }

    pub(super) fn finish(mut self) -> Result<ImportSummary, ImportError> {
        // Requests without a completion are written without an outcome.
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

/// Returns the action of a request; `None` if the medium is not involved.
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
