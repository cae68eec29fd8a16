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

/// What is known of objects that drives do not have takes so many bytes (BlueFS 4.3.3), ...
const ENODES_BYTES: usize = 1 << 20;

/// ... of which one takes so many.
const ENODE_BYTES: usize = 64;

/// Half for seconds, half for joules.
const PRIORITY: u32 = 50;

/// Somebody who wants to hear of something.
pub(super) struct LossListener(pub(super) Box<dyn Fn() + Send + Sync>);

impl std::fmt::Debug for LossListener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Told")
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
    /// What a drive does not have: by drive and object the commit.
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

/// See [`Drives::sends`].
#[derive(Debug)]
pub(crate) struct SendingGuard<'a>(&'a AtomicU32);

impl Drop for SendingGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Where content may come from.
pub(super) enum ContentSource {
    Server,
    Drive(Arc<AttachedDrive>),
}

impl AttachedDrives {
    pub(super) fn attached_drives(&self) -> Vec<Arc<AttachedDrive>> {
        self.attached.read().clone()
    }

    /// The server has lost history: no drive is read before it has said again that it knows what
    /// the drive has seen.
    pub(crate) fn distrust_all(&self) {
        self.attached_drives()
            .iter()
            .for_each(|drive| drive.is_checked.store(false, Ordering::Release));
    }

    pub(super) fn weights(&self) -> CostWeights {
        choice::weights_of_priority(self.priority.load(Ordering::Relaxed))
    }

    /// A batch of changes is on its way to the server, until the answer is dropped: who reads from
    /// there would wait behind it.
    pub(crate) fn begin_sending(&self) -> SendingGuard<'_> {
        self.sending.fetch_add(1, Ordering::AcqRel);
        SendingGuard(&self.sending)
    }

    /// Returns whether a batch of changes is on its way to the server.
    pub(crate) fn is_sending(&self) -> bool {
        self.sending.load(Ordering::Acquire) > 0
    }

    /// Returns whether drives have content, too, and nobody knows how wide the way to the server
    /// is: who asks it for something asks for that alone.
    pub(crate) fn is_server_unknown(&self) -> bool {
        !self.is_empty() && !self.server.lock().is_width_known()
    }

    /// Returns what the server costs as it is now.
    pub(super) fn server_latency(&self) -> LatencyModel {
        let mut meter = self.server.lock().clone();
        meter.is_busy = self.is_sending();
        meter
    }

    /// The server has answered, after this time; `is_busy`: a batch was on its way to it. Measures
    /// the way to it.
    pub(crate) fn note_answer(
        &self,
        request: &ClientRequest,
        reply: &ServerReply,
        (time, is_busy): (Duration, bool),
    ) {
        let bytes = match (request, reply) {
            // It waits for news.
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
            self.attached_drives()
                .iter()
                .for_each(|drive| drive.latency_model.lock().note_other_time(to_span(time)));
        }
    }

    /// Returns who may be asked for content, in this order; for who does not only want to know it,
    /// what is passed over is counted, and woken.
    pub(super) fn ordered_sources(
        &self,
        (no, data_seq): (ObjectNo, CommitSeq),
        bytes: u64,
        has_server: bool,
        (clock, is_asked): (&Arc<dyn Clock>, bool),
    ) -> Vec<ContentSource> {
        let (mut sources, mut meters, mut asleep) = (Vec::new(), Vec::new(), Vec::new());
        let counts = |count: &AtomicU64| count.fetch_add(u64::from(is_asked), Ordering::Relaxed);
        for drive in self.attached_drives() {
            if !drive.is_usable() {
            } else if drive.has_nothing_of(no)
                || self.enodes.get(&(drive.device, no)) == Some(data_seq)
            {
                counts(&drive.counters.skipped);
            } else if drive.reader.is_late() && !bug(Bug::LateAskedAgain) {
                counts(&drive.counters.avoided);
            } else if drive.is_asleep(clock.monotonic_time()) {
                asleep.push(drive);
            } else {
                meters.push(drive.current_latency());
                sources.push(Some(ContentSource::Drive(drive)));
            }
        }
        if has_server && !(sources.is_empty() && asleep.is_empty()) {
            meters.push(self.server_latency());
            sources.push(Some(ContentSource::Server));
        }
        let (weights, mut ordered) = (self.weights(), Vec::new());
        let order = choice::order_sources(&meters, bytes, weights);
        if let Some(first) = order.first().filter(|_| is_asked) {
            let served = meters[*first].read_cost(bytes, weights);
            asleep
                .iter()
                .for_each(|drive| drive.note_passed_over((served, bytes), weights, clock));
        }
        ordered.extend(order.into_iter().filter_map(|at| sources[at].take()));
        ordered.extend(asleep.into_iter().map(ContentSource::Drive));
        ordered
    }
}

/// Content that somebody will probably need: object, the commit it is of, where.
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
                let (server, weights) = (self.server_latency(), self.weights());
                let meter = drive.latency_model.lock();
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
            let (mut asked, store) = (near.clone(), Arc::clone(&drive.drive));
            asked.retain(|(no, ..)| !drive.has_nothing_of(*no));
            if asked.is_empty() {
                continue;
            }
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
