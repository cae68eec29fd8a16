//! Records events as they happen: many threads hand them in, one writes them.
//!
//! # Guarantees
//! 1. *No waiting*: a thread that hands in an event waits for no I/O. Events that come faster than
//!    they can be written are dropped, and counted in the trace at this point.
//! 2. *In order*: events are written in the order in which they began.
//! 3. *A second at most*: events are written within a second, as whole blocks, so that a killed
//!    process loses no more.
//! 4. *Harmless*: when writing fails, the recording ends and says why; the file system does not
//!    notice.

mod context;
mod queue;
mod recording_thread;

pub use super::order::EventTicket;
pub use context::{ProcessFacts, RecordingContext, RecordingSettings};
pub use queue::{QUEUE_MAX, RecordingProgress};

use super::event::{Action, EventOutcome};
use super::field::Text;
use super::order::InOrder;
use super::write::{TraceWriter, WriteError};
use parking_lot::{Condvar, Mutex};
use queue::{BegunEvent, EventQueue, SharedRecording};
use recording_thread::RecordingThread;
use std::fmt;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use teal_env::Clock;

/// Takes events in; it may be copied to any thread.
#[derive(Clone)]
pub struct EventRecorder(Arc<SharedRecording>);

impl fmt::Debug for EventRecorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventRecorder")
            .field("on", &self.0.on)
            .finish_non_exhaustive()
    }
}

impl EventRecorder {
    /// Begins an event now. Returns `None` when the recording has ended or the event is dropped.
    pub fn begin_event(&self, process: u32, object: u64, action: Action) -> Option<EventTicket> {
        let shared = &*self.0;
        // Tested without the lock first: a mount without a recording pays one load.
        if !shared.on.load(Ordering::Acquire) {
            return None;
        }
        let mut queue = shared.queue.lock();
        if queue.ending {
            return None;
        }
        // The time is taken under the lock, so that the order of the tickets is that of the times.
        let at = shared.clock.monotonic_time().saturating_sub(shared.start);
        let ticket = queue.order.push_begun(BegunEvent {
            at,
            process,
            object,
            action,
        });
        if ticket.is_none() {
            // An answer that does not come must not stop everything behind it.
            queue
                .order
                .give_up(|begun| begun.to_event(EventOutcome::Unknown, None));
            queue.dropped += 1;
            queue.progress.dropped += 1;
            shared.wake.notify_all();
        }
        ticket
    }

    /// Ends an event now.
    pub fn end_event(&self, ticket: EventTicket, outcome: EventOutcome) {
        let shared = &*self.0;
        // The end is taken before the lock: waiting for the lock is no latency of the event.
        let now = shared.clock.monotonic_time().saturating_sub(shared.start);
        let mut queue = shared.queue.lock();
        queue.order.mark_done(ticket, |begun| {
            begun.to_event(outcome, Some(now.saturating_sub(begun.at)))
        });
        // The writer is woken only if the oldest event has ended: nothing else can be written.
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

/// Holds a recording that goes on.
pub struct TraceRecording {
    shared: Arc<SharedRecording>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl fmt::Debug for TraceRecording {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TraceRecording")
            .field("progress", &self.progress())
            .finish_non_exhaustive()
    }
}

impl TraceRecording {
    /// Begins a recording into `out`, which is synced with `sync` at the end. The recording's
    /// thread calls `ended` once, when it has ended, for whatever reason.
    ///
    /// # Errors
    /// Returns an error if the header cannot be written, or there is no thread.
    pub fn start<W: Write + Send + 'static>(
        out: W,
        sync: impl FnOnce(W) -> io::Result<()> + Send + 'static,
        settings: RecordingSettings,
        clock: Arc<dyn Clock>,
        context: Box<dyn RecordingContext>,
        ended: impl FnOnce(&RecordingProgress) + Send + 'static,
    ) -> Result<Self, WriteError> {
        // The header is written here, so that its failure is the caller's.
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
        let writing = RecordingThread::new(Arc::clone(&shared), writer, settings, context);
        // The writing thread owns the output until the end.
        let thread = std::thread::Builder::new().name("teal-record".into());
        let handle = thread.spawn(move || writing.run(sync, ended))?;
        Ok(Self {
            shared,
            thread: Mutex::new(Some(handle)),
        })
    }

    /// Returns a recorder, which takes events in.
    pub fn recorder(&self) -> EventRecorder {
        EventRecorder(Arc::clone(&self.shared))
    }

    /// Returns the state of the recording.
    pub fn progress(&self) -> RecordingProgress {
        self.shared.queue.lock().progress.clone()
    }

    /// Ends the recording, if it has not ended, and waits until everything is written. Events that
    /// have not been answered have no outcome.
    pub fn finish(&self) -> RecordingProgress {
        // The lock is released before the join, because the writer needs it to end.
        {
            let mut queue = self.shared.queue.lock();
            queue.ending = true;
            self.shared.wake.notify_all();
        }
        // A second call finds no thread, and returns the same state.
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
