//! Reads a log again.
//!
//! # Guarantees
//! 1. *No panic on input*, and no more memory than a block.
//! 2. A damaged block is an error with its offset; a file that was cut off ends with
//!    [`LogError::CutOff`] after its last whole block.

use super::format::{
    BLOCK_HEAD, BLOCK_MAGIC, BLOCK_MAX, DiskLogHeader, DiskLogRecord, HEADER, MAGIC, VERSION,
    u32_at, u64_at,
};
use std::collections::VecDeque;
use std::io::{self, Read};

/// The reason for which a log cannot be read, or not further.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// Something else.
    #[error("this is no log of an emulated disk")]
    Foreign,
    /// The log is of another version of the program.
    #[error("the log has version {0}; this program reads version {VERSION}")]
    Version(u32),
    /// A checksum or a value is wrong.
    #[error("the log is damaged at byte {at}")]
    Damaged {
        /// The offset of the damaged block.
        at: u64,
    },
    /// Its writer was killed.
    #[error("the log is cut off at byte {at}")]
    CutOff {
        /// The offset of the unfinished block.
        at: u64,
    },
    /// The medium.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Reads records one after the other.
#[derive(Debug)]
pub struct LogReader<R: Read> {
    from: R,
    header: DiskLogHeader,
    at: u64,
    next: u64,
    records: VecDeque<DiskLogRecord>,
    is_over: bool,
}

impl<R: Read> LogReader<R> {
    /// Begins to read.
    ///
    /// # Errors
    /// [`LogError`].
    pub fn new(mut from: R) -> Result<Self, LogError> {
        let mut bytes = [0; HEADER];
        let read = read_full(&mut from, &mut bytes)?;
        // A shorter file may still be the log of a writer that was killed at once.
        if read < 12 || bytes[..8] != *MAGIC {
            return Err(LogError::Foreign);
        }
        match u32_at(&bytes, 8) {
            Some(VERSION) => {}
            version => return Err(LogError::Version(version.unwrap_or(0))),
        }
        if read < HEADER {
            return Err(LogError::CutOff { at: 0 });
        }
        let header = DiskLogHeader::decode(&bytes).ok_or(LogError::Damaged { at: 0 })?;
        Ok(Self {
            from,
            header,
            at: HEADER as u64,
            next: 0,
            records: VecDeque::new(),
            is_over: false,
        })
    }

    /// Returns the header.
    pub fn header(&self) -> &DiskLogHeader {
        &self.header
    }

    /// Reads the next block; returns false at the end.
    fn read_block(&mut self) -> Result<bool, LogError> {
        let at = self.at;
        let damaged = LogError::Damaged { at };
        let Some(head) = self.read_head()? else {
            return Ok(false);
        };
        let length = u32_at(&head, 8).unwrap_or(u32::MAX) as usize;
        if head[..4] != *BLOCK_MAGIC || length > BLOCK_MAX {
            return Err(damaged);
        }
        // Bounded above: a damaged length costs no more than a block.
        let mut bytes = vec![0; length];
        if read_full(&mut self.from, &mut bytes)? < length {
            return Err(LogError::CutOff { at });
        }
        // The checksum covers the rest of the block's head and the records.
        let checksum = crc32c::crc32c_append(crc32c::crc32c(&head[8..]), &bytes);
        if u32_at(&head, 4) != Some(checksum) || u64_at(&head, 16) != Some(self.next) {
            return Err(damaged);
        }
        let mut rest = bytes.as_slice();
        while let Some((record, length)) = DiskLogRecord::decode(rest) {
            self.records.push_back(record);
            rest = rest.get(length..).unwrap_or_default();
        }
        // The records fill the block, and are as many as its head says.
        if !rest.is_empty() || u32_at(&head, 12) != u32::try_from(self.records.len()).ok() {
            return Err(damaged);
        }
        self.next += self.records.len() as u64;
        self.at += (BLOCK_HEAD + length) as u64;
        Ok(true)
    }

    /// Reads the head of the next block; `None` if the file ends with a whole block.
    fn read_head(&mut self) -> Result<Option<[u8; BLOCK_HEAD]>, LogError> {
        let mut head = [0; BLOCK_HEAD];
        match read_full(&mut self.from, &mut head)? {
            0 => Ok(None),
            BLOCK_HEAD => Ok(Some(head)),
            _ => Err(LogError::CutOff { at: self.at }),
        }
    }
}

impl<R: Read> Iterator for LogReader<R> {
    type Item = Result<DiskLogRecord, LogError>;

    /// Returns the next record; the last item may be the error at which the log ends.
    fn next(&mut self) -> Option<Self::Item> {
        while self.records.is_empty() && !self.is_over {
            match self.read_block() {
                Ok(true) => {}
                Ok(false) => self.is_over = true,
                Err(error) => {
                    self.is_over = true;
                    self.records.clear();
                    return Some(Err(error));
                }
            }
        }
        self.records.pop_front().map(Ok)
    }
}

/// Reads until `into` is full or the input ends; returns the bytes read.
fn read_full(from: &mut impl Read, into: &mut [u8]) -> io::Result<usize> {
    let mut done = 0;
    while done < into.len() {
        match from.read(&mut into[done..]) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::super::{DiskEventKind, LogWriter, RecordSink};
    use super::*;
    use proptest::prelude::*;
    use teal_types::{Energy, Sector, Time, TimeSpan};

    fn record(n: u64) -> DiskLogRecord {
        let time = |by| Time::after_start(TimeSpan::from_micros(n * 10 + by));
        let label = if n.is_multiple_of(7) {
            format!("phase {n}")
        } else {
            String::new()
        };
        DiskLogRecord {
            kind: if label.is_empty() {
                DiskEventKind::Write
            } else {
                DiskEventKind::Mark
            },
            at: Sector::new(n * 8),
            count: 8,
            asked: time(0),
            start: time(1),
            done: time(2),
            energy: Energy::from_microjoules(n),
            total: Energy::from_microjoules(n * n),
            label,
        }
    }

    /// A log of `count` records in several blocks.
    fn log(count: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        let header = DiskLogHeader {
            profile: "p".to_owned(),
            sectors: 9,
            write_cache: 0,
            real_time: false,
        };
        let mut writer = LogWriter::new(&mut bytes, &header).unwrap();
        (0..count).for_each(|n| writer.put(&record(n)).unwrap());
        writer.flush().unwrap();
        bytes
    }

    #[test]
    fn what_was_written_is_read_again() {
        let bytes = log(3000);
        let reader = LogReader::new(bytes.as_slice()).unwrap();
        assert_eq!(reader.header().sectors, 9);
        let back: Vec<_> = reader.map(Result::unwrap).collect();
        assert_eq!(back, (0..3000).map(record).collect::<Vec<_>>());
    }

    #[test]
    fn foreign_files_are_refused() {
        assert!(matches!(LogReader::new(&b""[..]), Err(LogError::Foreign)));
        assert!(matches!(
            LogReader::new(&[7; 500][..]),
            Err(LogError::Foreign)
        ));
        let mut newer = log(1);
        newer[8] = 2;
        assert!(matches!(
            LogReader::new(newer.as_slice()),
            Err(LogError::Version(2))
        ));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn a_log_cut_off_anywhere_gives_its_whole_blocks(cut in 128_usize..200_000) {
            let whole = log(2500);
            let cut = cut.min(whole.len());
            let mut items: Vec<_> = LogReader::new(&whole[..cut]).unwrap().collect();
            let is_whole = items.last().is_none_or(Result::is_ok);
            if !is_whole {
                let is_cut = matches!(items.pop(), Some(Err(LogError::CutOff { .. })));
                prop_assert!(is_cut);
            }
            prop_assert!(!is_whole || cut == whole.len() || items.len() < 2500);
            for (n, item) in items.into_iter().enumerate() {
                prop_assert_eq!(item.unwrap(), record(n as u64));
            }
        }

        #[test]
        fn a_flipped_bit_is_noticed(at in 0_usize..200_000, bit in 0_u8..8) {
            let mut bytes = log(2500);
            let at = at % bytes.len();
            bytes[at] ^= 1 << bit;
            let is_noticed = match LogReader::new(bytes.as_slice()) {
                Err(_) => true,
                Ok(reader) => reader.into_iter().any(|item| item.is_err()),
            };
            prop_assert!(is_noticed, "byte {at}");
        }
    }
}
