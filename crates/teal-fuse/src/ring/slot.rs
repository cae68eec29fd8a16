//! One entry of a queue as its worker and the [`Reply`](crate::Reply) to its request share it.

use super::area::{Area, HEADERS_MAX};
use crate::abi::fuse_out_header;
use crate::transport::Outlet;
use parking_lot::{Condvar, Mutex};
use rustix::io::Errno;
use std::io::IoSlice;
use std::sync::Arc;
use zerocopy::{FromBytes, IntoBytes};

/// A staging buffer larger than this is given back after use.
const STAGED_KEPT: usize = 4096;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
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
struct Answer {
    stage: Stage,
    staged: Vec<u8>,
}

/// An entry: its memory, and how far its request has come.
///
/// The lock `answer` is taken before `area`, or `area` is only tried; the worker alone waits for
/// `area`, and holds it without `answer` while a handler reads a payload from it.
#[derive(Debug)]
pub(super) struct Slot {
    area: Arc<Mutex<Area>>,
    payload_max: usize,
    answer: Mutex<Answer>,
    changed: Condvar,
}

impl Slot {
    pub(super) fn new(payload_max: usize) -> Self {
        Self {
            area: Arc::new(Mutex::new(Area::new(payload_max))),
            payload_max,
            answer: Mutex::new(Answer {
                stage: Stage::Idle,
                staged: Vec::new(),
            }),
            changed: Condvar::new(),
        }
    }

    /// The memory, for the kernel.
    pub(super) fn area(&self) -> Arc<Mutex<Area>> {
        Arc::clone(&self.area)
    }

    /// Shows the request that has come to `serve`, and waits until it is answered; the number to
    /// commit, or `None` when the connection has ended. Where `serve` says that nobody will answer,
    /// `EIO` goes out. If the answer is not there when `serve` returns, `waits` is told before the
    /// wait and after it.
    pub(super) fn serve(
        &self,
        serve: impl FnOnce(&[u8]) -> bool,
        waits: impl Fn(bool),
    ) -> Option<u64> {
        let mut area = self.area.lock();
        let id = area.commit_id();
        {
            let mut answer = self.answer.lock();
            if answer.stage == Stage::Ended {
                return None;
            }
            answer.stage = Stage::Asked(id);
        }
        let is_taken = if area.has_payload() {
            let is_taken = serve(area.message());
            drop(area);
            is_taken
        } else {
            // The headers alone: the area is free for the answer.
            let (headers, length): ([u8; HEADERS_MAX], usize) = area.headers();
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
        if self.answer.lock().stage == Stage::Asked(id) {
            waits(true);
            let is_answered = self.answered();
            waits(false);
            return is_answered.then_some(id);
        }
        self.answered().then_some(id)
    }

    /// Waits for the answer and puts it where the kernel finds it; false when the connection has
    /// ended.
    fn answered(&self) -> bool {
        let mut answer = self.answer.lock();
        loop {
            match answer.stage {
                Stage::Answered {
                    header,
                    payload,
                    is_staged,
                } => {
                    let mut area = self.area.lock();
                    if is_staged {
                        area.put(&[IoSlice::new(&answer.staged)]);
                        if answer.staged.capacity() > STAGED_KEPT {
                            answer.staged = Vec::new();
                        }
                    }
                    area.head(&header, payload);
                    answer.stage = Stage::Idle;
                    return true;
                }
                Stage::Ended => return false,
                Stage::Idle | Stage::Asked(_) => self.changed.wait(&mut answer),
            }
        }
    }

    /// The connection has ended: whoever waits for an answer stops.
    pub(super) fn end(&self) {
        self.answer.lock().stage = Stage::Ended;
        self.changed.notify_all();
    }
}

impl Outlet for Slot {
    fn send(&self, parts: &[IoSlice<'_>]) -> Result<(), Errno> {
        let (head, pieces) = parts.split_first().ok_or(Errno::INVAL)?;
        let header = fuse_out_header::read_from_bytes(head).map_err(|_| Errno::INVAL)?;
        let payload = pieces.iter().map(|piece| piece.len()).sum();
        if payload > self.payload_max {
            return Err(Errno::INVAL);
        }
        let mut answer = self.answer.lock();
        match answer.stage {
            Stage::Asked(unique) if unique == header.unique => {}
            Stage::Ended => return Err(Errno::NODEV),
            _ => return Err(Errno::NOENT),
        }
        let is_staged = match self.area.try_lock() {
            Some(mut area) => {
                area.put(pieces);
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
        answer.stage = Stage::Answered {
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
