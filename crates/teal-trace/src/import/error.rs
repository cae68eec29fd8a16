//! Says why a trace of others is not imported.

use crate::write::WriteError;
use std::io;

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
