//! All drives that are attached, and which of the sources of content is asked first.

use super::attached::AttachedDrive;
use super::choice::{self, LatencyModel, to_span};
use super::read::PATIENCE;
use super::superseded::SupersededDrives;
use crate::seeded::{Bug, bug};
use parking_lot::{Mutex, RwLock};
use quick_cache::sync::Cache;
use std::collections::HashSet;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use teal_energy::policy::choice::CostWeights;
use teal_env::Clock;
use teal_proto::{ClientRequest, ServerReply, encode_reply};
use teal_types::{BLOCK, ByteRanges, CommitSeq, ObjectNo};

/// The memory for the objects that drives lack (BlueFS 4.3.3), in bytes, ...
const ENODES_BYTES: usize = 1 << 20;

/// ... of which one takes so many.
const ENODE_BYTES: usize = 64;

/// Half for seconds, half for joules.
const PRIORITY: u32 = 50;

/// A function to call when a drive is lost.
pub(super) struct LossListener(pub(super) Box<dyn Fn() + Send + Sync>);

impl std::fmt::Debug for LossListener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("LossListener")
    }
}

/// All drives that are attached, and what is known of the server.
#[derive(Debug)]
pub(crate) struct AttachedDrives {
    pub(super) attached: RwLock<Vec<Arc<AttachedDrive>>>,
    pub(super) server: Mutex<LatencyModel>,
    /// Batches of changes on their way to the server.
    pub(super) sending: AtomicU32,
    pub(super) priority: AtomicU32,
    /// By drive and object, the commit of which the drive has no content.
    pub(super) enodes: Cache<(u32, ObjectNo), CommitSeq>,
    /// Called when one is lost.
    pub(super) lost: OnceLock<LossListener>,
    pub(super) superseded: Mutex<SupersededDrives>,
}

impl Default for AttachedDrives {
    fn default() -> Self {
        Self {
            attached: RwLock::default(),
            server: Mutex::new(LatencyModel::network()),
            sending: AtomicU32::new(0),
            priority: AtomicU32::new(PRIORITY),
            enodes: Cache::new(ENODES_BYTES / ENODE_BYTES),
            lost: OnceLock::new(),
            superseded: Mutex::default(),
        }
    }
}

/// See [`AttachedDrives::begin_sending`].
#[derive(Debug)]
pub(crate) struct SendingGuard<'a>(&'a AtomicU32);

impl Drop for SendingGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A place from which content may come.
pub(super) enum ContentSource {
    Server,
    Drive(Arc<AttachedDrive>),
}

impl AttachedDrives {
    pub(super) fn attached_drives(&self) -> Vec<Arc<AttachedDrive>> {
        self.attached.read().clone()
    }

    /// Stops reading from all drives after the server has lost history, until it says again that it
    /// knows the history of each.
    pub(crate) fn distrust_all(&self) {
        for drive in self.attached_drives().iter() {
            drive.is_checked.store(false, Ordering::Release);
        }
    }

    pub(super) fn weights(&self) -> CostWeights {
        choice::weights_of_priority(self.priority.load(Ordering::Relaxed))
    }

    /// Notes that a batch of changes is on its way to the server, until the guard is dropped. A
    /// read from the server would wait behind the batch.
    pub(crate) fn begin_sending(&self) -> SendingGuard<'_> {
        self.sending.fetch_add(1, Ordering::AcqRel);
        SendingGuard(&self.sending)
    }

    /// Returns whether a batch of changes is on its way to the server.
    pub(crate) fn is_sending(&self) -> bool {
        self.sending.load(Ordering::Acquire) > 0
    }

    /// Returns whether drives have content, too, and the bandwidth to the server is unknown. A
    /// reader then asks the server for nothing beyond what it needs.
    pub(crate) fn is_server_unknown(&self) -> bool {
        !self.is_empty() && !self.server.lock().is_width_known()
    }

    /// Returns what the server costs as it is now.
    pub(super) fn server_latency(&self) -> LatencyModel {
        let mut meter = self.server.lock().clone();
        meter.is_busy = self.is_sending();
        meter
    }

    /// Measures the server by an answer that came after this time. `is_busy` tells whether a batch
    /// was on its way.
    pub(crate) fn note_answer(
        &self,
        request: &ClientRequest,
        reply: &ServerReply,
        (time, is_busy): (Duration, bool),
    ) {
        let bytes = match (request, reply) {
            // A pull waits for news, so its time says nothing.
            (ClientRequest::Pull { .. }, _) => return,
            // They take what they send.
            (
                ClientRequest::Commit { .. }
                | ClientRequest::Put { .. }
                | ClientRequest::Stage { .. },
                _,
            ) => return,
            (_, ServerReply::Data(got)) => got.iter().map(got_bytes).sum(),
            (
                _,
                ServerReply::Listings { .. }
                | ServerReply::Versions { .. }
                | ServerReply::Past { .. },
            ) => {
                let mut server = self.server.lock();
                // The length of other replies is not known beforehand, so they only bound the
                // server's speed.
                if !is_busy && server.is_bound_wanted() {
                    let bytes = encode_reply(reply).map_or(0, |bytes| bytes.len() as u64);
                    server.note_bound(bytes, to_span(time));
                }
                return;
            }
            _ => 0,
        };
        match is_busy {
            true if bytes > 0 => self.server.lock().note_busy_read(bytes, to_span(time)),
            // The batch's own questions wait for nothing of it.
            true => {}
            false => self.server.lock().note_read(bytes, to_span(time)),
        }
        if bytes > 0 {
            for drive in self.attached_drives().iter() {
                drive.latency_model.lock().note_other_time(to_span(time));
            }
        }
    }

    /// Returns the sources that may be asked for content, in order. If the content `is_asked` for
    /// now, sources that are passed over are counted, and sleeping ones may be woken.
    pub(super) fn ordered_sources(
        &self,
        (no, data_seq): (ObjectNo, CommitSeq),
        bytes: u64,
        has_server: bool,
        (clock, is_asked): (&Arc<dyn Clock>, bool),
    ) -> Vec<ContentSource> {
        let mut sources = Vec::new();
        let mut meters = Vec::new();
        let mut asleep = Vec::new();
        let counts = |count: &AtomicU64| count.fetch_add(u64::from(is_asked), Ordering::Relaxed);
        for drive in self.attached_drives() {
            // Drives that cannot have the content are left out before any is asked.
            if !drive.is_usable() {
            } else if drive.has_nothing_of(no)
                || self.enodes.get(&(drive.device, no)) == Some(data_seq)
            {
                counts(&drive.counters.skipped);
            } else if drive.reader.is_late() && !bug(Bug::LateAskedAgain) {
                // A drive that still works on an earlier question is not asked again.
                counts(&drive.counters.avoided);
            } else if drive.is_asleep(clock.monotonic_time()) {
                // A sleeping drive goes last, however cheap it is.
                asleep.push(drive);
            } else {
                meters.push(drive.current_latency());
                sources.push(Some(ContentSource::Drive(drive)));
            }
        }
        // Without any drive there is nothing to order.
        if has_server && !(sources.is_empty() && asleep.is_empty()) {
            meters.push(self.server_latency());
            sources.push(Some(ContentSource::Server));
        }
        let weights = self.weights();
        let mut ordered = Vec::new();
        let order = choice::order_sources(&meters, bytes, weights);
        // Each read that a sleeping drive would have served cheaper adds to its losses.
        if let Some(first) = order.first().filter(|_| is_asked) {
            let served = meters[*first].read_cost(bytes, weights);
            for drive in asleep.iter() {
                drive.note_passed_over((served, bytes), weights, clock);
            }
        }
        debug_assert_eq!(meters.len(), sources.len());
        ordered.extend(order.into_iter().filter_map(|at| sources[at].take()));
        // Asked only if all others fail.
        ordered.extend(asleep.into_iter().map(ContentSource::Drive));
        ordered
    }
}

/// Content that a reader will probably need: the object, the commit of the content, the ranges.
type NearbyWant = (ObjectNo, CommitSeq, ByteRanges);

impl AttachedDrives {
    pub(crate) fn is_empty(&self) -> bool {
        self.attached.read().is_empty()
    }

    /// Takes away what a drive has that is to be asked before the server. A drive that does not
    /// answer soon is taken to have nothing.
    pub(crate) fn without_cheaper(
        &self,
        mut near: Vec<NearbyWant>,
        now: Duration,
    ) -> Vec<NearbyWant> {
        for drive in self.attached_drives() {
            let is_cheaper = {
                let server = self.server_latency();
                let weights = self.weights();
                let meter = drive.latency_model.lock();
                // Without figures of the server, a drive counts as cheaper.
                server.predict_time(BLOCK).is_none()
                    || meter.read_cost(BLOCK, weights) < server.read_cost(BLOCK, weights)
            };
            if near.is_empty()
                || !drive.is_usable()
                || drive.reader.is_late()
                || !is_cheaper
                || drive.is_asleep(now)
            {
                continue;
            }
            let mut asked = near.clone();
            let store = Arc::clone(&drive.drive);
            asked.retain(|(no, ..)| !drive.has_nothing_of(*no));
            if asked.is_empty() {
                continue;
            }
            // The drive's maps are on its disk: its own thread reads them.
            let look = move || {
                let has = |(no, data_seq, absent): &NearbyWant| {
                    let content = store.held_object(*no).ok().and_then(|held| held.content);
                    content.is_some_and(|content| {
                        content.data_seq == *data_seq
                            && absent.difference(&content.present).is_empty()
                    })
                };
                asked
                    .into_iter()
                    .filter(has)
                    .map(|(no, ..)| no)
                    .collect::<HashSet<ObjectNo>>()
            };
            // A drive that does not answer in time leaves the content to the server.
            let Some(has) = drive.reader.run_with_deadline(PATIENCE, look) else {
                drive.counters.late.fetch_add(1, Ordering::Relaxed);
                continue;
            };
            near.retain(|(no, ..)| !has.contains(no));
        }
        near
    }
}

fn got_bytes(got: &teal_proto::ContentAnswer) -> u64 {
    match got {
        teal_proto::ContentAnswer::Is { pieces, .. } => {
            pieces.iter().map(|data| data.bytes.len() as u64).sum()
        }
        _ => 0,
    }
}
