//! Recording events as they happen: taken in by many threads, written by one.
//!
//! # Guarantees
//! 1. *No waiting*: whoever hands in an event waits for no I/O; what comes faster than it can be
//!    written is dropped and counted, in the trace, where it is missing.
//! 2. *In order*: events are written in the order in which they began.
//! 3. *A second at most*: what was handed in is written within a second, as whole blocks, so that a
//!    killed process loses no more.
//! 4. *Harmless*: when writing fails, the recording ends and says why; nothing else notices.
//!
//! # Locks
//! `queue` guards what was handed in and is held for a few instructions, never across I/O or a call
//! of somebody else.

mod recording_thread;

use super::event::{Action, EventOutcome, Text, TraceEvent, TraceHeader};
pub use super::order::EventTicket;
use super::order::InOrder;
use super::write::{TraceWriter, WriteError};
use parking_lot::{Condvar, Mutex};
use recording_thread::RecordingThread;
use std::fmt;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use teal_env::Clock;

/// Most events that wait to be written.
pub const QUEUE_MAX: usize = 1 << 16;

/// Who a process is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessFacts {
    /// The process of the thread.
    pub leader: u32,
    /// Its session.
    pub session: u32,
    /// The program's name.
    pub name: Vec<u8>,
}

/// What a recording asks about the things it records. Called by the recording's own thread.
pub trait RecordingContext: Send {
    /// A directory that holds the object, and the object's name there; `None` for the root and for
    /// what has no name.
    fn name_of(&mut self, object: u64) -> Option<(u64, Vec<u8>)>;
    /// Returns who a thread is; `None` if it is gone.
    fn process_facts(&mut self, id: u32) -> Option<ProcessFacts>;
}

/// How to record.
#[derive(Debug, Clone)]
pub struct RecordingSettings {
    /// What stands at the beginning of the trace; [`Header::anonymous`] hides names.
    pub header: TraceHeader,
    /// The object at the top; it has no name.
    pub root: u64,
    /// The recording ends by itself after this time.
    pub limit: Option<Duration>,
    /// Hides names if they are to be hidden; never written.
    pub key: [u8; 16],
}

/// How a recording is doing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RecordingProgress {
    /// Events written.
    pub events: u64,
    /// Events dropped.
    pub dropped: u64,
    /// Bytes written.
    pub bytes: u64,
    /// Nothing more will be recorded.
    pub ended: bool,
    /// Why it ended before it should.
    pub failure: Option<String>,
}

struct BegunEvent {
    at: Duration,
    process: u32,
    object: u64,
    action: Action,
}

struct EventQueue {
    order: InOrder<BegunEvent, TraceEvent>,
    dropped: u64,
    ending: bool,
    /// The writer waits to be woken.
    asleep: bool,
    progress: RecordingProgress,
}

struct SharedRecording {
    clock: Arc<dyn Clock>,
    start: Duration,
    on: AtomicBool,
    queue: Mutex<EventQueue>,
    wake: Condvar,
}

/// Takes events in; may be copied to any thread.
#[derive(Clone)]
pub struct EventRecorder(Arc<SharedRecording>);

impl fmt::Debug for EventRecorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorder")
            .field("on", &self.0.on)
            .finish_non_exhaustive()
    }
}

impl EventRecorder {
    /// Something is asked now. `None` when the recording has ended or the event is dropped.
    pub fn begin_event(&self, process: u32, object: u64, action: Action) -> Option<EventTicket> {
        let shared = &*self.0;
        if !shared.on.load(Ordering::Acquire) {
            return None;
        }
        let mut queue = shared.queue.lock();
        if queue.ending {
            return None;
        }
        // Taken under the lock: the order of the tickets is that of the times.
        let at = shared.clock.monotonic_time().saturating_sub(shared.start);
        let ticket = queue.order.push_begun(BegunEvent {
            at,
            process,
            object,
            action,
        });
        if ticket.is_none() {
            // An answer that does not come may not stop everything behind it.
            queue
                .order
                .give_up(|begun| begun.to_event(EventOutcome::Unknown, None));
            queue.dropped += 1;
            queue.progress.dropped += 1;
            shared.wake.notify_all();
        }
        ticket
    }

    /// It is answered now.
    pub fn end_event(&self, ticket: EventTicket, outcome: EventOutcome) {
        let shared = &*self.0;
        let now = shared.clock.monotonic_time().saturating_sub(shared.start);
        let mut queue = shared.queue.lock();
        queue.order.mark_done(ticket, |begun| {
            begun.to_event(outcome, Some(now.saturating_sub(begun.at)))
        });
        if queue.order.is_ready() {
            shared.wake_writer(&mut queue);
        }
    }

    /// Sets a mark.
    pub fn set_mark(&self, text: Text) {
        if let Some(ticket) = self.begin_event(0, 0, Action::Mark { text }) {
            let mut queue = self.0.queue.lock();
            queue
                .order
                .mark_done(ticket, |begun| begun.to_event(EventOutcome::Unknown, None));
            if queue.order.is_ready() {
                self.0.wake_writer(&mut queue);
            }
        }
    }
}

impl BegunEvent {
    fn to_event(&self, outcome: EventOutcome, latency: Option<Duration>) -> TraceEvent {
        let Self {
            at,
            process,
            object,
            ref action,
        } = *self;
        TraceEvent {
            at,
            process,
            object,
            action: action.clone(),
            outcome,
            latency,
        }
    }
}

impl SharedRecording {
    fn wake_writer(&self, queue: &mut EventQueue) {
        if std::mem::take(&mut queue.asleep) {
            self.wake.notify_all();
        }
    }
}

/// A recording on its way.
pub struct TraceRecording {
    shared: Arc<SharedRecording>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl fmt::Debug for TraceRecording {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recording")
            .field("progress", &self.progress())
            .finish_non_exhaustive()
    }
}

impl TraceRecording {
    /// Begins a recording into `out`, which is synced with `sync` at the end. `ended` is called
    /// once, by the recording's thread, when it has ended, for whatever reason.
    ///
    /// # Errors
    /// The header cannot be written, or there is no thread.
    pub fn start<W: Write + Send + 'static>(
        out: W,
        sync: impl FnOnce(W) -> io::Result<()> + Send + 'static,
        settings: RecordingSettings,
        clock: Arc<dyn Clock>,
        surroundings: Box<dyn RecordingContext>,
        ended: impl FnOnce(&RecordingProgress) + Send + 'static,
    ) -> Result<Self, WriteError> {
        let writer = TraceWriter::new(out, &settings.header)?;
        let progress = RecordingProgress {
            bytes: writer.bytes_written(),
            ..RecordingProgress::default()
        };
        let order = InOrder::new(QUEUE_MAX);
        let shared = Arc::new(SharedRecording {
            start: clock.monotonic_time(),
            clock,
            on: AtomicBool::new(true),
            queue: Mutex::new(EventQueue {
                order,
                dropped: 0,
                ending: false,
                asleep: false,
                progress,
            }),
            wake: Condvar::new(),
        });
        let trace_writer =
            RecordingThread::new(Arc::clone(&shared), writer, settings, surroundings);
        let thread = std::thread::Builder::new().name("teal-record".into());
        let handle = thread.spawn(move || trace_writer.run(sync, ended))?;
        Ok(Self {
            shared,
            thread: Mutex::new(Some(handle)),
        })
    }

    /// Returns what takes events in.
    pub fn recorder(&self) -> EventRecorder {
        EventRecorder(Arc::clone(&self.shared))
    }

    /// How it is doing.
    pub fn progress(&self) -> RecordingProgress {
        self.shared.queue.lock().progress.clone()
    }

    /// Ends it, if it has not ended, and waits until everything is written. What was begun and not
    /// answered has no outcome.
    pub fn finish(&self) -> RecordingProgress {
        {
            let mut queue = self.shared.queue.lock();
            queue.ending = true;
            self.shared.wake.notify_all();
        }
        if let Some(thread) = self.thread.lock().take()
            && thread.join().is_err()
        {
            log::error!("the recording's thread panicked");
        }
        self.progress()
    }
}

#[cfg(test)]
mod tests;
