//! Every bound of the protocol in one place.

use std::time::Duration;

/// The most bytes of one encoded message: a chunk of the largest size and its surroundings.
pub const MESSAGE_MAX: usize = (4 << 20) + (64 << 10);

/// Bytes of operations that a client gathers into one [`Stage`](crate::ClientRequest::Stage),
/// unless a single one is larger.
pub const STAGE_BYTES: usize = 1 << 20;

/// The most chunks asked for or announced in one message.
pub const CHUNKS_MAX: usize = 4096;

/// Bytes of versions or content in one reply, unless a single item is larger.
pub const REPLY_BYTES: usize = 1 << 20;

/// The most ranges or directories in one request.
pub const WANTS_MAX: usize = 1024;

/// The most earlier positions in one [`Hello`](crate::Hello).
pub const EARLIER_MAX: usize = 32;

/// The most objects in one [`Keep`](crate::ClientRequest::Keep).
pub const KEPT_MAX: usize = 8192;

/// The longest a server holds a [`Pull`](crate::ClientRequest::Pull) that has nothing to tell.
pub const WAIT_MAX: Duration = Duration::from_secs(300);

/// The most ranges that tell where content has changed; beyond, all of it has.
pub const RANGES_MAX: usize = 64;

/// The longest name of a device.
pub const DEVICE_NAME_MAX: usize = 63;

/// The most drives of one volume.
pub const DEVICES_MAX: usize = 256;

/// Returns whether a device may be called so: it is shown to people, and becomes a part of files'
/// names.
pub fn is_device_name(name: &str) -> bool {
    // A slash would end a component of a path, and control characters could forge lines.
    (1..=DEVICE_NAME_MAX).contains(&name.len()) && !name.chars().any(|c| c == '/' || c.is_control())
}
