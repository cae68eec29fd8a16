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
//! # Locks, in the order in which they may be taken
//! | lock | guards | under it |
//! |---|---|---|
//! | `namespace` | shared by every change of names; exclusive for one that lost its race too often | whole operations |
//! | `moves` | which directory lies in which: moves of directories between directories | whole operations |
//! | `doomed.digging` | one step of giving back at a time | that step |
//! | the store's | see [`teal_log::Store`] | |
//! | `references`, `doomed.queue`, `bell` | what they are called | nothing |

mod acl;
mod attributes;
mod background;
mod content;
mod copying;
mod error;
mod listing;
mod make;
mod options;
mod orphans;
mod pace;
mod references;
mod remove;
mod rename;
#[cfg(feature = "seeded-bugs")]
pub mod seeded;
#[cfg(not(feature = "seeded-bugs"))]
#[allow(unreachable_pub, dead_code, reason = "public with the feature only")]
mod seeded;
mod status;
mod syncing;
mod upstream;
mod xattr;

pub use attributes::{SetAttrRequest, TimeChange};
pub use content::{FallocateMode, Seek, WRITE_STEP, WriteFlags};
pub use error::FsError;
pub use listing::DirEntry;
pub use options::{AtimePolicy, Caller, ClientOptions};
pub use rename::RenameMode;
pub use status::{Remaining, StatFs, Status};
pub use upstream::{
    Affinity, DriveRefused, DriveShown, Freed, Invalidation, KnownDrive, KnownDrives, Link,
    Listener, Moment, NewDrive, PinRefused, Pinned, PinsShown, Price, SourceShown, StuckObject,
    StuckWay, Unsent, UpstreamOptions, UpstreamStatus, Whereabouts,
};
pub use xattr::XattrMode;

use background::{Background, Bell};
use orphans::Doomed;
use parking_lot::{Mutex, RwLock};
use references::References;
use std::sync::Arc;
use syncing::SyncQueue;
use teal_device::Upstream;
use teal_env::Clock;
use teal_log::{Store, StoreError};
use teal_types::{Name, ObjectNo, Timestamp};
use upstream::{Identity, Replica};

/// A mounted local volume. All methods may be called from any thread.
pub struct Client {
    store: Arc<Store>,
    clock: Arc<dyn Clock>,
    options: ClientOptions,
    namespace: RwLock<()>,
    moves: Mutex<()>,
    references: References,
    doomed: Doomed,
    bell: Arc<Bell>,
    syncs: Arc<SyncQueue>,
    background: Mutex<Background>,
    replica: Option<Arc<Replica>>,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client")
            .field("store", &self.store)
            .finish_non_exhaustive()
    }
}

impl Client {
    /// A client of an open store.
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
        let identity = Identity::of(&store)?;
        let replica =
            identity.map(|identity| Replica::new(None, identity, "", UpstreamOptions::default()));
        let client = Self::with(store, clock, options, replica);
        client.number_alone();
        Ok(client)
    }

    /// A client of an open store that is, or becomes, a replica of the volume behind `upstream`. `device`: its name for people.
    /// A store that was not one before becomes one: all that is in it is sent, or with `joins` its root is empty and what the server has
    /// comes here as it is needed.
    ///
    /// # Errors
    /// What reading or setting the note of who this replica is met; [`FsError::NotEmpty`] when a store that joins has something in it.
    pub fn replica(
        store: Arc<Store>,
        clock: Arc<dyn Clock>,
        options: ClientOptions,
        upstream: Arc<dyn Upstream>,
        device: &str,
        (joins, of_upstream): (bool, UpstreamOptions),
    ) -> Result<Arc<Self>, FsError> {
        let known = Identity::of(&store)?;
        let replica = Replica::new(
            Some(upstream),
            known.unwrap_or_default(),
            device,
            of_upstream,
        );
        let client = Self::with(store, clock, options, Some(replica));
        if known.is_none() {
            client.begin_replica(joins)?;
        }
        client.number_alone();
        Ok(client)
    }

    fn with(
        store: Arc<Store>,
        clock: Arc<dyn Clock>,
        options: ClientOptions,
        replica: Option<Replica>,
    ) -> Arc<Self> {
        Arc::new(Self {
            store,
            clock,
            options,
            namespace: RwLock::new(()),
            moves: Mutex::new(()),
            references: References::new(),
            doomed: Doomed::default(),
            bell: Arc::default(),
            syncs: Arc::default(),
            background: Mutex::default(),
            replica: replica.map(Arc::new),
        })
    }

    /// The store below.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    fn now(&self) -> Timestamp {
        self.clock.civil()
    }

    /// Runs an operation on `no` that holds no lock when it returns, and names the object if it met damage.
    fn on<T>(
        &self,
        no: ObjectNo,
        operation: impl FnOnce() -> Result<T, FsError>,
    ) -> Result<T, FsError> {
        operation().inspect_err(|e| {
            if let FsError::Io(e @ (StoreError::Corrupt { .. } | StoreError::Io { .. })) = e {
                log::error!("{}: {e}", self.store.path_of(no));
            }
        })
    }

    /// The name an operation in `parent` is about; that `parent` is a directory comes first.
    fn name_in(&self, parent: ObjectNo, name: &[u8]) -> Result<Name, FsError> {
        if !self.store.attr(parent)?.kind.is_dir() {
            return Err(FsError::NotDir);
        }
        let name = Name::new(name)?;
        self.listed(parent)?;
        Ok(name)
    }
}
