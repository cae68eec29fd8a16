//! Streams records to a file, block by block.

use super::RecordSink;
use super::format::{
    BLOCK_HEAD, BLOCK_MAGIC, BLOCK_MAX, DiskLogHeader, DiskLogRecord, LABEL_MAX, RECORD,
};
use std::io::{self, Write};

/// Writes a log.
#[derive(Debug)]
pub struct LogWriter<W: Write> {
    out: W,
    block: Vec<u8>,
    in_block: u32,
    first: u64,
}

impl<W: Write> LogWriter<W> {
    /// Begins a log.
    ///
    /// # Errors
    /// Returns the error of `out`.
    pub fn new(mut out: W, header: &DiskLogHeader) -> io::Result<Self> {
        out.write_all(&header.encode())?;
        Ok(Self {
            out,
            block: Vec::with_capacity(BLOCK_MAX),
            in_block: 0,
            first: 0,
        })
    }

    /// Writes the block that has gathered, if there is one.
    fn end_block(&mut self) -> io::Result<()> {
        if self.in_block == 0 {
            return Ok(());
        }
        // Put together in one piece, so that a killed writer leaves whole blocks and at most a part
        // of one.
        let mut block = Vec::with_capacity(BLOCK_HEAD + self.block.len());
        block.extend(BLOCK_MAGIC);
        block.extend([0; 4]);
        block.extend((self.block.len() as u32).to_le_bytes());
        block.extend(self.in_block.to_le_bytes());
        block.extend(self.first.to_le_bytes());
        block.extend(&self.block);
        let checksum = crc32c::crc32c(&block[8..]);
        block[4..8].copy_from_slice(&checksum.to_le_bytes());
        self.first += u64::from(self.in_block);
        self.in_block = 0;
        self.block.clear();
        self.out.write_all(&block)
    }
}

impl<W: Write + Send> RecordSink for LogWriter<W> {
    fn put(&mut self, record: &DiskLogRecord) -> io::Result<()> {
        // A block holds whole records, so it ends before one that may not fit.
        if self.block.len() + RECORD + LABEL_MAX + 8 > BLOCK_MAX {
            self.end_block()?;
        }
        record.encode(&mut self.block);
        debug_assert!(self.block.len() <= BLOCK_MAX, "a block has a limit");
        self.in_block += 1;
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.end_block()?;
        self.out.flush()
    }
}
