//! Imports traces of others: `blktrace`, and the formats of cache research.
//!
//! # Guarantees
//! 1. *Precise*: an input that is foreign, cut off or damaged is refused, with the record's number
//!    and its byte.
//! 2. *Bounded*: memory does not grow with the input.

mod blktrace;
mod oracle_general;
mod records;
mod vscsi;
mod window;

pub use blktrace::{RequestStage, import_blktrace};
pub use oracle_general::import_oracle_general;
pub use vscsi::import_vscsi;

use super::event::Text;
use super::write::WriteError;
use std::io;

/// Holds the texts of the trace's header.
#[derive(Debug, Clone, Default)]
pub struct TraceOrigin {
    /// Name of the machine, if the user gives one.
    pub machine: Text,
    /// Origin of the trace.
    pub source: Text,
}

/// Counts the records of an import.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ImportSummary {
    /// Number of records read.
    pub records: u64,
    /// Number of events written.
    pub events: u64,
    /// Number of records that give no event: other actions, empty requests.
    pub skipped: u64,
}

/// Says why a trace is refused.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The input has another format.
    #[error("no {format} trace: {what}")]
    Foreign {
        /// Name of the expected format.
        format: &'static str,
        /// Difference from the format.
        what: String,
    },
    /// The input ends within a record.
    #[error("cut off: record {record}, which begins at byte {at}, is incomplete")]
    Truncated {
        /// Number of the record, from 0.
        record: u64,
        /// First byte of the record.
        at: u64,
    },
    /// A record has no meaning.
    #[error("record {record} at byte {at}: {what}")]
    Record {
        /// Number of the record, from 0.
        record: u64,
        /// First byte of the record.
        at: u64,
        /// Fault of the record.
        what: String,
    },
    /// The input has no record that can be imported.
    #[error("{0}")]
    Nothing(String),
    /// Reading failed.
    #[error("reading record {record} at byte {at}")]
    Io {
        /// Number of the record, from 0.
        record: u64,
        /// First byte of the record.
        at: u64,
        /// Error of the system call.
        #[source]
        source: io::Error,
    },
    /// Writing failed.
    #[error(transparent)]
    Write(#[from] WriteError),
}
