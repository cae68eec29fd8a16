//! The thread of a recording that writes: takes events off the queue, says who is who, and keeps
//! blocks no longer than a second.

use super::super::anonymous::Anonymous;
use super::super::event::{Action, Called, Event, Item, Outcome, Process, Text};
use super::super::write::{WriteError, Writer};
use super::{Facts, Progress, Settings, Shared, Surroundings};
use std::collections::HashSet;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Events taken off the queue at once.
const GULP: usize = 1024;
/// How old an event gets before its block is written.
const FLUSH_AFTER: Duration = Duration::from_secs(1);
/// How long events wait for others while something is going on. Short: soon a process is gone and a
/// file is renamed.
const TICK: Duration = Duration::from_millis(20);
/// Objects and processes whose names are remembered as told; beyond, all are told again.
const TOLD_MAX: usize = 1 << 20;
/// Deepest directory whose path is told.
const DEPTH_MAX: usize = 1000;

/// The thread that writes.
pub(super) struct TraceWriter<W> {
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

impl<W: Write> TraceWriter<W> {
    pub(super) fn new(
        shared: Arc<Shared>,
        writer: Writer<W>,
        settings: Settings,
        surroundings: Box<dyn Surroundings>,
    ) -> Self {
        let anonymous = settings.header.anonymous;
        Self {
            shared,
            writer,
            anonymous: anonymous.then(|| Anonymous::new(settings.key)),
            root: settings.root,
            limit: settings.limit,
            surroundings,
            told: HashSet::new(),
            known: HashSet::new(),
            oldest: None,
        }
    }

    pub(super) fn run(
        mut self,
        sync: impl FnOnce(W) -> io::Result<()>,
        ended: impl FnOnce(&Progress),
    ) {
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
            // While something is going on, looking now and then is cheaper than being woken by
            // every event.
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
