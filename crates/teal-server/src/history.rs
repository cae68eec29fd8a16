//! Versions of the past, and their content.

use crate::content::ReadPlan;
use crate::limits::{ITEM_BYTES, NOTES_MAX};
use crate::peer::Peer;
use crate::refusal::{Outcome, bad_request};
use crate::rules::overlay::ContentOverlay;
use crate::server::Server;
use crate::version;
use teal_meta::ExtentRow;
use teal_proto::{ContentAnswer, REPLY_BYTES, ServerReply, VersionNote};
use teal_types::{CommitSeq, Name, ObjectNo};

impl Server {
    pub(crate) fn answer_history(
        &self,
        peer: Peer,
        object: ObjectNo,
        after: CommitSeq,
    ) -> Outcome<ServerReply> {
        self.read(peer.volume, |txn| {
            let (mut notes, mut bytes) = (Vec::new(), 0);
            for (seq, row) in txn.object_history(object, after, NOTES_MAX)? {
                // A row without a state says that the object was removed.
                let version = match row {
                    Some(row) => Some(version::past_version(txn, object, row, seq)?),
                    None => None,
                };
                bytes += version.as_ref().map_or(1, version::message_weight);
                if !notes.is_empty() && bytes > REPLY_BYTES {
                    break;
                }
                let Some(commit) = txn.commit(seq)? else {
                    continue;
                };
                notes.push(VersionNote {
                    seq,
                    time: commit.time,
                    batch: commit.batch,
                    version,
                });
            }
            Ok(ServerReply::History(notes))
        })
    }

    /// Reads what the directory held then, about, for each answer (`commit/snapshots.rs`).
    pub(crate) fn answer_list_past(
        &self,
        peer: Peer,
        dir: ObjectNo,
        at: CommitSeq,
        after: Option<&Name>,
    ) -> Outcome<ServerReply> {
        self.read(peer.volume, |txn| {
            let was_dir = match txn.object_at(dir, at)? {
                Some((_, Some(row))) => row.kind.is_dir(),
                Some((_, None)) | None => false,
            };
            if !was_dir {
                return Ok(ServerReply::PastNames {
                    names: None,
                    more: false,
                });
            }
            let mut names = txn.names_at(dir, at)?.names;
            if let Some(after) = after {
                names.retain(|(name, _)| name > after);
            }
            let more = truncate_to_reply(&mut names);
            Ok(ServerReply::PastNames {
                names: Some(names),
                more,
            })
        })
    }

    pub(crate) fn answer_read_past(
        &self,
        peer: Peer,
        object: ObjectNo,
        at: CommitSeq,
        offset: u64,
        len: u64,
    ) -> Outcome<ServerReply> {
        // Bounded, because the content is put together in memory.
        if len > REPLY_BYTES as u64 {
            return bad_request(format!(
                "{len} bytes at once; at most {REPLY_BYTES} are allowed in one message"
            ));
        }
        let (version, plan) = self.read(peer.volume, |txn| {
            let mut plan = ReadPlan {
                len: 0,
                extents: Vec::new(),
            };
            let row = txn.object_at(object, at)?.and_then(|(_, row)| row);
            let Some(row) = row else {
                return Ok((None, plan));
            };
            let end = offset.saturating_add(len).min(row.size);
            if offset < end {
                let overlay =
                    ContentOverlay::of_history(&txn.extents_at(object, offset..end, at)?, row.size);
                let is_inside =
                    |extent: &ExtentRow| extent.offset < end && extent.offset + extent.len > offset;
                let extents: Vec<ExtentRow> = overlay.extents().filter(is_inside).collect();
                // The pieces have an overhead of their own, which must not cut the answer short.
                let mut room = REPLY_BYTES + (1 << 10);
                plan.len = plan.add_extents(&extents, offset..end, &mut room) - offset;
            }
            Ok((Some(version::past_version(txn, object, row, at)?), plan))
        })?;
        // No content was asked for, or the object has none there.
        let got = if plan.len == 0 {
            ContentAnswer::Is {
                len: 0,
                pieces: Vec::new(),
            }
        } else {
            self.fetch_content(&plan, &mut None)?
        };
        Ok(ServerReply::Past { version, got })
    }
}

/// Drops the names behind those that one reply has room for. Returns whether there were any.
fn truncate_to_reply(names: &mut Vec<(Name, ObjectNo)>) -> bool {
    let mut bytes = 0;
    for (at, (name, _)) in names.iter().enumerate() {
        bytes += ITEM_BYTES + name.as_bytes().len();
        if bytes > REPLY_BYTES {
            names.truncate(at);
            return true;
        }
    }
    false
}
