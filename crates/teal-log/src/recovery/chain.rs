//! The chain of records: from a checkpoint, record by record, to the end of the log.

use crate::error::StoreError;
use crate::format::anchor::Anchor;
use crate::format::checksum::crc_matches;
use crate::format::geometry::Geometry;
use crate::format::record::{self, HEADER, RecordHeader, SectorRun};
use crate::format::superblock::Superblock;
use crate::recovery::refusal::StoreOpenError;
use crate::recovery::window::ReadAheadWindow;
use crate::seeded::{Bug, bug};
use crate::tree::reader::CachedReader;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use teal_types::{SECTOR, Sector};

/// A record of the chain.
pub(crate) struct ChainRecord {
    pub(crate) at: Sector,
    pub(crate) header: RecordHeader,
    pub(crate) digest: u64,
    pub(crate) body: Arc<[u8]>,
}

/// What an anchor leads to.
pub(crate) struct FollowedChain {
    /// The records of whole batches.
    pub(crate) chain: Vec<ChainRecord>,
    /// The last record behind them, whether or not its batch is whole.
    pub(crate) last: RecordHeader,
}

/// The disk while it is being opened.
pub(crate) struct OpeningDisk<'a> {
    pub(crate) reader: &'a CachedReader,
    pub(crate) sb: &'a Superblock,
    pub(crate) geometry: Geometry,
    /// What the chain is read through.
    pub(crate) window: RefCell<ReadAheadWindow>,
}

impl OpeningDisk<'_> {
    fn read_raw(&self, at: Sector, buf: &mut [u8]) -> Result<(), StoreError> {
        self.window.borrow_mut().read(self.reader, at, buf)
    }

    fn read_header(&self, at: Sector) -> Option<(RecordHeader, Vec<u8>)> {
        let mut bytes = vec![0; HEADER];
        self.read_raw(at, &mut bytes).ok()?;
        RecordHeader::decode(&bytes, &self.sb.uuid).map(|h| (h, bytes))
    }

    /// The whole record at `at`, payload unverified.
    fn read_record(&self, at: Sector, fits: impl Fn(&RecordHeader) -> bool) -> Option<ChainRecord> {
        let (header, bytes) = self.read_header(at).filter(|(h, _)| fits(h))?;
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
        crc_matches(&body, header.body_crc).then(|| ChainRecord {
            at,
            header,
            digest: record::header_digest(&bytes, &self.sb.uuid),
            body: body.into(),
        })
    }

    fn next_record(&self, last: &ChainRecord) -> Option<ChainRecord> {
        let fits = |h: &RecordHeader| {
            h.seq == last.header.seq + 1
                && (record::follows_digest(h, last.digest) || bug(Bug::LeftoversLineUp))
                && (h.epoch == last.header.epoch
                    || h.has_flag(record::FRESH_EPOCH) && h.epoch > last.header.epoch)
        };
        for run in [last.header.next_a, last.header.next_b] {
            if run.sectors == 0 || !self.geometry.holds_run(run) {
                continue;
            }
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

    /// The highest watermark that anything behind the end of the chain names. As far behind each
    /// run's start is searched as the record after a lost one may be; a batch may take many runs,
    /// and whatever is found names the next ones.
    fn durable_by_leftovers(&self, last: &ChainRecord) -> u64 {
        let (mut highest, gap) = (0, last.header.gap);
        // From where to where each segment was read: no sector is read twice.
        let mut read: BTreeMap<_, (Sector, Sector)> = BTreeMap::new();
        let mut runs = vec![last.header.next_a, last.header.next_b];
        while let Some(run) = runs.pop() {
            let Some(segment) = self
                .geometry
                .segment_of(run.addr)
                .filter(|_| self.geometry.holds_run(run))
            else {
                continue;
            };
            let usable = self.geometry.usable_run(segment);
            let stop = usable.addr.plus(u64::from(usable.sectors));
            let far = run
                .addr
                .plus(record::SECTORS_MAX + u64::from(gap) + self.geometry.align);
            let (from, to) = read.get(&segment).copied().unwrap_or((stop, usable.addr));
            let begin = if (from..=to).contains(&run.addr) {
                to
            } else {
                run.addr
            };
            let end = if begin < from { far.min(from) } else { far }.min(stop);
            if run.sectors == 0 || begin >= end {
                continue;
            }
            read.insert(segment, (from.min(begin), to.max(end)));
            let mut bytes = vec![0; (end.byte_offset() - begin.byte_offset()) as usize];
            if self
                .window
                .borrow_mut()
                .read_on(self.reader, begin, &mut bytes)
                .is_err()
            {
                // Sector by sector then: one bad sector hides only itself.
                for (i, sector) in bytes.chunks_mut(SECTOR as usize).enumerate() {
                    if self.reader.read_raw(begin.plus(i as u64), sector).is_err() {
                        sector.fill(0);
                    }
                }
            }
            for sector in bytes.chunks(SECTOR as usize) {
                if let Some(header) = RecordHeader::decode(sector, &self.sb.uuid)
                    && header.seq > last.header.seq
                {
                    highest = highest.max(header.watermark);
                    runs.extend([header.next_a, header.next_b]);
                }
            }
        }
        highest
    }

    fn payload_is_whole(&self, link: &ChainRecord) -> bool {
        if bug(Bug::PayloadUnverified) {
            return true;
        }
        let mut payload = vec![0; link.header.payload as usize * SECTOR as usize];
        self.reader.read_raw(link.at.plus(1), &mut payload).is_ok()
            && crc_matches(&payload, link.header.payload_crc)
    }

    /// The committed records from an anchor's checkpoint to the end of the log.
    pub(crate) fn follow_chain(
        &self,
        from: Anchor,
        mut watermark: u64,
        salvage: bool,
    ) -> Result<FollowedChain, StoreOpenError> {
        let lost = |seq, at: Sector| StoreOpenError::Lost { seq, at: at.get() };
        let first = self
            .read_record(from.addr, |h| h.seq == from.seq)
            .ok_or_else(|| lost(from.seq, from.addr))?;
        let mut chain = vec![first];
        let mut sectors = 0;
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
            watermark = watermark.max(last.header.watermark);
            match self.next_record(last) {
                Some(link) => chain.push(link),
                None => {
                    watermark = watermark.max(self.durable_by_leftovers(last));
                    if watermark > last.header.seq && !salvage && !bug(Bug::NoWatermark) {
                        return Err(lost(last.header.seq + 1, last.header.next_a.addr));
                    }
                    break;
                }
            }
        }
        let (found, last) = (
            chain.len(),
            chain.last().map(|link| link.header).unwrap_or_default(),
        );
        let whole = chain
            .iter()
            .position(|l| l.header.seq > watermark && !self.payload_is_whole(l));
        chain.truncate(whole.unwrap_or(chain.len()));
        let committed = chain
            .iter()
            .rposition(|l| l.header.has_flag(record::COMMIT))
            .map_or(0, |i| i + 1);
        if bug(Bug::TornTailRefused) && committed < found {
            return Err(lost(0, from.addr));
        }
        chain.truncate(if bug(Bug::CommitFlagIgnored) {
            chain.len()
        } else {
            committed
        });
        Ok(FollowedChain { chain, last })
    }
}
