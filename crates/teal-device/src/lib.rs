//! The devices a client reads from and writes to: the server ([`Upstream`]), in this process or
//! over the network ([`RemoteServer`]), and drives ([`Drive`]), which a [`DriveWorker`] works for
//! those who must not wait.
//!
//! # Guarantees
//! 1. *Absent is not unreachable*: a server that cannot be asked is [`UpstreamError::Unreachable`];
//!    only the server itself can say that something is not there.
//! 2. *Deadlines*: no call outlasts its deadline by more than the time it takes to notice.

mod drive;
mod remote;
#[cfg(feature = "seeded-bugs")]
pub mod seeded;
#[cfg(not(feature = "seeded-bugs"))]
#[allow(unreachable_pub, dead_code, reason = "public with the feature only")]
mod seeded;
mod worker;

pub use drive::{
    DataPiece, Drive, DriveCapacity, DriveError, DriveLabel, FoundContent, HeldContent, HeldObject,
};
pub use remote::RemoteServer;
pub use worker::DriveWorker;

use std::time::Duration;
use teal_proto::{CodecError, Refused, Reply, Request};

/// Why a call has no reply.
#[derive(Debug, Clone, thiserror::Error)]
pub enum UpstreamError {
    /// The server cannot be asked now; what was asked may or may not have happened.
    #[error("the server cannot be reached: {0}")]
    Unreachable(String),
    /// The server, or the way to it, does not accept this client: asking again will not help.
    #[error("{0}")]
    Denied(String),
    /// The server's answer: no.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// One side says what the other does not understand.
    #[error(transparent)]
    Protocol(#[from] CodecError),
}

/// The server, as a client sees it. All methods may be called from any thread, several at a time.
pub trait Upstream: Send + Sync {
    /// Asks, and waits for the answer; never [`Reply::Refused`].
    ///
    /// # Errors
    /// [`UpstreamError`].
    fn call(&self, request: &Request, deadline: Duration) -> Result<Reply, UpstreamError>;

    /// Asks all of these, at the same time where that is possible, and waits for their answers, in
    /// their order.
    ///
    /// # Errors
    /// As [`call`](Self::call), for each.
    fn call_all(
        &self,
        requests: &[Request],
        deadline: Duration,
    ) -> Vec<Result<Reply, UpstreamError>> {
        requests
            .iter()
            .map(|request| self.call(request, deadline))
            .collect()
    }
}
