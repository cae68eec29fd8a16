//! The transport between machines: opaque messages over gRPC over TLS, with certificates given out
//! for one-time tokens.
//!
//! # Guarantees
//! 1. *Known peers*: [`PeerService::call`] runs only for a machine that holds the key of a
//!    certificate which this server's own authority signed; the peer's identity comes from that
//!    certificate, and from nothing that the peer says.
//! 2. *Known server*: a client speaks only with a server that proves the authority with the
//!    [`Fingerprint`] that it was given at enrolment. Names and addresses prove nothing and may
//!    change.
//! 3. *Clocks lock no machine out*: a client does not judge a server's dates at all; a server
//!    judges a client's by its own clock, with [`GRACE`], and says what that clock shows when it
//!    refuses.
//! 4. *Bounds*: connections, requests in progress, requests per second and the bytes of a message
//!    have limits ([`TransportLimits`]); what exceeds them is refused in words, and others do not
//!    notice.
//! 5. *Deadlines*: [`Channel::call`] returns by its deadline; a channel outlives its connections
//!    and its server's restarts.
//! 6. *Synchronous*: no async in any signature. A tokio runtime is handed in: it has several
//!    threads, drivers for network and time, and more blocking threads than
//!    [`TransportLimits::requests`]. No function here may be called on one of its asynchronous
//!    tasks.
//!
//! The bytes and the text of the protocol are in `docs/protocol.md`, section Transport.

mod authority;
mod channel;
mod error;
mod fingerprint;
mod identity;
mod identity_file;
mod limits;
mod peer;
mod server;
mod tls;
mod validity;
mod wire;

pub use authority::ServerIdentity;
pub use channel::{Channel, ChannelOptions, enrol};
pub use error::{IdentityError, NetError};
pub use fingerprint::{Fingerprint, NotAFingerprint};
pub use identity::ClientIdentity;
pub use limits::TransportLimits;
pub use peer::CertifiedPeer;
pub use server::{ListeningServer, PeerService, serve};
pub use validity::{GRACE, LIFETIME};

#[cfg(test)]
mod tests;
