//! The three methods of the server, their limits, and the words in which requests beyond them are
//! refused.
//!
//! # Guarantees
//! 1. A request takes its place under the limits before its body is read, and keeps it until the
//!    service has returned, even if the client does not wait for the answer any more.
//! 2. A peer is the one that the certificate of the connection names. The certificate is judged at
//!    every request, by the clock of that moment.

use super::quotas::{ConnectionQuota, UsageAccount};
use super::shared::{ServerOrder, ServerShared};
use crate::limits::WAIT;
use crate::peer::CertifiedPeer;
use crate::validity::{CertificateAge, CertificateValidity, date_text};
use crate::wire::{self, CertifiedKey, EnrolRequest, Payload, RenewRequest};
use hyper::body::Incoming;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::{sleep, timeout};
use tonic::body::Body;
use tonic::metadata::MetadataValue;
use tonic::server::{Grpc, UnaryService};
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;

/// Bytes of an `Enrol` or `Renew` request.
const SMALL_MESSAGE_MAX: usize = 4 << 10;
/// Bytes of a token, and of a device's name.
const WORD_MAX: usize = 256;
/// Bytes of an Ed25519 public key.
const KEY_BYTES: usize = 32;
/// Characters of a refusal; it travels in a header.
const REFUSAL_MAX: usize = 1000;

/// One connection after its handshake.
pub(super) struct ServerSession {
    shared: Arc<ServerShared>,
    visitor: Option<CertifiedVisitor>,
    orders: watch::Receiver<ServerOrder>,
    heard: AtomicBool,
}

struct CertifiedVisitor {
    peer: CertifiedPeer,
    validity: CertificateValidity,
    /// Or why there is none.
    quota: Result<ConnectionQuota, String>,
}

/// The places that a request in progress holds.
struct RequestPermits {
    shared: Arc<ServerShared>,
    usage: UsageAccount,
    /// Monotonic time at which the request was let through.
    begun: Duration,
    _of_all: OwnedSemaphorePermit,
    _of_the_peer: OwnedSemaphorePermit,
}

impl RequestPermits {
    /// Counts the bytes of the request, when it has arrived, or of the answer.
    fn count_bytes(&self, bytes: usize) {
        self.usage.count(bytes, self.shared.clock.monotonic_time());
    }
}

impl Drop for RequestPermits {
    fn drop(&mut self) {
        let now = self.shared.clock.monotonic_time();
        self.usage.learn_service(now.saturating_sub(self.begun));
    }
}

impl ServerSession {
    pub(super) fn new(
        shared: Arc<ServerShared>,
        visitor: Option<(CertifiedPeer, CertificateValidity)>,
        orders: watch::Receiver<ServerOrder>,
    ) -> Self {
        let visitor = visitor.map(|(peer, validity)| {
            // Taken once for the whole connection; the reason why there is none is told at each
            // request.
            let now = shared.clock.monotonic_time();
            let quota = shared.quotas.take_quota(peer, now);
            CertifiedVisitor {
                peer,
                validity,
                quota,
            }
        });
        Self {
            shared,
            visitor,
            orders,
            heard: AtomicBool::new(false),
        }
    }

    /// Returns whether this is an enrolled machine with a place of its own.
    pub(super) fn has_quota(&self) -> bool {
        self.visitor
            .as_ref()
            .is_some_and(|visitor| visitor.quota.is_ok())
    }

    /// Returns whether any request has come.
    pub(super) fn was_heard(&self) -> bool {
        self.heard.load(Ordering::Relaxed)
    }

    /// Returns the peer, if its certificate is good enough for the request, and the age of the
    /// certificate.
    fn check_certificate(
        &self,
        renewing: bool,
    ) -> Result<(&CertifiedVisitor, CertificateAge), Status> {
        let visitor = self.visitor.as_ref();
        let visitor = visitor
            .ok_or_else(|| Status::unauthenticated("this needs a certificate: enrol first"))?;
        // The certificate is judged by the clock of this moment, because a connection may last for
        // months.
        let now = self.shared.identity.current_seconds(&*self.shared.clock);
        // A certificate is good by its age; if its peer may speak is the service's affair.
        let standing = visitor.validity.age_at(now);
        let (ended, today) = (date_text(visitor.validity.expires), date_text(now));
        match standing {
            CertificateAge::Expired if !renewing => {
                let words = format!(
                    "this machine's certificate ended on {ended} and is to be renewed (the \
                     server's clock says {today})"
                );
                Err(mark_renewal_due(Status::unauthenticated(words)))
            }
            // Renewing will be refused too, in these words.
            CertificateAge::Gone => Err(mark_renewal_due(Status::unauthenticated(format!(
                "this machine's certificate ended on {ended}, too long ago to be renewed by the \
                 server's clock, which says \
                 {today}: if that is wrong, set the server's clock; otherwise enrol this machine \
                 again"
            )))),
            _ => Ok((visitor, standing)),
        }
    }

    /// Returns the permits for one request of `visitor`; may wait for them.
    async fn acquire_permits(&self, visitor: &CertifiedVisitor) -> Result<RequestPermits, Status> {
        // There is no quota if the machine had too many connections when it made this one.
        let quota = visitor
            .quota
            .as_ref()
            .map_err(|why| Status::resource_exhausted(why.as_str()))?;
        let shared = &self.shared;
        // The rate comes first: waiting for it occupies no permit of the others.
        let delay = quota
            .rate_delay(shared.clock.monotonic_time())
            .ok_or_else(|| {
                let rate = shared.limits.requests_per_second;
                Status::resource_exhausted(format!(
                    "more than {rate} requests per second of this machine"
                ))
            })?;
        debug_assert!(delay <= WAIT, "a longer wait is a refusal");
        if !delay.is_zero() {
            sleep(delay).await;
        }
        // The peer's own permit comes first, so that one machine's requests wait for each other,
        // and not for a permit of all machines.
        let of_the_peer = quota
            .request_permits()
            .acquire_owned()
            .await
            .map_err(too_many_requests)?;
        // Deference comes before the body is read, so that what is not read yet fills the sender's
        // windows and not this server's memory.
        let deference = shared
            .quotas
            .deference_delay(quota, shared.clock.monotonic_time());
        if !deference.is_zero() {
            sleep(deference).await;
        }
        let of_all = timeout(WAIT, shared.requests.clone().acquire_owned())
            .await
            .map_err(too_many_requests)?;
        let begun = shared.clock.monotonic_time();
        let usage = quota.usage();
        usage.count(0, begun);
        Ok(RequestPermits {
            shared: shared.clone(),
            usage,
            begun,
            _of_all: of_all.map_err(too_many_requests)?,
            _of_the_peer: of_the_peer,
        })
    }

    /// Has `function` answer a request of `limit` bytes at most, once all of it has arrived, which
    /// takes a limited time.
    async fn answer_unary<Q, A, W>(
        &self,
        limit: usize,
        request: http::Request<Incoming>,
        function: impl FnOnce(Q) -> W + Send + 'static,
    ) -> Result<http::Response<Body>, Status>
    where
        Q: prost::Message + Default + 'static,
        A: prost::Message + 'static,
        W: Future<Output = Result<Response<A>, Status>> + Send + 'static,
    {
        // Tells a request that is slow to arrive from an answer that takes long.
        let arrived = Arc::new(AtomicBool::new(false));
        let method = UnaryMethod::new({
            let arrived = arrived.clone();
            move |asked| {
                arrived.store(true, Ordering::Relaxed);
                function(asked)
            }
        });
        let codec = ProstCodec::<A, Q>::default();
        let mut grpc = Grpc::new(codec)
            .max_decoding_message_size(limit)
            .max_encoding_message_size(limit);
        let mut answering = pin!(grpc.unary(method, request));
        let within = self.shared.limits.arrival;
        match timeout(within, answering.as_mut()).await {
            Ok(answer) => Ok(answer),
            // The request had arrived, so the time that is over was that of arriving: the answer
            // may take longer.
            Err(_) if arrived.load(Ordering::Relaxed) => Ok(answering.await),
            Err(_) => Err(Status::deadline_exceeded(format!(
                "the request did not arrive within {within:?}"
            ))),
        }
    }

    async fn answer_call(
        &self,
        request: http::Request<Incoming>,
    ) -> Result<http::Response<Body>, Status> {
        // The certificate and the limits are judged before the body is read.
        let (visitor, standing) = self.check_certificate(false)?;
        let ticket = self.acquire_permits(visitor).await?;
        let limit = self.shared.limits.message_bytes + wire::PAYLOAD_OVERHEAD;
        let (service, peer) = (self.shared.service.clone(), visitor.peer);
        let method = move |asked: Payload| async move {
            ticket.count_bytes(asked.bytes.len());
            let answer = run_blocking(ticket, move |ticket| {
                // Asked at every request, so that a peer that was shut out is refused at once.
                service.check_peer(peer).map_err(refusal_status)?;
                let answer = service.call(peer, &asked.bytes);
                ticket.count_bytes(answer.len());
                Ok(answer)
            });
            let answer = answer.await.map_err(|status| {
                if standing == CertificateAge::Due {
                    mark_renewal_due(status)
                } else {
                    status
                }
            })?;
            let mut answer = Response::new(Payload {
                bytes: answer.into(),
            });
            if standing == CertificateAge::Due {
                answer.metadata_mut().insert(
                    wire::RENEW_HEADER,
                    MetadataValue::from_static(wire::RENEW_DUE),
                );
            }
            Ok(answer)
        };
        self.answer_unary(limit, request, method).await
    }

    async fn answer_renew(
        &self,
        request: http::Request<Incoming>,
    ) -> Result<http::Response<Body>, Status> {
        let (visitor, _) = self.check_certificate(true)?;
        let ticket = self.acquire_permits(visitor).await?;
        let (shared, peer) = (self.shared.clone(), visitor.peer);
        let method = move |asked: RenewRequest| async move {
            // Looked at before a thread is taken for the rest.
            check_key(&asked.public_key)?;
            let certified = run_blocking(ticket, move |_| {
                shared.service.check_peer(peer).map_err(refusal_status)?;
                certify_peer(&shared, peer, &asked.public_key)
            });
            certified.await.map(Response::new)
        };
        self.answer_unary(SMALL_MESSAGE_MAX, request, method).await
    }

    async fn answer_enrol(
        &self,
        request: http::Request<Incoming>,
    ) -> Result<http::Response<Body>, Status> {
        let shared = self.shared.clone();
        let pace = shared.enrolments.lock().take(shared.clock.monotonic_time());
        // Enrolments are paced for all machines together, because the ones that guess tokens have
        // no name.
        sleep(pace.ok_or(()).map_err(too_many_enrolments)?).await;
        // Enrolling occupies a thread like any other request.
        let of_all = timeout(WAIT, shared.requests.clone().acquire_owned())
            .await
            .map_err(too_many_enrolments)?;
        let ticket = of_all.map_err(too_many_enrolments)?;
        let method = move |asked: EnrolRequest| async move {
            check_key(&asked.public_key)?;
            // Bounded here, so that the service need not fear for its memory.
            if asked.token.len() > WORD_MAX || asked.device.len() > WORD_MAX {
                return Err(refusal_status(format!(
                    "a token or the name of a device has more than {WORD_MAX} bytes"
                )));
            }
            if asked.device.chars().any(char::is_control) {
                return Err(refusal_status("the name of a device is one line of text"));
            }
            let certified = run_blocking(ticket, move |_| {
                let peer = shared
                    .service
                    .enrol(&asked.token, &asked.device)
                    .map_err(refusal_status)?;
                certify_peer(&shared, peer, &asked.public_key)
            });
            certified.await.map(Response::new)
        };
        self.answer_unary(SMALL_MESSAGE_MAX, request, method).await
    }
}

/// The answer to a request, on its way.
pub(super) type AnswerFuture = Pin<Box<dyn Future<Output = http::Response<Body>> + Send>>;

/// Answers one request, whatever it is.
pub(super) fn answer_request(
    session: Arc<ServerSession>,
    request: http::Request<Incoming>,
) -> AnswerFuture {
    session.heard.store(true, Ordering::Relaxed);
    Box::pin(async move {
        // Read once: a request that begins before the order ends in peace.
        let stopping = *session.orders.borrow() != ServerOrder::Serve;
        let answered = match request.uri().path() {
            _ if stopping => Err(Status::unavailable("the server is stopping")),
            wire::CALL => session.answer_call(request).await,
            wire::RENEW => session.answer_renew(request).await,
            wire::ENROL => session.answer_enrol(request).await,
            _ => Err(Status::unimplemented(
                "this server has no such method: is one of the two programs older?",
            )),
        };
        answered.unwrap_or_else(Status::into_http)
    })
}

/// Runs `work` where it may block, and gives `ticket` back when it has returned.
async fn run_blocking<T, R>(
    ticket: T,
    work: impl FnOnce(&T) -> Result<R, Status> + Send + 'static,
) -> Result<R, Status>
where
    T: Send + 'static,
    R: Send + 'static,
{
    // The permits belong to the work: they come back when it ends, even if the client has gone.
    let done = tokio::task::spawn_blocking(move || {
        let done = work(&ticket);
        drop(ticket);
        done
    });
    done.await.unwrap_or_else(|error| {
        log::error!("a request failed: {error}");
        Err(Status::internal(
            "the server broke down at this request; its log says more",
        ))
    })
}

fn certify_peer(
    shared: &ServerShared,
    peer: CertifiedPeer,
    public_key: &[u8],
) -> Result<CertifiedKey, Status> {
    debug_assert_eq!(public_key.len(), KEY_BYTES, "`check_key` has looked at it");
    let made = shared.identity.certify_key(
        peer,
        public_key,
        shared.identity.current_seconds(&*shared.clock),
    );
    let (certificate, validity) = made.map_err(|error| {
        log::error!("no certificate can be made: {error}");
        Status::internal("the server cannot make a certificate; its log says more")
    })?;
    Ok(CertifiedKey {
        certificate: certificate.to_vec().into(),
        volume: peer.volume.get(),
        replica: peer.replica.get(),
        issued: validity.issued,
        expires: validity.expires,
    })
}

fn check_key(key: &[u8]) -> Result<(), Status> {
    if key.len() == KEY_BYTES {
        Ok(())
    } else {
        Err(Status::invalid_argument("this is no Ed25519 public key"))
    }
}

fn refusal_status(words: impl AsRef<str>) -> Status {
    let words = words.as_ref().chars().take(REFUSAL_MAX);
    Status::permission_denied(words.collect::<String>())
}

/// Returns the refusal of a request for which there is no permit; `_error` says no more than that.
fn too_many_requests<E>(_error: E) -> Status {
    Status::resource_exhausted("too many requests are in progress")
}

/// Returns the refusal of an enrolment for which there is no permit; `_error` says no more than
/// that.
fn too_many_enrolments<E>(_error: E) -> Status {
    Status::resource_exhausted("too many machines enrol at the same time")
}

/// Adds that the certificate is to be renewed.
fn mark_renewal_due(mut status: Status) -> Status {
    status.metadata_mut().insert(
        wire::RENEW_HEADER,
        MetadataValue::from_static(wire::RENEW_DUE),
    );
    status
}

/// The future of a method's answer.
type MethodFuture<A> = Pin<Box<dyn Future<Output = Result<Response<A>, Status>> + Send>>;

/// A function as tonic wants it; called once.
struct UnaryMethod<Q, A>(Option<Box<dyn FnOnce(Q) -> MethodFuture<A> + Send>>);

impl<Q, A: Send + 'static> UnaryMethod<Q, A> {
    fn new<W>(function: impl FnOnce(Q) -> W + Send + 'static) -> Self
    where
        W: Future<Output = Result<Response<A>, Status>> + Send + 'static,
    {
        Self(Some(Box::new(|asked| Box::pin(function(asked)))))
    }
}

impl<Q, A: Send + 'static> UnaryService<Q> for UnaryMethod<Q, A> {
    type Response = A;
    type Future = MethodFuture<A>;

    fn call(&mut self, request: Request<Q>) -> MethodFuture<A> {
        match self.0.take() {
            Some(function) => function(request.into_inner()),
            None => Box::pin(std::future::ready(Err(Status::internal(
                "a method is called once",
            )))),
        }
    }
}
