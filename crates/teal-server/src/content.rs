//! Content put together from extents and chunks.
//!
//! # Guarantees
//! 1. What is answered is the content of the version that was asked for, or [`Got::Stale`]; damage
//!    is [`Got::Damaged`], never wrong bytes.
//! 2. A reply has at most about `REPLY_BYTES` of content, and always goes on from where it was
//!    asked.

use crate::limits::ITEM_BYTES;
use crate::list::check_count;
use crate::peer::Peer;
use crate::refusal::Outcome;
use crate::seeded::{Bug, bug};
use crate::server::Server;
use std::ops::Range;
use teal_chunk::ChunkError;
use teal_meta::{ExtentRow, ReadTransaction};
use teal_proto::{ContentAnswer, REPLY_BYTES, ReplyPiece, ServerReply, WantedRange};
use teal_types::ChunkId;

/// Extents looked at in one go.
const WINDOW: u64 = 4 << 20;
/// The longest stretch answered to one want, holes included.
const SPAN_MAX: u64 = 1 << 30;

/// The extents to read for one wanted range.
pub(crate) struct ReadPlan {
    pub(crate) len: u64,
    pub(crate) extents: Vec<ExtentRow>,
}

impl Server {
    pub(crate) fn read_content(&self, peer: Peer, wants: &[WantedRange]) -> Outcome<ServerReply> {
        check_count(wants.len())?;
        // One transaction for all wants, so that the answer is about one state.
        let plans = self.read(peer.volume, |txn| {
            let (mut plans, mut room) = (Vec::new(), REPLY_BYTES);
            for want in wants {
                // Every reply answers at least one want, so that the client gets on.
                if room <= ITEM_BYTES && !plans.is_empty() {
                    break;
                }
                plans.push(plan_read(txn, want, &mut room)?);
            }
            Ok(plans)
        })?;
        // Chunks never change, so they are read after the transaction.
        let mut last = None;
        let got = plans.into_iter().map(|plan| match plan {
            None => Ok(ContentAnswer::Stale),
            Some(plan) => self.fetch_content(&plan, &mut last),
        });
        Ok(ServerReply::Data(got.collect::<Outcome<_>>()?))
    }

    /// Reads what a plan says. `last`: the chunk that was read last, which often has the next piece
    /// too.
    pub(crate) fn fetch_content(
        &self,
        plan: &ReadPlan,
        last: &mut Option<(ChunkId, Vec<u8>)>,
    ) -> Outcome<ContentAnswer> {
        let mut pieces = Vec::with_capacity(plan.extents.len());
        for extent in &plan.extents {
            // Neighbouring extents often come from one chunk, which is read once.
            if last
                .as_ref()
                .is_none_or(|(chunk, _)| *chunk != extent.chunk)
            {
                match self.chunks().get(&extent.chunk) {
                    Ok(content) => *last = Some((extent.chunk, content)),
                    // Damage is an answer and no refusal, because other pieces may be whole.
                    Err(error @ (ChunkError::Absent { .. } | ChunkError::Damaged { .. })) => {
                        log::warn!("{error}");
                        return Ok(ContentAnswer::Damaged);
                    }
                    Err(error) => return Err(error.into()),
                }
            }
            let content = last.as_ref().map_or(&[][..], |(_, content)| content);
            let start = extent.start as usize;
            let Some(bytes) = usize::try_from(extent.len)
                .ok()
                .and_then(|len| content.get(start..start.checked_add(len)?))
            else {
                log::warn!(
                    "chunk {} is shorter than the extent that names it",
                    extent.chunk
                );
                return Ok(ContentAnswer::Damaged);
            };
            pieces.push(ReplyPiece {
                offset: extent.offset,
                bytes: bytes.to_vec().into(),
            });
        }
        self.counters()
            .count_sent(pieces.iter().map(|piece| piece.bytes.len()).sum());
        Ok(ContentAnswer::Is {
            len: plan.len,
            pieces,
        })
    }
}

/// Decides what to read for one wanted range, with `room` bytes left in the reply; `None` if the
/// content is another one by now.
fn plan_read(
    txn: &dyn ReadTransaction,
    want: &WantedRange,
    room: &mut usize,
) -> Outcome<Option<ReadPlan>> {
    let row = txn
        .object(want.object)?
        .filter(|row| row.data_seq == want.data_seq || bug(Bug::OtherContent));
    let Some(row) = row else { return Ok(None) };
    // A range beyond the end of the file is answered as far as it exists.
    let end = want
        .offset
        .saturating_add(want.len.min(SPAN_MAX))
        .min(row.size);
    let mut plan = ReadPlan {
        len: 0,
        extents: Vec::new(),
    };
    let mut at = want.offset;
    while at < end {
        // Extents are read window by window, so that a long want does not hold all of them in
        // memory.
        let to = end.min(at + WINDOW);
        let extents = txn.extents(want.object, at..to)?;
        let answered = plan.add_extents(&extents, at..to, room);
        debug_assert!(
            (at..=to).contains(&answered),
            "an answer lies within its window"
        );
        plan.len += answered - at;
        if answered < to {
            break;
        }
        at = to;
    }
    Ok(Some(plan))
}

impl ReadPlan {
    /// Takes up the extents of a range, cut to it and to the room in the reply. Returns up to where
    /// the range is answered.
    pub(crate) fn add_extents(
        &mut self,
        extents: &[ExtentRow],
        range: Range<u64>,
        room: &mut usize,
    ) -> u64 {
        for extent in extents {
            let start = extent.offset.max(range.start);
            let end = (extent.offset + extent.len).min(range.end);
            // Each piece takes some bytes beside its content.
            let free = room.saturating_sub(ITEM_BYTES) as u64;
            let len = (end - start).min(free);
            if len > 0 {
                *room -= usize::try_from(len).unwrap_or(0) + ITEM_BYTES;
                let inside = u32::try_from(start - extent.offset).unwrap_or(0);
                let start_in_chunk = extent.start.saturating_add(inside);
                self.extents.push(ExtentRow {
                    offset: start,
                    len,
                    chunk: extent.chunk,
                    start: start_in_chunk,
                });
            }
            // The room is used up, so the answer ends here.
            if len < end - start {
                return start + len;
            }
        }
        range.end
    }
}
