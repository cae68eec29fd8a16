//! All drives that are attached, and which of the sources of content is asked first.

use super::attached::AttachedDrive;
use super::choice::{self, LatencyModel, to_span};
use super::read::PATIENCE;
use super::refused::DriveRefused;
use super::successions::AffinitySuccessions;
use super::superseded::SupersededDrives;
use crate::seeded::{Bug, bug};
use parking_lot::{Mutex, MutexGuard, RwLock};
use quick_cache::sync::Cache;
use std::collections::HashSet;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use teal_device::Drive;
use teal_energy::device::DEVICES_MAX;
use teal_energy::policy::choice::CostWeights;
use teal_env::Clock;
use teal_proto::{ClientRequest, ServerReply, encode_reply};
use teal_types::{BLOCK, ByteRanges, CommitSeq, DriveNo, ObjectNo, TimeSpan};

/// Bytes for the enodes: the objects that drives are known to lack (BlueFS 4.3.3).
const ENODES_BYTES: usize = 1 << 20;

/// Bytes that one enode takes.
const ENODE_BYTES: usize = 64;

/// Half for seconds, half for joules.
const PRIORITY: u32 = 50;

/// The function that is called when a drive is lost.
struct LossListener(Box<dyn Fn() + Send + Sync>);

impl std::fmt::Debug for LossListener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Told")
    }
}

/// All drives that are attached, and what is known of the server.
#[derive(Debug)]
pub(crate) struct AttachedDrives {
    attached: RwLock<Vec<Arc<AttachedDrive>>>,
    server: Mutex<LatencyModel>,
    /// Batches of changes on their way to the server.
    sending: AtomicU32,
    priority: AtomicU32,
    /// The content that drives lack: the commit, by drive and object.
    enodes: Cache<(DriveNo, ObjectNo), CommitSeq>,
    /// Called when one is lost.
    lost: OnceLock<LossListener>,
    superseded: Mutex<SupersededDrives>,
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

/// See [`AttachedDrives::sends`].
#[derive(Debug)]
pub(crate) struct SendingGuard<'a>(&'a AtomicU32);

impl Drop for SendingGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A place that content may come from.
pub(super) enum ContentSource {
    Server,
    Drive(Arc<AttachedDrive>),
}

impl AttachedDrives {
    pub(super) fn attached_drives(&self) -> Vec<Arc<AttachedDrive>> {
        self.attached.read().clone()
    }

    /// Adds a drive: each once, and no more than there are numbers for.
    ///
    /// # Errors
    /// [`DriveRefused::Twice`], [`DriveRefused::TooMany`].
    pub(super) fn attach(&self, attached: Arc<AttachedDrive>) -> Result<(), DriveRefused> {
        let mut all = self.attached.write();
        if let Some(other) = all.iter().find(|other| other.device == attached.device) {
            return Err(DriveRefused::Twice {
                name: other.name.clone(),
                place: other.place.clone(),
            });
        }
        if all.len() >= DEVICES_MAX {
            return Err(DriveRefused::TooMany);
        }
        let device = attached.device;
        all.push(attached);
        drop(all);
        self.superseded.lock().forget_superseded(device);
        Ok(())
    }

    /// Takes a drive away: it is not used any more. Returns whether it was in use.
    pub(super) fn let_go(&self, attached: &Arc<AttachedDrive>) -> bool {
        let was_used = attached.queue.let_go();
        self.attached
            .write()
            .retain(|other| !Arc::ptr_eq(other, attached));
        was_used
    }

    /// Has this called whenever a drive is lost. The first caller is kept.
    pub(super) fn when_lost(&self, told: impl Fn() + Send + Sync + 'static) {
        let _ = self.lost.set(LossListener(Box::new(told)));
    }

    /// Tells that a drive is lost.
    pub(super) fn tell_lost(&self) {
        if let Some(told) = self.lost.get() {
            (told.0)();
        }
    }

    /// Returns how much speed counts against joules, in percent.
    pub(super) fn priority(&self) -> u32 {
        self.priority.load(Ordering::Relaxed)
    }

    /// Sets how much speed counts against joules, in percent; beyond 100 is 100.
    pub(super) fn set_priority(&self, percent: u32) {
        self.priority.store(percent.min(100), Ordering::Relaxed);
    }

    /// Notes that a drive does not have the content of an object since a commit.
    pub(super) fn set_lacks(&self, attached: &AttachedDrive, no: ObjectNo, data_seq: CommitSeq) {
        self.enodes.insert((attached.device, no), data_seq);
    }

    /// Notes that a drive may have content of an object.
    pub(super) fn set_may_have(&self, attached: &AttachedDrive, no: ObjectNo) {
        self.enodes.remove(&(attached.device, no));
        attached.add_known_object(no);
    }

    /// Notes that the server was not asked for so long.
    pub(super) fn server_waits(&self, time: TimeSpan) {
        self.server.lock().note_other_time(time);
    }

    /// Locks what is known of drives that others have attached since.
    pub(super) fn superseded(&self) -> MutexGuard<'_, SupersededDrives> {
        self.superseded.lock()
    }

    /// Content has come here that the server has: drives get a copy, all but the one it came from.
    pub(crate) fn queue_content(
        &self,
        no: ObjectNo,
        bytes: u64,
        now: Duration,
        from: Option<DriveNo>,
    ) {
        let drives = self.attached.read();
        for drive in drives.iter().filter(|drive| Some(drive.device) != from) {
            drive.queue.add(no, bytes, now);
        }
    }

    /// An object has taken the name of another, which is no more: it takes over its affinity.
    pub(crate) fn hand_on_affinity(&self, old: ObjectNo, new: ObjectNo) {
        self.inform(|heirs| heirs.successors.push((old, new)));
    }

    /// An object is no more, here and at the server, if that knew it.
    pub(crate) fn object_ended(&self, no: ObjectNo) {
        self.inform(|heirs| heirs.ended.push(no));
    }

    fn inform(&self, note: impl Fn(&mut AffinitySuccessions)) {
        let drives = self.attached.read();
        for drive in drives.iter().filter(|drive| drive.has_affinity()) {
            drive.inform(&note);
        }
    }

    /// The server has lost history: no drive is read before it has said again that it knows what
    /// the drive has seen.
    pub(crate) fn distrust_all(&self) {
        self.attached_drives()
            .iter()
            .for_each(|drive| drive.set_checked(false));
    }

    pub(super) fn weights(&self) -> CostWeights {
        choice::weights_of_priority(self.priority())
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

    /// Returns whether drives have content, too, while the bandwidth to the server is unknown. The
    /// server is then asked for the wanted content alone.
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
                .for_each(|drive| drive.meter().note_other_time(to_span(time)));
        }
    }

    /// Returns the sources that may be asked for content, in this order. If the content is really
    /// read, drives that are passed over are counted, and woken.
    pub(super) fn ordered_sources(
        &self,
        (no, data_seq): (ObjectNo, CommitSeq),
        bytes: u64,
        has_server: bool,
        (clock, is_asked): (&Arc<dyn Clock>, bool),
    ) -> Vec<ContentSource> {
        let now = clock.monotonic_time();
        let candidates = self.drives_with((no, data_seq), now, is_asked);
        let has_drive = !(candidates.awake.is_empty() && candidates.asleep.is_empty());
        let mut meters = Vec::new();
        let mut sources = Vec::new();
        for drive in candidates.awake {
            meters.push(drive.current_latency());
            sources.push(Some(ContentSource::Drive(drive)));
        }
        if has_server && has_drive {
            meters.push(self.server_latency());
            sources.push(Some(ContentSource::Server));
        }
        let weights = self.weights();
        let order = choice::order_sources(&meters, bytes, weights);
        if let Some(first) = order.first().filter(|_| is_asked) {
            let served = meters[*first].read_cost(bytes, weights);
            for drive in &candidates.asleep {
                drive.note_passed_over((served, bytes), weights, clock);
            }
        }
        let mut ordered = Vec::new();
        ordered.extend(order.into_iter().filter_map(|at| sources[at].take()));
        // Drives that are asleep come last, behind the server.
        ordered.extend(candidates.asleep.into_iter().map(ContentSource::Drive));
        ordered
    }

    /// Returns the drives that may have content of a commit and can be asked for it. If the
    /// content is really read, those that are passed over are counted.
    fn drives_with(
        &self,
        (no, data_seq): (ObjectNo, CommitSeq),
        now: Duration,
        is_asked: bool,
    ) -> CandidateDrives {
        let mut candidates = CandidateDrives::default();
        let count = |counter: &AtomicU64| counter.fetch_add(u64::from(is_asked), Ordering::Relaxed);
        for drive in self.attached_drives() {
            if !drive.is_usable() {
                continue;
            }
            let is_known_to_lack = self.enodes.get(&(drive.device, no)) == Some(data_seq);
            if drive.has_nothing_of(no) || is_known_to_lack {
                count(&drive.counters.skipped);
            } else if drive.reader.is_late() && !bug(Bug::LateAskedAgain) {
                count(&drive.counters.avoided);
            } else if drive.is_asleep(now) {
                candidates.asleep.push(drive);
            } else {
                candidates.awake.push(drive);
            }
        }
        candidates
    }
}

/// Drives that may have some content.
#[derive(Default)]
struct CandidateDrives {
    awake: Vec<Arc<AttachedDrive>>,
    asleep: Vec<Arc<AttachedDrive>>,
}

/// Content that a program will probably need: the object, the commit it is of, and the range.
type NearbyWant = (ObjectNo, CommitSeq, ByteRanges);

impl AttachedDrives {
    pub(crate) fn is_empty(&self) -> bool {
        self.attached.read().is_empty()
    }

    /// Returns whether a block costs less from a drive than from the server.
    fn is_cheaper(&self, drive: &AttachedDrive) -> bool {
        let (server, weights) = (self.server_latency(), self.weights());
        let meter = drive.meter();
        server.predict_time(BLOCK).is_none()
            || meter.read_cost(BLOCK, weights) < server.read_cost(BLOCK, weights)
    }

    /// Takes away what a drive has that is to be asked before the server. A drive that does not
    /// answer soon is taken to have nothing.
    pub(crate) fn without_cheaper(
        &self,
        mut near: Vec<NearbyWant>,
        now: Duration,
    ) -> Vec<NearbyWant> {
        for drive in self.attached_drives() {
            let is_ready = drive.is_usable() && !drive.reader.is_late();
            if near.is_empty() || !is_ready || !self.is_cheaper(&drive) || drive.is_asleep(now) {
                continue;
            }
            let (mut asked, store) = (near.clone(), Arc::clone(&drive.drive));
            asked.retain(|(no, ..)| !drive.has_nothing_of(*no));
            if asked.is_empty() {
                continue;
            }
            let look = move || wants_held_by(&store, &asked);
            let Some(has) = drive.reader.run_with_deadline(PATIENCE, look) else {
                drive.counters.late.fetch_add(1, Ordering::Relaxed);
                continue;
            };
            near.retain(|(no, ..)| !has.contains(no));
        }
        near
    }
}

/// Returns the objects of which a drive has all that is wanted.
fn wants_held_by(drive: &Drive, wants: &[NearbyWant]) -> HashSet<ObjectNo> {
    let mut held = HashSet::new();
    for (no, data_seq, absent) in wants {
        let Some(content) = drive.held_object(*no).ok().and_then(|held| held.content) else {
            continue;
        };
        let is_complete = absent.difference(&content.present).is_empty();
        if content.data_seq == *data_seq && is_complete {
            held.insert(*no);
        }
    }
    held
}

fn got_bytes(got: &teal_proto::ContentAnswer) -> u64 {
    match got {
        teal_proto::ContentAnswer::Is { pieces, .. } => {
            pieces.iter().map(|data| data.bytes.len() as u64).sum()
        }
        _ => 0,
    }
}
