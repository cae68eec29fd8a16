//! The newest records, in memory.

use super::{DiskLogRecord, RecordSink};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

/// Keeps the newest records up to a limit. Clones are the same ring.
#[derive(Debug, Clone)]
pub struct RecordRing {
    limit: usize,
    /// Guards the records and the number of those that were dropped.
    held: Arc<Mutex<(VecDeque<DiskLogRecord>, u64)>>,
}

impl RecordRing {
    /// A ring of at most `limit` records.
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            held: Arc::default(),
        }
    }

    /// The records that are kept, oldest first.
    pub fn records(&self) -> Vec<DiskLogRecord> {
        self.held.lock().0.iter().cloned().collect()
    }

    /// Returns how many older ones were dropped.
    pub fn dropped(&self) -> u64 {
        self.held.lock().1
    }
}

impl RecordSink for RecordRing {
    fn put(&mut self, record: &DiskLogRecord) -> io::Result<()> {
        let (records, dropped) = &mut *self.held.lock();
        records.push_back(record.clone());
        while records.len() > self.limit {
            records.pop_front();
            *dropped += 1;
        }
        Ok(())
    }
}
