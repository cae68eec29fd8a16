//! A streaming reader: one block in memory.

use super::event::{Level, TraceHeader, TraceItem};
use super::format::{
    BLOCK_HEAD, BlockHead, CRC, HEADER_FIXED, MAGIC, PreviousEvent, Take, VERSION, block_sum,
};
use std::fmt;
use std::io::{self, Read};

/// Why a file cannot be read as a trace.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// Reading failed.
    #[error("reading at byte {at}")]
    Io {
        /// Where.
        at: u64,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The file begins with something else.
    #[error(
        "not a TealFS trace: it begins with {begins:02x?} ('teal lab trace import' reads traces of others)"
    )]
    Foreign {
        /// Its first bytes, at most eight.
        begins: Vec<u8>,
    },
    /// A version that is not known here.
    #[error("a trace of version {found}; this program reads version {VERSION}")]
    Version {
        /// Its version.
        found: u16,
    },
    /// The header is cut off or damaged.
    #[error("the trace's header is cut off or damaged (it ends at byte {at})")]
    Header {
        /// Where it ends.
        at: u64,
    },
}

/// How a trace ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TraceEnding {
    /// As it should.
    Complete,
    /// Without an end. What was read before is whole.
    CutOff {
        /// Where the first block begins that cannot be read.
        at: u64,
        /// Blocks before.
        blocks: u64,
        /// What is there instead of a block.
        why: CutReason,
    },
}

/// What is there instead of a whole block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CutReason {
    /// Nothing.
    Nothing,
    /// The beginning of one.
    Part,
    /// A whole one whose checksum is wrong.
    Checksum,
    /// Something else than a block, or one with another number.
    Foreign,
    /// An item, counted from 0, that means nothing, although the checksum is right.
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

/// Reads a trace: an iterator over its items. When it has ended, [`Reader::ending`] says how.
#[derive(Debug)]
pub struct TraceReader<R> {
    input: R,
    header: TraceHeader,
    /// Bytes read.
    at: u64,
    /// The items of the present block that are left.
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

/// Reads until `len` bytes are there or the input ends; never allocates more than there is.
fn read_up_to(
    input: &mut impl Read,
    at: &mut u64,
    len: usize,
    into: &mut Vec<u8>,
) -> Result<bool, ReadError> {
    let got = input.by_ref().take(len as u64).read_to_end(into);
    let got = got.map_err(|source| ReadError::Io { at: *at, source })?;
    *at += got as u64;
    Ok(got == len)
}

impl<R: Read> TraceReader<R> {
    /// Reads the header.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn new(mut input: R) -> Result<Self, ReadError> {
        let (mut at, mut bytes) = (0, Vec::new());
        let is_there = read_up_to(&mut input, &mut at, HEADER_FIXED, &mut bytes)?;
        if !bytes.starts_with(MAGIC) {
            bytes.truncate(MAGIC.len());
            return Err(ReadError::Foreign { begins: bytes });
        }
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

    /// Returns what stands at the beginning.
    pub fn header(&self) -> &TraceHeader {
        &self.header
    }

    /// How the trace ends; `None` until then.
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
        self.starts = self.at;
        let mut head = Vec::new();
        let is_there = read_up_to(&mut self.input, &mut self.at, BLOCK_HEAD, &mut head)?;
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
        let sum = self.block.split_off(end);
        if sum != block_sum(raw, &self.block).to_le_bytes() {
            self.note_cut(CutReason::Checksum);
            return Ok(());
        }
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

    /// The next item of the present block; `None` when it means nothing.
    fn next_item(&mut self) -> Option<TraceItem> {
        let mut take = Take(&self.block[self.next..]);
        let item = TraceItem::decode(&mut take, &mut self.before)?;
        self.next = self.block.len() - take.0.len();
        self.left -= 1;
        let is_foreign = |level: Level| level != self.header.level;
        if let TraceItem::Event(event) = &item
            && event.action.level().is_some_and(is_foreign)
        {
            return None;
        }
        // What is left over behind the last item is no better than an item that means nothing.
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
            if self.ending.is_none() && self.left == 0 && !self.block.is_empty() {
                self.blocks -= 1;
                self.note_cut(CutReason::Item(0));
            }
        }
        if self.ending.is_some() {
            return None;
        }
        let which = self.items - self.left;
        let item = self.next_item();
        if item.is_none() {
            self.blocks -= 1;
            self.note_cut(CutReason::Item(which));
        }
        item.map(Ok)
    }
}
