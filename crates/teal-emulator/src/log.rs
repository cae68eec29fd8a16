//! The log of an emulated disk: every request, mark and change of power, in the order in which they
//! came.
//!
//! [`mod@format`] has the bytes. A [`RecordSink`] takes records: [`RecordRing`] keeps the newest in
//! memory, [`LogWriter`] streams them to a file, [`LogReader`] reads that file again.

pub mod format;
mod reader;
mod ring;
mod writer;

pub use format::{DiskEventKind, DiskLogHeader, DiskLogRecord};
pub use reader::{LogError, LogReader};
pub use ring::RecordRing;
pub use writer::LogWriter;

use std::io;

/// Takes records.
pub trait RecordSink: Send {
    /// Takes one record.
    ///
    /// # Errors
    /// Returns the medium's error. Nothing more is given to this sink then.
    fn put(&mut self, record: &DiskLogRecord) -> io::Result<()>;

    /// Hands on the records that were taken so far.
    ///
    /// # Errors
    /// Returns the medium's error.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Takes records and drops them: no log is kept.
impl RecordSink for () {
    fn put(&mut self, _: &DiskLogRecord) -> io::Result<()> {
        Ok(())
    }
}
