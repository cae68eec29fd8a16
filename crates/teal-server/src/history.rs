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
                let version = row
                    .map(|row| version::past_version(txn, object, row, seq))
                    .transpose()?;
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
            if !txn
                .object_at(dir, at)?
                .and_then(|(_, row)| row)
                .is_some_and(|row| row.kind.is_dir())
            {
                return Ok(ServerReply::PastNames {
                    names: None,
                    more: false,
                });
            }
            let mut names = txn.names_at(dir, at)?.names;
            names
                .drain(..after.map_or(0, |after| names.partition_point(|(name, _)| name <= after)));
            let mut bytes = 0;
            let weights = names
                .iter()
                .map(|(name, _)| ITEM_BYTES + name.as_bytes().len());
            // Names are counted by their bytes until the reply is full.
            let fit = weights.take_while(|weight| {
                bytes += weight;
                bytes <= REPLY_BYTES
            });
            let fit = fit.count();
            let more = fit < names.len();
            names.truncate(fit);
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
