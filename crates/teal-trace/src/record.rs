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

mod trace_writer;

use super::event::{Action, Event, Header, Outcome, Text};
use super::order::InOrder;
pub use super::order::Ticket;
use super::write::{WriteError, Writer};
use parking_lot::{Condvar, Mutex};
use std::fmt;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use teal_env::Clock;
use trace_writer::TraceWriter;

/// Most events that wait to be written.
pub const QUEUE_MAX: usize = 1 << 16;

/// Who a process is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// The process of the thread.
    pub leader: u32,
    /// Its session.
    pub session: u32,
    /// The program's name.
    pub name: Vec<u8>,
}

/// What a recording asks about the things it records. Called by the recording's own thread.
pub trait Surroundings: Send {
    /// A directory that holds the object, and the object's name there; `None` for the root and for
    /// what has no name.
    fn name(&mut self, object: u64) -> Option<(u64, Vec<u8>)>;
    /// Returns who a thread is; `None` if it is gone.
    fn process(&mut self, id: u32) -> Option<Facts>;
}

/// How to record.
#[derive(Debug, Clone)]
pub struct Settings {
    /// What stands at the beginning of the trace; [`Header::anonymous`] hides names.
    pub header: Header,
    /// The object at the top; it has no name.
    pub root: u64,
    /// The recording ends by itself after this time.
    pub limit: Option<Duration>,
    /// Hides names if they are to be hidden; never written.
    pub key: [u8; 16],
}

/// How a recording is doing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Progress {
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

struct Begun {
    at: Duration,
    process: u32,
    object: u64,
    action: Action,
}

struct Queue {
    order: InOrder<Begun, Event>,
    dropped: u64,
    ending: bool,
    /// The writer waits to be woken.
    asleep: bool,
    progress: Progress,
}

struct Shared {
    clock: Arc<dyn Clock>,
    start: Duration,
    on: AtomicBool,
    queue: Mutex<Queue>,
    wake: Condvar,
}

/// Takes events in; may be copied to any thread.
#[derive(Clone)]
pub struct Recorder(Arc<Shared>);

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorder")
            .field("on", &self.0.on)
            .finish_non_exhaustive()
    }
}

impl Recorder {
    /// Something is asked now. `None` when the recording has ended or the event is dropped.
    pub fn begin(&self, process: u32, object: u64, action: Action) -> Option<Ticket> {
        let shared = &*self.0;
        if !shared.on.load(Ordering::Acquire) {
            return None;
        }
        let mut queue = shared.queue.lock();
        if queue.ending {
            return None;
        }
        // Taken under the lock: the order of the tickets is that of the times.
        let at = shared.clock.monotonic().saturating_sub(shared.start);
        let ticket = queue.order.begin(Begun {
            at,
            process,
            object,
            action,
        });
        if ticket.is_none() {
            // An answer that does not come may not stop everything behind it.
            queue
                .order
                .give_up(|begun| begun.done(Outcome::Unknown, None));
            queue.dropped += 1;
            queue.progress.dropped += 1;
            shared.wake.notify_all();
        }
        ticket
    }

    /// It is answered now.
    pub fn end(&self, ticket: Ticket, outcome: Outcome) {
        let shared = &*self.0;
        let now = shared.clock.monotonic().saturating_sub(shared.start);
        let mut queue = shared.queue.lock();
        queue.order.end(ticket, |begun| {
            begun.done(outcome, Some(now.saturating_sub(begun.at)))
        });
        if queue.order.is_ready() {
            shared.wake(&mut queue);
        }
    }

    /// Sets a mark.
    pub fn mark(&self, text: Text) {
        if let Some(ticket) = self.begin(0, 0, Action::Mark { text }) {
            let mut queue = self.0.queue.lock();
            queue
                .order
                .end(ticket, |begun| begun.done(Outcome::Unknown, None));
            if queue.order.is_ready() {
                self.0.wake(&mut queue);
            }
        }
    }
}

impl Begun {
    fn done(&self, outcome: Outcome, latency: Option<Duration>) -> Event {
        let Self {
            at,
            process,
            object,
            ref action,
        } = *self;
        Event {
            at,
            process,
            object,
            action: action.clone(),
            outcome,
            latency,
        }
    }
}

impl Shared {
    fn wake(&self, queue: &mut Queue) {
        if std::mem::take(&mut queue.asleep) {
            self.wake.notify_all();
        }
    }
}

/// A recording on its way.
pub struct Recording {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl fmt::Debug for Recording {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recording")
            .field("progress", &self.progress())
            .finish_non_exhaustive()
    }
}

impl Recording {
    /// Begins a recording into `out`, which is synced with `sync` at the end. `ended` is called
    /// once, by the recording's thread, when it has ended, for whatever reason.
    ///
    /// # Errors
    /// The header cannot be written, or there is no thread.
    pub fn start<W: Write + Send + 'static>(
        out: W,
        sync: impl FnOnce(W) -> io::Result<()> + Send + 'static,
        settings: Settings,
        clock: Arc<dyn Clock>,
        surroundings: Box<dyn Surroundings>,
        ended: impl FnOnce(&Progress) + Send + 'static,
    ) -> Result<Self, WriteError> {
        let writer = Writer::new(out, &settings.header)?;
        let progress = Progress {
            bytes: writer.written(),
            ..Progress::default()
        };
        let order = InOrder::new(QUEUE_MAX);
        let shared = Arc::new(Shared {
            start: clock.monotonic(),
            clock,
            on: AtomicBool::new(true),
            queue: Mutex::new(Queue {
                order,
                dropped: 0,
                ending: false,
                asleep: false,
                progress,
            }),
            wake: Condvar::new(),
        });
        let trace_writer = TraceWriter::new(Arc::clone(&shared), writer, settings, surroundings);
        let thread = std::thread::Builder::new().name("teal-record".into());
        let handle = thread.spawn(move || trace_writer.run(sync, ended))?;
        Ok(Self {
            shared,
            thread: Mutex::new(Some(handle)),
        })
    }

    /// Returns what takes events in.
    pub fn recorder(&self) -> Recorder {
        Recorder(Arc::clone(&self.shared))
    }

    /// How it is doing.
    pub fn progress(&self) -> Progress {
        self.shared.queue.lock().progress.clone()
    }

    /// Ends it, if it has not ended, and waits until everything is written. What was begun and not
    /// answered has no outcome.
    pub fn end(&self) -> Progress {
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
