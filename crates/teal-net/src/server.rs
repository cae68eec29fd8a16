//! The server's side: listens, lets in, and stops.
//!
//! # Guarantees
//! 1. A machine that is slow, silent or talks nonsense costs one place among those in the
//!    handshake, or among the strangers, for a limited time, loses it to newcomers when there are
//!    no others, and costs other machines nothing.
//! 2. [`ListeningServer::stop`] returns by its deadline. Until then no new request is let in and
//!    those in progress are answered.

mod answer;
mod connection;
mod deference;
mod places;
mod quotas;
mod shared;

use crate::authority::ServerIdentity;
use crate::error::NetError;
use crate::limits::{TokenBucket, TransportLimits};
use parking_lot::Mutex;
use places::StrangerPlaces;
use quotas::ConnectionQuotas;
pub use shared::PeerService;
use shared::{ServerOrder, ServerShared};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use teal_env::Clock;
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;

/// A server that listens. Dropping it ends it at once; [`ListeningServer::stop`] lets requests in
/// progress finish.
#[derive(Debug)]
pub struct ListeningServer {
    address: SocketAddr,
    runtime: Handle,
    orders: watch::Sender<ServerOrder>,
    /// Ends with `true` if everything ended by itself.
    accepting: JoinHandle<bool>,
}

/// Serves `service` on `listener`, within `limits`, as `identity`, which judges certificates by
/// `clock`.
///
/// # Errors
/// The listener or the identity cannot be used.
pub fn serve(
    runtime: &Handle,
    listener: std::net::TcpListener,
    identity: ServerIdentity,
    limits: TransportLimits,
    clock: Arc<dyn Clock>,
    service: Arc<dyn PeerService>,
) -> Result<ListeningServer, NetError> {
    let unusable = |why: io::Error| NetError::Protocol(format!("cannot listen: {why}"));
    let address = listener.local_addr().map_err(unusable)?;
    // The program's listener blocks; tokio needs one that does not.
    listener.set_nonblocking(true).map_err(unusable)?;
    let tls = identity
        .tls_config()
        .map_err(|e| NetError::Certificate(format!("the server's identity is of no use: {e}")))?;
    // Registering the listener needs the runtime's context.
    let listener = {
        let _inside = runtime.enter();
        TcpListener::from_std(listener).map_err(unusable)?
    };
    let shared = Arc::new(ServerShared {
        tls: TlsAcceptor::from(Arc::new(tls)),
        quotas: ConnectionQuotas::new(&limits),
        handshakes: StrangerPlaces::new(limits.handshakes),
        strangers: StrangerPlaces::new(limits.strangers),
        requests: Arc::new(Semaphore::new(limits.requests.max(1))),
        enrolments: Mutex::new(TokenBucket::new(limits.enrolments_per_second)),
        identity,
        limits,
        clock,
        service,
    });
    let (course, orders) = watch::channel(ServerOrder::Serve);
    let accepting = runtime.spawn(accept_connections(shared, listener, orders));
    Ok(ListeningServer {
        address,
        runtime: runtime.clone(),
        orders: course,
        accepting,
    })
}

impl ListeningServer {
    /// Returns the address on which the server listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Lets no new request in and waits for those in progress, `within` at most; what lasts longer
    /// is cut off, though its [`PeerService::call`] goes on until it returns. Returns whether
    /// nothing was cut off.
    pub fn stop(mut self, within: Duration) -> bool {
        // The tasks may have ended already, so the result of sending is not looked at.
        self.orders.send_replace(ServerOrder::Stop(within));
        let runtime = self.runtime.clone();
        runtime.block_on(&mut self.accepting).unwrap_or(false)
    }
}

impl Drop for ListeningServer {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// Accepts connections until told to stop, then returns whether all of them ended in time.
async fn accept_connections(
    shared: Arc<ServerShared>,
    listener: TcpListener,
    mut orders: watch::Receiver<ServerOrder>,
) -> bool {
    let mut connections = JoinSet::new();
    let within = loop {
        tokio::select! {
            // An order that was sent before the receiver looked is found, too.
            _ = orders.changed() => match *orders.borrow_and_update() {
                ServerOrder::Stop(within) => break within,
                ServerOrder::Serve => {}
            },
            Some(_) = connections.join_next() => {}
            accepted = listener.accept() => match accepted {
                Ok((tcp, _)) => {
                    let place = shared.handshakes.take_place();
                    let orders = orders.clone();
                    let served = connection::serve_connection(shared.clone(), tcp, place, orders);
                    connections.spawn(served);
                }
                Err(error) => {
                    // Out of file descriptors, most likely: those in use come back.
                    log::warn!("a connection cannot be accepted: {error}");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            },
        }
    };
    // No further connection is accepted while the others end.
    drop(listener);
    let all_ended = async { while connections.join_next().await.is_some() {} };
    tokio::time::timeout(within, all_ended).await.is_ok()
}
