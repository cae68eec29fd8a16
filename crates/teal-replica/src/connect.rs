//! The greeting: this replica names itself and its history, and the server says how it knows both.
//!
//! # Guarantees
//! 1. Nothing is sent before the server has said that this replica's life is the one it knows, or
//!    has given it a new one.
//! 2. A server without the history this replica has seen is offered what it lost (`offer`) before
//!    anything else.

use super::{Replica, ReplicaIdentity, SyncError, unexpected};
use crate::seeded::{Bug, bug};
use teal_device::UpstreamError;
use teal_proto::{ClientRequest, Hello, HistoryVerdict, RefusalCode, ServerReply, Welcome};
use teal_types::Incarnation;

impl Replica {
    /// Greets the server, unless that was done since the connection was lost.
    pub(crate) fn connect(&self) -> Result<(), SyncError> {
        if self.state().is_connected() {
            // A thread that only pulls news need not wait for the flush that holds the lock.
            return Ok(());
        }
        let _flushing = self.hold_flush();
        if self.state().is_connected() {
            return Ok(());
        }
        if self.identity().parts == 0 && !bug(Bug::FlyingForgotten) {
            // The program ended after a cut, before its batch had been sent.
            self.take_back_all()?;
        }
        if let HistoryVerdict::Lost { .. } = self.say_hello()? {
            // The server is to know from where this goes on.
            self.say_hello()?;
        }
        // Announcements and offers come before the first batch: it may refer to objects in them.
        self.announce_some()?;
        self.offer_some()?;
        self.state().set_connected();
        Ok(())
    }

    /// Asks the server for something, and once more after another hello if it has begun anew since
    /// it was greeted.
    pub(crate) fn retry_after_greeting<T>(
        &self,
        ask: impl Fn() -> Result<T, SyncError>,
    ) -> Result<T, SyncError> {
        match ask() {
            Err(SyncError::Upstream(UpstreamError::Refused(refused)))
                if refused.code == RefusalCode::Stopping =>
            {
                // The server was started again between two requests: greet the new one, and ask
                // once more.
                self.connect()?;
                ask()
            }
            done => done,
        }
    }

    /// Greets the server, and follows its answer.
    fn say_hello(&self) -> Result<HistoryVerdict, SyncError> {
        let identity = self.identity();
        let hello = ClientRequest::Hello(Hello {
            // A copied store asks for a life of its own, by naming none.
            incarnation: if self.state().is_copied() {
                Incarnation::NONE
            } else {
                identity.incarnation
            },
            last_batch: identity.batch,
            seen: identity.seen,
            seen_digest: identity.digest,
            earlier: identity.trail.steps().to_vec(),
            server_incarnation: identity.server,
            device: self.device_name().to_owned(),
        });
        let ServerReply::Welcome(welcome) = self.ask_server(&hello)? else {
            return Err(unexpected("to a hello").into());
        };
        self.apply_welcome(&welcome).inspect_err(|e| {
            if let SyncError::Upstream(UpstreamError::Denied(words)) = e {
                self.state().deny(words);
            }
        })?;
        Ok(welcome.verdict)
    }

    fn apply_welcome(&self, welcome: &Welcome) -> Result<(), SyncError> {
        let identity = self.identity();
        let volume = welcome.volume;
        let known = (identity.volume, identity.replica);
        // A store that has a life belongs to one replica of one volume, for good.
        if !identity.incarnation.is_none() && known != (volume, welcome.replica) {
            let words = format!(
                "this store belongs to replica {} of volume {}, and the server takes it for \
                 replica {} of volume {volume}: \
                 join with the certificate that was made for it",
                identity.replica, identity.volume, welcome.replica
            );
            return Err(UpstreamError::Denied(words).into());
        }
        self.set_domain(welcome.domain);
        match welcome.verdict {
            HistoryVerdict::Known => {}
            HistoryVerdict::Incarnate => self.begin_incarnation(welcome)?,
            HistoryVerdict::Lost { common, digest } => self.begin_offer(welcome, common, digest)?,
        }
        // The identity is saved last: until then, the next greeting begins anew.
        self.update_identity(|identity| {
            identity.volume = volume;
            identity.replica = welcome.replica;
            identity.server = welcome.server_incarnation;
            identity.key = welcome.domain;
        })?;
        Ok(())
    }

    /// Begins the first life of this store, or a new life of a copied one.
    fn begin_incarnation(&self, welcome: &Welcome) -> Result<(), SyncError> {
        let before = self.start_incarnation(welcome)?;
        if !before.incarnation.is_none() && !bug(Bug::NotRenumbered) {
            log::warn!(
                "this store is a copy of one that went on, or may be one: it goes on in a life of \
                 its own"
            );
            self.renumber(before.lease)?;
        }
        Ok(self.volume().sync()?)
    }

    /// Begins a new life: the server gives new object numbers, and batches are counted from the
    /// beginning. Returns the identity of the life before.
    pub(crate) fn start_incarnation(
        &self,
        welcome: &Welcome,
    ) -> Result<ReplicaIdentity, SyncError> {
        let before = self.identity();
        self.forget_all_tails()?;
        let ServerReply::Incarnated { incarnation, lease } =
            self.ask_server(&ClientRequest::Incarnate)?
        else {
            return Err(unexpected("to a request for a new incarnation").into());
        };
        self.begin_life((welcome.volume, welcome.replica), (incarnation, lease))?;
        self.state().new_life_begun();
        // Batches in flight were cut in the life before: their objects become dirty again.
        self.take_back_all()?;
        Ok(before)
    }
}
