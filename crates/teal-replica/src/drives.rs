//! The drives that are attached here: content is read from the cheapest source that has it, drive or server, and copied to drives.
//!
//! # Guarantees
//! 1. *Exact*: a drive is read at the commit whose content the note of an object says is absent, or not at all; so what is read is never
//!    older, and never of another history, than what the server would have given.
//! 2. *Nobody waits for a drive* that is late or gone, while another source has the content: each is asked on a thread of its own with a
//!    deadline, and is not asked again before it has come back. One that sleeps is asked last, and woken behind everybody's back ([`Rest`]).
//! 3. *Acknowledged only*: a drive gets content of which the server has said which commit it is of (`cursor`).
//! 4. What a drive turns out to have damaged is read elsewhere and copied to it again.
//!
//! # Locks
//! `flushing` and `marking` of a drive come first in the table of [`teal_volume`]; `attached`, `server`, `meter`, `queue`, `heirs`,
//! `short` and `superseded` are leaves.

mod affinity;
mod attach;
mod choice;
mod cursor;
mod detach;
mod read;
mod refused;
mod rest;
mod short;
mod shown;
mod superseded;
#[cfg(test)]
mod tests;

pub use affinity::Affinity;
use affinity::Heirs;
pub use attach::{KnownDrive, KnownDrives, NewDrive};
pub use refused::DriveRefused;
use short::Short;
pub use shown::{DriveShown, Price, SourceShown, Whereabouts};
use superseded::Superseded;

use super::Replica;
use crate::seeded::{Bug, bug};
use choice::{Meter, span};
use cursor::Queue;
use parking_lot::{Condvar, Mutex, RwLock};
use quick_cache::sync::Cache;
use rest::Rest;
use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use teal_device::{Drive, Hand};
use teal_energy::policy::choice::{Cost, Weights};
use teal_env::Clock;
use teal_log::StoreError;
use teal_proto::{Reply, Request, encode_reply};
use teal_types::{BLOCK, CommitSeq, ObjectNo, Ranges};
use teal_volume::RankedMutex;

/// Content read at once, beginning with what is needed.
const AHEAD: u64 = 1 << 20;
/// While another source has the content, a drive has this time, ...
const PATIENCE: Duration = Duration::from_millis(250);
/// ... or so many times what was predicted; ...
const TIMES: u32 = 8;
/// ... and otherwise this.
const PATIENCE_MAX: Duration = Duration::from_secs(30);
/// What is known of objects that drives do not have takes so many bytes (BlueFS 4.3.3), ...
const ENODES_BYTES: usize = 1 << 20;
/// ... of which one takes so many.
const ENODE_BYTES: usize = 64;
/// Of a drive with at most so many objects it is known from the beginning which they are.
const HAS_MAX: usize = 16 << 10;
/// Half for seconds, half for joules.
const PRIORITY: u32 = 50;

/// A drive that is attached.
#[derive(Debug)]
pub(crate) struct Attached {
    device: u32,
    name: String,
    /// Where it is, for people.
    place: String,
    drive: Arc<Drive>,
    reader: Hand,
    meter: Mutex<Meter>,
    /// `None`: it never sleeps.
    rest: Mutex<Option<Rest>>,
    queue: Mutex<Queue>,
    changed: Condvar,
    flushing: RankedMutex<()>,
    /// Objects that the burst under way has not come to yet.
    ahead: AtomicU64,
    /// Monotonic time at which the last burst began.
    last_burst: Mutex<Duration>,
    /// Something may be always to be on it.
    has_affinity: AtomicBool,
    /// The server has said that it knows the history the drive has seen.
    is_checked: AtomicBool,
    /// It was attached while the server was away, which is to hear of it.
    is_untold: AtomicBool,
    /// All objects of which something is on it, and perhaps others; `None`: they are too many.
    has: Mutex<Option<HashSet<ObjectNo>>>,
    profile: String,
    marking: RankedMutex<()>,
    heirs: Mutex<Heirs>,
    short: Mutex<Short>,
    is_gone: AtomicBool,
    counters: Counters,
}

/// What has passed between a drive and this client.
#[derive(Debug, Default)]
struct Counters {
    reads: AtomicU64,
    read_bytes: AtomicU64,
    /// Times it did not answer in time.
    late: AtomicU64,
    /// Times it was not asked, because it slept and another had it; and was woken for the next.
    asleep: AtomicU64,
    woken: AtomicU64,
    /// Times it was not asked, because it had not come back from before.
    avoided: AtomicU64,
    /// Times it was not asked, because it was known not to have something.
    skipped: AtomicU64,
    written_bytes: AtomicU64,
    bursts: AtomicU64,
    /// Bytes that were damaged.
    spoiled: AtomicU64,
    /// Times something was not copied to it, because nothing more may make way.
    full: AtomicU64,
}

/// Somebody who wants to hear of something.
struct Told(Box<dyn Fn() + Send + Sync>);

impl std::fmt::Debug for Told {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Told")
    }
}

/// All drives that are attached, and what is known of the server.
#[derive(Debug)]
pub(crate) struct Drives {
    attached: RwLock<Vec<Arc<Attached>>>,
    server: Mutex<Meter>,
    /// Batches of changes on their way to the server.
    sending: AtomicU32,
    priority: AtomicU32,
    /// What a drive does not have: by drive and object the commit.
    enodes: Cache<(u32, ObjectNo), CommitSeq>,
    /// Called when one is lost.
    lost: OnceLock<Told>,
    superseded: Mutex<Superseded>,
}

impl Default for Drives {
    fn default() -> Self {
        Self {
            attached: RwLock::default(),
            server: Mutex::new(Meter::network()),
            sending: AtomicU32::new(0),
            priority: AtomicU32::new(PRIORITY),
            enodes: Cache::new(ENODES_BYTES / ENODE_BYTES),
            lost: OnceLock::new(),
            superseded: Mutex::default(),
        }
    }
}

/// See [`Drives::sends`].
#[derive(Debug)]
pub(crate) struct Sending<'a>(&'a AtomicU32);

impl Drop for Sending<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Where content may come from.
enum Source {
    Server,
    Drive(Arc<Attached>),
}

impl Attached {
    fn is_usable(&self) -> bool {
        self.is_checked.load(Ordering::Acquire) && !self.is_gone.load(Ordering::Acquire)
    }

    /// Learns what is on it, if that is not too much; under `flushing`: nothing comes meanwhile.
    fn warm(&self) -> Result<(), StoreError> {
        let mut found = HashSet::new();
        self.drive.each(&mut |no| {
            found.insert(no);
            if found.len() <= HAS_MAX {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        })?;
        *self.has.lock() = (found.len() <= HAS_MAX).then_some(found);
        Ok(())
    }

    /// Something of an object has come to it.
    fn has_now(&self, no: ObjectNo) {
        let mut has = self.has.lock();
        if let Some(found) = &mut *has {
            found.insert(no);
            if found.len() > HAS_MAX {
                *has = None;
            }
        }
    }

    fn is_asleep(&self, now: Duration) -> bool {
        self.rest
            .lock()
            .as_ref()
            .is_some_and(|rest| rest.is_asleep(now))
    }

    fn uses(&self, now: Duration) {
        self.rest.lock().iter_mut().for_each(|rest| rest.uses(now));
    }

    /// Whether it is written to: a burst is under way, or its log writes for another reason, as when it is cleaned.
    fn is_busy(&self) -> bool {
        self.flushing.is_locked() || self.drive.is_written()
    }

    /// What it costs as it is now.
    fn metered(&self) -> Meter {
        let mut meter = self.meter.lock().clone();
        meter.is_busy = self.is_busy();
        meter
    }

    /// Something else serves at this cost what it would have at another, were it awake: it is woken if that pays. Nobody waits for it.
    fn sleeps(
        self: &Arc<Self>,
        (served, bytes): (Cost, u64),
        weights: Weights,
        clock: &Arc<dyn Clock>,
    ) {
        self.counters.asleep.fetch_add(1, Ordering::Relaxed);
        let (ideal, now) = (self.meter.lock().cost(bytes, weights), clock.monotonic());
        if self
            .rest
            .lock()
            .as_mut()
            .is_some_and(|rest| rest.loses((served, ideal), weights, now))
        {
            self.counters.woken.fetch_add(1, Ordering::Relaxed);
            let (this, clock) = (Arc::clone(self), Arc::clone(clock));
            self.reader.ask(Duration::ZERO, move || {
                if this.drive.touch().is_ok() {
                    this.uses(clock.monotonic());
                }
            });
        }
    }

    fn has_nothing_of(&self, no: ObjectNo) -> bool {
        self.has
            .lock()
            .as_ref()
            .is_some_and(|found| !found.contains(&no))
    }
}

impl Drives {
    fn all(&self) -> Vec<Arc<Attached>> {
        self.attached.read().clone()
    }

    /// The server has lost history: no drive is read before it has said again that it knows what the drive has seen.
    pub(super) fn distrust(&self) {
        self.all()
            .iter()
            .for_each(|drive| drive.is_checked.store(false, Ordering::Release));
    }

    fn weights(&self) -> Weights {
        choice::weights(self.priority.load(Ordering::Relaxed))
    }

    /// A batch of changes is on its way to the server, until the answer is dropped: who reads from there would wait behind it.
    pub(super) fn sends(&self) -> Sending<'_> {
        self.sending.fetch_add(1, Ordering::AcqRel);
        Sending(&self.sending)
    }

    /// Whether a batch of changes is on its way to the server.
    pub(super) fn is_sending(&self) -> bool {
        self.sending.load(Ordering::Acquire) > 0
    }

    /// Whether drives have content, too, and nobody knows how wide the way to the server is: who asks it for something asks for that alone.
    pub(super) fn is_server_unknown(&self) -> bool {
        !self.is_empty() && !self.server.lock().is_width_known()
    }

    /// What the server costs as it is now.
    fn server_metered(&self) -> Meter {
        let mut meter = self.server.lock().clone();
        meter.is_busy = self.is_sending();
        meter
    }

    /// The server has answered, after this time; `is_busy`: a batch was on its way to it. Measures the way to it.
    pub(super) fn answered(
        &self,
        request: &Request,
        reply: &Reply,
        (time, is_busy): (Duration, bool),
    ) {
        let bytes = match (request, reply) {
            // It waits for news.
            (Request::Pull { .. }, _) => return,
            // They take what they send.
            (Request::Commit { .. } | Request::Put { .. } | Request::Stage { .. }, _) => return,
            (_, Reply::Data(got)) => got.iter().map(got_bytes).sum(),
            (_, Reply::Listings { .. } | Reply::Versions { .. } | Reply::Past { .. }) => {
                let mut server = self.server.lock();
                if !is_busy && server.is_bound_wanted() {
                    let bytes = encode_reply(reply).map_or(0, |bytes| bytes.len() as u64);
                    server.bounded(bytes, span(time));
                }
                return;
            }
            _ => 0,
        };
        match is_busy {
            true if bytes > 0 => self.server.lock().measured_busy(bytes, span(time)),
            // The batch's own questions wait for nothing of it.
            true => {}
            false => self.server.lock().measured(bytes, span(time)),
        }
        if bytes > 0 {
            self.all()
                .iter()
                .for_each(|drive| drive.meter.lock().waits(span(time)));
        }
    }

    /// Who may be asked for content, in this order; for who does not only want to know it, what is passed over is counted, and woken.
    fn order(
        &self,
        (no, data_seq): (ObjectNo, CommitSeq),
        bytes: u64,
        has_server: bool,
        (clock, is_asked): (&Arc<dyn Clock>, bool),
    ) -> Vec<Source> {
        let (mut sources, mut meters, mut asleep) = (Vec::new(), Vec::new(), Vec::new());
        let counts = |count: &AtomicU64| count.fetch_add(u64::from(is_asked), Ordering::Relaxed);
        for drive in self.all() {
            if !drive.is_usable() {
            } else if drive.has_nothing_of(no)
                || self.enodes.get(&(drive.device, no)) == Some(data_seq)
            {
                counts(&drive.counters.skipped);
            } else if drive.reader.is_late() && !bug(Bug::LateAskedAgain) {
                counts(&drive.counters.avoided);
            } else if drive.is_asleep(clock.monotonic()) {
                asleep.push(drive);
            } else {
                meters.push(drive.metered());
                sources.push(Some(Source::Drive(drive)));
            }
        }
        if has_server && !(sources.is_empty() && asleep.is_empty()) {
            meters.push(self.server_metered());
            sources.push(Some(Source::Server));
        }
        let (weights, mut ordered) = (self.weights(), Vec::new());
        let order = choice::order(&meters, bytes, weights);
        if let Some(first) = order.first().filter(|_| is_asked) {
            let served = meters[*first].cost(bytes, weights);
            asleep
                .iter()
                .for_each(|drive| drive.sleeps((served, bytes), weights, clock));
        }
        ordered.extend(order.into_iter().filter_map(|at| sources[at].take()));
        ordered.extend(asleep.into_iter().map(Source::Drive));
        ordered
    }
}

/// Content that somebody will probably need: object, the commit it is of, where.
type Near = (ObjectNo, CommitSeq, Ranges);

impl Drives {
    pub(super) fn is_empty(&self) -> bool {
        self.attached.read().is_empty()
    }

    /// Takes away what a drive has that is to be asked before the server. A drive that does not answer soon is taken to have nothing.
    pub(super) fn without_cheaper(&self, mut near: Vec<Near>, now: Duration) -> Vec<Near> {
        for drive in self.all() {
            let is_cheaper = {
                let (server, weights) = (self.server_metered(), self.weights());
                let meter = drive.meter.lock();
                server.predict(BLOCK).is_none()
                    || meter.cost(BLOCK, weights) < server.cost(BLOCK, weights)
            };
            if near.is_empty()
                || !drive.is_usable()
                || drive.reader.is_late()
                || !is_cheaper
                || drive.is_asleep(now)
            {
                continue;
            }
            let (mut asked, store) = (near.clone(), Arc::clone(&drive.drive));
            asked.retain(|(no, ..)| !drive.has_nothing_of(*no));
            if asked.is_empty() {
                continue;
            }
            let look = move || {
                let has = |(no, data_seq, absent): &Near| {
                    let content = store.held(*no).ok().and_then(|held| held.content);
                    content.is_some_and(|content| {
                        content.data_seq == *data_seq && absent.without(&content.present).is_empty()
                    })
                };
                asked
                    .into_iter()
                    .filter(has)
                    .map(|(no, ..)| no)
                    .collect::<HashSet<ObjectNo>>()
            };
            let Some(has) = drive.reader.ask(PATIENCE, look) else {
                drive.counters.late.fetch_add(1, Ordering::Relaxed);
                continue;
            };
            near.retain(|(no, ..)| !has.contains(no));
        }
        near
    }
}

fn got_bytes(got: &teal_proto::Got) -> u64 {
    match got {
        teal_proto::Got::Is { pieces, .. } => {
            pieces.iter().map(|data| data.bytes.len() as u64).sum()
        }
        _ => 0,
    }
}

impl Replica {
    /// How much speed counts against joules when a source is chosen, in percent; beyond 100 is 100.
    pub fn set_priority(&self, percent: u32) {
        let priority = percent.min(100);
        self.drives.priority.store(priority, Ordering::Relaxed);
    }

    /// Returns what [`set_priority`](Self::set_priority) has set.
    pub fn priority(&self) -> u32 {
        self.drives.priority.load(Ordering::Relaxed)
    }

    /// Has this called whenever a drive is lost, from the thread that has found out: who attaches what comes looks again. The first
    /// caller is kept.
    pub fn when_a_drive_is_lost(&self, told: impl Fn() + Send + Sync + 'static) {
        let _ = self.drives.lost.set(Told(Box::new(told)));
    }

    /// Drives whose file was deleted, or cut short, are not used any more, as if they had been pulled out: their names, where they were, and what
    /// has become of them.
    pub fn lose_absent_drives(&self) -> Vec<(String, String, String)> {
        let absent = |attached: Arc<Attached>| {
            let why = attached.drive.is_there().err()?.to_string();
            self.lose(&attached, &why);
            Some((attached.name.clone(), attached.place.clone(), why))
        };
        self.drives.all().into_iter().filter_map(absent).collect()
    }

    /// A drive is not used any more.
    fn lose(&self, attached: &Arc<Attached>, why: &str) {
        if !attached.is_gone.swap(true, Ordering::AcqRel) {
            log::warn!(
                "the drive {} is gone ({why}); nothing is lost with it",
                attached.name
            );
        }
        self.drives
            .attached
            .write()
            .retain(|other| !Arc::ptr_eq(other, attached));
        attached.changed.notify_all();
        self.drives.lost.get().iter().for_each(|told| (told.0)());
    }

    /// A drive that cannot be read or written any more is not used any more.
    fn lose_if(&self, attached: &Arc<Attached>, why: &StoreError) {
        match why {
            StoreError::Io { .. } | StoreError::Poisoned => {
                let source = std::error::Error::source(why)
                    .map(|e| format!(": {e}"))
                    .unwrap_or_default();
                self.lose(attached, &format!("{why}{source}"));
            }
            why => log::warn!("{}: {why}", attached.name),
        }
    }
}
