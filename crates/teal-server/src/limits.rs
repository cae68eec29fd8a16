//! Every bound of the server in one place; those of messages are in `teal_proto`, those of what a
//! volume can hold in `teal_types::limits`.

use std::time::Duration;

/// The most chunks of one replica that no commit has named; as many as a commit can pin.
pub const UNNAMED_CHUNKS_MAX: usize = teal_chunk::PINS_MAX;
/// Chunks that no commit has named are collected when they have not been sent or asked about for
/// this time.
pub const UNNAMED_GRACE: Duration = Duration::from_secs(3600);
/// An upload is in progress for as long as its replica asks or sends something so often.
pub const UPLOAD_ACTIVE: Duration = Duration::from_secs(90);
/// After this time an upload keeps nothing from being collected any more.
pub const UPLOAD_LONGEST: Duration = Duration::from_secs(30 * 24 * 3600);
/// Content that no commit has named leaves this part of what was free before it to the other
/// replicas, ...
pub const ROOM_FOR_OTHERS_SHARE: u64 = 10;
/// ... but at most so many bytes.
pub const ROOM_FOR_OTHERS_MAX: u64 = 4 << 30;
/// A replica that has asked for something so recently is live.
pub const LIVE_FOR: Duration = Duration::from_secs(60);
/// The most objects in one filter; beyond, its client is told everything.
pub const FILTER_MAX: usize = 1 << 16;
/// The most objects in all filters together.
pub(crate) const FILTERS_TOTAL: usize = 4 << 20;
/// The most filters of one replica; the oldest goes.
pub(crate) const FILTERS_EACH: usize = 4;
/// A filter that has been unused for this time is forgotten when another one begins.
pub(crate) const FILTER_FOR: Duration = Duration::from_secs(3600);
/// The most rows remembered of what the last commits of a volume changed.
pub(crate) const ROWS_MAX: usize = 1 << 17;
/// Up to this many waiting pulls of one volume are answered at once. Where more are notified, each
/// commit would make all of them ask again, so news is gathered first.
pub(crate) const GATHERING_FROM: u32 = 16;
/// The time for which news is gathered, for each of the notified pulls, ...
pub(crate) const GATHER_FOR_EACH: Duration = Duration::from_millis(2);
/// ... at most for this time.
pub(crate) const GATHER_MAX: Duration = Duration::from_secs(3);
/// The deepest directory that paths are shown for.
pub const DEPTH_MAX: usize = 4096;
/// Wrong tokens within [`GUESS_WINDOW`] after which none is looked at any more until it has passed.
pub const GUESSES_MAX: usize = 20;
/// See [`GUESSES_MAX`].
pub const GUESS_WINDOW: Duration = Duration::from_secs(60);
/// The number of names that may have changed in a small directory before it gets a snapshot.
pub(crate) const SNAPSHOT_MIN: u64 = 64;
/// Objects looked at in one go while a long answer is put together.
pub(crate) const PAGE: usize = 512;
/// The most changed objects remembered while history is scanned for one answer.
pub(crate) const SCAN_MAX: usize = 8192;
/// Conflicts or versions in one reply.
pub(crate) const NOTES_MAX: usize = 256;
/// Estimated bytes that a small piece of a reply takes beside its content.
pub(crate) const ITEM_BYTES: usize = 32;
/// Bytes looked at, at either end of what was appended, to tell text from other content.
pub(crate) const TEXT_SAMPLE: u64 = 64 << 10;
/// Files in a row, each saved over the one before, that are followed from one that is gone to the
/// one that lives.
pub(crate) const SUCCESSORS_MAX: usize = 1 << 14;
