//! The interface by which a program answers requests, and the state that the server's connections
//! share.

use super::places::StrangerPlaces;
use super::quotas::ConnectionQuotas;
use crate::authority::ServerIdentity;
use crate::limits::{TokenBucket, TransportLimits};
use crate::peer::CertifiedPeer;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use teal_env::Clock;
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;

/// The answers of a server. Every function is called on a blocking thread, from many at the same
/// time.
pub trait PeerService: Send + Sync + 'static {
    /// Answers one request of an enrolled machine; may take minutes. An answer larger than
    /// [`TransportLimits::message_bytes`] is replaced by an error. It isn't told when the machine
    /// gives up waiting.
    fn call(&self, peer: CertifiedPeer, request: &[u8]) -> Vec<u8>;

    /// Enrols the machine that shows a one-time token and the name of a device, and returns the
    /// peer it is from now on.
    ///
    /// # Errors
    /// Returns words for the person that typed the token: it is wrong, used, or too old.
    fn enrol(&self, token: &str, device: &str) -> Result<CertifiedPeer, String>;

    /// Refuses a peer that may not speak any more; called at every request.
    ///
    /// # Errors
    /// Returns words for the person at that machine.
    fn check_peer(&self, peer: CertifiedPeer) -> Result<(), String>;
}

/// The state that all connections of a server share.
pub(super) struct ServerShared {
    pub(super) identity: ServerIdentity,
    pub(super) limits: TransportLimits,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) service: Arc<dyn PeerService>,
    pub(super) tls: TlsAcceptor,
    pub(super) quotas: ConnectionQuotas,
    /// Connections in the handshake, of machines and strangers.
    pub(super) handshakes: Arc<StrangerPlaces>,
    /// Connections after the handshake that have shown no certificate.
    pub(super) strangers: Arc<StrangerPlaces>,
    /// Requests in progress.
    pub(super) requests: Arc<Semaphore>,
    /// Guards the measure of enrolments per second; held for a computation only.
    pub(super) enrolments: Mutex<TokenBucket>,
}

/// The order that [`ListeningServer`](super::ListeningServer) gives to its tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ServerOrder {
    Serve,
    /// No new request begins, and those in progress end within this time.
    Stop(Duration),
}
