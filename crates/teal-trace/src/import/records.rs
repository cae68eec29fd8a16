//! Reads records of a fixed size, with their numbers and places for messages.

use super::error::ImportError;
use std::io::Read;

/// Reads a file of records.
#[derive(Debug)]
pub(super) struct RecordReader<R> {
    input: R,
    /// Number of the next record.
    pub(super) record: u64,
    /// First byte of the record read last.
    pub(super) at: u64,
    next: u64,
}

/// Magic bytes of compressed files, and the programs that unpack them.
const PACKED: [(&[u8], &str); 4] = [
    (
        b"\x28\xb5\x2f\xfd",
        "compressed by zstd; unpack it with `zstd -d`",
    ),
    (b"\x1f\x8b", "compressed by gzip; unpack it with `gzip -d`"),
    (b"\xfd7zXZ", "compressed by xz; unpack it with `xz -d`"),
    (b"BZh", "compressed by bzip2; unpack it with `bzip2 -d`"),
];

/// Returns the name of a compressed form, if the file has one.
pub(super) fn packed_form(begins: &[u8]) -> Option<String> {
    let found = PACKED.iter().find(|(magic, _)| begins.starts_with(magic));
    found.map(|(_, what)| format!("it is {what}"))
}

impl<R: Read> RecordReader<R> {
    pub(super) fn new(input: R) -> Self {
        Self {
            input,
            record: 0,
            at: 0,
            next: 0,
        }
    }

    /// Fills `into` with the next record; returns `false` at the end of the input.
    pub(super) fn next(&mut self, into: &mut [u8]) -> Result<bool, ImportError> {
        let (record, at) = (self.record, self.next);
        let got = self.fill_buffer(into, record, at)?;
        if got == 0 {
            return Ok(false);
        }
        if got < into.len() {
            return Err(ImportError::Truncated { record, at });
        }
        self.at = at;
        self.record += 1;
        Ok(true)
    }

    /// Fills `into` with data of the record read last.
    pub(super) fn read_more(&mut self, into: &mut [u8]) -> Result<(), ImportError> {
        debug_assert!(self.record > 0, "a record has been read");
        let (record, at) = (self.record - 1, self.at);
        if self.fill_buffer(into, record, at)? < into.len() {
            return Err(ImportError::Truncated { record, at });
        }
        Ok(())
    }

    /// Returns an error for the record read last.
    pub(super) fn record_error(&self, what: String) -> ImportError {
        ImportError::Record {
            record: self.record.saturating_sub(1),
            at: self.at,
            what,
        }
    }

    fn fill_buffer(&mut self, into: &mut [u8], record: u64, at: u64) -> Result<usize, ImportError> {
        let mut got = 0;
        while got < into.len() {
            match self.input.read(&mut into[got..]) {
                Ok(0) => break,
                Ok(n) => got += n,
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(source) => return Err(ImportError::Io { record, at, source }),
            }
        }
        self.next += got as u64;
        Ok(got)
    }
}
