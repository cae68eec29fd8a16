//! Holds the queue between the threads that hand events in and the thread that writes them.
//!
//! # Locks
//! `queue` guards the events that were handed in. It is held for a few instructions, never across
//! I/O or a call of foreign code.

use crate::event::{Action, EventOutcome, TraceEvent};
use crate::order::InOrder;
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use teal_env::Clock;

/// Limits the events that wait to be written.
pub const QUEUE_MAX: usize = 1 << 16;

/// Reports the state of a recording.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RecordingProgress {
    /// Number of events written.
    pub events: u64,
    /// Number of events dropped.
    pub dropped: u64,
    /// Number of bytes written.
    pub bytes: u64,
    /// Is true when nothing more will be recorded.
    pub ended: bool,
    /// Reason of an early end.
    pub failure: Option<String>,
}

pub(super) struct BegunEvent {
    pub(super) at: Duration,
    pub(super) process: u32,
    pub(super) object: u64,
    pub(super) action: Action,
}

pub(super) struct EventQueue {
    pub(super) order: InOrder<BegunEvent, TraceEvent>,
    pub(super) dropped: u64,
    pub(super) ending: bool,
    /// Is true when the writing thread waits to be woken.
    pub(super) asleep: bool,
    pub(super) progress: RecordingProgress,
}

pub(super) struct SharedRecording {
    pub(super) clock: Arc<dyn Clock>,
    pub(super) start: Duration,
    pub(super) on: AtomicBool,
    pub(super) queue: Mutex<EventQueue>,
    pub(super) wake: Condvar,
}

impl BegunEvent {
    pub(super) fn to_event(&self, outcome: EventOutcome, latency: Option<Duration>) -> TraceEvent {
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
    pub(super) fn wake_writer(&self, queue: &mut EventQueue) {
        // A writer that is awake looks at the queue by itself.
        if std::mem::take(&mut queue.asleep) {
            self.wake.notify_all();
        }
    }
}
