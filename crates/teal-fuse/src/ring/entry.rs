//! One entry of a queue, as its worker shares it with the [`ReplySender`](crate::ReplySender) of
//! its request.

use super::entry_memory::{EntryMemory, HEADERS_MAX};
use crate::abi::fuse_out_header;
use crate::transport::MessageSink;
use parking_lot::{Condvar, Mutex, MutexGuard};
use rustix::io::Errno;
use std::io::IoSlice;
use std::sync::Arc;
use zerocopy::{FromBytes, IntoBytes};

/// A staging buffer larger than this is given back after use.
const STAGED_KEPT: usize = 4096;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AnswerStage {
    /// No request has come yet, or the last one is answered and the answer on its way.
    Idle,
    /// The request with this number waits for its answer.
    Asked(u64),
    /// The answer is there: its payload of so many bytes is in the memory, or staged.
    Answered {
        header: fuse_out_header,
        payload: usize,
        is_staged: bool,
    },
    /// The connection has ended, and no answer is waited for any more.
    Ended,
}

#[derive(Debug)]
struct EntryAnswer {
    stage: AnswerStage,
    staged: Vec<u8>,
}

/// A moment at which the worker's readiness for other requests changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AnswerWait {
    /// The worker begins to wait for an answer from another thread.
    Begins,
    /// The wait is over.
    Ends,
}

/// An entry: its memory, and the progress of its request.
///
/// The lock `answer` is taken before `memory`, or `memory` is only tried; the worker alone waits
/// for `memory`, and holds it without `answer` while a handler reads a payload from it.
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

    /// Returns the memory, for the kernel.
    pub(super) fn memory(&self) -> Arc<Mutex<EntryMemory>> {
        Arc::clone(&self.memory)
    }

    /// Shows the request that has come to `serve`, and waits until it is answered. Returns the
    /// number to commit, or `None` when the connection has ended. If `serve` returns false, which
    /// means that there will be no answer, `EIO` goes out. If the answer is not there when `serve`
    /// returns, `on_wait` is called before the wait and after it.
    pub(super) fn serve_request(
        &self,
        serve: impl FnOnce(&[u8]) -> bool,
        on_wait: impl Fn(AnswerWait),
    ) -> Option<u64> {
        let memory = self.memory.lock();
        let id = memory.commit_id();
        {
            let mut answer = self.answer.lock();
            // The end may have come while the request was on its way.
            if answer.stage == AnswerStage::Ended {
                return None;
            }
            answer.stage = AnswerStage::Asked(id);
        }
        let is_taken = Self::show_request(memory, serve);
        if !is_taken {
            // Without an answer, the entry would be lost and its caller wait for ever.
            let refusal = fuse_out_header {
                len: 16,
                error: -Errno::IO.raw_os_error(),
                unique: id,
            };
            let _ = self.send(&[IoSlice::new(refusal.as_bytes())]);
        }
        let is_answered_already = self.answer.lock().stage != AnswerStage::Asked(id);
        if is_answered_already {
            return self.wait_for_answer().then_some(id);
        }
        on_wait(AnswerWait::Begins);
        let is_answered = self.wait_for_answer();
        on_wait(AnswerWait::Ends);
        is_answered.then_some(id)
    }

    /// Shows the request in the memory to `serve`, and returns its result.
    fn show_request(
        mut memory: MutexGuard<'_, EntryMemory>,
        serve: impl FnOnce(&[u8]) -> bool,
    ) -> bool {
        if memory.has_payload() {
            // The handler reads the payload in place, so the memory stays locked, and the answer is
            // staged.
            return serve(memory.request_message());
        }
        // Headers alone are a copy: the memory is free for the answer.
        let (headers, length): ([u8; HEADERS_MAX], usize) = memory.request_headers();
        drop(memory);
        serve(&headers[..length])
    }

    /// Waits for the answer and puts it into the memory for the kernel; false when the connection
    /// has ended.
    fn wait_for_answer(&self) -> bool {
        let mut answer = self.answer.lock();
        loop {
            match answer.stage {
                AnswerStage::Answered {
                    header,
                    payload,
                    is_staged,
                } => {
                    let mut memory = self.memory.lock();
                    if is_staged {
                        debug_assert_eq!(answer.staged.len(), payload);
                        memory.write_payload(&[IoSlice::new(&answer.staged)]);
                        // A large buffer is not kept for each of up to 128 entries.
                        if answer.staged.capacity() > STAGED_KEPT {
                            answer.staged = Vec::new();
                        }
                    }
                    memory.write_header(&header, payload);
                    answer.stage = AnswerStage::Idle;
                    return true;
                }
                AnswerStage::Ended => return false,
                AnswerStage::Idle | AnswerStage::Asked(_) => self.changed.wait(&mut answer),
            }
        }
    }

    /// Notes that the connection has ended, and wakes the worker if it waits for an answer.
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
            // Answered before, or another request by now.
            _ => return Err(Errno::NOENT),
        }
        // Never waits for the memory under the lock of the answer: a handler that answers from
        // within holds the memory itself.
        let is_staged = match self.memory.try_lock() {
            Some(mut memory) => {
                memory.write_payload(pieces);
                false
            }
            None => {
                answer.staged.clear();
                for piece in pieces {
                    answer.staged.extend_from_slice(piece);
                }
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
