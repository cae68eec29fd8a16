//! The client's side: one lasting channel to a server over connections that come and go.
//!
//! # Guarantees
//! 1. A call returns by its deadline, whatever the network does.
//! 2. A request is sent once: it is repeated only if it certainly never left this machine.
//! 3. A connection on which nothing comes any more is given up: after
//!    [`ChannelOptions::unacknowledged`] if what was sent does not arrive, within twice
//!    [`ChannelOptions::keep_alive`] while a request waits on it, and at once when a deadline
//!    passes in silence. The next call makes a new one.
//! 4. Nothing is sent between calls, but for the answer to a server that asks for a sign of life
//!    every few minutes.

pub(crate) mod connection;
mod options;

use crate::error::NetError;
use crate::fingerprint::Fingerprint;
use crate::identity::{ClientIdentity, NewKey};
use crate::tls;
use crate::wire::{self, CertifiedKey, EnrolRequest, Payload, RenewRequest};
use bytes::Bytes;
use connection::{ClientConnection, ConnectionLoss, UnaryAnswer};
use futures_util::future::join_all;
pub use options::ChannelOptions;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use teal_types::Timestamp;
use tokio::runtime::Handle;
use tokio::time::{sleep, timeout};

/// The longest time that renewing may take.
const RENEWAL: Duration = Duration::from_secs(30);

/// A channel to a server, for any number of threads at the same time.
pub struct Channel {
    runtime: Handle,
    address: String,
    options: ChannelOptions,
    /// Guards the channel's identity; never held across I/O.
    own: Mutex<ChannelIdentity>,
    /// Guards the connection; held while one is made, so that only one is.
    slot: tokio::sync::Mutex<ConnectionSlot>,
    /// Attempts to make one that failed, ever.
    failures: AtomicU64,
}

struct ChannelIdentity {
    identity: ClientIdentity,
    /// The server's last word on renewing; `None` if it has not been heard.
    is_due: Option<bool>,
}

#[derive(Default)]
struct ConnectionSlot {
    current: Option<Arc<ClientConnection>>,
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
    /// Returns a channel to the server at `address`, `host:port`. Nothing is sent before the first
    /// call.
    pub fn new(
        runtime: &Handle,
        address: String,
        identity: ClientIdentity,
        options: ChannelOptions,
    ) -> Self {
        let own = Mutex::new(ChannelIdentity {
            identity,
            is_due: None,
        });
        let (slot, failures) = (tokio::sync::Mutex::default(), AtomicU64::new(0));
        Self {
            runtime: runtime.clone(),
            address,
            options,
            own,
            slot,
            failures,
        }
    }

    /// Sends `request` and waits for its answer.
    ///
    /// # Errors
    /// See [`NetError`]. After [`NetError::Unreachable`] the request may or may not have had its
    /// effect; after all others but [`NetError::Protocol`] and a too large answer, it had none.
    pub fn call(&self, request: &[u8], deadline: Duration) -> Result<Vec<u8>, NetError> {
        self.runtime.block_on(self.send_request(request, deadline))
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
            requests
                .iter()
                .map(|request| self.send_request(request, deadline)),
        ))
    }

    async fn send_request(&self, request: &[u8], deadline: Duration) -> Result<Vec<u8>, NetError> {
        let (bytes, limit) = (request.len(), self.options.message_bytes);
        // Checked here, so that the connection and the other requests on it survive.
        if bytes > limit {
            return Err(NetError::TooLarge(format!(
                "a request of {bytes} bytes, and {limit} may be sent"
            )));
        }
        let payload = Payload {
            bytes: Bytes::copy_from_slice(request),
        };
        let answer: Payload = self.call_within(deadline, wire::CALL, payload).await?;
        Ok(answer.bytes.into())
    }

    /// Renews the certificate if it is time; the caller saves the identity that comes back. The
    /// server's word on whether it is time counts; only if it has not been heard yet, the clock
    /// that shows `now` does.
    ///
    /// # Errors
    /// See [`NetError`]. The old certificate still holds as long as it held before.
    pub fn renew_if_due(&self, now: Timestamp) -> Result<Option<ClientIdentity>, NetError> {
        // The lock is released before a key is made and the server is asked.
        let fingerprint = {
            let own = self.own.lock();
            // The server's word counts; before it is heard, the clock decides.
            if !own.is_due.unwrap_or_else(|| own.identity.is_due(now)) {
                return Ok(None);
            }
            own.identity.server_fingerprint()
        };
        let key = NewKey::generate()?;
        let request = RenewRequest {
            public_key: Bytes::copy_from_slice(key.public_bytes()),
        };
        let answer: CertifiedKey =
            self.runtime
                .block_on(self.call_within(RENEWAL, wire::RENEW, request))?;
        let identity = key.identity_from(fingerprint, &answer)?;
        *self.own.lock() = ChannelIdentity {
            identity: identity.clone(),
            is_due: Some(false),
        };
        // The next call shows the new certificate; those in progress keep their connection until
        // they are answered.
        self.runtime.block_on(self.slot.lock()).current = None;
        Ok(Some(identity))
    }

    async fn call_within<Q, A>(
        &self,
        deadline: Duration,
        method: &'static str,
        request: Q,
    ) -> Result<A, NetError>
    where
        Q: prost::Message + Clone + 'static,
        A: prost::Message + Default + 'static,
    {
        // Remembers on which connection the request went out, for the case that no answer comes.
        let used = Mutex::new(None);
        let work = async {
            add_delay(self.options.delay).await;
            let answer = self.call_on_connection(method, request, &used).await;
            add_delay(self.options.delay).await;
            answer
        };
        if let Ok(done) = timeout(deadline, work).await {
            return done;
        }
        // A connection on which nothing came during the whole deadline is dead; one that is only
        // slow stays.
        let used = used.into_inner();
        if let Some((connection, heard)) = used
            && ClientConnection::bytes_heard(&connection) == heard
        {
            self.forget_connection(&connection).await;
        }
        Err(self.unreachable_error(format!("no answer within {deadline:?}")))
    }

    /// Notes in `used` on which connection the request went out, and how much had been heard on it
    /// before.
    async fn call_on_connection<Q, A>(
        &self,
        method: &'static str,
        request: Q,
        used: &Mutex<Option<(Arc<ClientConnection>, u64)>>,
    ) -> Result<A, NetError>
    where
        Q: prost::Message + Clone + 'static,
        A: prost::Message + Default + 'static,
    {
        let mut repeated = false;
        loop {
            let connection = self.open_connection().await?;
            // Noted before the request is sent, because the deadline may pass at any moment.
            *used.lock() = Some((connection.clone(), connection.bytes_heard()));
            match connection
                .call_unary(
                    method,
                    request.clone(),
                    self.options.message_bytes + wire::PAYLOAD_OVERHEAD,
                )
                .await
            {
                Ok(UnaryAnswer { result, is_due }) => {
                    self.note_renewal_due(&connection, is_due);
                    return result;
                }
                Err(lost) => {
                    self.forget_connection(&connection).await;
                    match lost {
                        // The server has certainly not seen the request, so it may be sent
                        // again; once is enough.
                        ConnectionLoss::Unsent(_) if !repeated => repeated = true,
                        ConnectionLoss::Unsent(error) | ConnectionLoss::Sent(error) => {
                            return Err(error);
                        }
                    }
                }
            }
        }
    }

    /// Notes the server's word on renewing, unless it speaks of a certificate that has been renewed
    /// since.
    fn note_renewal_due(&self, connection: &ClientConnection, is_due: bool) {
        let mut own = self.own.lock();
        // An answer may have been on its way while the certificate was renewed.
        if connection.certificate_end() == own.identity.expires() {
            own.is_due = Some(is_due);
        }
    }

    /// Returns the connection, and makes it if there is none.
    async fn open_connection(&self) -> Result<Arc<ClientConnection>, NetError> {
        let failures = self.failures.load(Ordering::Acquire);
        let mut slot = self.slot.lock().await;
        // A connection that has failed is replaced at the next call.
        if let Some(connection) = &slot.current
            && connection.is_open()
        {
            return Ok(connection.clone());
        }
        // A call that waited while another one failed shares its failure, instead of trying again:
        // the calls would fail one after the other.
        if let Some(failure) = &slot.failure
            && self.failures.load(Ordering::Acquire) != failures
        {
            return Err(failure.clone());
        }
        let (config, expires) = {
            let own = self.own.lock();
            (own.identity.tls_config(), own.identity.expires())
        };
        // The identity was checked when it was loaded, so this means a defect of the file.
        let config = config.map_err(|e| {
            NetError::Certificate(format!("this machine's identity is of no use: {e}"))
        })?;
        // The old connection is let go before a new one is made.
        slot.current = None;
        match ClientConnection::connect(&self.address, config, expires, &self.options).await {
            Ok(connection) => {
                let connection = Arc::new(connection);
                (slot.current, slot.failure) = (Some(connection.clone()), None);
                Ok(connection)
            }
            Err(error) => {
                slot.failure = Some(error.clone());
                self.failures.fetch_add(1, Ordering::Release);
                Err(error)
            }
        }
    }

    /// Keeps further calls from using `connection`.
    async fn forget_connection(&self, connection: &Arc<ClientConnection>) {
        let mut slot = self.slot.lock().await;
        // Another call may have replaced the connection meanwhile.
        if slot
            .current
            .as_ref()
            .is_some_and(|known| Arc::ptr_eq(known, connection))
        {
            slot.current = None;
        }
    }

    fn unreachable_error(&self, why: String) -> NetError {
        NetError::Unreachable {
            address: self.address.clone(),
            why,
        }
    }
}

/// Sleeps for `delay`, unless it is zero.
async fn add_delay(delay: Duration) {
    if !delay.is_zero() {
        sleep(delay).await;
    }
}

/// Shows the one-time `token` to the server at `address`, `host:port`, which must be the one of
/// `fingerprint`; `device` is what its people will know this machine by. The caller saves the
/// identity.
///
/// # Errors
/// See [`NetError`]. After [`NetError::Unreachable`] the token may be used up: if it is refused the
/// next time, a new one is needed.
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
        tls::client_config(*fingerprint, None).map_err(|e| NetError::Certificate(e.to_string()))?;
    let public_key = Bytes::copy_from_slice(key.public_bytes());
    let request = EnrolRequest {
        token: token.to_owned(),
        device: device.to_owned(),
        public_key,
    };
    let options = ChannelOptions::default();
    let work = async {
        let connection =
            ClientConnection::connect(address, config, Timestamp::default(), &options).await?;
        // The token may have been used even if the answer was lost, so nothing is sent again.
        let answer = connection
            .call_unary(wire::ENROL, request, options.message_bytes)
            .await;
        let answer: UnaryAnswer<CertifiedKey> = answer
            .map_err(|(ConnectionLoss::Unsent(error) | ConnectionLoss::Sent(error))| error)?;
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
    key.identity_from(*fingerprint, &answer)
}
