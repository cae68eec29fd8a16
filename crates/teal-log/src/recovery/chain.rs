//! The chain of records: from a checkpoint, record by record, to the end of the log.

use crate::commit::anchors::Anchors;
use crate::counters::add_to_counter;
use crate::error::StoreError;
use crate::format::anchor::Anchor;
use crate::format::checksum::crc_matches;
use crate::format::delta::{Delta, decode_body};
use crate::format::geometry::{Geometry, Segment};
use crate::format::record::{self, HEADER, RecordHeader, SectorRun};
use crate::format::root_copy::RootCopy;
use crate::format::superblock::Superblock;
use crate::recovery::refusal::StoreOpenError;
use crate::recovery::resume::RESUMES_MAX;
use crate::recovery::window::ReadAheadWindow;
use crate::seeded::{Bug, bug};
use crate::tree::reader::CachedReader;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use teal_types::{ObjectNo, SECTOR, Sector};

/// A record of the chain.
pub(crate) struct ChainRecord {
    pub(crate) at: Sector,
    pub(crate) header: RecordHeader,
    pub(crate) digest: u64,
    pub(crate) body: Arc<[u8]>,
    /// Records in front of it are lost.
    pub(crate) is_behind_loss: bool,
}

impl ChainRecord {
    /// Returns whether a record with this header may follow: it continues the count and the digest,
    /// and the epoch goes on or a fresh one begins.
    pub(crate) fn is_followed_by(&self, header: &RecordHeader) -> bool {
        header.seq == self.header.seq + 1
            && (record::follows_digest(header, self.digest) || bug(Bug::LeftoversLineUp))
            && (header.epoch == self.header.epoch
                || header.has_flag(record::FRESH_EPOCH) && header.epoch > self.header.epoch)
    }
}

/// From where to where each segment was read: no sector is read twice.
type ReadStretches = BTreeMap<Segment, (Sector, Sector)>;

/// The chain of records that an anchor leads to.
pub(crate) struct FollowedChain {
    /// The records of whole batches.
    pub(crate) chain: Vec<ChainRecord>,
    /// The last record behind them, whether or not its batch is whole.
    pub(crate) last: RecordHeader,
    /// Something was durable behind the last record; only where a store is salvaged.
    pub(crate) is_end_lost: bool,
}

fn lost(seq: u64, at: Sector) -> StoreOpenError {
    StoreOpenError::Lost { seq, at: at.get() }
}

impl FollowedChain {
    /// Returns whether a checkpoint's last record is among the records.
    pub(crate) fn has_checkpoint(&self) -> bool {
        let mut records = self.chain.iter();
        records.any(|record| record.header.has_flag(record::CHECKPOINT))
    }
}

/// The disk while it is being opened.
pub(crate) struct OpeningDisk<'a> {
    pub(crate) reader: &'a CachedReader,
    pub(crate) sb: &'a Superblock,
    pub(crate) geometry: Geometry,
    /// The window through which the chain is read.
    pub(crate) window: RefCell<ReadAheadWindow>,
}

impl OpeningDisk<'_> {
    pub(crate) fn read_raw(&self, at: Sector, buf: &mut [u8]) -> Result<(), StoreError> {
        self.window.borrow_mut().read(self.reader, at, buf)
    }

    pub(crate) fn read_header(&self, at: Sector) -> Option<(RecordHeader, Vec<u8>)> {
        let mut bytes = vec![0; HEADER];
        self.read_raw(at, &mut bytes).ok()?;
        let header = RecordHeader::decode(&bytes, &self.sb.uuid)?;
        Some((header, bytes))
    }

    /// Reads the whole record at `at`, payload unverified.
    pub(crate) fn read_record(
        &self,
        at: Sector,
        fits: impl Fn(&RecordHeader) -> bool,
    ) -> Option<ChainRecord> {
        // The number decides first: leftovers are seldom read further.
        let (header, bytes) = self.read_header(at)?;
        if !fits(&header) {
            return None;
        }
        // A damaged length must not reach outside of the log.
        if !self.geometry.holds_run(SectorRun {
            addr: at,
            sectors: u32::try_from(header.sectors()).ok()?,
        }) {
            return None;
        }
        let body_sectors = u64::from(header.body).div_ceil(SECTOR);
        let mut body = vec![0; (body_sectors * SECTOR) as usize];
        self.read_raw(at.plus(1 + u64::from(header.payload)), &mut body)
            .ok()?;
        body.truncate(header.body as usize);
        if !crc_matches(&body, header.body_crc) {
            return None;
        }
        Some(ChainRecord {
            at,
            header,
            digest: record::header_digest(&bytes, &self.sb.uuid),
            body: body.into(),
            is_behind_loss: false,
        })
    }

    pub(crate) fn next_record(&self, last: &ChainRecord) -> Option<ChainRecord> {
        let fits = |header: &RecordHeader| last.is_followed_by(header);
        // The run of the head, or the one after it.
        for run in [last.header.next_a, last.header.next_b] {
            if run.sectors == 0 || !self.geometry.holds_run(run) {
                continue;
            }
            // A record that was lost may have left a gap; the search goes on behind it.
            for skip in (0..=u64::from(last.header.gap.min(run.sectors - 1)))
                .step_by(self.geometry.align as usize)
            {
                if let Some(link) = self.read_record(run.addr.plus(skip), fits) {
                    return Some(link);
                }
            }
        }
        None
    }

    /// Returns the highest watermark that any record behind the end of the chain names. The search
    /// covers as much of each run's start as the record after a lost one may take. A batch may take
    /// many runs, and every record that is found names the next ones.
    fn durable_by_leftovers(&self, last: &ChainRecord) -> u64 {
        let mut highest = 0;
        let mut read = ReadStretches::default();
        let mut runs = vec![last.header.next_a, last.header.next_b];
        while let Some(run) = runs.pop() {
            // A watermark in a leftover may be forged by damage, so only whole headers count.
            let Some((begin, end)) = self.unread_start(run, last.header.gap, &mut read) else {
                continue;
            };
            let bytes = self.read_leftovers(begin, end);
            for sector in bytes.chunks(SECTOR as usize) {
                if let Some(header) = RecordHeader::decode(sector, &self.sb.uuid)
                    && header.seq > last.header.seq
                {
                    // A leftover names what was durable when it was written, and where the log went
                    // on.
                    highest = highest.max(header.watermark);
                    runs.extend([header.next_a, header.next_b]);
                }
            }
        }
        highest
    }

    /// Returns from where to where the start of a run is to be read, if it lies in the log and was
    /// not read yet; from then on it counts as read.
    fn unread_start(
        &self,
        run: SectorRun,
        gap: u32,
        read: &mut ReadStretches,
    ) -> Option<(Sector, Sector)> {
        let segment = self.geometry.segment_of(run.addr)?;
        if !self.geometry.holds_run(run) {
            return None;
        }
        let usable = self.geometry.usable_run(segment);
        let stop = usable.addr.plus(u64::from(usable.sectors));
        let far = run
            .addr
            .plus(record::SECTORS_MAX + u64::from(gap) + self.geometry.align);
        // Segments are read once, whatever runs lead there.
        let (from, to) = read.get(&segment).copied().unwrap_or((stop, usable.addr));
        let is_within = (from..=to).contains(&run.addr);
        let begin = if is_within { to } else { run.addr };
        let end = if begin < from { far.min(from) } else { far }.min(stop);
        if run.sectors == 0 || begin >= end {
            return None;
        }
        read.insert(segment, (from.min(begin), to.max(end)));
        Some((begin, end))
    }

    /// Reads a stretch, in which sectors that cannot be read are zeros.
    fn read_leftovers(&self, begin: Sector, end: Sector) -> Vec<u8> {
        let mut bytes = vec![0; (end.byte_offset() - begin.byte_offset()) as usize];
        let window = self.window.borrow_mut();
        if window.read_on(self.reader, begin, &mut bytes).is_err() {
            // Sector by sector then: one bad sector hides only itself.
            for (i, sector) in bytes.chunks_mut(SECTOR as usize).enumerate() {
                if self.reader.read_raw(begin.plus(i as u64), sector).is_err() {
                    // Zeros decode to nothing.
                    sector.fill(0);
                }
            }
        }
        bytes
    }

    pub(crate) fn payload_is_whole(&self, link: &ChainRecord) -> bool {
        if bug(Bug::PayloadUnverified) {
            return true;
        }
        let mut payload = vec![0; link.header.payload as usize * SECTOR as usize];
        self.reader.read_raw(link.at.plus(1), &mut payload).is_ok()
            && crc_matches(&payload, link.header.payload_crc)
    }

    /// Returns the committed records from an anchor's checkpoint to the end of the log. For
    /// salvage the chain goes on behind records that are lost.
    fn follow_chain(
        &self,
        from: Anchor,
        watermark: u64,
        salvage: bool,
    ) -> Result<FollowedChain, StoreOpenError> {
        // The checkpoint's record must be there: the anchor was written after its barrier.
        let first = self
            .read_record(from.addr, |h| h.seq == from.seq)
            .ok_or_else(|| lost(from.seq, from.addr))?;
        self.follow_from(first, watermark, salvage)
    }

    /// Returns the committed records behind a checkpoint of which the second copy of its roots
    /// tells, the last record of the checkpoint first. Without salvage the end of the log must be
    /// as certain as usual: a record follows, or that last one is whole.
    fn follow_root_copy(
        &self,
        copy: &RootCopy,
        watermark: u64,
        salvage: bool,
    ) -> Option<FollowedChain> {
        let header = copy.record_header(&self.sb.uuid)?;
        let is_whole = self.read_record(copy.at, |h| h.seq == header.seq).is_some();
        let mut body = Vec::new();
        let roots = Delta::Roots(Box::new(copy.roots.clone()));
        roots.encode(ObjectNo::new(0), 0, &mut body);
        let first = ChainRecord {
            at: copy.at,
            digest: record::header_digest(&copy.header, &self.sb.uuid),
            header: RecordHeader {
                deltas: 1,
                ..header
            },
            body: body.into(),
            is_behind_loss: false,
        };
        // A watermark above this record keeps the chain from believing it torn.
        let watermark = watermark.max(header.seq);
        let followed = self.follow_from(first, watermark, salvage).ok()?;
        (is_whole || salvage || followed.chain.len() > 1).then_some(followed)
    }

    /// Returns the committed records from an anchor's checkpoint to the end of the log; by the
    /// second copy of the checkpoint's roots where a record of it cannot be read.
    pub(crate) fn follow_anchor(
        &self,
        anchor: Anchor,
        anchors: &Anchors,
        salvage: bool,
    ) -> Result<FollowedChain, StoreOpenError> {
        let watermark = anchors.watermark();
        let followed = self.follow_chain(anchor, watermark, salvage);
        if !followed.as_ref().is_ok_and(FollowedChain::has_checkpoint)
            && let Some(copy) = anchors.root_copy(&anchor, self.reader, self.sb)
            && let Some(by_copy) = self.follow_root_copy(&copy, watermark, salvage)
        {
            log::warn!("a checkpoint is damaged; the second copy of its roots is read instead");
            add_to_counter(&self.reader.counters.second_copies_read, 1);
            return Ok(by_copy);
        }
        followed
    }

    /// Follows the chain from its first record.
    fn follow_from(
        &self,
        first: ChainRecord,
        mut watermark: u64,
        salvage: bool,
    ) -> Result<FollowedChain, StoreOpenError> {
        let start = first.at;
        let mut chain = vec![first];
        let mut sectors = 0;
        let mut losses = 0;
        while let Some(last) = chain.last() {
            sectors += last.header.sectors();
            if sectors > self.sb.sectors {
                // Only records that lie on each other are longer together than the disk.
                return Err(StoreError::Corrupt {
                    what: "a record",
                    at: last.at.get(),
                    object: None,
                }
                .into());
            }
            // Every record tells how far the log was durable then.
            watermark = watermark.max(last.header.watermark);
            if let Some(link) = self.next_record(last) {
                chain.push(link);
                continue;
            }
            // The chain ends at the first record that does not follow.
            watermark = watermark.max(self.durable_by_leftovers(last));
            // A durable record is missing: the disk lost data, and nothing may be cut silently.
            if watermark > last.header.seq && !salvage && !bug(Bug::NoWatermark) {
                return Err(lost(last.header.seq + 1, last.header.next_a.addr));
            }
            if !salvage || losses >= RESUMES_MAX {
                break;
            }
            let Some(mut resumed) = self.resume_behind(last, watermark) else {
                break;
            };
            losses += 1;
            resumed.is_behind_loss = true;
            // A batch of which a part is lost is not redone by half.
            chain.truncate(committed_records(&chain));
            chain.push(resumed);
        }
        self.cut_to_whole_batches(chain, start, watermark)
    }

    /// Cuts a chain that begins at `start` to the batches that are whole.
    fn cut_to_whole_batches(
        &self,
        mut chain: Vec<ChainRecord>,
        start: Sector,
        watermark: u64,
    ) -> Result<FollowedChain, StoreOpenError> {
        let found = chain.len();
        let last = chain.last().map(|link| link.header).unwrap_or_default();
        // Below the watermark a barrier came after the payload. Above it, it may be torn.
        let whole = chain
            .iter()
            .position(|l| l.header.seq > watermark && !self.payload_is_whole(l));
        chain.truncate(whole.unwrap_or(chain.len()));
        // A batch counts only with its last record.
        let committed = committed_records(&chain);
        if bug(Bug::TornTailRefused) && committed < found {
            return Err(lost(0, start));
        }
        if !bug(Bug::CommitFlagIgnored) {
            chain.truncate(committed);
        }
        Ok(FollowedChain {
            is_end_lost: watermark > last.seq,
            chain,
            last,
        })
    }
}

impl CachedReader {
    /// Notes the pages of a checkpoint whose second copies may not have been written.
    pub(super) fn note_unfinished_copies(&self, checkpoint: &[ChainRecord]) {
        for record in checkpoint {
            for placed in decode_body(&record.body, record.header.deltas).flatten() {
                if let Delta::Page { kind, ptr, .. } = placed.delta
                    && kind.has_second_copies()
                {
                    self.to_renew.set_unfinished(ptr.addr());
                }
            }
        }
    }
}

/// Returns how many of these records belong to batches whose end is there.
fn committed_records(chain: &[ChainRecord]) -> usize {
    let mut committed = 0;
    for (count, record) in (1..).zip(chain) {
        if record.header.has_flag(record::COMMIT) {
            committed = count;
        }
    }
    committed
}
