//! A replica's options for dealing with its server.

use std::time::Duration;

/// A replica's options for dealing with its server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UpstreamOptions {
    /// A change is sent at the latest after this time.
    pub flush_age: Duration,
    /// And while another client is connected after this one.
    pub live_age: Duration,
    /// A request waits for news for so long; a silent link is noticed by then.
    pub keep_alive: Duration,
    /// The longest that any other request may take.
    pub deadline: Duration,
    /// Makes `fsync` wait until the server has everything.
    pub sync_remote: bool,
    /// More content than this that a file has and the server lacks, in bytes, goes after all else.
    pub large: u64,
    /// At most so many bytes of content are here and not at the server; `None`: as many as fit.
    pub queue: Option<u64>,
    /// The most bytes of content that are prefetched for a reader.
    pub content_ahead: u64,
    /// At most so many entries of other directories come with a directory that is listed first.
    pub names_ahead: u32,
}

impl Default for UpstreamOptions {
    fn default() -> Self {
        Self {
            flush_age: Duration::from_secs(30),
            live_age: Duration::from_secs(1),
            keep_alive: Duration::from_secs(30),
            deadline: Duration::from_secs(20),
            sync_remote: false,
            large: 64 << 20,
            queue: None,
            content_ahead: 4 << 20,
            names_ahead: 8192,
        }
    }
}
