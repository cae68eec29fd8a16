//! Holds traces: the actions that programs asked of a file system, or a file system of a device,
//! with their times.
//!
//! # Guarantees
//! 1. *Cut off is not lost*: a trace is readable up to its last whole block, and a [`TraceReader`]
//!    says whether it ended or was cut off.
//! 2. *In order*: the times of a trace's events never go back.
//! 3. *Bounded*: reading and writing hold one block, whatever the length of the trace; an
//!    allocation never exceeds the input.
//! 4. *Two forms, one content*: a trace that is written as text and read again is the same, item by
//!    item.
//! # How
//! 1. [`TraceItem`] is the unit of a trace; `format` has every byte of it, `text` the form for
//!    people.
//! 2. [`TraceWriter`] and [`TraceReader`] stream; [`import`] reads the traces of others;
//!    [`TraceStatistics`] sums one up.
//! 3. A [`TraceRecording`] takes events as they happen, from many threads, and writes them on a
//!    thread of its own.

mod anonymous;
mod event;
mod field;
mod field_bytes;
mod format;
pub mod import;
mod order;
mod paths;
mod read;
mod record;
mod stat;
mod text;
mod write;

pub use event::{
    Action, EventOutcome, Level, ObjectName, TraceEvent, TraceHeader, TraceItem, TracedProcess,
};
pub use field::{TEXT_MAX, Text, TextError};
pub use paths::PathTracker;
pub use read::{CutReason, ReadError, TraceEnding, TraceReader};
pub use record::{
    EventRecorder, EventTicket, ProcessFacts, QUEUE_MAX, RecordingContext, RecordingProgress,
    RecordingSettings, TraceRecording,
};
pub use stat::{AccessPattern, ActionTally, GAP_LIMITS, IdleGaps, TraceStatistics};
pub use text::{LINE_MAX, LineError, TextReader, text_header};
pub use write::{TraceWriter, WriteError};
