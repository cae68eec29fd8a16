//! One connection of a client: made, used by many requests at the same time, and given up when it
//! fails.

use super::options::ChannelOptions;
use crate::error::NetError;
use crate::tls::SERVER_NAME;
use crate::wire;
use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustix::net::sockopt::set_tcp_user_timeout;
use rustls::pki_types::ServerName;
use rustls::{AlertDescription, ClientConfig};
use std::error::Error as _;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use teal_types::Timestamp;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tonic::body::Body;
use tonic::client::{Grpc, GrpcService};
use tonic::{Code, Request, Status};
use tonic_prost::ProstCodec;

/// Bytes of one answer, and of all answers, that the server may send before the program has read
/// them.
const WINDOWS: (u32, u32) = (2 << 20, 8 << 20);

/// HTTP wants one; which server it is is certain by then.
const ORIGIN: &str = "https://teal";

/// One connection.
pub(crate) struct ClientConnection {
    sender: SendRequest<Body>,
    watch: Arc<ConnectionWatch>,
    address: String,
    /// Returns the end of the certificate that was shown.
    expires: Timestamp,
}

/// A record of what came over a connection.
#[derive(Default)]
struct ConnectionWatch {
    bytes: AtomicU64,
    /// Why TLS ended it: the layers above pass on the words only.
    tls: OnceLock<rustls::Error>,
}

/// The server's answer to a request, and its word on renewing.
pub(crate) struct UnaryAnswer<A> {
    pub(crate) result: Result<A, NetError>,
    pub(crate) is_due: bool,
}

/// The connection failed.
pub(crate) enum ConnectionLoss {
    /// Before the request was sent.
    Unsent(NetError),
    /// After that.
    Sent(NetError),
}

impl ClientConnection {
    pub(crate) async fn connect(
        address: &str,
        config: ClientConfig,
        expires: Timestamp,
        options: &ChannelOptions,
    ) -> Result<Self, NetError> {
        // The whole of TCP, TLS and HTTP/2 has to fit into the time.
        let within = options.connect_timeout;
        let made = timeout(within, Self::establish(address, config, expires, options)).await;
        made.unwrap_or_else(|_| {
            Err(unreachable_error(
                address,
                format!("no connection within {within:?}"),
            ))
        })
    }

    async fn establish(
        address: &str,
        config: ClientConfig,
        expires: Timestamp,
        options: &ChannelOptions,
    ) -> Result<Self, NetError> {
        let tcp = TcpStream::connect(address)
            .await
            .map_err(|e| unreachable_error(address, e.to_string()))?;
        // Small requests shall not wait for more.
        let _ = tcp.set_nodelay(true);
        // Without this the kernel goes on sending for a quarter of an hour, and a program that
        // needs the server would wait for the keep-alive, which is much longer: it must not take a
        // slow answer for a dead line.
        let unacknowledged = u32::try_from(options.unacknowledged.as_millis()).unwrap_or(u32::MAX);
        if let Err(error) = set_tcp_user_timeout(&tcp, unacknowledged) {
            log::debug!("a dead line will be noticed late: {error}");
        }
        // The name proves nothing, but TLS wants one.
        let name =
            ServerName::try_from(SERVER_NAME).map_err(|e| NetError::Protocol(e.to_string()))?;
        let tls = TlsConnector::from(Arc::new(config))
            .connect(name, tcp)
            .await
            .map_err(|e| match tls_error(&e) {
                Some(error) => explain_tls_error(address, error),
                None => unreachable_error(address, e.to_string()),
            })?;
        let watch = Arc::new(ConnectionWatch::default());
        let io = TokioIo::new(WatchedStream {
            inner: tls,
            watch: watch.clone(),
        });
        // The windows hold a whole answer, so that a large one does not wait for acknowledgements
        // on a long way.
        let made = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .initial_stream_window_size(WINDOWS.0)
            .initial_connection_window_size(WINDOWS.1)
            .keep_alive_interval(options.keep_alive)
            .keep_alive_timeout(options.keep_alive)
            .handshake(io)
            .await;
        let (sender, connection) = made.map_err(|e| unreachable_error(address, with_causes(&e)))?;
        // Ends when the last sender is gone and every answer has come, or when the connection
        // fails.
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                log::debug!("a connection ended: {error}");
            }
        });
        Ok(Self {
            sender,
            watch,
            address: address.to_owned(),
            expires,
        })
    }

    /// Returns whether nothing is known to be wrong with it.
    pub(crate) fn is_open(&self) -> bool {
        !self.sender.is_closed()
    }

    /// Returns how many bytes have come.
    pub(crate) fn bytes_heard(&self) -> u64 {
        self.watch.bytes.load(Ordering::Relaxed)
    }

    /// Returns the end of the certificate that was shown.
    pub(crate) fn certificate_end(&self) -> Timestamp {
        self.expires
    }

    /// Sends one request and waits for the answer, of `limit` bytes at most.
    pub(crate) async fn call_unary<Q, A>(
        &self,
        method: &'static str,
        request: Q,
        limit: usize,
    ) -> Result<UnaryAnswer<A>, ConnectionLoss>
    where
        Q: prost::Message + 'static,
        A: prost::Message + Default + 'static,
    {
        // An answer that is too large is refused while it arrives, before it takes memory.
        let mut grpc = Grpc::with_origin(
            RequestSender(self.sender.clone()),
            http::Uri::from_static(ORIGIN),
        )
        .max_decoding_message_size(limit);
        let path = http::uri::PathAndQuery::from_static(method);
        match grpc
            .unary(Request::new(request), path, ProstCodec::<Q, A>::default())
            .await
        {
            Ok(answer) => {
                let is_due = answer.metadata().contains_key(wire::RENEW_HEADER);
                Ok(UnaryAnswer {
                    result: Ok(answer.into_inner()),
                    is_due,
                })
            }
            // A status that the server has sent has no cause on this machine.
            Err(status) if status.source().is_none() => {
                let is_due = status.metadata().contains_key(wire::RENEW_HEADER);
                Ok(UnaryAnswer {
                    result: Err(self.error_of_status(&status)),
                    is_due,
                })
            }
            Err(status) => Err(self.connection_loss(&status)),
        }
    }

    fn connection_loss(&self, status: &Status) -> ConnectionLoss {
        // A status without a cause came over the wire.
        let Some(cause) = status.source() else {
            return ConnectionLoss::Sent(self.error_of_status(status));
        };
        // A failure of TLS explains more than the failure of HTTP that follows it.
        let error = match self.watch.tls.get() {
            Some(error) => explain_tls_error(&self.address, error),
            None => unreachable_error(&self.address, with_causes(cause)),
        };
        match cause.downcast_ref() {
            Some(SendError::Unsent(_)) => ConnectionLoss::Unsent(error),
            Some(SendError::Sent(_)) | None => ConnectionLoss::Sent(error),
        }
    }

    /// Returns what a status of the server means here.
    fn error_of_status(&self, status: &Status) -> NetError {
        let words = status.message().to_owned();
        match status.code() {
            Code::PermissionDenied => NetError::Refused(words),
            Code::ResourceExhausted => NetError::Busy(words),
            Code::Unauthenticated => NetError::Certificate(words),
            Code::OutOfRange => NetError::TooLarge(words),
            Code::Unavailable | Code::Cancelled | Code::DeadlineExceeded => {
                unreachable_error(&self.address, words)
            }
            _ => NetError::Protocol(format!("the server at {} answers: {words}", self.address)),
        }
    }
}

fn unreachable_error(address: &str, why: String) -> NetError {
    NetError::Unreachable {
        address: address.to_owned(),
        why,
    }
}

/// Returns the words of an error and of its causes.
fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.ends_with(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    text
}

fn tls_error(error: &io::Error) -> Option<&rustls::Error> {
    error.get_ref()?.downcast_ref()
}

/// Returns what a failure of TLS means to a person.
fn explain_tls_error(address: &str, error: &rustls::Error) -> NetError {
    use AlertDescription as Alert;
    match error {
        rustls::Error::InvalidCertificate(_) => NetError::Certificate(format!(
            "what answers at {address} is not the expected server: its certificate leads to \
             another fingerprint ({error})"
        )),
        rustls::Error::AlertReceived(
            Alert::UnknownCA
            | Alert::BadCertificate
            | Alert::CertificateUnknown
            | Alert::CertificateExpired
            | Alert::CertificateRevoked
            | Alert::UnsupportedCertificate
            | Alert::CertificateRequired
            | Alert::DecryptError
            | Alert::AccessDenied,
        ) => NetError::Certificate(format!(
            "the server at {address} does not accept this machine's certificate, which it has not \
             signed: enrol this \
             machine again ({error})"
        )),
        rustls::Error::InvalidMessage(_) => NetError::Protocol(format!(
            "what answers at {address} does not speak TLS: is it the right port? ({error})"
        )),
        _ => NetError::Protocol(format!(
            "no common language with what answers at {address}: {error}"
        )),
    }
}

/// A connection that is watched.
struct WatchedStream<S> {
    inner: S,
    watch: Arc<ConnectionWatch>,
}

impl<S: AsyncRead + Unpin> AsyncRead for WatchedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let polled = Pin::new(&mut self.inner).poll_read(cx, buf);
        match &polled {
            Poll::Ready(Ok(())) => {
                debug_assert!(buf.filled().len() >= before, "reading only adds bytes");
                self.watch
                    .bytes
                    .fetch_add((buf.filled().len() - before) as u64, Ordering::Relaxed);
            }
            Poll::Ready(Err(error)) => {
                if let Some(error) = tls_error(error) {
                    // The first is the cause of the others.
                    let _ = self.watch.tls.set(error.clone());
                }
            }
            Poll::Pending => {}
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WatchedStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, buf)
    }
    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(cx, bufs)
    }
    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

/// Says if a request that failed had left this machine.
#[derive(Debug, thiserror::Error)]
enum SendError {
    #[error("the connection was closed")]
    Unsent(#[source] hyper::Error),
    #[error("the connection failed")]
    Sent(#[source] hyper::Error),
}

/// A connection as tonic wants it.
struct RequestSender(SendRequest<Body>);

impl GrpcService<Body> for RequestSender {
    type ResponseBody = Incoming;
    type Error = SendError;
    type Future = Pin<Box<dyn Future<Output = Result<http::Response<Incoming>, SendError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), SendError>> {
        self.0.poll_ready(cx).map_err(SendError::Unsent)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let answer = self.0.try_send_request(request);
        Box::pin(async move {
            // hyper gives the request back if it has not sent any part of it.
            answer
                .await
                .map_err(|mut failed| match failed.take_message() {
                    Some(_) => SendError::Unsent(failed.into_error()),
                    None => SendError::Sent(failed.into_error()),
                })
        })
    }
}
