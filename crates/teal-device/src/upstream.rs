//! The server, as a client sees it.

use std::time::Duration;
use teal_proto::{ClientRequest, CodecError, RefusalReply, ServerReply};

/// The reason for which a call has no reply.
#[derive(Debug, Clone, thiserror::Error)]
pub enum UpstreamError {
    /// The server cannot be asked now; a request that was sent may or may not have had its effect.
    #[error("the server cannot be reached: {0}")]
    Unreachable(String),
    /// The server, or the way to it, does not accept this client: asking again will not help.
    #[error("{0}")]
    Denied(String),
    /// The server has refused.
    #[error(transparent)]
    Refused(#[from] RefusalReply),
    /// One side does not understand the bytes of the other.
    #[error(transparent)]
    Protocol(#[from] CodecError),
}

/// The server, as a client sees it. All methods may be called from any thread, several at a time.
pub trait Upstream: Send + Sync {
    /// Sends a request and waits for the answer, which is never [`Reply::Refused`].
    ///
    /// # Errors
    /// [`UpstreamError`].
    fn call(
        &self,
        request: &ClientRequest,
        deadline: Duration,
    ) -> Result<ServerReply, UpstreamError>;

    /// Sends all of these, at the same time where that is possible, and waits for their answers, in
    /// their order.
    ///
    /// # Errors
    /// As [`call`](Self::call), for each.
    fn call_all(
        &self,
        requests: &[ClientRequest],
        deadline: Duration,
    ) -> Vec<Result<ServerReply, UpstreamError>> {
        // One after the other: an implementation that can do better has its own.
        let mut replies = Vec::with_capacity(requests.len());
        for request in requests {
            replies.push(self.call(request, deadline));
        }
        replies
    }
}
