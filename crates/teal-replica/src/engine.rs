//! The replica: its parts, and what they share.

use super::counters::Counters;
use super::identity::Identity;
use super::note::Note;
use super::options::UpstreamOptions;
use super::trouble::Trouble;
use super::{ahead, backlog, drives, kept, lookout, pins, recency, stuck};
use crate::seeded::{Bug, bug};
use parking_lot::{Condvar, Mutex};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use teal_chunk::{Domain, DomainId};
use teal_device::{Upstream, UpstreamError};
use teal_env::Clock;
use teal_log::{Cost, Op, Store, StoreError};
use teal_proto::{RefusalCode, Reply, Request};
use teal_types::{CommitSeq, ObjectNo};
use teal_volume::{FsError, Rank, RankedMutex, RankedMutexGuard, RankedRwLock, Volume};

/// Objects share this many locks of their content.
const CONTENT_LOCKS: u64 = 64;
/// How long a position waits for the kernel to hear what has changed up to it. It hears within
/// microseconds, but for a page that is locked until a request is answered that waits for the
/// server, or for the position.
pub(crate) const HEARD_WITHIN: Duration = Duration::from_secs(2);
/// What threads tell each other.
#[derive(Debug, Default)]
pub(crate) struct State {
    /// Monotonic time of the first change that no flush has taken along.
    pub(crate) dirty_since: Option<Duration>,
    /// A batch has gone before large content, which is in the next one.
    pub(crate) is_large_next: bool,
    /// Whether another client of the volume is there.
    pub(crate) is_live: bool,
    pub(crate) stop: bool,
    /// Why the server cannot be asked; `None`: it can, as far as known.
    pub(crate) trouble: Option<Trouble>,
    /// Whoever asks in the background is to ask now.
    pub(crate) probe: bool,
    /// Whether somebody does.
    pub(crate) has_puller: bool,
    /// Why the server does not take what it is sent, though it answers.
    pub(crate) stuck: Option<String>,
    /// Whether the server has said welcome since it could not be reached.
    pub(crate) is_connected: bool,
    /// A copy of this store has made objects with numbers that are this one's to give: it needs
    /// another life, whatever the server knows.
    pub(crate) is_copied: bool,
    /// Objects may need a second look.
    pub(crate) needs_look: bool,
    /// Flushes that have ended, and those among them that ended well.
    pub(crate) flushes: u64,
    pub(crate) last_flush: Option<Duration>,
}

impl State {
    /// Notes that the server does not accept this replica.
    pub(crate) fn deny(&mut self, why: &str, now: Duration) {
        self.trouble = Some(Trouble::denied(why, now));
    }
}

/// This replica of the volume.
pub struct Replica {
    pub(crate) volume: Arc<Volume>,
    /// Whether the threads that talk to the server have been started.
    pub(crate) has_threads: AtomicBool,
    pub(crate) upstream: Arc<dyn Upstream>,
    pub(crate) options: UpstreamOptions,
    pub(crate) device: String,
    pub(crate) identity: Mutex<Identity>,
    /// The next object number.
    pub(crate) next: Mutex<u64>,
    /// The commit up to which history is applied; a copy of what `identity` has.
    pub(crate) seen: AtomicU64,
    /// What the server has been told of what is kept here; changes under `applying`.
    pub(crate) told: Mutex<kept::KeptTold>,
    /// How far there is nothing that concerns this replica: from a position, to a commit with its
    /// digest.
    pub(crate) quiet: Mutex<Option<(CommitSeq, CommitSeq, [u8; 32])>>,
    /// The directory whose entries are just coming in.
    pub(crate) listing: Mutex<Option<ObjectNo>>,
    /// Directories whose entries were here are to be listed again: names may have been looked up in
    /// them.
    pub(crate) lists_again: AtomicBool,
    /// What cannot be sent or installed; a leaf lock.
    pub(crate) stuck: Mutex<stuck::StuckList>,
    pub(crate) flushing: RankedMutex<()>,
    pub(crate) applying: RankedMutex<()>,
    pub(crate) content_locks: Vec<RankedRwLock<()>>,
    pub(crate) state: Mutex<State>,
    pub(crate) changed: Condvar,
    pub(crate) names_ahead: ahead::Window,
    pub(crate) content_ahead: ahead::Window,
    pub(crate) flights: ahead::Flights,
    pub(crate) lookout: lookout::Lookout,
    pub(crate) backlog: backlog::Backlog,
    pub(crate) recency: recency::Recency,
    pub(crate) drives: drives::Drives,
    pub(crate) pinning: pins::Pinning,
    pub(crate) domain: OnceLock<Domain>,
    pub(crate) counters: Counters,
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
    /// Returns the replica that a store is, without a server to talk to: changes are noted for it.
    /// `None`: the store is no replica's.
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
            stuck: Mutex::default(),
            flushing: RankedMutex::new(Rank::Flush, ()),
            applying: RankedMutex::new(Rank::Apply, ()),
            content_locks: (0..CONTENT_LOCKS)
                .map(|_| RankedRwLock::new(Rank::Content, ()))
                .collect(),
            // What an earlier life could not place is noted with the objects.
            state: Mutex::new(State {
                needs_look: true,
                ..State::default()
            }),
            changed: Condvar::new(),
            names_ahead: ahead::Window::new(ahead::NAMES_LEAST, options.names_ahead.into()),
            content_ahead: ahead::Window::new(ahead::CONTENT_LEAST, options.content_ahead),
            flights: ahead::Flights::default(),
            lookout: lookout::Lookout::default(),
            backlog: backlog::Backlog::default(),
            recency: recency::Recency::default(),
            drives: drives::Drives::default(),
            pinning: pins::Pinning::of(&identity.pins),
            domain: OnceLock::new(),
            counters: Counters::default(),
        }
    }

    /// How far history is applied.
    pub(crate) fn seen(&self) -> CommitSeq {
        CommitSeq::new(self.seen.load(Ordering::Acquire))
    }

    /// Returns the lock of whether the content of an object is here.
    pub(crate) fn content_lock(&self, no: ObjectNo) -> &RankedRwLock<()> {
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
    pub(crate) fn begin(&self, cost: Cost) -> Result<Op<'_>, StoreError> {
        self.volume.begin(cost, self)
    }

    /// For whoever installs what the server has.
    pub(crate) fn apply(&self) -> Result<RankedMutexGuard<'_, ()>, UpstreamError> {
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
    pub(crate) fn domain(&self) -> Result<&Domain, UpstreamError> {
        self.domain
            .get()
            .ok_or_else(|| UpstreamError::Unreachable("no connection yet".into()))
    }

    /// The proof that a client of the volume wrote a drive's label: with the key of the server, or
    /// that which it had when it was last there.
    pub(crate) fn proof(&self, said: &[u8]) -> Result<[u8; 32], UpstreamError> {
        let key = self.identity.lock().key;
        match self.domain() {
            Ok(domain) => Ok(*domain.name(said).get()),
            Err(e) if key == [0; 32] => Err(e),
            Err(_) => Ok(*Domain::new(DomainId::new([0; 16]), key).name(said).get()),
        }
    }

    pub(crate) fn set_domain(&self, key: [u8; 32]) {
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

    pub(crate) fn said(
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
            Ok(_) => state.trouble = None,
            // Shut out while it waited for the answer.
            Err(UpstreamError::Refused(refused)) if refused.code == RefusalCode::Denied => {
                state.deny(&refused.words, now);
            }
            Err(UpstreamError::Refused(refused)) => {
                state.trouble = None;
                state.is_connected &= !matches!(
                    refused.code,
                    RefusalCode::Cloned | RefusalCode::Stopping | RefusalCode::BadRequest
                );
            }
            Err(UpstreamError::Denied(words)) => {
                state.deny(words, now);
            }
            Err(e) => {
                state.is_connected = false;
                state.trouble = Some(Trouble::unreachable(e.to_string(), (begun, now)));
            }
        }
        said
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
