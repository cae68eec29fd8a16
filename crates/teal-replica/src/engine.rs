//! The replica: its parts, and what they share.

use super::counters::UpstreamCounters;
use super::identity::ReplicaIdentity;
use super::listings::Listings;
use super::news::NewsPosition;
use super::note::ObjectNote;
use super::options::UpstreamOptions;
use super::own_identity::OwnIdentity;
use super::settled_content::SettledContent;
use super::state::SharedState;
use super::{backlog, drives, eviction_clock, pin_set, prefetch_target, prefetch_window, stuck};
use crate::note::NoteSummary;
use parking_lot::{Mutex, MutexGuard};
use std::ops::ControlFlow;
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
/// The longest time that a position waits until the kernel has heard of all changes up to it. The
/// kernel hears within microseconds, unless it keeps a page locked for a request that itself waits
/// for the server or for the position.
pub(crate) const HEARD_WITHIN: Duration = Duration::from_secs(2);
/// This replica of the volume.
///
/// Its parts are components that keep their invariants themselves; the fields are private to this
/// file, and other files ask for the part that they change.
pub struct Replica {
    volume: Arc<Volume>,
    /// Is true once the threads that talk to the server have been started.
    has_threads: AtomicBool,
    upstream: Arc<dyn Upstream>,
    options: UpstreamOptions,
    device: String,
    identity: OwnIdentity,
    news: NewsPosition,
    listings: Listings,
    /// The objects that cannot be sent or installed. This is a leaf lock.
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
    settled_content: SettledContent,
    drives: drives::AttachedDrives,
    pin_work: pin_set::PinWork,
    domain: OnceLock<DedupDomain>,
    counters: UpstreamCounters,
}

impl std::fmt::Debug for Replica {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Replica")
            .field("identity", &self.identity)
            .finish_non_exhaustive()
    }
}

/// Stands for the server of a volume when this mount was not told the server's address.
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
    /// Returns the replica in a store, without a server to talk to: changes are noted for the
    /// server. Returns `None` if the store holds no replica.
    ///
    /// # Errors
    /// Errors of reading the replica's identity.
    pub fn without_server(volume: &Arc<Volume>) -> Result<Option<Arc<Self>>, FsError> {
        let Some(identity) = ReplicaIdentity::load(volume.store())? else {
            return Ok(None);
        };
        let replica = Self::new(volume, None, identity, "", UpstreamOptions::default());
        replica.number_standalone();
        Ok(Some(Arc::new(replica)))
    }

    /// Returns the replica in a store, of the volume behind `upstream`. `device` is the name of
    /// this machine for people. A store that held no replica gets one: all its content is sent, or
    /// with `joins` its root must be empty, and the server's content comes as it is needed.
    ///
    /// # Errors
    /// Errors of reading or writing the replica's identity; [`FsError::NotEmpty`] when a store that
    /// joins has something in it.
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
        // The first time: the store becomes a replica.
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
            settled_content: SettledContent::default(),
            drives: drives::AttachedDrives::default(),
            pin_work: pin_set::PinWork::for_pins(&identity.pins),
            domain: OnceLock::new(),
            counters: UpstreamCounters::default(),
        }
    }

    /// Returns the position: the commit up to which history is applied.
    pub(crate) fn position(&self) -> CommitSeq {
        self.identity.seen()
    }

    /// Returns the identity of this replica.
    pub(crate) fn identity(&self) -> ReplicaIdentity {
        self.identity.get()
    }

    /// Returns the owner of the identity, which changes it and takes numbers.
    pub(crate) fn own_identity(&self) -> &OwnIdentity {
        &self.identity
    }

    /// Returns from where on the server is asked for news.
    pub(crate) fn news(&self) -> &NewsPosition {
        &self.news
    }

    /// Returns the directory that is being listed at the moment.
    pub(crate) fn listings(&self) -> &Listings {
        &self.listings
    }

    /// Locks the list of what cannot be sent or installed.
    pub(crate) fn stuck(&self) -> MutexGuard<'_, stuck::StuckList> {
        self.stuck.lock()
    }

    /// Returns the state that the replica's threads share.
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

    /// Returns the content of own commits that the position has not reached.
    pub(crate) fn settled_content(&self) -> &SettledContent {
        &self.settled_content
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
    pub(crate) fn counters(&self) -> &UpstreamCounters {
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
        // A fixed number of locks is shared by all objects.
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

    /// Takes the lock under which the server's state is installed.
    pub(crate) fn lock_applying(&self) -> Result<RankedMutexGuard<'_, ()>, UpstreamError> {
        let applying = self.hold_position();
        // While the server's restored state is compared with this one, none of its changes may be
        // installed.
        if self.identity().offer == 0 {
            return Ok(applying);
        }
        Err(UpstreamError::Unreachable(
            "the server was restored from an older copy, and is being compared with what is here"
                .into(),
        ))
    }

    /// Returns the key by which chunks of this volume are named. It is known once the server has
    /// said welcome.
    pub(crate) fn chunk_domain(&self) -> Result<&DedupDomain, UpstreamError> {
        self.domain
            .get()
            .ok_or_else(|| UpstreamError::Unreachable("no connection yet".into()))
    }

    /// Returns the proof that a client of the volume wrote a drive's label, made with the key of
    /// the server, or with the last known one.
    pub(crate) fn label_proof(&self, said: &[u8]) -> Result<[u8; 32], UpstreamError> {
        let key = self.identity().key;
        // Without a connection yet, the key of the last one is used.
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
        // Looked at before the call: the batch may end meanwhile.
        let begun = (self.monotonic(), self.drives.is_sending());
        let said = self.upstream.call(request, deadline);
        self.record_reply(begun, request, said)
    }

    /// Sends several requests at the same time, as [`call_server`](Self::call_server) does with
    /// one.
    pub(crate) fn call_all(
        &self,
        requests: &[ClientRequest],
        deadline: Duration,
    ) -> Vec<Result<ServerReply, UpstreamError>> {
        for request in requests.iter() {
            self.counters.asked(request);
        }
        // Looked at before the calls: the batch may end meanwhile.
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
        // Only real answers say how fast the server is.
        if let Ok(reply) = &said {
            self.drives
                .note_answer(request, reply, (now.saturating_sub(begun), is_busy));
        }
        // After a slow failure, readers do not try again themselves: the puller does.
        self.state.record(&said, now, now.saturating_sub(begun));
        said
    }
}

impl Replica {
    /// Returns the objects that have a wanted note, ascending. The head of a note is enough to
    /// tell.
    ///
    /// # Errors
    /// Errors of reading the notes.
    pub(crate) fn noted_objects(
        &self,
        is_wanted: impl Fn(&NoteSummary) -> bool,
    ) -> Result<Vec<ObjectNo>, StoreError> {
        let mut found = Vec::new();
        self.store().each_note(ObjectNo::ROOT, &mut |no, head| {
            if is_wanted(&ObjectNote::summary(head)) {
                found.push(no);
            }
            ControlFlow::Continue(())
        })?;
        debug_assert!(
            found.is_sorted(),
            "notes are not in the order of their objects"
        );
        Ok(found)
    }

    /// Returns the note of an object; the default note if it has none.
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
