//! The newest records, in memory.

use super::{DiskLogRecord, RecordSink};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

/// The records of a ring.
#[derive(Debug, Default)]
struct RingContents {
    records: VecDeque<DiskLogRecord>,
    /// The number of older records that were dropped.
    dropped: u64,
}

/// Keeps the newest records up to a limit. Clones are the same ring.
#[derive(Debug, Clone)]
pub struct RecordRing {
    limit: usize,
    /// Guards the records; nothing is done under it.
    contents: Arc<Mutex<RingContents>>,
}

impl RecordRing {
    /// Makes a ring of at most `limit` records.
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            contents: Arc::default(),
        }
    }

    /// Returns the records that are kept, oldest first.
    pub fn records(&self) -> Vec<DiskLogRecord> {
        self.contents.lock().records.iter().cloned().collect()
    }

    /// Returns the number of older ones that were dropped.
    pub fn dropped(&self) -> u64 {
        self.contents.lock().dropped
    }
}

impl RecordSink for RecordRing {
    fn put(&mut self, record: &DiskLogRecord) -> io::Result<()> {
        let contents = &mut *self.contents.lock();
        contents.records.push_back(record.clone());
        while contents.records.len() > self.limit {
            contents.records.pop_front();
            contents.dropped += 1;
        }
        debug_assert!(contents.records.len() <= self.limit);
        Ok(())
    }
}
