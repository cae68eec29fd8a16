//! Every bound of the server in one place; those of messages are in `teal_proto`.

use std::time::Duration;

/// The most bytes of operations one replica may have staged.
pub const STAGED_BYTES_MAX: u64 = 256 << 20;
/// The most parts one replica may have staged.
pub const STAGED_PARTS_MAX: usize = 4096;
/// A replica that has asked for something so recently is live.
pub const LIVE_FOR: Duration = Duration::from_secs(60);
/// The most objects in one filter; beyond, its client is told everything.
pub const FILTER_MAX: usize = 1 << 16;
/// The most objects in all filters together.
pub(crate) const FILTERS_TOTAL: usize = 4 << 20;
/// The most filters of one replica; the oldest goes.
pub(crate) const FILTERS_EACH: usize = 4;
/// A filter that nobody has used for so long is forgotten when another begins.
pub(crate) const FILTER_FOR: Duration = Duration::from_secs(3600);
/// The most rows remembered of what the last commits of a volume changed.
pub(crate) const ROWS_MAX: usize = 1 << 17;
/// So many of those who wait for news of one volume are told at once. Where more are to be told, one commit after the other would have all of them ask again.
pub(crate) const FEW: u32 = 16;
/// For each of those who are to be told, news is gathered for so long, ...
pub(crate) const GATHER_FOR_EACH: Duration = Duration::from_millis(2);
/// ... at most for this time.
pub(crate) const GATHER_MAX: Duration = Duration::from_secs(3);
/// The most bytes of extended attributes of one object: names and values.
pub const XATTR_BYTES_MAX: usize = 1 << 20;
/// The longest name of an extended attribute.
pub const XATTR_NAME_MAX: usize = 255;
/// The longest value of an extended attribute.
pub const XATTR_VALUE_MAX: usize = 64 << 10;
/// The most names of one object, so that a version fits into a message.
pub const LINKS_MAX: usize = 4096;
/// The longest target of a symbolic link.
pub const TARGET_MAX: usize = 4095;
/// The longest file, so that offsets fit into every database.
pub const FILE_MAX: u64 = 1 << 62;
/// The deepest directory that paths are shown for.
pub const DEPTH_MAX: usize = 4096;
/// Wrong tokens within [`GUESS_WINDOW`] after which none is looked at any more until it has passed.
pub const GUESSES_MAX: usize = 20;
/// See [`GUESSES_MAX`].
pub const GUESS_WINDOW: Duration = Duration::from_secs(60);
/// So many names may have changed in a directory before it gets a snapshot, however few it has.
pub(crate) const SNAPSHOT_MIN: u64 = 64;
/// Objects looked at in one go while a long answer is put together.
pub(crate) const PAGE: usize = 512;
/// The most changed objects remembered while history is scanned for one answer.
pub(crate) const SCAN_MAX: usize = 8192;
/// Conflicts or versions in one reply.
pub(crate) const NOTES_MAX: usize = 256;
/// Estimated bytes that a small piece of a reply takes beside its content.
pub(crate) const ITEM_BYTES: usize = 32;
