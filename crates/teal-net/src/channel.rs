//! The client's side: one lasting channel to a server over connections that come and go.
//!
//! # Guarantees
//! 1. A call returns by its deadline, whatever the network does.
//! 2. A request is sent once: it is repeated only if it certainly never left this machine.
//! 3. A connection on which nothing comes any more is given up: after [`Options::unacknowledged`] if what was sent does not
//!    arrive, within twice [`Options::keep_alive`] while a request waits on it, and at once when a deadline passes in
//!    silence. The next call makes a new one.
//! 4. Nothing is sent while nobody calls, but for the answer to a server that asks for a sign of life every few minutes.

pub(crate) mod link;

use crate::error::NetError;
use crate::fingerprint::Fingerprint;
use crate::identity::{ClientIdentity, NewKey};
use crate::tls;
use crate::wire::{self, Certified, EnrolRequest, Payload, RenewRequest};
use bytes::Bytes;
use futures_util::future::join_all;
use link::{Answer, Link, Lost};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use teal_types::Timestamp;
use tokio::runtime::Handle;
use tokio::time::{sleep, timeout};

/// How long renewing may take.
const RENEWAL: Duration = Duration::from_secs(30);

/// How a [`Channel`] behaves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// How long making a connection may take, of a call's deadline. 10 seconds.
    pub connect_timeout: Duration,
    /// While a request waits and nothing comes for this long, the server is asked for a sign of life; it has as long
    /// again to give it. 5 seconds.
    pub keep_alive: Duration,
    /// A connection is given up when the other machine's kernel has not acknowledged what was sent for about this time,
    /// counted from when it was sent a second time. A slow line, on which something arrives now and then, is not. 2 seconds.
    pub unacknowledged: Duration,
    /// Bytes of one message, request or answer. 4 MiB.
    pub message_bytes: usize,
    /// Added to each request and to each answer: a long way, for measurements. Zero.
    pub delay: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(10),
            keep_alive: Duration::from_secs(5),
            unacknowledged: Duration::from_secs(2),
            message_bytes: 4 << 20,
            delay: Duration::ZERO,
        }
    }
}

/// A channel to a server, for any number of threads at the same time.
pub struct Channel {
    runtime: Handle,
    address: String,
    options: Options,
    /// Guards who this is; never held across I/O.
    own: Mutex<Own>,
    /// Guards the connection; held while one is made, so that only one is.
    connection: tokio::sync::Mutex<Connection>,
    /// Attempts to make one that failed, ever.
    failures: AtomicU64,
}

struct Own {
    identity: ClientIdentity,
    /// What the server last said about renewing; nothing if it has not been heard.
    is_due: Option<bool>,
}

#[derive(Default)]
struct Connection {
    link: Option<Arc<Link>>,
    /// Why the last attempt failed.
    failure: Option<NetError>,
}

impl std::fmt::Debug for Channel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Channel")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

impl Channel {
    /// A channel to the server at `address`, `host:port`. Nothing is sent before the first call.
    pub fn new(
        runtime: &Handle,
        address: String,
        identity: ClientIdentity,
        options: Options,
    ) -> Self {
        let own = Mutex::new(Own {
            identity,
            is_due: None,
        });
        let (connection, failures) = (tokio::sync::Mutex::default(), AtomicU64::new(0));
        Self {
            runtime: runtime.clone(),
            address,
            options,
            own,
            connection,
            failures,
        }
    }

    /// Sends `request` and waits for its answer.
    ///
    /// # Errors
    /// See [`NetError`]. After [`NetError::Unreachable`] the request may or may not have had its effect; after all others
    /// but [`NetError::Protocol`] and a too large answer, it had none.
    pub fn call(&self, request: &[u8], deadline: Duration) -> Result<Vec<u8>, NetError> {
        self.runtime.block_on(self.ask(request, deadline))
    }

    /// Sends all `requests` at once and waits for their answers, in their order.
    ///
    /// # Errors
    /// As [`call`](Self::call), for each.
    pub fn call_all(
        &self,
        requests: &[Vec<u8>],
        deadline: Duration,
    ) -> Vec<Result<Vec<u8>, NetError>> {
        self.runtime.block_on(join_all(
            requests.iter().map(|request| self.ask(request, deadline)),
        ))
    }

    async fn ask(&self, request: &[u8], deadline: Duration) -> Result<Vec<u8>, NetError> {
        let (bytes, limit) = (request.len(), self.options.message_bytes);
        if bytes > limit {
            return Err(NetError::TooLarge(format!(
                "a request of {bytes} bytes, and {limit} may be sent"
            )));
        }
        let payload = Payload {
            bytes: Bytes::copy_from_slice(request),
        };
        let answer: Payload = self.within(deadline, wire::CALL, payload).await?;
        Ok(answer.bytes.into())
    }

    /// Renews the certificate if it is time; the caller saves the identity that comes back. The server's word on whether
    /// it is time counts; only if it has not been heard yet, the clock that shows `now` does.
    ///
    /// # Errors
    /// See [`NetError`]. The old certificate still holds as long as it held before.
    pub fn renew_if_due(&self, now: Timestamp) -> Result<Option<ClientIdentity>, NetError> {
        let fingerprint = {
            let own = self.own.lock();
            if !own.is_due.unwrap_or_else(|| own.identity.is_due(now)) {
                return Ok(None);
            }
            own.identity.server()
        };
        let key = NewKey::generate()?;
        let request = RenewRequest {
            public_key: Bytes::copy_from_slice(key.public()),
        };
        let answer: Certified =
            self.runtime
                .block_on(self.within(RENEWAL, wire::RENEW, request))?;
        let identity = key.certified(fingerprint, &answer)?;
        *self.own.lock() = Own {
            identity: identity.clone(),
            is_due: Some(false),
        };
        // The next call shows the new certificate; those in progress keep their connection until they are answered.
        self.runtime.block_on(self.connection.lock()).link = None;
        Ok(Some(identity))
    }

    async fn within<Q, A>(
        &self,
        deadline: Duration,
        method: &'static str,
        request: Q,
    ) -> Result<A, NetError>
    where
        Q: prost::Message + Clone + 'static,
        A: prost::Message + Default + 'static,
    {
        let used = Mutex::new(None);
        let work = async {
            wait(self.options.delay).await;
            let answer = self.exchange(method, request, &used).await;
            wait(self.options.delay).await;
            answer
        };
        if let Ok(done) = timeout(deadline, work).await {
            return done;
        }
        let used = used.into_inner();
        if let Some((link, heard)) = used
            && Link::heard(&link) == heard
        {
            self.forget(&link).await;
        }
        Err(self.unreachable(format!("no answer within {deadline:?}")))
    }

    /// Notes in `used` on which link the request went out, and how much had been heard on it before.
    async fn exchange<Q, A>(
        &self,
        method: &'static str,
        request: Q,
        used: &Mutex<Option<(Arc<Link>, u64)>>,
    ) -> Result<A, NetError>
    where
        Q: prost::Message + Clone + 'static,
        A: prost::Message + Default + 'static,
    {
        let mut repeated = false;
        loop {
            let link = self.link().await?;
            *used.lock() = Some((link.clone(), link.heard()));
            match link
                .unary(
                    method,
                    request.clone(),
                    self.options.message_bytes + wire::SLACK,
                )
                .await
            {
                Ok(Answer { result, is_due }) => {
                    self.heard(&link, is_due);
                    return result;
                }
                Err(lost) => {
                    self.forget(&link).await;
                    match lost {
                        Lost::Unsent(_) if !repeated => repeated = true,
                        Lost::Unsent(error) | Lost::Sent(error) => return Err(error),
                    }
                }
            }
        }
    }

    /// Notes the server's word on renewing, unless it speaks of a certificate that has been renewed since.
    fn heard(&self, link: &Link, is_due: bool) {
        let mut own = self.own.lock();
        if link.expires() == own.identity.expires() {
            own.is_due = Some(is_due);
        }
    }

    /// The connection; made if there is none.
    async fn link(&self) -> Result<Arc<Link>, NetError> {
        let failures = self.failures.load(Ordering::Acquire);
        let mut connection = self.connection.lock().await;
        if let Some(link) = &connection.link
            && link.is_open()
        {
            return Ok(link.clone());
        }
        // Whoever waited while another failed shares its failure, instead of failing one after the other.
        if let Some(failure) = &connection.failure
            && self.failures.load(Ordering::Acquire) != failures
        {
            return Err(failure.clone());
        }
        let (config, expires) = {
            let own = self.own.lock();
            (own.identity.tls(), own.identity.expires())
        };
        let config = config.map_err(|e| {
            NetError::Certificate(format!("this machine's identity is of no use: {e}"))
        })?;
        connection.link = None;
        match Link::connect(&self.address, config, expires, &self.options).await {
            Ok(link) => {
                let link = Arc::new(link);
                (connection.link, connection.failure) = (Some(link.clone()), None);
                Ok(link)
            }
            Err(error) => {
                connection.failure = Some(error.clone());
                self.failures.fetch_add(1, Ordering::Release);
                Err(error)
            }
        }
    }

    /// No further call uses `link`.
    async fn forget(&self, link: &Arc<Link>) {
        let mut connection = self.connection.lock().await;
        if connection
            .link
            .as_ref()
            .is_some_and(|known| Arc::ptr_eq(known, link))
        {
            connection.link = None;
        }
    }

    fn unreachable(&self, why: String) -> NetError {
        NetError::Unreachable {
            address: self.address.clone(),
            why,
        }
    }
}

/// Sleeps, unless for nothing.
async fn wait(delay: Duration) {
    if !delay.is_zero() {
        sleep(delay).await;
    }
}

/// Shows the one-time `token` to the server at `address`, `host:port`, which must be the one of `fingerprint`; `device`
/// is what its people will know this machine by. The caller saves the identity.
///
/// # Errors
/// See [`NetError`]. After [`NetError::Unreachable`] the token may be used up: if it is refused the next time, a new one
/// is needed.
pub fn enrol(
    runtime: &Handle,
    address: &str,
    fingerprint: &Fingerprint,
    token: &str,
    device: &str,
    deadline: Duration,
) -> Result<ClientIdentity, NetError> {
    let key = NewKey::generate()?;
    let config =
        tls::client(*fingerprint, None).map_err(|e| NetError::Certificate(e.to_string()))?;
    let public_key = Bytes::copy_from_slice(key.public());
    let request = EnrolRequest {
        token: token.to_owned(),
        device: device.to_owned(),
        public_key,
    };
    let options = Options::default();
    let work = async {
        let link = Link::connect(address, config, Timestamp::default(), &options).await?;
        let answer = link
            .unary(wire::ENROL, request, options.message_bytes)
            .await;
        let answer: Answer<Certified> =
            answer.map_err(|(Lost::Unsent(error) | Lost::Sent(error))| error)?;
        answer.result
    };
    let answer = runtime.block_on(async { timeout(deadline, work).await });
    let answer = answer.unwrap_or_else(|_| {
        let why = format!("no answer within {deadline:?}");
        Err(NetError::Unreachable {
            address: address.to_owned(),
            why,
        })
    })?;
    key.certified(*fingerprint, &answer)
}
