//! The devices a client reads from and writes to: the server ([`Upstream`]), in this process or
//! over the network ([`RemoteServer`]), and drives ([`Drive`]), which a [`DriveWorker`] serves for
//! callers that must not wait.
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
mod upstream;
mod worker;

pub use drive::{
    DataPiece, Drive, DriveCapacity, DriveError, DriveLabel, FoundContent, HeldContent, HeldObject,
};
pub use remote::RemoteServer;
pub use upstream::{Upstream, UpstreamError};
pub use worker::DriveWorker;
