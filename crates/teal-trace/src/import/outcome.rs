//! What an import is told of the trace, and how it ends.

use crate::event::Text;
use crate::write::WriteError;
use std::io;

/// What the header of the trace will say besides the time.
#[derive(Debug, Clone, Default)]
pub struct TraceOrigin {
    /// The machine, as far as the user tells.
    pub machine: Text,
    /// Where the trace comes from.
    pub source: Text,
}

/// What was imported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ImportSummary {
    /// Records read.
    pub records: u64,
    /// Events written.
    pub events: u64,
    /// Records that say nothing of interest here: other actions, empty requests.
    pub skipped: u64,
}

/// Why a trace is refused.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// It is something else.
    #[error("no {format} trace: {what}")]
    Foreign {
        /// What it should be.
        format: &'static str,
        /// Why it is not.
        what: String,
    },
    /// It ends within a record.
    #[error("cut off: record {record}, which begins at byte {at}, is incomplete")]
    Truncated {
        /// The record, from 0.
        record: u64,
        /// Its first byte.
        at: u64,
    },
    /// A record means nothing.
    #[error("record {record} at byte {at}: {what}")]
    Record {
        /// The record, from 0.
        record: u64,
        /// Its first byte.
        at: u64,
        /// What is wrong.
        what: String,
    },
    /// Nothing in it can be imported.
    #[error("{0}")]
    Nothing(String),
    /// Reading failed.
    #[error("reading record {record} at byte {at}")]
    Io {
        /// The record, from 0.
        record: u64,
        /// Its first byte.
        at: u64,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Writing failed.
    #[error(transparent)]
    Write(#[from] WriteError),
}
