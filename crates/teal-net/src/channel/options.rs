//! The settings of a channel.

use std::time::Duration;

/// The settings of a [`Channel`](super::Channel).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChannelOptions {
    /// The time that making a connection may take, as a part of a call's deadline. 10 seconds.
    pub connect_timeout: Duration,
    /// While a request waits and nothing comes for this long, the server is asked for a sign of
    /// life; it has as long again to give it. 5 seconds.
    pub keep_alive: Duration,
    /// A connection is given up when the other machine's kernel has not acknowledged what was sent
    /// for about this time, counted from when it was sent a second time. A slow line, on which
    /// something arrives now and then, is not. 2 seconds.
    pub unacknowledged: Duration,
    /// Bytes of one message, request or answer. 4 MiB.
    pub message_bytes: usize,
    /// Added to each request and to each answer: a long way, for measurements. Zero.
    pub delay: Duration,
}

impl Default for ChannelOptions {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(10),
            keep_alive: Duration::from_secs(5),
            unacknowledged: Duration::from_secs(2),
            message_bytes: 4 << 20,
            delay: Duration::ZERO,
        }
    }
}
