//! Writes a recording on a thread of its own: takes events off the queue, introduces objects and
//! processes by name, and keeps blocks no longer than a second.

use super::super::anonymous::NameHasher;
use super::super::event::{Action, EventOutcome, ObjectName, TraceEvent, TraceItem, TracedProcess};
use super::super::field::Text;
use super::super::write::{TraceWriter, WriteError};
use super::context::{ProcessFacts, RecordingContext, RecordingSettings};
use super::queue::{RecordingProgress, SharedRecording};
use std::collections::HashSet;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Limits the events that are taken off the queue at once.
const GULP: usize = 1024;
/// Age of an event at which its block is written.
const FLUSH_AFTER: Duration = Duration::from_secs(1);
/// Time that events wait for others while more are coming. It is short, because soon a process is
/// gone and a file is renamed.
const TICK: Duration = Duration::from_millis(20);
/// Limits the objects and processes that are remembered as introduced; beyond, all are introduced
/// again.
const TOLD_MAX: usize = 1 << 20;
/// Limits the depth of a directory with an introduced path.
const DEPTH_MAX: usize = 1000;

/// Holds the writing thread's state.
pub(super) struct RecordingThread<W> {
    shared: Arc<SharedRecording>,
    writer: TraceWriter<W>,
    anonymous: Option<NameHasher>,
    root: u64,
    limit: Option<Duration>,
    context: Box<dyn RecordingContext>,
    /// Objects with names that the trace has told.
    named: HashSet<u64>,
    /// Processes that the trace has introduced.
    introduced: HashSet<u32>,
    /// Time of the oldest event that is not written yet.
    oldest: Option<Duration>,
}

/// Holds events that were taken off the queue.
struct EventBatch {
    events: Vec<TraceEvent>,
    dropped: u64,
    is_last: bool,
}

impl<W: Write> RecordingThread<W> {
    pub(super) fn new(
        shared: Arc<SharedRecording>,
        writer: TraceWriter<W>,
        settings: RecordingSettings,
        context: Box<dyn RecordingContext>,
    ) -> Self {
        let anonymous = settings.header.anonymous;
        Self {
            shared,
            writer,
            anonymous: anonymous.then(|| NameHasher::new(settings.key)),
            root: settings.root,
            limit: settings.limit,
            context,
            introduced: HashSet::new(),
            named: HashSet::new(),
            oldest: None,
        }
    }

    pub(super) fn run(
        mut self,
        sync: impl FnOnce(W) -> io::Result<()>,
        ended: impl FnOnce(&RecordingProgress),
    ) {
        let written = loop {
            // The first error ends the recording; later events would have a gap before them.
            let batch = self.next_batch();
            if let Err(error) = self.write_batch(&batch) {
                break Err(error);
            }
            if batch.is_last {
                break Ok(());
            }
        };
        // From here on no event is taken in: the recorders see it without the lock.
        self.shared.on.store(false, Ordering::Release);
        let shared = Arc::clone(&self.shared);
        let ended_well = written.and_then(|()| self.writer.write_last_block());
        let bytes = self.writer.bytes_written();
        // Synced even after a failed write would be a lie, so the first error wins.
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
    fn next_batch(&mut self) -> EventBatch {
        let shared = Arc::clone(&self.shared);
        let mut queue = shared.queue.lock();
        loop {
            let now = shared.clock.monotonic_time().saturating_sub(shared.start);
            // The limit counts from the start of the recording.
            queue.ending |= self.limit.is_some_and(|limit| now >= limit);
            if queue.ending {
                // At the end unanswered events are written without an outcome.
                while !queue.order.is_empty() && !queue.order.is_ready() {
                    queue
                        .order
                        .give_up(|begun| begun.to_event(EventOutcome::Unknown, None));
                }
            }
            let mut events = Vec::new();
            // Events leave the queue in the order in which they began.
            while events.len() < GULP
                && let Some(event) = queue.order.pop()
            {
                events.push(event);
            }
            let is_due = self
                .oldest
                .is_some_and(|oldest| now >= oldest + FLUSH_AFTER);
            // A full block's time is due even if no event comes.
            if !events.is_empty() || queue.dropped > 0 || queue.ending || is_due {
                debug_assert!(events.len() <= GULP, "a batch has a limit");
                let dropped = std::mem::take(&mut queue.dropped);
                return EventBatch {
                    events,
                    dropped,
                    is_last: queue.ending && queue.order.is_empty(),
                };
            }
            // While events come, looking now and then is cheaper than being woken by every event.
            let tick = self.oldest.map(|_| now + TICK);
            queue.asleep = tick.is_none();
            match tick.into_iter().chain(self.limit).min() {
                Some(until) => drop(shared.wake.wait_for(&mut queue, until.saturating_sub(now))),
                None => shared.wake.wait(&mut queue),
            }
            queue.asleep = false;
        }
    }

    fn write_batch(&mut self, batch: &EventBatch) -> Result<(), WriteError> {
        // An object is introduced before its first event, so that a reader knows its path.
        for event in &batch.events {
            self.write_introductions(event)?;
            self.put_item(TraceItem::Event(event.clone()))?;
        }
        // The place of a gap is behind the events that came before it.
        if batch.dropped > 0 {
            self.put_item(TraceItem::Dropped(batch.dropped))?;
        }
        let now = self
            .shared
            .clock
            .monotonic_time()
            .saturating_sub(self.shared.start);
        // A block that is a second old goes out, even if it is not full.
        if self.writer.unwritten_items() == 0 {
            self.oldest = None;
        } else if now >= *self.oldest.get_or_insert(now) + FLUSH_AFTER {
            self.writer.flush()?;
            self.oldest = None;
        }
        let mut queue = self.shared.queue.lock();
        queue.progress.events += batch.events.len() as u64;
        queue.progress.bytes = self.writer.bytes_written();
        Ok(())
    }

    fn put_item(&mut self, mut item: TraceItem) -> Result<(), WriteError> {
        if let Some(anonymous) = &self.anonymous {
            anonymous.hide_names(&mut item);
        }
        self.writer.write_item(&item)
    }

    /// Introduces the process and the objects of an event, where earlier items have not.
    fn write_introductions(&mut self, event: &TraceEvent) -> Result<(), WriteError> {
        // Forgetting everything at the limit is simple, and costs some repetitions.
        if self.named.len() >= TOLD_MAX {
            self.named.clear();
        }
        if self.introduced.len() >= TOLD_MAX {
            self.introduced.clear();
        }
        if event.process != 0
            && self.introduced.insert(event.process)
            && let Some(ProcessFacts {
                leader,
                session,
                name,
            }) = self.context.process_facts(event.process)
        {
            let name = Text::truncated(&name);
            self.put_item(TraceItem::Process(TracedProcess {
                id: event.process,
                leader,
                session,
                name,
            }))?;
        }
        // A rename and a copy have two objects.
        match &event.action {
            Action::Mark { .. } | Action::Sync {} => {}
            Action::Rename { to, .. } => {
                self.write_names(event.object)?;
                self.write_names(*to)?;
            }
            Action::Copy { target, .. } => {
                self.write_names(event.object)?;
                self.write_names(*target)?;
            }
            _ => self.write_names(event.object)?,
        }
        // The event itself tells the name of the object that it makes.
        if let Some(object) = event.named_object() {
            self.named.insert(object);
        }
        Ok(())
    }

    /// Tells the name of an object and of the directories above, the highest first.
    fn write_names(&mut self, object: u64) -> Result<(), WriteError> {
        let (mut calls, mut at) = (Vec::new(), object);
        while calls.len() < DEPTH_MAX && self.named.insert(at) {
            if at == self.root {
                calls.push(ObjectName {
                    object: at,
                    parent: 0,
                    name: Text::default(),
                });
                break;
            }
            // The object has no name: it was removed meanwhile, or never had one.
            let Some((parent, name)) = self.context.name_of(at) else {
                break;
            };
            calls.push(ObjectName {
                object: at,
                parent,
                name: Text::truncated(&name),
            });
            at = parent;
        }
        debug_assert!(
            calls.len() <= DEPTH_MAX,
            "a path is no deeper than its limit"
        );
        calls
            .into_iter()
            .rev()
            .try_for_each(|called| self.put_item(TraceItem::Called(called)))
    }
}
