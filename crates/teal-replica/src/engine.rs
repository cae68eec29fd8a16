//! The replica: its parts, and what they share.

use super::counters::Counters;
use super::identity::ReplicaIdentity;
use super::listings::Listings;
use super::news::NewsPosition;
use super::note::ObjectNote;
use super::options::UpstreamOptions;
use super::own_identity::OwnIdentity;
use super::state::SharedState;
use super::{backlog, drives, eviction_clock, pin_set, prefetch_target, prefetch_window, stuck};
use parking_lot::{Mutex, MutexGuard};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use teal_chunk::{DedupDomain, DomainId};
use teal_device::{Upstream, UpstreamError};
use teal_env::Clock;
use teal_log::{Cost, Store, StoreError, StoreOperation};
use teal_proto::{ClientRequest, ServerReply};
use teal_types::{CommitSeq, ObjectNo};
use teal_volume::{FsError, LockRank, RankedMutex, RankedMutexGuard, RankedRwLock, Volume};

/// Objects share this many locks of their content.
const CONTENT_LOCKS: u64 = 64;
/// How long a position waits for the kernel to hear what has changed up to it. It hears within
/// microseconds, but for a page that is locked until a request is answered that waits for the
/// server, or for the position.
pub(crate) const HEARD_WITHIN: Duration = Duration::from_secs(2);
/// This replica of the volume.
///
/// Its parts are components that keep their invariants themselves; the fields are private to this
/// file, and other files ask for the part that they change.
pub struct Replica {
    volume: Arc<Volume>,
    /// Whether the threads that talk to the server have been started.
    has_threads: AtomicBool,
    upstream: Arc<dyn Upstream>,
    options: UpstreamOptions,
    device: String,
    identity: OwnIdentity,
    news: NewsPosition,
    listings: Listings,
    /// What cannot be sent or installed; a leaf lock.
    stuck: Mutex<stuck::StuckList>,
    flushing: RankedMutex<()>,
    applying: RankedMutex<()>,
    content_locks: Vec<RankedRwLock<()>>,
    state: SharedState,
    names_ahead: prefetch_window::PrefetchWindow,
    content_ahead: prefetch_window::PrefetchWindow,
    fetches_in_flight: prefetch_window::FetchesInFlight,
    prefetch_target: prefetch_target::PrefetchTarget,
    backlog: backlog::Backlog,
    eviction_clock: eviction_clock::EvictionClock,
    drives: drives::AttachedDrives,
    pin_work: pin_set::PinWork,
    domain: OnceLock<DedupDomain>,
    counters: Counters,
}

impl std::fmt::Debug for Replica {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Replica")
            .field("identity", &self.identity)
            .finish_non_exhaustive()
    }
}

/// The server of a volume whose server nobody has told the address of.
#[derive(Debug)]
struct UnknownServer;

impl Upstream for UnknownServer {
    fn call(&self, _: &ClientRequest, _: Duration) -> Result<ServerReply, UpstreamError> {
        Err(UpstreamError::Unreachable(
            "this mount was not told where the server is".into(),
        ))
    }
}

impl Replica {
    /// Returns the replica that a store is, without a server to talk to: changes are noted for it.
    /// `None`: the store is no replica's.
    ///
    /// # Errors
    /// What reading the note of who this replica is met.
    pub fn without_server(volume: &Arc<Volume>) -> Result<Option<Arc<Self>>, FsError> {
        let Some(identity) = ReplicaIdentity::load(volume.store())? else {
            return Ok(None);
        };
        let replica = Self::new(volume, None, identity, "", UpstreamOptions::default());
        replica.number_standalone();
        Ok(Some(Arc::new(replica)))
    }

    /// Returns the replica that a store is, or becomes, of the volume behind `upstream`. `device`:
    /// the name of this machine for people. A store that was not one before becomes one: all that
    /// is in it is sent, or with `joins` its root is empty and what the server has comes here as it
    /// is needed.
    ///
    /// # Errors
    /// What reading or setting the note of who this replica is met; [`FsError::NotEmpty`] when a
    /// store that joins has something in it.
    pub fn of_server(
        volume: &Arc<Volume>,
        upstream: Arc<dyn Upstream>,
        device: &str,
        options: UpstreamOptions,
        joins: bool,
    ) -> Result<Arc<Self>, FsError> {
        let known = ReplicaIdentity::load(volume.store())?;
        let identity = known.unwrap_or_default();
        let replica = Self::new(volume, Some(upstream), identity, device, options);
        if known.is_none() {
            replica.begin_replica(joins)?;
        }
        replica.number_standalone();
        Ok(Arc::new(replica))
    }

    fn new(
        volume: &Arc<Volume>,
        upstream: Option<Arc<dyn Upstream>>,
        identity: ReplicaIdentity,
        device: &str,
        options: UpstreamOptions,
    ) -> Self {
        Self {
            volume: Arc::clone(volume),
            has_threads: AtomicBool::new(false),
            upstream: upstream.unwrap_or_else(|| Arc::new(UnknownServer)),
            options,
            device: device.to_owned(),
            identity: OwnIdentity::new(identity),
            news: NewsPosition::default(),
            listings: Listings::default(),
            stuck: Mutex::default(),
            flushing: RankedMutex::new(LockRank::Flush, ()),
            applying: RankedMutex::new(LockRank::Apply, ()),
            content_locks: (0..CONTENT_LOCKS)
                .map(|_| RankedRwLock::new(LockRank::Content, ()))
                .collect(),
            state: SharedState::new(),
            names_ahead: prefetch_window::PrefetchWindow::new(
                prefetch_window::NAMES_LEAST,
                options.names_ahead.into(),
            ),
            content_ahead: prefetch_window::PrefetchWindow::new(
                prefetch_window::CONTENT_LEAST,
                options.content_ahead,
            ),
            fetches_in_flight: prefetch_window::FetchesInFlight::default(),
            prefetch_target: prefetch_target::PrefetchTarget::default(),
            backlog: backlog::Backlog::default(),
            eviction_clock: eviction_clock::EvictionClock::default(),
            drives: drives::AttachedDrives::default(),
            pin_work: pin_set::PinWork::for_pins(&identity.pins),
            domain: OnceLock::new(),
            counters: Counters::default(),
        }
    }

    /// How far history is applied.
    pub(crate) fn position(&self) -> CommitSeq {
        self.identity.seen()
    }

    /// Returns who this replica is.
    pub(crate) fn identity(&self) -> ReplicaIdentity {
        self.identity.get()
    }

    /// Returns who this replica is, to change it or to take a number.
    pub(crate) fn own_identity(&self) -> &OwnIdentity {
        &self.identity
    }

    /// Returns from where on the server is asked for news.
    pub(crate) fn news(&self) -> &NewsPosition {
        &self.news
    }

    /// Returns which directory's entries are just coming in.
    pub(crate) fn listings(&self) -> &Listings {
        &self.listings
    }

    /// Locks the list of what cannot be sent or installed.
    pub(crate) fn stuck(&self) -> MutexGuard<'_, stuck::StuckList> {
        self.stuck.lock()
    }

    /// Returns what the threads tell each other.
    pub(crate) fn state(&self) -> &SharedState {
        &self.state
    }

    /// Returns how many names come ahead.
    pub(crate) fn names_ahead(&self) -> &prefetch_window::PrefetchWindow {
        &self.names_ahead
    }

    /// Returns how much content comes ahead.
    pub(crate) fn content_ahead(&self) -> &prefetch_window::PrefetchWindow {
        &self.content_ahead
    }

    /// Returns what is being fetched.
    pub(crate) fn flights(&self) -> &prefetch_window::FetchesInFlight {
        &self.fetches_in_flight
    }

    /// Returns where content is to be fetched ahead.
    pub(crate) fn lookout(&self) -> &prefetch_target::PrefetchTarget {
        &self.prefetch_target
    }

    /// Returns how many bytes are only here.
    pub(crate) fn backlog(&self) -> &backlog::Backlog {
        &self.backlog
    }

    /// Returns which objects were used.
    pub(crate) fn recency(&self) -> &eviction_clock::EvictionClock {
        &self.eviction_clock
    }

    /// Returns the drives that are attached.
    pub(crate) fn drive_set(&self) -> &drives::AttachedDrives {
        &self.drives
    }

    /// Returns what is to be fetched because it is pinned.
    pub(crate) fn pinning(&self) -> &pin_set::PinWork {
        &self.pin_work
    }

    /// Returns what has passed between this replica and the server.
    pub(crate) fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Returns what is set of the server.
    pub(crate) fn options(&self) -> &UpstreamOptions {
        &self.options
    }

    /// Returns the name of this machine for people.
    pub(crate) fn device_name(&self) -> &str {
        &self.device
    }

    /// Returns the volume below.
    pub(crate) fn volume(&self) -> &Volume {
        &self.volume
    }

    /// Returns whether the threads that talk to the server have been started.
    pub(crate) fn has_threads(&self) -> bool {
        self.has_threads.load(Ordering::Acquire)
    }

    /// Notes that the threads that talk to the server are started.
    pub(crate) fn set_has_threads(&self) {
        self.has_threads.store(true, Ordering::Release);
    }

    /// Begins a flush, or what must not be done during one: one thread at a time.
    pub(crate) fn hold_flush(&self) -> RankedMutexGuard<'_, ()> {
        self.flushing.lock()
    }

    /// Holds the position in history: one thread advances it at a time.
    pub(crate) fn hold_position(&self) -> RankedMutexGuard<'_, ()> {
        self.applying.lock()
    }

    /// Holds the position in history, unless another thread does.
    pub(crate) fn try_hold_position(&self) -> Option<RankedMutexGuard<'_, ()>> {
        self.applying.try_lock()
    }

    /// Returns the lock of whether the content of an object is here.
    pub(crate) fn residency_lock(&self, no: ObjectNo) -> &RankedRwLock<()> {
        &self.content_locks[(no.get() % CONTENT_LOCKS) as usize]
    }

    /// Returns the store of the volume.
    pub(crate) fn store(&self) -> &Store {
        self.volume.store()
    }

    /// Returns the clock of this machine.
    pub(crate) fn clock(&self) -> &Arc<dyn Clock> {
        self.volume.clock()
    }

    /// Returns the time by which intervals are measured.
    pub(crate) fn monotonic(&self) -> Duration {
        self.volume.monotonic()
    }

    /// Starts an operation.
    pub(crate) fn begin_operation(&self, cost: Cost) -> Result<StoreOperation<'_>, StoreError> {
        self.volume.begin_operation(cost, self)
    }

    /// For whoever installs what the server has.
    pub(crate) fn lock_applying(&self) -> Result<RankedMutexGuard<'_, ()>, UpstreamError> {
        let applying = self.hold_position();
        if self.identity().offer == 0 {
            return Ok(applying);
        }
        Err(UpstreamError::Unreachable(
            "the server was restored from an older copy, and is being compared with what is here"
                .into(),
        ))
    }

    /// The key that chunks of this volume are named with; known once the server has said welcome.
    pub(crate) fn chunk_domain(&self) -> Result<&DedupDomain, UpstreamError> {
        self.domain
            .get()
            .ok_or_else(|| UpstreamError::Unreachable("no connection yet".into()))
    }

    /// The proof that a client of the volume wrote a drive's label: with the key of the server, or
    /// that which it had when it was last there.
    pub(crate) fn label_proof(&self, said: &[u8]) -> Result<[u8; 32], UpstreamError> {
        let key = self.identity().key;
        match self.chunk_domain() {
            Ok(domain) => Ok(*domain.name_content(said).get()),
            Err(e) if key == [0; 32] => Err(e),
            Err(_) => Ok(*DedupDomain::new(DomainId::new([0; 16]), key)
                .name_content(said)
                .get()),
        }
    }

    pub(crate) fn set_domain(&self, key: [u8; 32]) {
        self.domain
            .get_or_init(|| DedupDomain::new(DomainId::new([0; 16]), key));
    }

    /// Asks the server and keeps in mind whether it could be reached.
    pub(crate) fn call_server(
        &self,
        request: &ClientRequest,
        deadline: Duration,
    ) -> Result<ServerReply, UpstreamError> {
        self.counters.asked(request);
        let begun = (self.monotonic(), self.drives.is_sending());
        let said = self.upstream.call(request, deadline);
        self.record_reply(begun, request, said)
    }

    /// The same with several requests at the same time.
    pub(crate) fn call_all(
        &self,
        requests: &[ClientRequest],
        deadline: Duration,
    ) -> Vec<Result<ServerReply, UpstreamError>> {
        requests
            .iter()
            .for_each(|request| self.counters.asked(request));
        let begun = (self.monotonic(), self.drives.is_sending());
        let said = self.upstream.call_all(requests, deadline);
        requests
            .iter()
            .zip(said)
            .map(|(request, said)| self.record_reply(begun, request, said))
            .collect()
    }

    pub(crate) fn record_reply(
        &self,
        (begun, is_busy): (Duration, bool),
        request: &ClientRequest,
        said: Result<ServerReply, UpstreamError>,
    ) -> Result<ServerReply, UpstreamError> {
        let said = said.and_then(|reply| match reply {
            ServerReply::Refused(refused) => Err(UpstreamError::Refused(refused)),
            reply => Ok(reply),
        });
        let now = self.monotonic();
        said.iter().for_each(|reply| {
            self.drives
                .note_answer(request, reply, (now.saturating_sub(begun), is_busy))
        });
        self.state.record(&said, now, now.saturating_sub(begun));
        said
    }
}

impl Replica {
    /// The note of an object.
    pub(crate) fn note_of(&self, no: ObjectNo) -> Result<ObjectNote, StoreError> {
        let Some(bytes) = self.store().note(no)? else {
            return Ok(ObjectNote::default());
        };
        let damaged = StoreError::Corrupt {
            what: "the note of an object",
            at: 0,
            object: Some(no),
        };
        ObjectNote::decode(&bytes).ok_or(damaged)
    }
}
