//! The server's side: listens, lets in, and stops.
//!
//! # Guarantees
//! 1. Whoever is slow, silent or talks nonsense costs one place among those in the handshake, or among the strangers, for a limited
//!    time, loses it to newcomers when there are no others, and costs nobody else anything.
//! 2. [`Listening::stop`] returns by its deadline. Until then no new request is let in and those in progress are answered.

mod answer;
mod connection;
mod places;
mod seats;

use crate::authority::ServerIdentity;
use crate::error::NetError;
use crate::limits::{Bucket, Limits};
use parking_lot::Mutex;
use places::Places;
use seats::Seats;
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

/// One enrolled machine, as far as this crate is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Peer {
    /// The volume that the machine takes part in.
    pub volume: u32,
    /// Which of the volume's replicas it is.
    pub replica: u32,
}

/// What a server does. Every function is called on a blocking thread, from many at the same time.
pub trait Service: Send + Sync + 'static {
    /// Answers one request of an enrolled machine; may take minutes. An answer larger than [`Limits::message_bytes`] is
    /// replaced by an error. That the machine gave up waiting is not noticed here.
    fn call(&self, peer: Peer, request: &[u8]) -> Vec<u8>;

    /// Someone shows a one-time token and the name of a device: who are they from now on?
    ///
    /// # Errors
    /// Words for the person who typed the token: it is wrong, used, too old.
    fn enrol(&self, token: &str, device: &str) -> Result<Peer, String>;

    /// Whether `peer` may still speak; asked at every request.
    ///
    /// # Errors
    /// Words for the person at that machine.
    fn welcome(&self, peer: Peer) -> Result<(), String>;
}

/// What all connections of a server share.
struct Shared {
    identity: ServerIdentity,
    limits: Limits,
    clock: Arc<dyn Clock>,
    service: Arc<dyn Service>,
    tls: TlsAcceptor,
    seats: Seats,
    /// Connections in the handshake, of machines and strangers.
    handshakes: Arc<Places>,
    /// Connections after the handshake of those who have shown no certificate.
    strangers: Arc<Places>,
    /// Requests in progress.
    requests: Arc<Semaphore>,
    /// Guards the measure of enrolments per second; held for a computation only.
    enrolments: Mutex<Bucket>,
}

/// What [`Listening`] tells its tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Course {
    Go,
    /// End, what is in progress within this time.
    Stop(Duration),
}

/// A server that listens. Dropping it ends it at once; [`Listening::stop`] lets requests in progress finish.
#[derive(Debug)]
pub struct Listening {
    address: SocketAddr,
    runtime: Handle,
    course: watch::Sender<Course>,
    /// Answers whether everything ended by itself.
    accepting: JoinHandle<bool>,
}

/// Serves `service` on `listener`, within `limits`, as `identity`, which judges certificates by `clock`.
///
/// # Errors
/// The listener or the identity cannot be used.
pub fn serve(
    runtime: &Handle,
    listener: std::net::TcpListener,
    identity: ServerIdentity,
    limits: Limits,
    clock: Arc<dyn Clock>,
    service: Arc<dyn Service>,
) -> Result<Listening, NetError> {
    let unusable = |why: io::Error| NetError::Protocol(format!("cannot listen: {why}"));
    let address = listener.local_addr().map_err(unusable)?;
    listener.set_nonblocking(true).map_err(unusable)?;
    let tls = identity
        .tls()
        .map_err(|e| NetError::Certificate(format!("the server's identity is of no use: {e}")))?;
    let listener = {
        let _inside = runtime.enter();
        TcpListener::from_std(listener).map_err(unusable)?
    };
    let shared = Arc::new(Shared {
        tls: TlsAcceptor::from(Arc::new(tls)),
        seats: Seats::new(&limits),
        handshakes: Places::new(limits.handshakes),
        strangers: Places::new(limits.strangers),
        requests: Arc::new(Semaphore::new(limits.requests.max(1))),
        enrolments: Mutex::new(Bucket::new(limits.enrolments_per_second)),
        identity,
        limits,
        clock,
        service,
    });
    let (course, orders) = watch::channel(Course::Go);
    let accepting = runtime.spawn(accept(shared, listener, orders));
    Ok(Listening {
        address,
        runtime: runtime.clone(),
        course,
        accepting,
    })
}

impl Listening {
    /// Where the server listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Lets no new request in and waits for those in progress, `within` at most; what lasts longer is cut off, though its
    /// [`Service::call`] goes on until it returns. Says whether nothing was cut off.
    pub fn stop(mut self, within: Duration) -> bool {
        self.course.send_replace(Course::Stop(within));
        let runtime = self.runtime.clone();
        runtime.block_on(&mut self.accepting).unwrap_or(false)
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// Takes connections until told to stop.
async fn accept(
    shared: Arc<Shared>,
    listener: TcpListener,
    mut orders: watch::Receiver<Course>,
) -> bool {
    let mut connections = JoinSet::new();
    let within = loop {
        tokio::select! {
            _ = orders.changed() => match *orders.borrow_and_update() {
                Course::Stop(within) => break within,
                Course::Go => {}
            },
            Some(_) = connections.join_next() => {}
            accepted = listener.accept() => match accepted {
                Ok((tcp, _)) => {
                    let place = shared.handshakes.take();
                    connections.spawn(connection::serve(shared.clone(), tcp, place, orders.clone()));
                }
                Err(error) => {
                    // Out of file descriptors, most likely: those in use come back.
                    log::warn!("a connection cannot be accepted: {error}");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            },
        }
    };
    drop(listener);
    let all_ended = async { while connections.join_next().await.is_some() {} };
    tokio::time::timeout(within, all_ended).await.is_ok()
}
