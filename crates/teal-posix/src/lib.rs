//! The daemon's mind for a local volume: POSIX semantics over the log store.
//!
//! # Guarantees
//! 1. *Atomic*: an operation on names or attributes is in one batch, so a crash shows all of it or nothing. A write larger than
//!    [`WRITE_STEP`] may be cut between its steps.
//! 2. *Total*: whatever arguments arrive, the answer is a result or an [`FsError`]; damage is named once in the program's log.
//! 3. *Kept*: an object somebody refers to ([`Client::hold`]) lives on without a name, and is given back at the last
//!    [`Client::release`], or after a crash.
//! 4. *Silent*: while nothing changes there is no I/O, with the background thread running or not.
//! 5. Permissions are the kernel's business (`default_permissions`); the client enforces only what the kernel cannot.
//!
//! # Locks
//! Those that operations share with the replica are in the table of [`teal_volume`]; `syncs` and `background` are leaves.

mod acl;
mod attributes;
mod background;
mod content;
mod copying;
mod listing;
mod make;
mod options;
mod pace;
mod remove;
mod rename;
#[cfg(feature = "seeded-bugs")]
pub mod seeded;
#[cfg(not(feature = "seeded-bugs"))]
#[allow(unreachable_pub, dead_code, reason = "public with the feature only")]
mod seeded;
mod status;
mod syncing;
mod xattr;

pub use attributes::{SetAttrRequest, TimeChange};
pub use content::{FallocateMode, Seek, WriteFlags};
pub use listing::DirEntry;
pub use options::{AtimePolicy, Caller, ClientOptions};
pub use rename::RenameMode;
pub use status::{Remaining, StatFs, Status};
pub use teal_volume::{FsError, Invalidation, InvalidationSink, Moment, WRITE_STEP};
pub use xattr::XattrMode;

use background::Background;
use parking_lot::Mutex;
use std::sync::Arc;
use syncing::SyncQueue;
use teal_device::Upstream;
use teal_env::Clock;
use teal_log::{Cost, Op, Store, StoreError};
use teal_replica::{Replica, UpstreamOptions, Whereabouts};
use teal_types::{Name, ObjectNo};
use teal_volume::{Changes, Residency, Standalone, Volume};

/// A mounted local volume. All methods may be called from any thread.
pub struct Client {
    volume: Arc<Volume>,
    options: ClientOptions,
    /// Is told of every change.
    changes: Arc<dyn Changes>,
    /// Brings what is not here.
    residency: Arc<dyn Residency>,
    /// What both of these are, if the volume has a server; it is started and ended together with this.
    replica: Option<Arc<Replica>>,
    syncs: Arc<SyncQueue>,
    background: Mutex<Background>,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client")
            .field("volume", &self.volume)
            .finish_non_exhaustive()
    }
}

impl Client {
    /// Returns a client of an open store.
    ///
    /// If the store is a replica's, whose server is not given here, changes are noted for it.
    ///
    /// # Errors
    /// What reading the note of who this replica is met.
    pub fn new(
        store: Arc<Store>,
        clock: Arc<dyn Clock>,
        options: ClientOptions,
    ) -> Result<Arc<Self>, FsError> {
        let volume = Volume::new(store, clock, options.reclaim_step);
        let replica = Replica::without_server(&volume)?;
        Ok(Self::with(volume, options, replica))
    }

    /// Returns a client of an open store that is, or becomes, a replica of the volume behind `upstream`. `device`: its name for people.
    /// A store that was not one before becomes one: all that is in it is sent, or with `joins` its root is empty and what the server has
    /// comes here as it is needed.
    ///
    /// # Errors
    /// What reading or setting the note of who this replica is met; [`FsError::NotEmpty`] when a store that joins has something in it.
    pub fn replica_of(
        store: Arc<Store>,
        clock: Arc<dyn Clock>,
        options: ClientOptions,
        upstream: Arc<dyn Upstream>,
        device: &str,
        (joins, of_upstream): (bool, UpstreamOptions),
    ) -> Result<Arc<Self>, FsError> {
        let volume = Volume::new(store, clock, options.reclaim_step);
        let replica = Replica::of_server(&volume, upstream, device, of_upstream, joins)?;
        Ok(Self::with(volume, options, Some(replica)))
    }

    fn with(
        volume: Arc<Volume>,
        options: ClientOptions,
        replica: Option<Arc<Replica>>,
    ) -> Arc<Self> {
        let (changes, residency): (Arc<dyn Changes>, Arc<dyn Residency>) = match &replica {
            Some(replica) => (Arc::clone(replica) as _, Arc::clone(replica) as _),
            None => (Arc::new(Standalone), Arc::new(Standalone)),
        };
        Arc::new(Self {
            volume,
            options,
            changes,
            residency,
            replica,
            syncs: Arc::default(),
            background: Mutex::default(),
        })
    }

    /// Returns the store below.
    pub fn store(&self) -> &Arc<Store> {
        self.volume.store()
    }

    /// Returns what this machine and the server of the volume have to do with each other; `None`: the volume has no server.
    pub fn replica(&self) -> Option<&Arc<Replica>> {
        self.replica.as_ref()
    }

    /// Returns where the content of an object is, and where it would be read from; of a directory, how much of what is known below it is here.
    ///
    /// # Errors
    /// [`FsError::Stale`], [`FsError::Invalid`].
    pub fn whereabouts(&self, no: ObjectNo) -> Result<Whereabouts, FsError> {
        match &self.replica {
            Some(replica) => replica.whereabouts(no),
            None => Whereabouts::without_server(&self.volume, no),
        }
    }

    /// Has everything that the kernel must forget told to `sink`. Only the first call counts.
    pub fn on_invalidation(&self, sink: Arc<dyn InvalidationSink>) {
        self.volume.invalidations().register(sink);
    }

    /// Counts `n` more references of the kernel to an object.
    pub fn hold(&self, no: ObjectNo, n: u64) {
        self.volume.hold(no, n);
    }

    /// Takes back `n` references. The last one of an object without a name gives the object back.
    pub fn release(&self, no: ObjectNo, n: u64) {
        self.volume.release(no, n, &*self.changes);
    }

    /// Waits, where that is wanted, until the server has everything that is durable here.
    fn sync_at_server(&self) -> Result<(), FsError> {
        self.replica
            .as_ref()
            .map_or(Ok(()), |replica| replica.sync_remote())
    }

    /// Starts an operation.
    fn begin(&self, cost: Cost) -> Result<Op<'_>, StoreError> {
        self.volume.begin(cost, &*self.changes)
    }

    /// Returns the name that an operation in `parent` is about. That `parent` is a directory is checked first.
    fn name_in(&self, parent: ObjectNo, name: &[u8]) -> Result<Name, FsError> {
        if !self.store().attr(parent)?.kind.is_dir() {
            return Err(FsError::NotDir);
        }
        let name = Name::new(name)?;
        self.residency.list(parent)?;
        Ok(name)
    }
}
