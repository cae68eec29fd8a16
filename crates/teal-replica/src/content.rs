//! Sending content: read, cut into chunks, ask which of them the server lacks, send those.
//!
//! # Guarantees
//! 1. *Bounded*: at most [`HELD`] bytes of content and one chunk more are in memory.
//! 2. *Not twice*: a chunk the server has is not sent; one it has been sent stays in the list of
//!    this flush.
//! 3. Content that is long on its way is interrupted by what is due: [`SyncError::Later`]. What was
//!    sent stays at the server.
//! 4. Content that only the server has is never sent back as zeros.

use super::large::TimeSlice;
use super::note::{AppendedTail, DirtyContent};
use super::{Replica, SyncError, unexpected};
use serde_bytes::ByteBuf;
use std::collections::HashSet;
use std::io::{self, Read};
use teal_chunk::{ChunkSizes, ChunkStream};
use teal_log::{Store, StoreError};
use teal_proto::{ClientRequest, ServerReply};
use teal_types::ranges::ByteRanges;
use teal_types::{
    ChunkId, CommitSeq, ContentChange, ContentPiece, ObjectNo, Op, PieceSource, Timestamp,
};
use teal_volume::FsError;

/// Chunks gathered before the server is asked about them.
const GATHERED_BYTES_MAX: usize = 3 << 20;
const GATHERED_CHUNKS_MAX: usize = 1024;
/// Bytes read from the store at a time.
const STEP: u64 = 1 << 20;
/// The most pieces of one operation.
const PIECES_MAX: usize = 8192;

/// Chunks on their way.
pub(crate) struct ChunkSender<'a> {
    replica: &'a Replica,
    gathered: Vec<(ChunkId, Vec<u8>)>,
    gathered_bytes: usize,
    known: HashSet<ChunkId>,
    time_slice: TimeSlice,
}

/// A stretch of a file as a reader.
struct FileRangeReader<'a> {
    store: &'a Store,
    no: ObjectNo,
    at: u64,
    end: u64,
    failed: Option<StoreError>,
}

impl Read for FileRangeReader<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let len = (self.end - self.at).min(STEP).min(buf.len() as u64) as usize;
        match self.store.read(self.no, self.at, len) {
            Ok(bytes) => {
                buf[..bytes.len()].copy_from_slice(&bytes);
                self.at += bytes.len() as u64;
                Ok(bytes.len())
            }
            Err(e) => {
                self.failed = Some(e);
                Err(io::Error::other("the store"))
            }
        }
    }
}

impl<'a> ChunkSender<'a> {
    pub(crate) fn new(replica: &'a Replica) -> Self {
        Self {
            replica,
            gathered: Vec::new(),
            gathered_bytes: 0,
            known: HashSet::new(),
            time_slice: TimeSlice::new(replica),
        }
    }

    /// The operations that bring a file's changed content to the server; its chunks are sent, or
    /// held to be.
    pub(crate) fn add_file(
        &mut self,
        no: ObjectNo,
        dirty: &DirtyContent,
        ops: &mut Vec<Op>,
    ) -> Result<(), SyncError> {
        let attr = match self.replica.store().attr(no) {
            // Removed since the cut: the next batch says so.
            Err(StoreError::NotFound(_)) => return Ok(()),
            attr => attr?,
        };
        if let Some(tail) = &dirty.tail {
            if let Some(op) = self.add_tail(no, dirty.base, tail, attr.mtime)? {
                ops.push(op);
                return Ok(());
            }
            self.replica.forget_tail(no)?;
        }
        let is_new = dirty.base == CommitSeq::default() && dirty.least_size == 0;
        let absent = self.replica.note_of(no)?.absent;
        let mut pieces = Vec::new();
        for (from, to) in dirty
            .ranges
            .clipped_to(0, attr.size)
            .difference(&absent)
            .iter()
        {
            self.add_range(no, from, to, is_new, &mut pieces)?;
        }
        let mut change = ContentChange {
            cut: dirty.least_size.min(attr.size),
            size: attr.size,
            mtime: attr.mtime,
            pieces: Vec::new(),
        };
        let mut rest = &pieces[..];
        loop {
            let (now, later) = rest.split_at(rest.len().min(PIECES_MAX));
            change.pieces = now.to_vec();
            ops.push(Op::SetContent {
                object: no,
                base: dirty.base,
                change: change.clone(),
            });
            change.cut = attr.size;
            rest = later;
            if rest.is_empty() {
                return Ok(());
            }
        }
    }

    /// The operation that brings a tail to the server; `None` if something else was done to the
    /// content since the cut, or it is too large for one operation.
    fn add_tail(
        &mut self,
        no: ObjectNo,
        base: CommitSeq,
        tail: &AppendedTail,
        mtime: Timestamp,
    ) -> Result<Option<Op>, SyncError> {
        let mut pieces = Vec::new();
        if !self.replica.has_tail(no, tail)? {
            return Ok(None);
        }
        self.add_range(no, tail.from, tail.to, false, &mut pieces)?;
        // Looked at again: what was read is what the cut meant.
        if pieces.len() > PIECES_MAX || !self.replica.has_tail(no, tail)? {
            return Ok(None);
        }
        let seen_from_base = |at: u64| at - tail.from + tail.start;
        pieces
            .iter_mut()
            .for_each(|piece| piece.offset = seen_from_base(piece.offset));
        let change = ContentChange {
            cut: tail.start,
            size: seen_from_base(tail.to),
            mtime,
            pieces,
        };
        Ok(Some(Op::Append {
            object: no,
            base,
            change,
        }))
    }

    fn add_range(
        &mut self,
        no: ObjectNo,
        from: u64,
        to: u64,
        is_new: bool,
        pieces: &mut Vec<ContentPiece>,
    ) -> Result<(), SyncError> {
        let mut at = from;
        while at < to {
            let data = self
                .replica
                .store()
                .seek(no, at, false)?
                .unwrap_or(to)
                .clamp(at, to);
            if data > at && !is_new {
                pieces.push(ContentPiece {
                    offset: at,
                    len: data - at,
                    source: PieceSource::Hole,
                });
            }
            let hole = if data < to {
                self.replica
                    .store()
                    .seek(no, data, true)?
                    .unwrap_or(to)
                    .clamp(data, to)
            } else {
                to
            };
            self.add_data(no, data, hole, pieces)?;
            at = hole.max(data);
            if hole == data && data < to {
                // The file has become shorter.
                return Ok(());
            }
        }
        Ok(())
    }

    fn add_data(
        &mut self,
        no: ObjectNo,
        from: u64,
        to: u64,
        pieces: &mut Vec<ContentPiece>,
    ) -> Result<(), SyncError> {
        let mut at = from;
        let mut chunks = ChunkStream::new(
            FileRangeReader {
                store: self.replica.store(),
                no,
                at: from,
                end: to,
                failed: None,
            },
            ChunkSizes::DEFAULT,
        );
        while let Some(chunk) = chunks.next() {
            let Ok(chunk) = chunk else {
                let failed = chunks.source_mut().failed.take();
                return Err(failed.map_or(FsError::Stale, FsError::from).into());
            };
            let len = chunk.len() as u64;
            let id = self.add_chunk(chunk)?;
            pieces.push(ContentPiece {
                offset: at,
                len,
                source: PieceSource::Chunk { id, offset: 0 },
            });
            at += len;
        }
        Ok(())
    }

    fn add_chunk(&mut self, chunk: Vec<u8>) -> Result<ChunkId, SyncError> {
        let id = self.replica.chunk_domain()?.name_content(&chunk);
        if self.known.insert(id) {
            if self.gathered_bytes + chunk.len() > GATHERED_BYTES_MAX
                || self.gathered.len() >= GATHERED_CHUNKS_MAX
            {
                self.send_missing()?;
            }
            self.gathered_bytes += chunk.len();
            self.gathered.push((id, chunk));
        }
        Ok(id)
    }

    /// Sends what is held and the server lacks.
    pub(crate) fn send_missing(&mut self) -> Result<(), SyncError> {
        let held = std::mem::take(&mut self.gathered);
        self.gathered_bytes = 0;
        if held.is_empty() {
            return Ok(());
        }
        let chunks = held.iter().map(|(id, _)| *id).collect();
        let ServerReply::Missing(missing) =
            self.replica.ask_server(&ClientRequest::Have { chunks })?
        else {
            return Err(unexpected("to which chunks it has").into());
        };
        let missing: HashSet<u32> = missing.into_iter().collect();
        let chunks: Vec<ByteBuf> = (0..)
            .zip(held)
            .filter(|(at, _)| missing.contains(at))
            .map(|(_, (_, chunk))| ByteBuf::from(chunk))
            .collect();
        if chunks.is_empty() {
            return Ok(());
        }
        self.replica.counters().sent(
            chunks.len(),
            chunks.iter().map(|chunk| chunk.len() as u64).sum(),
        );
        match self.replica.ask_server(&ClientRequest::Put { chunks })? {
            ServerReply::Done if self.time_slice.is_over(self.replica)? => Err(SyncError::Later),
            ServerReply::Done => Ok(()),
            _ => Err(unexpected("to chunks").into()),
        }
    }
}

/// All of a file's content, for one that is to be sent as a whole.
pub(crate) fn whole_content(size: u64) -> DirtyContent {
    let mut ranges = ByteRanges::default();
    ranges.add(0, size.max(1));
    DirtyContent {
        base: CommitSeq::default(),
        least_size: u64::MAX,
        ranges,
        tail: None,
    }
}
