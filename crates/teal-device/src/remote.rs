//! The server on another machine.
//!
//! # Guarantees
//! 1. Errors of the transport become errors that a caller can act on: try later, give up, send
//!    less.
//! 2. The certificate is renewed on the way, long before it expires, or when the server says that
//!    it has; the new one is stored before it is used again.

use crate::upstream::{Upstream, UpstreamError};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use teal_env::Clock;
use teal_net::{Channel, ClientIdentity, NetError};
use teal_proto::{ClientRequest, CodecError, ServerReply, decode_reply, encode_request};

/// The time between two checks of the certificate.
const CERTIFICATE_CHECK_INTERVAL: Duration = Duration::from_secs(3600);

/// Stores a renewed identity.
type IdentitySaver = Box<dyn Fn(&ClientIdentity) + Send + Sync>;

/// The server over the network.
pub struct RemoteServer {
    channel: Channel,
    clock: Arc<dyn Clock>,
    /// The monotonic time of the last check of the certificate; guards only itself.
    checked_at: Mutex<Option<Duration>>,
    save_identity: IdentitySaver,
}

impl std::fmt::Debug for RemoteServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RemoteServer")
            .field("channel", &self.channel)
            .finish_non_exhaustive()
    }
}

impl RemoteServer {
    /// Makes the server behind a channel; `save_identity` stores a renewed identity.
    pub fn new(
        channel: Channel,
        clock: Arc<dyn Clock>,
        keep: impl Fn(&ClientIdentity) + Send + Sync + 'static,
    ) -> Self {
        Self {
            channel,
            clock,
            checked_at: Mutex::new(None),
            save_identity: Box::new(keep),
        }
    }

    /// Renews the certificate if it is due, which is checked once an hour.
    fn renew_now_and_then(&self) {
        let now = self.clock.monotonic_time();
        {
            // Noted under the lock, so that one of several callers checks; asked without it.
            let mut looked = self.checked_at.lock();
            if looked.is_some_and(|then| now.saturating_sub(then) < CERTIFICATE_CHECK_INTERVAL) {
                return;
            }
            *looked = Some(now);
        }
        self.renew_certificate();
    }

    /// Renews the certificate if it is due. Returns false if it is still due.
    fn renew_certificate(&self) -> bool {
        match self.channel.renew_if_due(self.clock.civil_time()) {
            Ok(Some(identity)) => (self.save_identity)(&identity),
            Ok(None) => {}
            Err(error) => {
                log::warn!("the certificate is not renewed yet: {error}");
                return false;
            }
        }
        true
    }

    /// Turns the transport's errors into those of an upstream, and decodes the reply.
    fn interpret_answer(
        &self,
        answer: Result<Vec<u8>, NetError>,
    ) -> Result<ServerReply, UpstreamError> {
        let answer = answer.map_err(|error| match error {
            NetError::Unreachable { .. } | NetError::Busy(_) => {
                UpstreamError::Unreachable(error.to_string())
            }
            NetError::Refused(_) | NetError::Certificate(_) => {
                UpstreamError::Denied(error.to_string())
            }
            NetError::TooLarge(_) | NetError::Protocol(_) => {
                UpstreamError::Protocol(CodecError::Malformed(error.to_string()))
            }
        })?;
        self.renew_now_and_then();
        Ok(decode_reply(&answer)?)
    }
}

impl Upstream for RemoteServer {
    fn call(
        &self,
        request: &ClientRequest,
        deadline: Duration,
    ) -> Result<ServerReply, UpstreamError> {
        let bytes = encode_request(request)?;
        let answer = match self.channel.call(&bytes, deadline) {
            // This machine was off for so long that its certificate ended. The request has had no
            // effect, so that it may be sent again.
            Err(NetError::Certificate(_)) if self.renew_certificate() => {
                self.channel.call(&bytes, deadline)
            }
            answer => answer,
        };
        self.interpret_answer(answer)
    }

    fn call_all(
        &self,
        requests: &[ClientRequest],
        deadline: Duration,
    ) -> Vec<Result<ServerReply, UpstreamError>> {
        // One that cannot be encoded fails by itself: then each is sent alone.
        let encoded: Result<Vec<_>, _> = requests.iter().map(encode_request).collect();
        let Ok(encoded) = encoded else {
            return requests
                .iter()
                .map(|request| self.call(request, deadline))
                .collect();
        };
        let answers = requests
            .iter()
            .zip(self.channel.call_all(&encoded, deadline));
        let answers = answers.map(|(request, answer)| match answer {
            // Renews the certificate, and sends this one again.
            Err(NetError::Certificate(_)) => self.call(request, deadline),
            answer => self.interpret_answer(answer),
        });
        answers.collect()
    }
}
