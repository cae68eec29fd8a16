//! Saying hello: who this replica is to the server, and how its past looks from there.
//!
//! # Guarantees
//! 1. Nothing is sent before the server has said that this replica's life is the one it knows, or
//!    has given it a new one.
//! 2. A server without the history this replica has seen is offered what it lost (`offer`) before
//!    anything else.

use super::{Identity, Replica, SyncError, unexpected};
use crate::seeded::{Bug, bug};
use teal_device::UpstreamError;
use teal_proto::{Hello, RefusalCode, Reply, Request, Told, Welcome};
use teal_types::{BatchNo, Incarnation, LEASE};

impl Replica {
    /// Says hello if that is due.
    pub(crate) fn connect(&self) -> Result<(), SyncError> {
        if self.state.lock().is_connected {
            // Whoever only wants news does not wait for a flush.
            return Ok(());
        }
        let _flushing = self.flushing.lock();
        if self.state.lock().is_connected {
            return Ok(());
        }
        if self.identity.lock().parts == 0 && !bug(Bug::FlyingForgotten) {
            // The program ended after a cut, before its batch had been sent.
            self.take_back_all()?;
        }
        if let Told::Lost { .. } = self.greet()? {
            // The server is to know from where this goes on.
            self.greet()?;
        }
        self.announce_some()?;
        self.offer_some()?;
        self.state.lock().is_connected = true;
        Ok(())
    }

    /// Asks the server for something, and once more after another hello if it has begun anew since
    /// it was greeted.
    pub(crate) fn greeted<T>(
        &self,
        ask: impl Fn() -> Result<T, SyncError>,
    ) -> Result<T, SyncError> {
        match ask() {
            Err(SyncError::Upstream(UpstreamError::Refused(refused)))
                if refused.code == RefusalCode::Stopping =>
            {
                self.connect()?;
                ask()
            }
            done => done,
        }
    }

    /// Says hello, and does what it is told.
    fn greet(&self) -> Result<Told, SyncError> {
        let identity = *self.identity.lock();
        let hello = Request::Hello(Hello {
            incarnation: if self.state.lock().is_copied {
                Incarnation::NONE
            } else {
                identity.incarnation
            },
            last_batch: identity.batch,
            seen: identity.seen,
            seen_digest: identity.digest,
            earlier: identity.trail.steps().to_vec(),
            server_incarnation: identity.server,
            device: self.device.clone(),
        });
        let Reply::Welcome(welcome) = self.ask(&hello)? else {
            return Err(unexpected("to a hello").into());
        };
        self.welcomed(&welcome).inspect_err(|e| {
            if let SyncError::Upstream(UpstreamError::Denied(words)) = e {
                let now = self.monotonic();
                self.state.lock().deny(words, now);
            }
        })?;
        Ok(welcome.told)
    }

    fn welcomed(&self, welcome: &Welcome) -> Result<(), SyncError> {
        let identity = *self.identity.lock();
        let (volume, known) = (welcome.volume.get(), (identity.volume, identity.replica));
        if !identity.incarnation.is_none() && known != (volume, welcome.replica) {
            let words = format!(
                "this store belongs to replica {} of volume {:08x}, and the server takes it for replica {} of volume {volume:08x}: \
                 join with the certificate that was made for it",
                identity.replica, identity.volume, welcome.replica
            );
            return Err(UpstreamError::Denied(words).into());
        }
        self.set_domain(welcome.domain);
        match welcome.told {
            Told::Known => {}
            Told::Incarnate => self.incarnate(welcome)?,
            Told::Lost { common, digest } => self.begin_offer(welcome, common, digest)?,
        }
        self.identify(|identity| {
            (identity.volume, identity.replica) = (volume, welcome.replica);
            identity.server = welcome.server_incarnation;
            identity.key = welcome.domain;
        })?;
        Ok(())
    }

    /// The first life, or that of a copied store.
    fn incarnate(&self, welcome: &Welcome) -> Result<(), SyncError> {
        let before = self.new_life(welcome)?;
        if !before.incarnation.is_none() && !bug(Bug::NotRenumbered) {
            log::warn!(
                "this store is a copy of one that went on, or may be one: it goes on in a life of its own"
            );
            self.renumber(before.lease)?;
        }
        Ok(self.volume.sync()?)
    }

    /// A new life: new numbers, batches counted from the beginning. What it was before.
    pub(crate) fn new_life(&self, welcome: &Welcome) -> Result<Identity, SyncError> {
        let before = *self.identity.lock();
        self.forget_all_tails()?;
        let Reply::Incarnated { incarnation, lease } = self.ask(&Request::Incarnate)? else {
            return Err(unexpected("to a request for a new incarnation").into());
        };
        let next = u64::from(lease) * LEASE;
        self.identify(|identity| {
            // Both at once: what is made meanwhile has a number of either life, and not one beyond
            // the lease.
            *self.next.lock() = next;
            (identity.volume, identity.replica) = (welcome.volume.get(), welcome.replica);
            (identity.incarnation, identity.lease, identity.reserved) = (incarnation, lease, next);
            (identity.batch, identity.parts) = (BatchNo::NONE, 0);
        })?;
        self.state.lock().is_copied = false;
        self.take_back_all()?;
        Ok(before)
    }
}
