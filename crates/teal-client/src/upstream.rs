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
//! 1. [`note`] beside each object says what is pending, what flies in a batch, what is absent. `pend` sets it as operations change objects.
//! 2. A flush (`flush`) takes a cut: under the exclusive `namespace` lock, what is pending begins to fly, and becomes operations (`cut`);
//!    then content is read and sent in chunks (`content`), then the batch is committed at the server.
//! 3. What has changed at the server comes as states (`pull`) and is installed (`install`, `names`); own batches are recognised in it (`settle`).
//! 4. `list` fetches the entries of directories that are not here, `fetch` content, each with more than is needed (`ahead`, `around`, `fetch_ahead`); `run` decides
//!    when what happens. What is always to be here is fetched by itself (`pin`); other content makes way (`evict`).
//!
//! # Locks, before those of [`Client`]
//! | lock | guards | under it |
//! |---|---|---|
//! | `flushing` | one flush at a time | all of it, calls to the server too |
//! | `applying` | the position in history: one who advances it at a time | calls to the server, installing |
//! | `lookout` | who looks what comes ahead: one at a time | reading the store |
//! | a *flight* (`ahead`), by bytes of an object | that nobody else fetches them | calls to the server, installing content |
//! | `absence`, by object | whether content is here: shared by readers, exclusive for whoever changes it | reads and writes of that object |
//! | `identity`, `next`, `state`, `told`, `quiet`, `held`, `pinning.queue` | what they are called | nothing |

mod ahead;
mod announce;
mod around;
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
mod pend;
mod pin;
mod pull;
mod queue;
mod renumber;
mod run;
mod settle;
mod stale;
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
pub use stale::Moment;
pub use status::{Link, Unsent, UpstreamStatus};

pub(crate) use drives::Fresh;
pub(crate) use identity::Identity;
pub(crate) use note::Note;
pub(crate) use pend::Pend;
pub(crate) use stale::Placement;

use crate::seeded::{Bug, bug};
use crate::{Client, FsError};
use parking_lot::{Condvar, Mutex, MutexGuard, RwLock};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use teal_chunk::{Domain, DomainId};
use teal_device::{Upstream, UpstreamError};
use teal_env::Clock;
use teal_proto::{RefusalCode, Refused, Reply, Request};
use teal_types::limits::BATCH_BYTES_MAX;
use teal_types::{CommitSeq, Name, ObjectNo, ranges};

const ABSENCES: u64 = 64;
/// A server that does not answer makes others wait if it took longer than this to tell.
const SLOW: Duration = Duration::from_secs(1);
/// How long a position waits for the kernel to hear what has changed up to it. It hears within microseconds, but for a page that is locked
/// until a request is answered that waits for the server, or for the position.
const HEARD_WITHIN: Duration = Duration::from_secs(2);
/// How long an append that was moved waits for the same. Here the locked page may be its own, which nobody can read before the answer.
const MOVED_WITHIN: Duration = Duration::from_millis(100);

/// What the kernel, or whoever caches what this client told, must forget.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Invalidation {
    /// The attributes of an object.
    Attributes(ObjectNo),
    /// Its attributes and its content from an offset on, so many bytes; 0: to the end. The content of a directory is what was listed of it: a kernel that keeps that looks at it anew when the directory's
    /// time has changed, and otherwise when it is told so.
    Data(ObjectNo, u64, u64),
    /// That a file ends before this size, if it believes so. Comes after the [`Data`](Self::Data) of the same change;
    /// [`Client::kernel_raised`] is to be called when it is done.
    Grown(ObjectNo, u64),
    /// What a name leads to, or that it leads nowhere.
    Entry(ObjectNo, Name),
}

/// Passes on what the kernel must forget.
pub trait Listener: Send + Sync {
    /// Takes a word in its order, and waits for nothing.
    fn tell(&self, what: Invalidation);

    /// Waits until the kernel has heard all that was told before, for `limit` at most: it may be waiting for a request that waits for the
    /// caller.
    fn wait_until_heard(&self, limit: Duration);
}

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
pub(crate) struct Replica {
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
    flushing: Mutex<()>,
    applying: Mutex<()>,
    absence: Vec<RwLock<()>>,
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
    listener: OnceLock<Arc<dyn Listener>>,
    /// Files of which the kernel may hold an older state than the one here.
    pub(crate) stale: stale::StaleFiles,
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
    pub(crate) fn new(
        upstream: Option<Arc<dyn Upstream>>,
        identity: Identity,
        device: &str,
        options: UpstreamOptions,
    ) -> Self {
        let first = u64::from(identity.lease) * teal_types::LEASE;
        Self {
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
            flushing: Mutex::new(()),
            applying: Mutex::new(()),
            absence: (0..ABSENCES).map(|_| RwLock::new(())).collect(),
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
            listener: OnceLock::new(),
            stale: stale::StaleFiles::default(),
            counters: status::Counters::default(),
        }
    }

    /// How far history is applied.
    pub(crate) fn seen(&self) -> CommitSeq {
        CommitSeq::new(self.seen.load(Ordering::Acquire))
    }

    pub(crate) fn absence(&self, no: ObjectNo) -> &RwLock<()> {
        &self.absence[(no.get() % ABSENCES) as usize]
    }

    fn tell(&self, what: Invalidation) {
        if let Some(listener) = self.listener.get() {
            listener.tell(what);
        }
    }

    /// Has the kernel forget the attributes of an object.
    pub(crate) fn invalidate_attributes(&self, no: ObjectNo) {
        self.tell(Invalidation::Attributes(no));
    }

    /// Has the kernel forget what it holds of a file of this size, which it may have heard of before the file changed.
    pub(crate) fn has_changed(&self, no: ObjectNo, size: u64) {
        self.tell(Invalidation::Data(no, 0, 0));
        self.tell(Invalidation::Grown(no, size));
    }

    /// Bytes that a program has written lie elsewhere in the file than where the kernel holds them: returns when nobody can read them
    /// there. Only a page that the kernel itself keeps locked until the write is answered is left; nobody can read that either.
    pub(crate) fn is_elsewhere(&self, no: ObjectNo, size: u64) {
        self.has_changed(no, size);
        self.wait_until_heard(MOVED_WITHIN);
    }

    /// Waits until everything that was told has been heard, for `limit` at most.
    fn wait_until_heard(&self, limit: Duration) {
        if let Some(listener) = self.listener.get() {
            listener.wait_until_heard(limit);
        }
    }

    /// For whoever installs what the server has.
    fn apply(&self) -> Result<MutexGuard<'_, ()>, UpstreamError> {
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
        clock: &dyn Clock,
        request: &Request,
        deadline: Duration,
    ) -> Result<Reply, UpstreamError> {
        self.counters.asked(request);
        let begun = (clock.monotonic(), self.drives.is_sending());
        let said = self.upstream.call(request, deadline);
        self.said(clock, begun, request, said)
    }

    /// The same with several requests at the same time.
    pub(crate) fn call_all(
        &self,
        clock: &dyn Clock,
        requests: &[Request],
        deadline: Duration,
    ) -> Vec<Result<Reply, UpstreamError>> {
        requests
            .iter()
            .for_each(|request| self.counters.asked(request));
        let begun = (clock.monotonic(), self.drives.is_sending());
        let said = self.upstream.call_all(requests, deadline);
        requests
            .iter()
            .zip(said)
            .map(|(request, said)| self.said(clock, begun, request, said))
            .collect()
    }

    fn said(
        &self,
        clock: &dyn Clock,
        (begun, is_busy): (Duration, bool),
        request: &Request,
        said: Result<Reply, UpstreamError>,
    ) -> Result<Reply, UpstreamError> {
        let said = said.and_then(|reply| match reply {
            Reply::Refused(refused) => Err(UpstreamError::Refused(refused)),
            reply => Ok(reply),
        });
        let now = clock.monotonic();
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

impl From<teal_log::StoreError> for SyncError {
    fn from(e: teal_log::StoreError) -> Self {
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

impl Client {
    /// Has every [`Invalidation`] told to `listener`. Only the first call counts.
    pub fn on_invalidation(&self, listener: Arc<dyn Listener>) {
        if let Some(replica) = &self.replica {
            let _ = replica.listener.set(listener);
        }
    }

    /// Whether the volume has a server, or is going to have one.
    pub fn is_replica(&self) -> bool {
        self.replica.is_some()
    }

    /// The note of an object.
    pub(crate) fn note(&self, no: ObjectNo) -> Result<Note, teal_log::StoreError> {
        let Some(bytes) = self.store.note(no)? else {
            return Ok(Note::default());
        };
        let damaged = teal_log::StoreError::Corrupt {
            what: "the note of an object",
            at: 0,
            object: Some(no),
        };
        Note::decode(&bytes).ok_or(damaged)
    }
}
