//! One entry of a queue as its worker and the [`Reply`](crate::Reply) to its request share it.

use super::entry_memory::{EntryMemory, HEADERS_MAX};
use crate::abi::fuse_out_header;
use crate::transport::MessageSink;
use parking_lot::{Condvar, Mutex};
use rustix::io::Errno;
use std::io::IoSlice;
use std::sync::Arc;
use zerocopy::{FromBytes, IntoBytes};

/// A staging buffer larger than this is given back after use.
const STAGED_KEPT: usize = 4096;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AnswerStage {
    /// Nothing was asked yet, or what was asked is answered and on its way.
    Idle,
    /// The request with this number waits for its answer.
    Asked(u64),
    /// The answer is there: its payload of so many bytes is in the area, or staged.
    Answered {
        header: fuse_out_header,
        payload: usize,
        is_staged: bool,
    },
    /// The connection has ended: nobody waits for answers any more.
    Ended,
}

#[derive(Debug)]
struct EntryAnswer {
    stage: AnswerStage,
    staged: Vec<u8>,
}

/// An entry: its memory, and how far its request has come.
///
/// The lock `answer` is taken before `area`, or `area` is only tried; the worker alone waits for
/// `area`, and holds it without `answer` while a handler reads a payload from it.
#[derive(Debug)]
pub(super) struct RingEntry {
    memory: Arc<Mutex<EntryMemory>>,
    payload_max: usize,
    answer: Mutex<EntryAnswer>,
    changed: Condvar,
}

impl RingEntry {
    pub(super) fn new(payload_max: usize) -> Self {
        Self {
            memory: Arc::new(Mutex::new(EntryMemory::new(payload_max))),
            payload_max,
            answer: Mutex::new(EntryAnswer {
                stage: AnswerStage::Idle,
                staged: Vec::new(),
            }),
            changed: Condvar::new(),
        }
    }

    /// The memory, for the kernel.
    pub(super) fn memory(&self) -> Arc<Mutex<EntryMemory>> {
        Arc::clone(&self.memory)
    }

    /// Shows the request that has come to `serve`, and waits until it is answered; the number to
    /// commit, or `None` when the connection has ended. Where `serve` says that nobody will answer,
    /// `EIO` goes out. If the answer is not there when `serve` returns, `waits` is told before the
    /// wait and after it.
    pub(super) fn serve_request(
        &self,
        serve: impl FnOnce(&[u8]) -> bool,
        waits: impl Fn(bool),
    ) -> Option<u64> {
        let mut area = self.memory.lock();
        let id = area.commit_id();
        {
            let mut answer = self.answer.lock();
            if answer.stage == AnswerStage::Ended {
                return None;
            }
            answer.stage = AnswerStage::Asked(id);
        }
        let is_taken = if area.has_payload() {
            let is_taken = serve(area.request_message());
            drop(area);
            is_taken
        } else {
            // The headers alone: the area is free for the answer.
            let (headers, length): ([u8; HEADERS_MAX], usize) = area.request_headers();
            drop(area);
            serve(&headers[..length])
        };
        if !is_taken {
            let refusal = fuse_out_header {
                len: 16,
                error: -Errno::IO.raw_os_error(),
                unique: id,
            };
            let _ = self.send(&[IoSlice::new(refusal.as_bytes())]);
        }
        if self.answer.lock().stage == AnswerStage::Asked(id) {
            waits(true);
            let is_answered = self.wait_for_answer();
            waits(false);
            return is_answered.then_some(id);
        }
        self.wait_for_answer().then_some(id)
    }

    /// Waits for the answer and puts it where the kernel finds it; false when the connection has
    /// ended.
    fn wait_for_answer(&self) -> bool {
        let mut answer = self.answer.lock();
        loop {
            match answer.stage {
                AnswerStage::Answered {
                    header,
                    payload,
                    is_staged,
                } => {
                    let mut area = self.memory.lock();
                    if is_staged {
                        area.write_payload(&[IoSlice::new(&answer.staged)]);
                        if answer.staged.capacity() > STAGED_KEPT {
                            answer.staged = Vec::new();
                        }
                    }
                    area.write_header(&header, payload);
                    answer.stage = AnswerStage::Idle;
                    return true;
                }
                AnswerStage::Ended => return false,
                AnswerStage::Idle | AnswerStage::Asked(_) => self.changed.wait(&mut answer),
            }
        }
    }

    /// The connection has ended: whoever waits for an answer stops.
    pub(super) fn mark_ended(&self) {
        self.answer.lock().stage = AnswerStage::Ended;
        self.changed.notify_all();
    }
}

impl MessageSink for RingEntry {
    fn send(&self, parts: &[IoSlice<'_>]) -> Result<(), Errno> {
        let (head, pieces) = parts.split_first().ok_or(Errno::INVAL)?;
        let header = fuse_out_header::read_from_bytes(head).map_err(|_| Errno::INVAL)?;
        let payload = pieces.iter().map(|piece| piece.len()).sum();
        if payload > self.payload_max {
            return Err(Errno::INVAL);
        }
        let mut answer = self.answer.lock();
        match answer.stage {
            AnswerStage::Asked(unique) if unique == header.unique => {}
            AnswerStage::Ended => return Err(Errno::NODEV),
            _ => return Err(Errno::NOENT),
        }
        let is_staged = match self.memory.try_lock() {
            Some(mut area) => {
                area.write_payload(pieces);
                false
            }
            None => {
                answer.staged.clear();
                pieces
                    .iter()
                    .for_each(|piece| answer.staged.extend_from_slice(piece));
                true
            }
        };
        answer.stage = AnswerStage::Answered {
            header,
            payload,
            is_staged,
        };
        self.changed.notify_one();
        Ok(())
    }
}

#[cfg(test)]
mod tests;
