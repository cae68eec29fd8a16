//! Reads a trace as a stream, with one block in memory.

use super::event::{Level, TraceHeader, TraceItem};
use super::field_bytes::FieldReader;
use super::format::{
    BLOCK_HEAD, BlockHead, CRC, HEADER_FIXED, MAGIC, PreviousEvent, VERSION, block_sum,
};
use std::fmt;
use std::io::{self, Read};

/// Says why a file cannot be read as a trace.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// Reading failed.
    #[error("reading at byte {at}")]
    Io {
        /// Offset of the failed read.
        at: u64,
        /// Error of the system call.
        #[source]
        source: io::Error,
    },
    /// The file begins with other bytes.
    #[error(
        "not a TealFS trace: it begins with {begins:02x?} ('teal lab trace import' reads traces \
         of others)"
    )]
    Foreign {
        /// First bytes of the file, at most eight.
        begins: Vec<u8>,
    },
    /// The version is not known here.
    #[error("a trace of version {found}; this program reads version {VERSION}")]
    Version {
        /// Version of the file.
        found: u16,
    },
    /// The header is cut off or damaged.
    #[error("the trace's header is cut off or damaged (it ends at byte {at})")]
    Header {
        /// Offset at which it ends.
        at: u64,
    },
}

/// Says how a trace ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TraceEnding {
    /// The trace was ended by its writer.
    Complete,
    /// The trace has no end. Everything that was read before is whole.
    CutOff {
        /// Offset of the first block that cannot be read.
        at: u64,
        /// Number of blocks before it.
        blocks: u64,
        /// Reason of the cut.
        why: CutReason,
    },
}

/// Says why the next block is not whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CutReason {
    /// There are no more bytes.
    Nothing,
    /// The block is incomplete.
    Part,
    /// The checksum of the block is wrong.
    Checksum,
    /// The bytes are no block, or one with another number.
    Foreign,
    /// An item, counted from 0, has no meaning, although the checksum is right.
    Item(u32),
}

impl fmt::Display for TraceEnding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::CutOff { at, blocks, why } = self else {
            return f.write_str("complete");
        };
        write!(f, "cut off at byte {at}, after {blocks} whole blocks: ")?;
        match why {
            CutReason::Nothing => f.write_str("the recording was not ended"),
            CutReason::Part => f.write_str("the next block is incomplete"),
            CutReason::Checksum => f.write_str("the checksum of the next block is wrong"),
            CutReason::Foreign => f.write_str("what follows is no block of this trace"),
            CutReason::Item(item) => write!(f, "item {item} of the next block means nothing"),
        }
    }
}

/// Reads a trace: an iterator over its items. When it has ended, [`TraceReader::ending`] says how.
#[derive(Debug)]
pub struct TraceReader<R> {
    input: R,
    header: TraceHeader,
    /// Number of bytes read.
    at: u64,
    /// Items of the present block that are left.
    block: Vec<u8>,
    next: usize,
    left: u32,
    items: u32,
    starts: u64,
    is_last: bool,
    before: PreviousEvent,
    blocks: u64,
    ending: Option<TraceEnding>,
}

/// Reads until `len` bytes are there or the input ends; it never allocates more than there is.
fn read_up_to(
    input: &mut impl Read,
    at: &mut u64,
    len: usize,
    into: &mut Vec<u8>,
) -> Result<bool, ReadError> {
    // Damaged lengths must not make the reader allocate what is not there.
    let got = input.by_ref().take(len as u64).read_to_end(into);
    let got = got.map_err(|source| ReadError::Io { at: *at, source })?;
    *at += got as u64;
    Ok(got == len)
}

impl<R: Read> TraceReader<R> {
    /// Reads the header.
    ///
    /// # Errors
    /// Returns a [`ReadError`].
    pub fn new(mut input: R) -> Result<Self, ReadError> {
        let (mut at, mut bytes) = (0, Vec::new());
        // A short file has no header, but its first bytes still tell the format.
        let is_there = read_up_to(&mut input, &mut at, HEADER_FIXED, &mut bytes)?;
        if !bytes.starts_with(MAGIC) {
            bytes.truncate(MAGIC.len());
            return Err(ReadError::Foreign { begins: bytes });
        }
        // The version decides whether the rest of the header has this form.
        let fixed = *bytes
            .first_chunk::<HEADER_FIXED>()
            .filter(|_| is_there)
            .ok_or(ReadError::Header { at })?;
        let found = u16::from_le_bytes([fixed[8], fixed[9]]);
        if found != VERSION {
            return Err(ReadError::Version { found });
        }
        let is_there = read_up_to(
            &mut input,
            &mut at,
            TraceHeader::text_bytes(&fixed) + CRC,
            &mut bytes,
        )?;
        let header = TraceHeader::decode(&bytes)
            .filter(|_| is_there)
            .ok_or(ReadError::Header { at })?;
        Ok(Self {
            input,
            header,
            at,
            block: Vec::new(),
            next: 0,
            left: 0,
            items: 0,
            starts: at,
            is_last: false,
            before: PreviousEvent::default(),
            blocks: 0,
            ending: None,
        })
    }

    /// Returns the header.
    pub fn header(&self) -> &TraceHeader {
        &self.header
    }

    /// Returns how the trace ends; `None` until then.
    pub fn ending(&self) -> Option<&TraceEnding> {
        self.ending.as_ref()
    }

    fn note_cut(&mut self, why: CutReason) {
        self.ending = Some(TraceEnding::CutOff {
            at: self.starts,
            blocks: self.blocks,
            why,
        });
    }

    /// Reads the next block, or finds the end.
    fn read_block(&mut self) -> Result<(), ReadError> {
        // A cut is told with the offset at which its block starts.
        self.starts = self.at;
        let mut head = Vec::new();
        let is_there = read_up_to(&mut self.input, &mut self.at, BLOCK_HEAD, &mut head)?;
        // Behind the last block nothing may follow.
        if self.is_last {
            match head.is_empty() {
                true => self.ending = Some(TraceEnding::Complete),
                false => self.note_cut(CutReason::Foreign),
            }
            return Ok(());
        }
        let Some(raw) = head.first_chunk::<BLOCK_HEAD>().filter(|_| is_there) else {
            self.note_cut(if head.is_empty() {
                CutReason::Nothing
            } else {
                CutReason::Part
            });
            return Ok(());
        };
        // Blocks are numbered, and their times go on: a block of another trace does not fit.
        let follows = |h: &BlockHead| h.number == self.blocks as u32 && h.base >= self.before.at;
        let Some(head) = BlockHead::decode(raw).filter(follows) else {
            self.note_cut(CutReason::Foreign);
            return Ok(());
        };
        self.block.clear();
        if !read_up_to(
            &mut self.input,
            &mut self.at,
            head.bytes as usize + CRC,
            &mut self.block,
        )? {
            self.note_cut(CutReason::Part);
            return Ok(());
        }
        let end = head.bytes as usize;
        // The checksum covers head and items.
        let sum = self.block.split_off(end);
        if sum != block_sum(raw, &self.block).to_le_bytes() {
            self.note_cut(CutReason::Checksum);
            return Ok(());
        }
        // Now the items are whole: reading them cannot fail for want of bytes.
        (self.next, self.left, self.items, self.is_last) =
            (0, head.items, head.items, head.is_last);
        self.before = PreviousEvent {
            at: head.base,
            process: 0,
            object: 0,
        };
        self.blocks += 1;
        Ok(())
    }

    /// Returns the next item of the present block; `None` when it has no meaning.
    fn next_item(&mut self) -> Option<TraceItem> {
        debug_assert!(
            self.next <= self.block.len(),
            "the next item lies in the block"
        );
        debug_assert!(self.left > 0, "the block has an item left");
        let mut take = FieldReader(&self.block[self.next..]);
        let item = TraceItem::decode(&mut take, &mut self.before)?;
        self.next = self.block.len() - take.0.len();
        self.left -= 1;
        // An action of the other level would mean nothing in this trace.
        let is_foreign = |level: Level| level != self.header.level;
        if let TraceItem::Event(event) = &item
            && event.action.level().is_some_and(is_foreign)
        {
            return None;
        }
        // Bytes behind the last item are as bad as an item without meaning.
        (self.left > 0 || take.0.is_empty()).then_some(item)
    }
}

impl<R: Read> Iterator for TraceReader<R> {
    type Item = Result<TraceItem, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.ending.is_none() && self.left == 0 {
            if let Err(error) = self.read_block() {
                self.note_cut(CutReason::Part);
                return Some(Err(error));
            }
            // A block without items but with bytes is damaged.
            if self.ending.is_none() && self.left == 0 && !self.block.is_empty() {
                self.blocks -= 1;
                self.note_cut(CutReason::Item(0));
            }
        }
        if self.ending.is_some() {
            return None;
        }
        // Items are counted from the beginning of their block.
        let which = self.items - self.left;
        let item = self.next_item();
        if item.is_none() {
            // A block with a bad item does not count as read.
            self.blocks -= 1;
            self.note_cut(CutReason::Item(which));
        }
        item.map(Ok)
    }
}
