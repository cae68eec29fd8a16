//! A mounted volume: what its operations work on.

use crate::access_times::UnwrittenAccessTimes;
use crate::background_state::BackgroundState;
use crate::options::FileSystemOptions;
use crate::sync_queue::SyncQueue;
use parking_lot::Mutex;
use std::sync::Arc;
use teal_device::Upstream;
use teal_env::Clock;
use teal_log::{Cost, Store, StoreError, StoreOperation};
use teal_replica::{ContentLocations, Replica, UpstreamOptions};
use teal_types::{Name, ObjectNo};
use teal_volume::{ChangeRecorder, FsError, InvalidationSink, Residency, Standalone, Volume};

/// A mounted local volume. All methods may be called from any thread.
pub struct FileSystem {
    pub(crate) volume: Arc<Volume>,
    pub(crate) options: FileSystemOptions,
    /// Is told of every change.
    pub(crate) changes: Arc<dyn ChangeRecorder>,
    /// Brings what is not here.
    pub(crate) residency: Arc<dyn Residency>,
    /// The replica in this store, if the volume has a server. It is started and ended together with
    /// the file system.
    pub(crate) replica: Option<Arc<Replica>>,
    pub(crate) access_times: UnwrittenAccessTimes,
    pub(crate) syncs: Arc<SyncQueue>,
    pub(crate) background: Mutex<BackgroundState>,
}

impl std::fmt::Debug for FileSystem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FileSystem")
            .field("volume", &self.volume)
            .finish_non_exhaustive()
    }
}

impl FileSystem {
    /// Returns a file system of an open store.
    ///
    /// If the store is a replica's, changes are noted for its server, which is not given here.
    ///
    /// # Errors
    /// Errors of reading the note of the replica's identity.
    pub fn new(
        store: Arc<Store>,
        clock: Arc<dyn Clock>,
        options: FileSystemOptions,
    ) -> Result<Arc<Self>, FsError> {
        let volume = Volume::new(store, clock, options.reclaim_step);
        let replica = Replica::without_server(&volume)?;
        Ok(Self::assemble(volume, options, replica))
    }

    /// Returns a file system of an open store that is, or becomes, a replica of the volume behind
    /// `upstream`. `device`: its name for people. A store that was not one before becomes one: all
    /// its content is sent. With `joins`, its root is empty and the server's content is fetched as
    /// it is needed.
    ///
    /// # Errors
    /// Errors of reading or writing the note of the replica's identity; [`FsError::NotEmpty`] when
    /// a store that joins is not empty.
    pub fn replica_of(
        store: Arc<Store>,
        clock: Arc<dyn Clock>,
        options: FileSystemOptions,
        upstream: Arc<dyn Upstream>,
        device: &str,
        (joins, of_upstream): (bool, UpstreamOptions),
    ) -> Result<Arc<Self>, FsError> {
        let volume = Volume::new(store, clock, options.reclaim_step);
        let replica = Replica::of_server(&volume, upstream, device, of_upstream, joins)?;
        Ok(Self::assemble(volume, options, Some(replica)))
    }

    fn assemble(
        volume: Arc<Volume>,
        options: FileSystemOptions,
        replica: Option<Arc<Replica>>,
    ) -> Arc<Self> {
        // Without a server, changes are not recorded and all content is here.
        let (changes, residency): (Arc<dyn ChangeRecorder>, Arc<dyn Residency>) = match &replica {
            Some(replica) => (Arc::clone(replica) as _, Arc::clone(replica) as _),
            None => (Arc::new(Standalone), Arc::new(Standalone)),
        };
        Arc::new(Self {
            volume,
            options,
            changes,
            residency,
            replica,
            access_times: UnwrittenAccessTimes::default(),
            syncs: Arc::default(),
            background: Mutex::default(),
        })
    }

    /// Returns the store below.
    pub fn store(&self) -> &Arc<Store> {
        self.volume.store()
    }

    /// Returns what this machine and the server of the volume have to do with each other; `None`:
    /// the volume has no server.
    pub fn replica(&self) -> Option<&Arc<Replica>> {
        self.replica.as_ref()
    }

    /// Returns where the content of an object is, and where it would be read from; of a directory,
    /// how much of what is known below it is here.
    ///
    /// # Errors
    /// [`FsError::Stale`], [`FsError::Invalid`].
    pub fn locate_content(&self, no: ObjectNo) -> Result<ContentLocations, FsError> {
        match &self.replica {
            Some(replica) => replica.locate_content(no),
            None => ContentLocations::without_server(&self.volume, no),
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

    /// Waits, where that is wanted, until the server has all content that is durable here.
    pub(crate) fn sync_at_server(&self) -> Result<(), FsError> {
        self.replica
            .as_ref()
            .map_or(Ok(()), |replica| replica.sync_remote())
    }

    /// Starts an operation.
    pub(crate) fn begin_operation(&self, cost: Cost) -> Result<StoreOperation<'_>, StoreError> {
        self.volume.begin_operation(cost, &*self.changes)
    }

    /// Returns the name that an operation in `parent` is about. That `parent` is a directory is
    /// checked first.
    pub(crate) fn name_in(&self, parent: ObjectNo, name: &[u8]) -> Result<Name, FsError> {
        // The kind is checked first, so that the error is that of Linux.
        if !self.store().attr(parent)?.kind.is_dir() {
            return Err(FsError::NotDir);
        }
        let name = Name::new(name)?;
        // The directory may still have to be fetched.
        self.residency.make_listed(parent)?;
        Ok(name)
    }
}
