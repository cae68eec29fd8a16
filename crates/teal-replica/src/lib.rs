//! This replica and the server: what it owes, what it knows, what it fetches.
//!
//! # Guarantees
//! 1. *Nothing is forgotten*: whatever changes here is noted as pending in the batch of the change, and stays noted until the server has
//!    committed it or has said what became of it.
//! 2. *Nothing is mixed*: a state of the server is installed component by component, and never over one that is pending or flying here.
//! 3. *Absent is not unreachable*: what only the server has is noted as absent; reading it fetches it or fails with
//!    [`FsError::Unreachable`], and is never an empty file or a missing name.
//! 4. *Nobody waits for the server* who does not need something that only it has.
//!
//! # How
//! 1. [`note`] beside each object says what is pending, what flies in a batch, what is absent. `changes` sets it as operations change objects.
//! 2. A flush (`flush`) takes a cut: under the exclusive namespace lock, what is pending begins to fly, and becomes operations (`cut`);
//!    then content is read and sent in chunks (`content`), then the batch is committed at the server.
//! 3. What has changed at the server comes as states (`pull`) and is installed (`install`, `names`); own batches are recognised in it (`settle`).
//! 4. `list` fetches the entries of directories that are not here, `fetch` content, each with more than is needed (`ahead`, `around`, `fetch_ahead`); `run` decides
//!    when what happens. What is always to be here is fetched by itself (`pin`); other content makes way (`evict`).
//!
//! # Locks
//! Those with a rank are in the table of [`teal_volume`]. A *flight* (`ahead`), by bytes of an object, keeps others from fetching them;
//! it is taken before `Namespace`, and what was found in flight is waited for without any lock. All others are leaves.

mod ahead;
mod announce;
mod around;
mod changes;
mod connect;
mod content;
mod cut;
mod drives;
mod evict;
mod fetch;
mod fetch_ahead;
mod flush;
mod held;
mod identity;
mod install;
mod keep;
mod large;
mod list;
mod names;
mod note;
mod offer;
mod pin;
mod pull;
mod queue;
mod renumber;
mod residency;
mod run;
#[cfg(feature = "seeded-bugs")]
pub mod seeded;
#[cfg(not(feature = "seeded-bugs"))]
#[allow(unreachable_pub, dead_code, reason = "public with the feature only")]
mod seeded;
mod settle;
mod status;
mod tails;
mod trail;

pub use drives::{
    Affinity, DriveRefused, DriveShown, KnownDrive, KnownDrives, NewDrive, Price, SourceShown,
    Whereabouts,
};
pub use held::{StuckObject, StuckWay};
pub use pin::{Freed, PinRefused, Pinned, PinsShown};
pub use run::UpstreamOptions;
pub use status::{Link, Unsent, UpstreamStatus};

pub(crate) use identity::Identity;
pub(crate) use note::Note;

use crate::seeded::{Bug, bug};
use parking_lot::{Condvar, Mutex};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use teal_chunk::{Domain, DomainId};
use teal_device::{Upstream, UpstreamError};
use teal_env::Clock;
use teal_log::{Cost, Op, Store, StoreError};
use teal_proto::{RefusalCode, Refused, Reply, Request};
use teal_types::limits::BATCH_BYTES_MAX;
use teal_types::{CommitSeq, ObjectNo, ranges};
use teal_volume::{FsError, Rank, RankedMutex, RankedMutexGuard, RankedRwLock, Volume};

/// Objects share this many locks of their content.
const CONTENT_LOCKS: u64 = 64;
/// A server that does not answer makes others wait if it took longer than this to tell.
const SLOW: Duration = Duration::from_secs(1);
/// How long a position waits for the kernel to hear what has changed up to it. It hears within microseconds, but for a page that is locked
/// until a request is answered that waits for the server, or for the position.
const HEARD_WITHIN: Duration = Duration::from_secs(2);
/// What threads tell each other.
#[derive(Debug, Default)]
pub(crate) struct State {
    /// Monotonic time of the first change that no flush has taken along.
    pending_since: Option<Duration>,
    /// A batch has gone before large content, which is in the next one.
    is_large_next: bool,
    /// Whether another client of the volume is there.
    is_live: bool,
    stop: bool,
    /// Why the server cannot be asked, since when (monotonic); `None`: it can, as far as known.
    trouble: Option<(String, Duration)>,
    /// Finding that out took long: whoever needs the server is not made to wait for it again.
    is_slow: bool,
    /// Whoever asks in the background is to ask now.
    probe: bool,
    /// Whether somebody does.
    has_puller: bool,
    /// It will not do to ask again: this client is not welcome any more.
    is_denied: bool,
    /// Why the server does not take what it is sent, though it answers.
    stuck: Option<String>,
    /// Whether the server has said welcome since it could not be reached.
    is_connected: bool,
    /// A copy of this store has made objects with numbers that are this one's to give: it needs another life, whatever the server knows.
    is_copied: bool,
    /// Objects may need a second look.
    again: bool,
    /// Flushes that have ended, and those among them that ended well.
    flushes: u64,
    last_flush: Option<Duration>,
}

/// This replica of the volume.
pub struct Replica {
    volume: Arc<Volume>,
    /// Whether the threads that talk to the server have been started.
    has_threads: AtomicBool,
    upstream: Arc<dyn Upstream>,
    options: UpstreamOptions,
    device: String,
    pub(crate) identity: Mutex<Identity>,
    /// The next object number.
    next: Mutex<u64>,
    /// The commit up to which history is applied; a copy of what `identity` has.
    seen: AtomicU64,
    /// What the server has been told of what is kept here; changes under `applying`.
    told: Mutex<keep::Told>,
    /// How far there is nothing that concerns this replica: from a position, to a commit with its digest.
    quiet: Mutex<Option<(CommitSeq, CommitSeq, [u8; 32])>>,
    /// The directory whose entries are just coming in.
    listing: Mutex<Option<ObjectNo>>,
    /// Directories whose entries were here are to be listed again: names may have been looked up in them.
    lists_again: AtomicBool,
    /// What cannot be sent or installed; nothing is done under its lock.
    pub(crate) held: Mutex<held::Held>,
    flushing: RankedMutex<()>,
    applying: RankedMutex<()>,
    content_locks: Vec<RankedRwLock<()>>,
    state: Mutex<State>,
    changed: Condvar,
    names_ahead: ahead::Window,
    content_ahead: ahead::Window,
    flights: ahead::Flights,
    lookout: fetch_ahead::Lookout,
    queue: queue::Queue,
    evict: evict::Evict,
    pub(crate) drives: drives::Drives,
    pinning: pin::Pinning,
    domain: OnceLock<Domain>,
    pub(crate) counters: status::Counters,
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
struct Nowhere;

impl Upstream for Nowhere {
    fn call(&self, _: &Request, _: Duration) -> Result<Reply, UpstreamError> {
        Err(UpstreamError::Unreachable(
            "this mount was not told where the server is".into(),
        ))
    }
}

impl Replica {
    /// Returns the replica that a store is, without a server to talk to: changes are noted for it. `None`: the store is no replica's.
    ///
    /// # Errors
    /// What reading the note of who this replica is met.
    pub fn without_server(volume: &Arc<Volume>) -> Result<Option<Arc<Self>>, FsError> {
        let Some(identity) = Identity::of(volume.store())? else {
            return Ok(None);
        };
        let replica = Self::new(volume, None, identity, "", UpstreamOptions::default());
        replica.number_alone();
        Ok(Some(Arc::new(replica)))
    }

    /// Returns the replica that a store is, or becomes, of the volume behind `upstream`. `device`: the name of this machine for people.
    /// A store that was not one before becomes one: all that is in it is sent, or with `joins` its root is empty and what the server
    /// has comes here as it is needed.
    ///
    /// # Errors
    /// What reading or setting the note of who this replica is met; [`FsError::NotEmpty`] when a store that joins has something in it.
    pub fn of_server(
        volume: &Arc<Volume>,
        upstream: Arc<dyn Upstream>,
        device: &str,
        options: UpstreamOptions,
        joins: bool,
    ) -> Result<Arc<Self>, FsError> {
        let known = Identity::of(volume.store())?;
        let identity = known.unwrap_or_default();
        let replica = Self::new(volume, Some(upstream), identity, device, options);
        if known.is_none() {
            replica.begin_replica(joins)?;
        }
        replica.number_alone();
        Ok(Arc::new(replica))
    }

    fn new(
        volume: &Arc<Volume>,
        upstream: Option<Arc<dyn Upstream>>,
        identity: Identity,
        device: &str,
        options: UpstreamOptions,
    ) -> Self {
        let first = u64::from(identity.lease) * teal_types::LEASE;
        Self {
            volume: Arc::clone(volume),
            has_threads: AtomicBool::new(false),
            upstream: upstream.unwrap_or_else(|| Arc::new(Nowhere)),
            options,
            device: device.to_owned(),
            identity: Mutex::new(identity),
            next: Mutex::new(if bug(Bug::NumbersReused) {
                first
            } else {
                identity.reserved.max(first)
            }),
            seen: AtomicU64::new(identity.seen.get()),
            told: Mutex::default(),
            quiet: Mutex::default(),
            listing: Mutex::new(None),
            lists_again: AtomicBool::new(false),
            held: Mutex::default(),
            flushing: RankedMutex::new(Rank::Flush, ()),
            applying: RankedMutex::new(Rank::Apply, ()),
            content_locks: (0..CONTENT_LOCKS)
                .map(|_| RankedRwLock::new(Rank::Content, ()))
                .collect(),
            // What an earlier life could not place is noted with the objects.
            state: Mutex::new(State {
                again: true,
                ..State::default()
            }),
            changed: Condvar::new(),
            names_ahead: ahead::Window::new(list::LEAST, options.names_ahead.into()),
            content_ahead: ahead::Window::new(fetch::LEAST, options.content_ahead),
            flights: ahead::Flights::default(),
            lookout: fetch_ahead::Lookout::default(),
            queue: queue::Queue::default(),
            evict: evict::Evict::default(),
            drives: drives::Drives::default(),
            pinning: pin::Pinning::of(&identity.pins),
            domain: OnceLock::new(),
            counters: status::Counters::default(),
        }
    }

    /// How far history is applied.
    pub(crate) fn seen(&self) -> CommitSeq {
        CommitSeq::new(self.seen.load(Ordering::Acquire))
    }

    /// Returns the lock of whether the content of an object is here.
    fn content_lock(&self, no: ObjectNo) -> &RankedRwLock<()> {
        &self.content_locks[(no.get() % CONTENT_LOCKS) as usize]
    }

    /// Returns the store of the volume.
    fn store(&self) -> &Store {
        self.volume.store()
    }

    /// Returns the clock of this machine.
    fn clock(&self) -> &Arc<dyn Clock> {
        self.volume.clock()
    }

    /// Returns the time by which intervals are measured.
    fn monotonic(&self) -> Duration {
        self.volume.monotonic()
    }

    /// Starts an operation.
    fn begin(&self, cost: Cost) -> Result<Op<'_>, StoreError> {
        self.volume.begin(cost, self)
    }

    /// For whoever installs what the server has.
    fn apply(&self) -> Result<RankedMutexGuard<'_, ()>, UpstreamError> {
        let applying = self.applying.lock();
        if self.identity.lock().offer == 0 {
            return Ok(applying);
        }
        Err(UpstreamError::Unreachable(
            "the server was restored from an older copy, and is being compared with what is here"
                .into(),
        ))
    }

    /// The key that chunks of this volume are named with; known once the server has said welcome.
    fn domain(&self) -> Result<&Domain, UpstreamError> {
        self.domain
            .get()
            .ok_or_else(|| UpstreamError::Unreachable("no connection yet".into()))
    }

    /// The proof that a client of the volume wrote a drive's label: with the key of the server, or that which it had when it was last there.
    fn proof(&self, said: &[u8]) -> Result<[u8; 32], UpstreamError> {
        let key = self.identity.lock().key;
        match self.domain() {
            Ok(domain) => Ok(*domain.name(said).get()),
            Err(e) if key == [0; 32] => Err(e),
            Err(_) => Ok(*Domain::new(DomainId::new([0; 16]), key).name(said).get()),
        }
    }

    fn set_domain(&self, key: [u8; 32]) {
        self.domain
            .get_or_init(|| Domain::new(DomainId::new([0; 16]), key));
    }

    /// Asks the server and keeps in mind whether it could be reached.
    pub(crate) fn call(
        &self,
        request: &Request,
        deadline: Duration,
    ) -> Result<Reply, UpstreamError> {
        self.counters.asked(request);
        let begun = (self.monotonic(), self.drives.is_sending());
        let said = self.upstream.call(request, deadline);
        self.said(begun, request, said)
    }

    /// The same with several requests at the same time.
    pub(crate) fn call_all(
        &self,
        requests: &[Request],
        deadline: Duration,
    ) -> Vec<Result<Reply, UpstreamError>> {
        requests
            .iter()
            .for_each(|request| self.counters.asked(request));
        let begun = (self.monotonic(), self.drives.is_sending());
        let said = self.upstream.call_all(requests, deadline);
        requests
            .iter()
            .zip(said)
            .map(|(request, said)| self.said(begun, request, said))
            .collect()
    }

    fn said(
        &self,
        (begun, is_busy): (Duration, bool),
        request: &Request,
        said: Result<Reply, UpstreamError>,
    ) -> Result<Reply, UpstreamError> {
        let said = said.and_then(|reply| match reply {
            Reply::Refused(refused) => Err(UpstreamError::Refused(refused)),
            reply => Ok(reply),
        });
        let now = self.monotonic();
        said.iter().for_each(|reply| {
            self.drives
                .answered(request, reply, (now.saturating_sub(begun), is_busy))
        });
        let mut state = self.state.lock();
        match &said {
            Ok(_) => (state.is_denied, state.trouble) = (false, None),
            // Shut out while it waited for the answer.
            Err(UpstreamError::Refused(refused)) if refused.code == RefusalCode::Denied => {
                state.is_denied = true;
                state.trouble = Some((refused.words.clone(), now));
            }
            Err(UpstreamError::Refused(refused)) => {
                state.trouble = None;
                state.is_connected &= !matches!(
                    refused.code,
                    RefusalCode::Cloned | RefusalCode::Stopping | RefusalCode::BadRequest
                );
            }
            Err(UpstreamError::Denied(words)) => {
                state.is_denied = true;
                state.trouble = Some((words.clone(), now));
            }
            Err(e) => {
                (state.is_connected, state.is_denied) = (false, false);
                state.is_slow = now.saturating_sub(begun) > SLOW;
                state.trouble = Some((e.to_string(), now));
            }
        }
        said
    }
}

/// A reply that does not fit the request.
fn unexpected(what: &str) -> UpstreamError {
    UpstreamError::Protocol(teal_proto::CodecError::Malformed(format!(
        "an answer that does not fit: {what}"
    )))
}

/// Why something between this replica and the server did not work.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SyncError {
    #[error(transparent)]
    Upstream(#[from] UpstreamError),
    #[error(transparent)]
    Fs(#[from] FsError),
    /// Other changes go before the content of this batch.
    #[error("other changes go first")]
    Later,
    /// The operations of a batch are more than a server keeps.
    #[error("its operations are more than {BATCH_BYTES_MAX} bytes")]
    TooLarge,
}

impl From<StoreError> for SyncError {
    fn from(e: StoreError) -> Self {
        Self::Fs(e.into())
    }
}

impl From<Refused> for SyncError {
    fn from(refused: Refused) -> Self {
        Self::Upstream(refused.into())
    }
}

impl From<SyncError> for FsError {
    fn from(e: SyncError) -> Self {
        match e {
            SyncError::Fs(e) => e,
            e => Self::Unreachable(e.to_string()),
        }
    }
}

impl Replica {
    /// The note of an object.
    pub(crate) fn note(&self, no: ObjectNo) -> Result<Note, StoreError> {
        let Some(bytes) = self.store().note(no)? else {
            return Ok(Note::default());
        };
        let damaged = StoreError::Corrupt {
            what: "the note of an object",
            at: 0,
            object: Some(no),
        };
        Note::decode(&bytes).ok_or(damaged)
    }
}
