//! Content on its way: chunks that were sent and that no commit has named yet, machine by machine.
//!
//! # Guarantees
//! 1. An upload in progress is never hurt by a collection: what was sent or asked about since its
//!    beginning stays.
//! 2. A machine that sends and never commits is slowed when room becomes short, and refused before
//!    the others have none.
//! 3. Of the uploads that failed because there was no room, the largest makes way when another
//!    machine needs it.

use crate::limits::{
    ROOM_FOR_OTHERS_MAX, ROOM_FOR_OTHERS_SHARE, UNNAMED_CHUNKS_MAX, UNNAMED_GRACE, UPLOAD_ACTIVE,
    UPLOAD_LONGEST,
};
use crate::peer::Peer;
use std::collections::{HashMap, HashSet};
use std::time::Duration;
use teal_types::ChunkId;

/// The content that one machine is sending.
#[derive(Debug)]
struct PeerUpload {
    /// Chunks without a name, and their bytes.
    chunks: HashMap<ChunkId, u64>,
    bytes: u64,
    begun: Duration,
    /// When it asked or sent something last.
    last_request: Duration,
    /// There was no room for it.
    has_failed: bool,
}

/// The uploads of all machines, and the times at which the chunks need care.
#[derive(Debug)]
pub(crate) struct UploadTracker {
    uploads: HashMap<Peer, PeerUpload>,
    /// The machines that have found no room since the last collection.
    without_room: HashSet<Peer>,
    /// When there may be something to collect.
    due: Option<Duration>,
    /// When the last collection began.
    last_collection: Option<Duration>,
    /// Packs since the last merge, at most.
    puts_since_merge: u32,
}

/// Says if content of a machine is taken now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UploadAdmission {
    /// At once.
    Now,
    /// After so long.
    After(Duration),
    /// Not before its commit: it has so many chunks of so many bytes that nothing names.
    Refused {
        /// The number of the chunks.
        chunks: usize,
        /// The size of the chunks together.
        bytes: u64,
    },
}

/// The longest that content is held back.
const SLOWED_BY: Duration = Duration::from_millis(200);

/// Returns how many bytes of the disk unnamed content must leave to others.
///
/// The share is of what uploads can use (`free`, and `unnamed`, what they have used), not of the
/// whole disk: on a disk that other files have nearly filled, an upload that fits must still go
/// through.
fn room_for_others(free: u64, unnamed: u64) -> u64 {
    (free.saturating_add(unnamed) / ROOM_FOR_OTHERS_SHARE).min(ROOM_FOR_OTHERS_MAX)
}

impl UploadTracker {
    /// Returns a tracker that knows no upload. A collection is due after the grace, because an
    /// earlier run of the server may have left content.
    pub(crate) fn new(now: Duration) -> Self {
        Self {
            uploads: HashMap::new(),
            without_room: HashSet::new(),
            due: Some(now + UNNAMED_GRACE),
            last_collection: None,
            puts_since_merge: 0,
        }
    }

    /// Notes that a machine asks about content, or is about to send some.
    pub(crate) fn touch_upload(&mut self, peer: Peer, now: Duration) {
        let upload = self.uploads.entry(peer).or_insert(PeerUpload {
            chunks: HashMap::new(),
            bytes: 0,
            begun: now,
            last_request: now,
            has_failed: false,
        });
        if now.saturating_sub(upload.last_request) >= UPLOAD_ACTIVE {
            // Another one begins: what it needs of the last it asks about again.
            upload.begun = now;
        }
        upload.last_request = now;
    }

    /// Decides whether so many bytes of a machine are taken; `free` is what the place of the chunks
    /// has room for, if it is known.
    pub(crate) fn admit_content(
        &self,
        peer: Peer,
        bytes: u64,
        free: Option<u64>,
    ) -> UploadAdmission {
        // A machine without unnamed content is always admitted, so that every machine gets on.
        let Some(upload) = self.uploads.get(&peer) else {
            return UploadAdmission::Now;
        };
        if upload.chunks.is_empty() {
            return UploadAdmission::Now;
        }
        let refused = UploadAdmission::Refused {
            chunks: upload.chunks.len(),
            bytes: upload.bytes,
        };
        if upload.chunks.len() >= UNNAMED_CHUNKS_MAX {
            return refused;
        }
        // Without knowledge of the free space, only the number of chunks is limited.
        let Some(free) = free else {
            return UploadAdmission::Now;
        };
        let unnamed = self.uploads.values().map(|upload| upload.bytes).sum();
        let kept = room_for_others(free, unnamed);
        if free < kept + bytes {
            refused
        } else if free < 2 * kept + bytes {
            UploadAdmission::After(SLOWED_BY)
        } else {
            UploadAdmission::Now
        }
    }

    /// Notes chunks that a machine has sent. Returns whether there may be many small packs by now.
    pub(crate) fn record_sent(
        &mut self,
        peer: Peer,
        chunks: impl IntoIterator<Item = (ChunkId, u64)>,
    ) -> bool {
        if let Some(upload) = self.uploads.get_mut(&peer) {
            upload.has_failed = false;
            for (chunk, bytes) in chunks {
                // A chunk that comes again does not count twice.
                if upload.chunks.insert(chunk, bytes).is_none() {
                    upload.bytes += bytes;
                }
            }
        }
        self.puts_since_merge += 1;
        self.puts_since_merge >= MERGED_AFTER
    }

    /// Notes that there was no room for content of a machine.
    pub(crate) fn record_no_room(&mut self, peer: Peer) {
        self.without_room.insert(peer);
        if let Some(upload) = self.uploads.get_mut(&peer) {
            upload.has_failed = true;
        }
    }

    /// Notes that a commit of a machine has named these chunks.
    pub(crate) fn record_named(&mut self, peer: Peer, chunks: &[ChunkId]) {
        let Some(upload) = self.uploads.get_mut(&peer) else {
            return;
        };
        for chunk in chunks {
            upload.bytes -= upload.chunks.remove(chunk).unwrap_or(0);
        }
        debug_assert!(
            !upload.chunks.is_empty() || upload.bytes == 0,
            "bytes are those of the chunks"
        );
        if upload.chunks.is_empty() {
            self.uploads.remove(&peer);
        }
    }

    /// Returns what a collection at `now` is to keep: what was sent or asked about after this time.
    pub(crate) fn keep_since(&self, now: Duration) -> Option<Duration> {
        // Without a shortage, everything younger than the grace stays.
        let mut since = if self.without_room.is_empty() {
            now.checked_sub(UNNAMED_GRACE)?
        } else {
            now
        };
        let yielding = self.yielding_upload();
        for (peer, upload) in &self.uploads {
            let is_active = now.saturating_sub(upload.last_request) < UPLOAD_ACTIVE;
            let is_too_long = now.saturating_sub(upload.begun) >= UPLOAD_LONGEST;
            if is_active && !is_too_long && Some(*peer) != yielding {
                // Chunks that came at the very moment of the beginning belong to the upload, hence
                // the nanosecond.
                since = since.min(upload.begun.checked_sub(Duration::from_nanos(1))?);
            }
        }
        Some(since)
    }

    /// Returns the machine whose upload gives way to the others: the largest of those that found
    /// no room, if another machine found none either.
    fn yielding_upload(&self) -> Option<Peer> {
        let failed = self.uploads.iter().filter(|(_, upload)| upload.has_failed);
        let (largest, _) = failed.max_by_key(|(peer, upload)| (upload.bytes, **peer))?;
        let is_other_short = self.without_room.iter().any(|short| short != largest);
        is_other_short.then_some(*largest)
    }

    /// Notes that a collection begins at `now` that keeps what [`keep_since`](Self::keep_since)
    /// says.
    pub(crate) fn begin_collection(&mut self, now: Duration) {
        debug_assert!(
            self.last_collection <= Some(now),
            "the clock does not go back"
        );
        self.without_room.clear();
        self.due = None;
        self.last_collection = Some(now);
    }

    /// Makes a collection due again that has failed.
    pub(crate) fn retry_collection(&mut self, now: Duration) {
        self.due = Some(now);
    }

    /// Returns what of the unnamed chunks is still here, after a collection.
    pub(crate) fn retain_present(
        &mut self,
        now: Duration,
        mut are_here: impl FnMut(&[ChunkId]) -> Vec<bool>,
    ) {
        for upload in self.uploads.values_mut() {
            let chunks: Vec<ChunkId> = upload.chunks.keys().copied().collect();
            for (chunk, is_here) in chunks.iter().zip(are_here(&chunks)) {
                if !is_here {
                    upload.bytes -= upload.chunks.remove(chunk).unwrap_or(0);
                }
            }
            debug_assert!(
                !upload.chunks.is_empty() || upload.bytes == 0,
                "bytes are those of the chunks"
            );
        }
        let mut is_something_left = false;
        self.uploads.retain(|_, upload| {
            let idle = now.saturating_sub(upload.last_request);
            let is_given_up = idle >= UNNAMED_GRACE;
            is_something_left |= is_given_up && !upload.chunks.is_empty();
            !is_given_up && (idle < UPLOAD_ACTIVE || !upload.chunks.is_empty())
        });
        if is_something_left {
            // Others have named it, or an upload in progress has kept it.
            self.due = Some(now + UNNAMED_GRACE);
        }
    }

    /// Notes that the small packs are being merged.
    pub(crate) fn begin_merge(&mut self) {
        self.puts_since_merge = 0;
    }

    /// Returns whether a machine has found no room since the last collection.
    pub(crate) fn is_short(&self) -> bool {
        !self.without_room.is_empty()
    }

    pub(crate) fn wants_merge(&self) -> bool {
        self.puts_since_merge >= MERGED_AFTER
    }

    /// Returns the time until a collection is due; `None` if only a request can make one due.
    pub(crate) fn time_until_collection(&self, now: Duration) -> Option<Duration> {
        // A machine waits for space, so a collection is due as soon as the last one is old enough.
        if !self.without_room.is_empty() {
            let soonest = match self.last_collection {
                Some(collected) => collected + BETWEEN_COLLECTIONS,
                None => Duration::ZERO,
            };
            return Some(soonest.saturating_sub(now));
        }
        let mut due = Vec::from_iter(self.due);
        for upload in self.uploads.values() {
            // An upload that has not been named by then was given up.
            if !upload.chunks.is_empty() {
                due.push(upload.last_request + UNNAMED_GRACE);
            }
        }
        Some(due.into_iter().min()?.saturating_sub(now))
    }
}

/// However short room is, history is not looked through more often.
const BETWEEN_COLLECTIONS: Duration = Duration::from_secs(5);
/// The number of puts after which there may be enough small packs to merge.
const MERGED_AFTER: u32 = 16;

#[cfg(test)]
mod tests;
