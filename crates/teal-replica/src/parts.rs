//! The parts of a batch: its operations, gathered into messages of a bounded size, and sent one
//! after the other.
//!
//! # Guarantees
//! 1. *Order*: the operations reach the server in the order in which they were added.
//! 2. *Bounds*: no part but one of a single operation is larger than [`STAGE_BYTES`], and no batch
//!    is larger than [`BATCH_BYTES_MAX`].
//! 3. *Same digest*: both sides compute the digest of all parts, and the server commits only what
//!    was sent.

use super::{Replica, SyncError, unexpected};
use teal_device::UpstreamError;
use teal_proto::{ClientRequest, STAGE_BYTES, ServerReply, encode_ops};
use teal_types::limits::BATCH_BYTES_MAX;
use teal_types::{BatchNo, Incarnation, Op};

/// A batch of which the server has all parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StagedBatch {
    /// The number of its parts, at least one.
    pub(crate) parts: u32,
    /// The digest of all of them.
    pub(crate) digest: [u8; 32],
}

/// Sends the operations of a batch, part by part.
pub(crate) struct PartSender<'a> {
    replica: &'a Replica,
    incarnation: Incarnation,
    batch: BatchNo,
    /// The operations of the part that has not been sent yet, and their bytes.
    gathered: Vec<Op>,
    gathered_bytes: usize,
    batch_bytes: u64,
    parts: u32,
    digest: blake3::Hasher,
}

impl<'a> PartSender<'a> {
    pub(crate) fn new(replica: &'a Replica, batch: BatchNo) -> Self {
        Self {
            replica,
            incarnation: replica.identity().incarnation,
            batch,
            gathered: Vec::new(),
            gathered_bytes: 0,
            batch_bytes: 0,
            parts: 0,
            digest: blake3::Hasher::new(),
        }
    }

    /// Adds an operation, and sends what was gathered before if both do not fit into one part.
    ///
    /// # Errors
    /// [`SyncError::TooLarge`] for a batch that the server would refuse, because it is committed
    /// in one transaction; errors of sending.
    pub(crate) fn add_op(&mut self, op: Op) -> Result<(), SyncError> {
        let encoded = encode_ops(std::slice::from_ref(&op)).map_err(UpstreamError::from)?;
        let bytes = encoded.len();
        if self.gathered_bytes + bytes > STAGE_BYTES && !self.gathered.is_empty() {
            self.send_part()?;
        }
        self.gathered_bytes += bytes;
        self.batch_bytes += bytes as u64;
        if self.batch_bytes > BATCH_BYTES_MAX {
            return Err(SyncError::TooLarge);
        }
        self.gathered.push(op);
        Ok(())
    }

    /// Sends what is left; an empty batch has one empty part.
    ///
    /// # Errors
    /// Errors of sending.
    pub(crate) fn finish(mut self) -> Result<StagedBatch, SyncError> {
        debug_assert!(self.batch_bytes <= BATCH_BYTES_MAX);
        self.send_part()?;
        debug_assert!(self.parts > 0, "a batch has at least one part");
        Ok(StagedBatch {
            parts: self.parts,
            digest: *self.digest.finalize().as_bytes(),
        })
    }

    fn send_part(&mut self) -> Result<(), SyncError> {
        let ops = std::mem::take(&mut self.gathered);
        self.gathered_bytes = 0;
        self.digest
            .update(&encode_ops(&ops).map_err(UpstreamError::from)?);
        let request = ClientRequest::Stage {
            incarnation: self.incarnation,
            batch: self.batch,
            part: self.parts,
            ops,
        };
        self.parts += 1;
        match self.replica.ask_server(&request)? {
            ServerReply::Done => Ok(()),
            _ => Err(unexpected("to a part of a batch").into()),
        }
    }
}
