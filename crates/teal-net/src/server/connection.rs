//! One connection, from the handshake to its end.

use super::answer::{self, ServerSession};
use super::places::StrangerPlace;
use super::shared::{ServerOrder, ServerShared};
use crate::limits::TransportLimits;
use crate::peer::CertifiedPeer;
use crate::validity::CertificateValidity;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tokio_rustls::server::TlsStream;

/// Bytes that one request may send before the server has read them.
const STREAM_WINDOW: u32 = 1 << 20;
/// Bytes that all requests of a connection may send before the server has read them.
const CONNECTION_WINDOW: u32 = 4 << 20;
/// Bytes of a request's headers.
const HEADERS_MAX: u32 = 16 << 10;
/// For how long the other side is heard out after a failed handshake, so that it gets to read why.
const FAREWELL: Duration = Duration::from_secs(1);
/// Bytes that are passed over in that time.
const FAREWELL_BYTES: u64 = 64 << 10;

/// The server's knowledge of a peer when the time for its first request is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PeerAttention {
    /// Nothing yet.
    Unheard,
    /// A peer without a certificate has asked for something.
    Enrolling,
    /// A machine that has asked for something.
    Known,
}

/// Serves `tcp` until either side ends it.
pub(super) async fn serve_connection(
    shared: Arc<ServerShared>,
    tcp: TcpStream,
    place: StrangerPlace,
    mut orders: watch::Receiver<ServerOrder>,
) {
    // Small answers shall not wait for more.
    let _ = tcp.set_nodelay(true);
    let handshake = timeout(
        shared.limits.patience,
        shared.tls.accept(tcp).into_fallible(),
    );
    let shaken = tokio::select! {
        shaken = handshake => shaken,
        () = place.wait_until_lost() => {
            log::debug!("a connection is closed in its handshake: others want to be heard");
            return;
        }
        _ = orders.changed() => return,
    };
    // The place is for the handshake only.
    drop(place);
    match shaken {
        Err(_) => log::debug!("a connection is closed: no handshake in time"),
        Ok(Err((error, tcp))) => {
            log::debug!("a connection is closed: {error}");
            say_farewell(tcp).await;
        }
        Ok(Ok(tls)) => speak_http2(shared, tls, orders).await,
    }
}

/// Waits for the other side to have read the alert: closing with its bytes unread would take the
/// alert back.
async fn say_farewell(mut tcp: TcpStream) {
    let _ = tcp.shutdown().await;
    let mut rest = tcp.take(FAREWELL_BYTES);
    let _ = timeout(FAREWELL, tokio::io::copy(&mut rest, &mut tokio::io::sink())).await;
}

/// Returns the machine at the other end, if its certificate is of this server. A client without a
/// certificate may enrol, so that is no error.
fn recognise_visitor(
    shared: &ServerShared,
    tls: &TlsStream<TcpStream>,
) -> Option<(CertifiedPeer, CertificateValidity)> {
    let (_, connection) = tls.get_ref();
    let certificate = connection.peer_certificates()?.first()?;
    shared.identity.recognise_peer(certificate)
}

/// Returns how HTTP/2 is spoken within these limits. The transport itself refuses more requests at
/// a time than a machine's quota allows.
fn http2_settings(limits: &TransportLimits) -> http2::Builder<TokioExecutor> {
    let streams = u32::try_from(limits.requests_per_peer.max(1)).unwrap_or(u32::MAX);
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_header_list_size(HEADERS_MAX)
        .max_concurrent_streams(streams)
        .keep_alive_interval(limits.silence)
        .keep_alive_timeout(limits.patience);
    builder
}

/// Waits until the place of a stranger is lost to another; for ever without a place.
async fn wait_until_lost(place: Option<&StrangerPlace>) {
    match place {
        Some(place) => place.wait_until_lost().await,
        None => std::future::pending().await,
    }
}

/// Speaks HTTP/2 until either side ends the connection, or a stranger's time is over.
async fn speak_http2(
    shared: Arc<ServerShared>,
    tls: TlsStream<TcpStream>,
    mut orders: watch::Receiver<ServerOrder>,
) {
    let visitor = recognise_visitor(&shared, &tls);
    let session = Arc::new(ServerSession::new(shared.clone(), visitor, orders.clone()));
    // A peer without a quota stays among the strangers, and has only their time.
    let place = (!session.has_quota()).then(|| shared.strangers.take_place());
    let limits = &shared.limits;
    let serve = service_fn({
        let session = session.clone();
        move |request| {
            let answering = answer::answer_request(session.clone(), request);
            async move { Ok::<_, Infallible>(answering.await) }
        }
    });
    let http2 = http2_settings(limits);
    let mut connection = pin!(http2.serve_connection(TokioIo::new(tls), serve));
    let mut lost = pin!(wait_until_lost(place.as_ref()));
    let mut patience = pin!(sleep(limits.patience));
    let mut attention = PeerAttention::Unheard;
    let mut going = true;
    loop {
        tokio::select! {
            ended = connection.as_mut() => {
                if let Err(error) = ended {
                    log::debug!("a connection ended: {error}");
                }
                return;
            }
            _ = orders.changed(), if going => {
                // Told once; the connection then ends when its last answer is out.
                going = false;
                connection.as_mut().graceful_shutdown();
            }
            () = lost.as_mut() => {
                log::debug!("a connection of a stranger is closed: others want to be heard");
                return;
            }
            () = patience.as_mut(), if attention != PeerAttention::Known => {
                let has_asked = attention == PeerAttention::Unheard && session.was_heard();
                if !has_asked {
                    log::debug!("a connection is closed: nothing sensible came in time");
                    return;
                }
                attention = match place {
                    None => PeerAttention::Known,
                    Some(_) => PeerAttention::Enrolling,
                };
                // Enrolling may take thrice as long as everything before.
                patience.as_mut().reset(tokio::time::Instant::now() + limits.patience * 2);
            }
        }
    }
}
