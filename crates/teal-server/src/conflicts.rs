//! Conflicts, which are listed for people until they are resolved.

use crate::limits::NOTES_MAX;
use crate::peer::Peer;
use crate::refusal::Outcome;
use crate::server::Server;
use crate::version::path_of;
use teal_proto::{ConflictNote, REPLY_BYTES, ServerReply};

impl Server {
    pub(crate) fn answer_conflicts(&self, peer: Peer, after: u64) -> Outcome<ServerReply> {
        self.read(peer.volume, |txn| {
            let (mut notes, mut bytes) = (Vec::new(), 0);
            for (id, row) in txn.conflicts_after(after, NOTES_MAX)? {
                let path_now = path_of(txn, row.object)?;
                let copy_path = row
                    .copy
                    .map(|copy| path_of(txn, copy))
                    .transpose()?
                    .unwrap_or_default();
                // About the size of the note in a message.
                bytes += path_now.len() + copy_path.len() + row.lost.len() + 128;
                // One conflict always goes in, so that the client gets on.
                if !notes.is_empty() && bytes > REPLY_BYTES {
                    break;
                }
                notes.push(ConflictNote {
                    id,
                    kind: row.kind,
                    seq: row.seq,
                    time: row.time,
                    device: row.device,
                    object: row.object,
                    path: path_now,
                    copy: row.copy,
                    copy_path,
                    lost: row.lost,
                });
            }
            Ok(ServerReply::Conflicts(notes))
        })
    }

    /// Marks a conflict as resolved. Resolving one twice is no error.
    pub(crate) fn resolve_conflict(&self, peer: Peer, conflict: u64) -> Outcome<ServerReply> {
        self.write(peer.volume, |txn| {
            // A conflict that was resolved before is gone, which is no error.
            if txn.conflict(conflict)?.is_some() {
                txn.put_conflict(conflict, None)?;
            }
            Ok(ServerReply::Done)
        })
    }
}
