//! Recording events as they happen: taken in by many threads, written by one.
//!
//! # Guarantees
//! 1. *No waiting*: whoever hands in an event waits for no I/O; what comes faster than it can be written is dropped and counted, in the
//!    trace, where it is missing.
//! 2. *In order*: events are written in the order in which they began.
//! 3. *A second at most*: what was handed in is written within a second, as whole blocks, so that a killed process loses no more.
//! 4. *Harmless*: when writing fails, the recording ends and says why; nothing else notices.
//!
//! # Locks
//! `queue` guards what was handed in and is held for a few instructions, never across I/O or a call of somebody else.

use super::anonymous::Anonymous;
use super::event::{Action, Called, Event, Header, Item, Outcome, Process, Text};
use super::order::InOrder;
pub use super::order::Ticket;
use super::write::{WriteError, Writer};
use parking_lot::{Condvar, Mutex};
use std::collections::HashSet;
use std::fmt;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use teal_env::Clock;

/// Most events that wait to be written.
pub const QUEUE_MAX: usize = 1 << 16;
/// Events taken off the queue at once.
const GULP: usize = 1024;
/// How old an event gets before its block is written.
const FLUSH_AFTER: Duration = Duration::from_secs(1);
/// How long events wait for others while something is going on. Short: soon a process is gone and a file is renamed.
const TICK: Duration = Duration::from_millis(20);
/// Objects and processes whose names are remembered as told; beyond, all are told again.
const TOLD_MAX: usize = 1 << 20;
/// Deepest directory whose path is told.
const DEPTH_MAX: usize = 1000;

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
    /// A directory that holds the object, and the object's name there; `None` for the root and for what has no name.
    fn name(&mut self, object: u64) -> Option<(u64, Vec<u8>)>;
    /// Who a thread is; `None` if it is gone.
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
    /// Begins a recording into `out`, which is synced with `sync` at the end. `ended` is called once, by the recording's thread, when it
    /// has ended, for whatever reason.
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
        let scribe = Scribe {
            shared: Arc::clone(&shared),
            writer,
            anonymous: settings
                .header
                .anonymous
                .then(|| Anonymous::new(settings.key)),
            root: settings.root,
            limit: settings.limit,
            surroundings,
            told: HashSet::new(),
            known: HashSet::new(),
            oldest: None,
        };
        let thread = std::thread::Builder::new().name("teal-record".into());
        let handle = thread.spawn(move || scribe.run(sync, ended))?;
        Ok(Self {
            shared,
            thread: Mutex::new(Some(handle)),
        })
    }

    /// What takes events in.
    pub fn recorder(&self) -> Recorder {
        Recorder(Arc::clone(&self.shared))
    }

    /// How it is doing.
    pub fn progress(&self) -> Progress {
        self.shared.queue.lock().progress.clone()
    }

    /// Ends it, if it has not ended, and waits until everything is written. What was begun and not answered has no outcome.
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

/// The thread that writes.
struct Scribe<W> {
    shared: Arc<Shared>,
    writer: Writer<W>,
    anonymous: Option<Anonymous>,
    root: u64,
    limit: Option<Duration>,
    surroundings: Box<dyn Surroundings>,
    /// Objects whose names the trace has told.
    known: HashSet<u64>,
    /// Processes that the trace has told of.
    told: HashSet<u32>,
    /// When the oldest event came that is not written yet.
    oldest: Option<Duration>,
}

/// What was taken off the queue.
struct Batch {
    events: Vec<Event>,
    dropped: u64,
    is_last: bool,
}

impl<W: Write> Scribe<W> {
    fn run(mut self, sync: impl FnOnce(W) -> io::Result<()>, ended: impl FnOnce(&Progress)) {
        let written = loop {
            let batch = self.batch();
            if let Err(error) = self.write(&batch) {
                break Err(error);
            }
            if batch.is_last {
                break Ok(());
            }
        };
        self.shared.on.store(false, Ordering::Release);
        let shared = Arc::clone(&self.shared);
        let ended_well = written.and_then(|()| self.writer.last());
        let bytes = self.writer.written();
        let done = ended_well.and_then(|()| Ok(sync(self.writer.into_out())?));
        let progress = {
            let mut queue = shared.queue.lock();
            queue.ending = true;
            queue.progress.ended = true;
            queue.progress.bytes = bytes;
            queue.progress.failure = done.err().map(|error| match error {
                WriteError::Io(error) => error.to_string(),
                error => error.to_string(),
            });
            queue.progress.clone()
        };
        ended(&progress);
    }

    /// Waits for events, the time to write those there are, or the end.
    fn batch(&mut self) -> Batch {
        let shared = Arc::clone(&self.shared);
        let mut queue = shared.queue.lock();
        loop {
            let now = shared.clock.monotonic().saturating_sub(shared.start);
            queue.ending |= self.limit.is_some_and(|limit| now >= limit);
            if queue.ending {
                while !queue.order.is_empty() && !queue.order.is_ready() {
                    queue
                        .order
                        .give_up(|begun| begun.done(Outcome::Unknown, None));
                }
            }
            let mut events = Vec::new();
            while events.len() < GULP
                && let Some(event) = queue.order.pop()
            {
                events.push(event);
            }
            let is_due = self
                .oldest
                .is_some_and(|oldest| now >= oldest + FLUSH_AFTER);
            if !events.is_empty() || queue.dropped > 0 || queue.ending || is_due {
                let dropped = std::mem::take(&mut queue.dropped);
                return Batch {
                    events,
                    dropped,
                    is_last: queue.ending && queue.order.is_empty(),
                };
            }
            // While something is going on, looking now and then is cheaper than being woken by every event.
            let tick = self.oldest.map(|_| now + TICK);
            queue.asleep = tick.is_none();
            match tick.into_iter().chain(self.limit).min() {
                Some(until) => drop(shared.wake.wait_for(&mut queue, until.saturating_sub(now))),
                None => shared.wake.wait(&mut queue),
            }
            queue.asleep = false;
        }
    }

    fn write(&mut self, batch: &Batch) -> Result<(), WriteError> {
        for event in &batch.events {
            self.tell(event)?;
            self.put(Item::Event(event.clone()))?;
        }
        if batch.dropped > 0 {
            self.put(Item::Dropped(batch.dropped))?;
        }
        let now = self
            .shared
            .clock
            .monotonic()
            .saturating_sub(self.shared.start);
        if self.writer.waiting() == 0 {
            self.oldest = None;
        } else if now >= *self.oldest.get_or_insert(now) + FLUSH_AFTER {
            self.writer.flush()?;
            self.oldest = None;
        }
        let mut queue = self.shared.queue.lock();
        queue.progress.events += batch.events.len() as u64;
        queue.progress.bytes = self.writer.written();
        Ok(())
    }

    fn put(&mut self, mut item: Item) -> Result<(), WriteError> {
        if let Some(anonymous) = &self.anonymous {
            anonymous.hide(&mut item);
        }
        self.writer.put(&item)
    }

    /// Says who is who, where the event and those before do not.
    fn tell(&mut self, event: &Event) -> Result<(), WriteError> {
        if self.known.len() >= TOLD_MAX {
            self.known.clear();
        }
        if self.told.len() >= TOLD_MAX {
            self.told.clear();
        }
        if event.process != 0
            && self.told.insert(event.process)
            && let Some(Facts {
                leader,
                session,
                name,
            }) = self.surroundings.process(event.process)
        {
            let name = Text::cut(&name);
            self.put(Item::Process(Process {
                id: event.process,
                leader,
                session,
                name,
            }))?;
        }
        match &event.action {
            Action::Mark { .. } | Action::Sync {} => {}
            Action::Rename { to, .. } => {
                self.call(event.object)?;
                self.call(*to)?;
            }
            Action::Copy { target, .. } => {
                self.call(event.object)?;
                self.call(*target)?;
            }
            _ => self.call(event.object)?,
        }
        if let Some(object) = event.names() {
            self.known.insert(object);
        }
        Ok(())
    }

    /// Tells the name of an object and of the directories above, the highest first.
    fn call(&mut self, object: u64) -> Result<(), WriteError> {
        let (mut calls, mut at) = (Vec::new(), object);
        while calls.len() < DEPTH_MAX && self.known.insert(at) {
            if at == self.root {
                calls.push(Called {
                    object: at,
                    parent: 0,
                    name: Text::default(),
                });
                break;
            }
            // Without a name: removed meanwhile, or never had one.
            let Some((parent, name)) = self.surroundings.name(at) else {
                break;
            };
            calls.push(Called {
                object: at,
                parent,
                name: Text::cut(&name),
            });
            at = parent;
        }
        calls
            .into_iter()
            .rev()
            .try_for_each(|called| self.put(Item::Called(called)))
    }
}

#[cfg(test)]
mod tests;
