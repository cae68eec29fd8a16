//! The settings of a channel.

use std::time::Duration;

/// The settings of a [`Channel`](super::Channel).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChannelOptions {
    /// How long making a connection may take, of a call's deadline. 10 seconds.
    pub connect_timeout: Duration,
    /// While a request waits and nothing comes for this long, the server is asked for a sign of life; it has as long
    /// again to give it. 5 seconds.
    pub keep_alive: Duration,
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
            message_bytes: 4 << 20,
            delay: Duration::ZERO,
        }
    }
}
