//! Traces: what programs asked of a file system, or a file system of a device, and when.
//!
//! # Guarantees
//! 1. *Cut off is not lost*: a trace is readable up to its last whole block, and a [`Reader`] says
//!    whether it ended or was cut off.
//! 2. *In order*: the times of a trace's events never go back.
//! 3. *Bounded*: reading and writing hold one block, whatever the length of the trace; an
//!    allocation never exceeds what the input holds.
//! 4. *Two forms, one content*: what is written as text and read again is the same, item by item.
//!
//! # How
//! 1. [`Item`] is what a trace consists of; `format` has every byte of it, `text` the form for
//!    people.
//! 2. [`Writer`] and [`Reader`] stream; [`import`] reads the traces of others; [`Stat`] sums one
//!    up.
//! 3. A [`Recording`] takes events as they happen, from many threads, and writes them on one of its
//!    own.

mod anonymous;
mod event;
mod field;
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
    Action, Called, Event, Header, Item, Level, Outcome, Process, TEXT_MAX, Text, TextError,
};
pub use paths::Paths;
pub use read::{Cut, Ending, ReadError, Reader};
pub use record::{Facts, Progress, QUEUE_MAX, Recorder, Recording, Settings, Surroundings, Ticket};
pub use stat::{GAP_LIMITS, Gap, Run, Stat, Tally};
pub use text::{LINE_MAX, LineError, TextReader, text_header};
pub use write::{WriteError, Writer};
