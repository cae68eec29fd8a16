//! Opening a store: superblock, anchors, the chain of records, and what it says.
//!
//! # How
//! 1. The backing store is synced first: after a SIGKILL the tail may exist only in a page cache.
//! 2. The newest whole anchor leads to a checkpoint. From there the chain is followed: each record names where the next one may start,
//!    and the next one names the digest of the one before.
//! 3. If the newest anchor leads nowhere, the store is damaged and does not open: an older one would lead to an older state of it. The
//!    chain ends at the first record that is not whole. If any record or anchor says that this one was durable, the store is
//!    damaged and does not open; otherwise it is a torn tail, which is normal. Above the watermark payloads are verified too.
//! 4. An unfinished batch at the end is dropped. The last checkpoint in the chain is loaded. Of the batches after it, what they say of the
//!    store is redone, and what they say of objects [waits](crate::deferred) for whoever asks for them: so opening takes as long as
//!    reading the log, however many objects there are and however they are spread.
//! 5. Nothing is written. The first commit writes a record of a fresh epoch where the dropped tail began.

mod refusal;

pub use refusal::OpenError;

use crate::ahead::Window;
use crate::anchors::Anchors;
use crate::codec::COUNTER_LIMIT;
use crate::commit::Committer;
use crate::deferred::{Deferred, Dues};
use crate::dir::NameHash;
use crate::error::{DiskRequest, StoreError};
use crate::format::anchor::Anchor;
use crate::format::crc_matches;
use crate::format::delta::{Delta, Roots, decode_body};
use crate::format::record::{self, HEADER, Header, Run};
use crate::format::superblock::{self, Refused, Superblock};
use crate::geometry::Geometry;
use crate::imap::InodeMap;
use crate::layout::Chain;
use crate::owner::{self, OwnedElsewhere, Owner, Witness};
use crate::page::{STORE_WIDE, TreeKind};
use crate::reader::Reader;
use crate::seeded::{Bug, bug};
use crate::segments::{Head, Segments};
use crate::shared::SharedTable;
use crate::store::{Settings, Store};
use crate::table::Table;
use crate::tree::Tree;
use parking_lot::{Mutex, RwLock};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use teal_env::{Clock, Disk};
use teal_types::{ObjectNo, SECTOR, Sector, Timestamp};

/// How to open a store.
#[derive(Debug, Clone, Copy, Default)]
pub struct OpenOptions {
    /// Never write.
    pub read_only: bool,
    /// Accept that durable records at the end are lost (only with `read_only`).
    pub salvage: bool,
    /// The machine that opens it; if it is not known, the store is not marked and no mark is looked at.
    pub owner: Owner,
    /// What is done if another machine has it open.
    pub elsewhere: OwnedElsewhere,
    /// Settings to start with.
    pub settings: Settings,
}

/// What opening found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Recovery {
    /// Whether the store had been closed properly.
    pub clean: bool,
    /// Batches redone since the last checkpoint.
    pub batches: u64,
    /// Bytes of log read for that.
    pub bytes: u64,
}

impl OpenOptions {
    /// Whether a store with this mark, whose last record is of this time, may be opened so.
    fn may_open(&self, mark: Option<Owner>, written: Timestamp) -> Result<(), OpenError> {
        let is_free =
            self.read_only || self.owner.is_unknown() || self.elsewhere == OwnedElsewhere::TakeOver;
        match mark {
            Some(owner) if !is_free && !owner.is_same_machine(&self.owner) => {
                Err(OpenError::OwnedElsewhere {
                    owner,
                    since: written.minute(),
                })
            }
            _ => Ok(()),
        }
    }
}

/// A record of the chain.
pub(crate) struct Link {
    pub(crate) at: Sector,
    pub(crate) header: Header,
    pub(crate) digest: u64,
    pub(crate) body: Arc<[u8]>,
}

/// What an anchor leads to.
struct Followed {
    /// The records of whole batches.
    chain: Vec<Link>,
    /// The last record behind them, whether or not its batch is whole.
    last: Header,
}

/// The disk while it is being opened.
struct Opening<'a> {
    reader: &'a Reader,
    sb: &'a Superblock,
    geometry: Geometry,
    /// What the chain is read through.
    window: RefCell<Window>,
}

/// Reads the superblock, the first copy or the second.
///
/// # Errors
/// [`OpenError`] when neither can be used.
pub fn read_superblock(disk: &dyn Disk) -> Result<Superblock, OpenError> {
    let sectors = disk.shape().sectors;
    if sectors * SECTOR < superblock::BYTES as u64 {
        return Err(OpenError::TooShort(sectors * SECTOR));
    }
    let (mut first, mut unread) = (None, None);
    for at in [Sector::new(0), Geometry::second_superblock(sectors)] {
        let mut bytes = vec![0; superblock::BYTES];
        if let Err(source) = disk.read_at(at, &mut bytes) {
            let source = Arc::new(source);
            unread = Some(StoreError::Io {
                doing: DiskRequest::Read,
                at: at.get(),
                source,
            });
            continue;
        }
        match Superblock::decode(&bytes) {
            Ok(sb) if sb.sectors <= sectors => return Ok(sb),
            Ok(sb) => {
                return Err(OpenError::Truncated {
                    have: sectors * SECTOR,
                    want: sb.sectors * SECTOR,
                });
            }
            Err(e) if first.is_none() => first = Some(e),
            Err(_) => {}
        }
    }
    if let Some(unread) = unread {
        return Err(OpenError::Store(unread));
    }
    Err(match first {
        Some(Refused::Version(v)) if v < superblock::VERSION => OpenError::Older(v),
        Some(Refused::Version(v)) => OpenError::Newer(v),
        Some(Refused::Features(bits)) => OpenError::Features(bits),
        Some(Refused::Geometry(what)) => OpenError::Geometry(what),
        Some(Refused::Damaged) => OpenError::Superblocks,
        Some(Refused::NotTeal) | None => OpenError::NotTeal,
    })
}

impl Store {
    /// Opens the store on `disk`, recovering what a crash left.
    ///
    /// # Errors
    /// [`OpenError`]; nothing has been written.
    #[allow(
        clippy::too_many_lines,
        reason = "the steps of opening, in their order"
    )]
    pub fn open(
        disk: Arc<dyn Disk>,
        clock: Arc<dyn Clock>,
        options: OpenOptions,
    ) -> Result<(Arc<Self>, Recovery), OpenError> {
        let reader = Reader::new(disk);
        reader.set_sweeping(true);
        if !bug(Bug::NoSyncOnOpen) {
            reader.sync()?;
        }
        let sb = read_superblock(reader.disk())?;
        if sb.read_only_compatible != 0 && !options.read_only {
            return Err(OpenError::ReadOnlyFeatures(sb.read_only_compatible));
        }
        let geometry = Geometry::new(&sb);
        let opening = Opening {
            reader: &reader,
            sb: &sb,
            geometry,
            window: RefCell::default(),
        };
        let anchors = Anchors::read(&reader, &sb, &geometry);
        let salvage = options.read_only && options.salvage;
        // Only for salvage an older checkpoint will do.
        let tried = anchors
            .by_age()
            .into_iter()
            .take(if salvage { usize::MAX } else { 1 });
        let mut found = Err(OpenError::Anchors);
        for anchor in tried {
            found = opening
                .follow(anchor, anchors.watermark(), salvage)
                .map(|followed| (anchor, followed));
            if found.is_ok() {
                break;
            }
        }
        let (newest, Followed { chain, last }) = found?;
        let mark = owner::mark(&last);
        options.may_open(mark, last.time)?;
        let last = chain.last().ok_or(OpenError::Anchors)?;
        let from = chain
            .iter()
            .rposition(|l| l.header.is(record::CHECKPOINT))
            .ok_or(OpenError::Anchors)?;
        let roots = roots_of(&chain[from])?;

        let slots = anchors.last_slots(&sb, &geometry);
        let committer = Committer {
            chain: Chain {
                uuid: sb.uuid,
                epoch: last.header.epoch,
                seq: last.header.seq + 1,
                batch: last.header.batch + 1,
                digest: last.digest,
                watermark: last.header.seq,
                sums: last.header.sums,
                owner: options.owner,
            },
            epoch_written: false,
            checkpoint: roots.checkpoint,
            anchored: newest.checkpoint,
            slots,
            log_bytes: 0,
            since: None,
            unsynced_since: None,
            closed: false,
            is_marked: mark.is_some() && !options.owner.is_unknown(),
            seen: None,
        };
        let head = Head {
            a: last.header.next_a,
            b: last.header.next_b,
        };
        if [head.a, head.b]
            .iter()
            .any(|run| run.sectors > 0 && !geometry.takes(*run))
        {
            return Err(StoreError::Corrupt {
                what: "a record",
                at: last.at.get(),
                object: None,
            }
            .into());
        }
        let mut recovery = Recovery {
            clean: last.header.is(record::CLEAN),
            ..Recovery::default()
        };
        let store = Self::assemble(sb, reader, clock, options, committer, &roots)?;
        let mut dues = Dues::new();
        let is_of = |link: &&Link| link.header.batch == chain[from].header.batch;
        chain[..=from]
            .iter()
            .filter(is_of)
            .try_for_each(|link| store.redo_kept(link, &mut dues))?;
        for pair in chain[from..].windows(2) {
            let (before, link) = (&pair[0], &pair[1]);
            let is_entry = geometry.segment_of(before.at) != geometry.segment_of(link.at);
            recovery.batches += u64::from(link.header.is(record::COMMIT) && link.header.deltas > 0);
            recovery.bytes += link.header.sectors() * SECTOR;
            store.redo(link, is_entry, &mut dues)?;
        }
        store
            .objects
            .store(last.header.sums.objects as i64, Ordering::Relaxed);
        store.defer(dues, last.header.sums);
        {
            let mut segments = store.segments.lock();
            segments.set_head(head);
            if !options.read_only {
                segments.sound()?;
            }
            // What the last life had set free since the table was written is free again.
            segments.ripen(newest.checkpoint);
            // A record may have survived a crash and the host's allocation of the rest of its segment not.
            let runs = chain
                .iter()
                .map(|link| link.at)
                .chain([head.a.addr, head.b.addr]);
            let is_sparse = store.reader.disk().shape().sparse && !store.read_only;
            segments.doubtful = runs
                .filter(|_| is_sparse)
                .filter_map(|at| geometry.segment_of(at))
                .map(|s| s.0)
                .collect();
        }
        let is_marking = !options.read_only && !options.owner.is_unknown();
        let seen = is_marking.then(|| Witness::of(&store, head));
        {
            let mut committer = store.commit.lock();
            committer.log_bytes = recovery.bytes * u64::from(recovery.batches > 0);
            committer.seen = seen;
        }
        if !options.read_only {
            store.count_on()?;
        }
        store.reader.set_sweeping(false);
        store.refresh_budget();
        Ok((Arc::new(store), recovery))
    }

    /// No number of an object that is there may be given to another, whatever the roots say. A page of the map that cannot be read says
    /// nothing: only a store that is made up or badly broken needs this.
    fn count_on(&self) -> Result<(), StoreError> {
        let highest = self
            .imap
            .read()
            .highest(&self.reader)
            .unwrap_or(0)
            .max(ObjectNo::FIRST_FREE.get() - 1);
        if highest >= COUNTER_LIMIT {
            return Err(StoreError::Corrupt {
                what: "the inode map",
                at: 0,
                object: Some(ObjectNo::new(highest)),
            });
        }
        self.next_object.fetch_max(highest + 1, Ordering::Relaxed);
        Ok(())
    }

    pub(crate) fn assemble(
        sb: Superblock,
        mut reader: Reader,
        clock: Arc<dyn Clock>,
        options: OpenOptions,
        committer: Committer,
        roots: &Roots,
    ) -> Result<Self, StoreError> {
        let geometry = Geometry::new(&sb);
        reader.shared = SharedTable::new(roots.shared);
        let mut segments = Segments::new(geometry, reader.disk().shape().sparse);
        segments.interval = roots.checkpoint;
        let usage = Tree::with_root(TreeKind::Usage, STORE_WIDE, roots.usage);
        let damaged = StoreError::Corrupt {
            what: "the usage table",
            at: 0,
            object: None,
        };
        usage.scan(&reader, 0, &mut |segment, value| {
            let item = crate::format::usage::SegmentUse::decode(value);
            item.and_then(|item| segments.restore(u32::try_from(segment).ok()?, item))
                .ok_or(damaged.clone())?;
            Ok(std::ops::ControlFlow::Continue(()))
        })?;
        segments.apply_overrides(roots).ok_or(damaged)?;
        Ok(Self {
            geometry,
            read_only: options.read_only,
            table: Table::new(options.settings.cached_objects),
            commit: Mutex::new(committer),
            gate: RwLock::new(()),
            imap: RwLock::new(InodeMap::new(roots.imap)),
            orphans: Mutex::new(Tree::with_root(
                TreeKind::Orphans,
                STORE_WIDE,
                roots.orphans,
            )),
            notes: Mutex::new(Tree::with_root(TreeKind::Notes, STORE_WIDE, roots.notes)),
            usage: Mutex::new(usage),
            segments: Mutex::new(segments),
            open: Mutex::default(),
            unfolded: Mutex::default(),
            deferred: Deferred::default(),
            settings: RwLock::new(options.settings),
            next_object: AtomicU64::new(roots.next_object),
            next_lsn: AtomicU64::new(roots.next_lsn.get()),
            objects: AtomicI64::new(roots.objects as i64),
            open_batch: AtomicU64::new(1),
            durable_batch: AtomicU64::new(1),
            mem_pages: AtomicI64::new(0),
            gathered: AtomicI64::new(0),
            moved: AtomicI64::new(0),
            lent: AtomicI64::new(0),
            promised: AtomicI64::new(0),
            budget: AtomicI64::new(0),
            poisoned: AtomicBool::new(false),
            host_is_full: AtomicBool::new(false),
            host_seen: Mutex::default(),
            when_changed: OnceLock::new(),
            names: NameHash::of(&sb),
            sb,
            reader,
            clock,
        })
    }
}

/// The roots at the end of a checkpoint's last record.
fn roots_of(link: &Link) -> Result<Roots, StoreError> {
    let damaged = StoreError::Corrupt {
        what: "a checkpoint's roots",
        at: link.at.get(),
        object: None,
    };
    for placed in decode_body(&link.body, link.header.deltas) {
        if let Delta::Roots(roots) = placed.map_err(|_| damaged.clone())?.delta {
            return Ok(*roots);
        }
    }
    Err(damaged)
}

impl Opening<'_> {
    fn raw(&self, at: Sector, buf: &mut [u8]) -> Result<(), StoreError> {
        self.window.borrow_mut().read(self.reader, at, buf)
    }

    fn header(&self, at: Sector) -> Option<(Header, Vec<u8>)> {
        let mut bytes = vec![0; HEADER];
        self.raw(at, &mut bytes).ok()?;
        Header::decode(&bytes, &self.sb.uuid).map(|h| (h, bytes))
    }

    /// The whole record at `at`, payload unverified.
    fn record(&self, at: Sector, fits: impl Fn(&Header) -> bool) -> Option<Link> {
        let (header, bytes) = self.header(at).filter(|(h, _)| fits(h))?;
        if !self.geometry.holds(Run {
            addr: at,
            sectors: u32::try_from(header.sectors()).ok()?,
        }) {
            return None;
        }
        let body_sectors = u64::from(header.body).div_ceil(SECTOR);
        let mut body = vec![0; (body_sectors * SECTOR) as usize];
        self.raw(at.plus(1 + u64::from(header.payload)), &mut body)
            .ok()?;
        body.truncate(header.body as usize);
        crc_matches(&body, header.body_crc).then(|| Link {
            at,
            header,
            digest: record::digest(&bytes, &self.sb.uuid),
            body: body.into(),
        })
    }

    fn next(&self, last: &Link) -> Option<Link> {
        let fits = |h: &Header| {
            h.seq == last.header.seq + 1
                && (record::follows(h, last.digest) || bug(Bug::LeftoversLineUp))
                && (h.epoch == last.header.epoch
                    || h.is(record::FRESH_EPOCH) && h.epoch > last.header.epoch)
        };
        for run in [last.header.next_a, last.header.next_b] {
            if run.sectors == 0 || !self.geometry.holds(run) {
                continue;
            }
            for skip in (0..=u64::from(last.header.gap.min(run.sectors - 1)))
                .step_by(self.geometry.align as usize)
            {
                if let Some(link) = self.record(run.addr.plus(skip), fits) {
                    return Some(link);
                }
            }
        }
        None
    }

    /// The highest watermark that anything behind the end of the chain testifies to. As far behind each run's start is searched as the
    /// record after a lost one may be; a batch may take many runs, and whatever is found names the next ones.
    fn testimony(&self, last: &Link) -> u64 {
        let (mut highest, gap) = (0, last.header.gap);
        // From where to where each segment was read: no sector is read twice.
        let mut read: BTreeMap<_, (Sector, Sector)> = BTreeMap::new();
        let mut runs = vec![last.header.next_a, last.header.next_b];
        while let Some(run) = runs.pop() {
            let Some(segment) = self
                .geometry
                .segment_of(run.addr)
                .filter(|_| self.geometry.holds(run))
            else {
                continue;
            };
            let usable = self.geometry.usable(segment);
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
            let mut bytes = vec![0; (end.byte() - begin.byte()) as usize];
            if self
                .window
                .borrow_mut()
                .read_on(self.reader, begin, &mut bytes)
                .is_err()
            {
                // Sector by sector then: one bad sector hides only itself.
                for (i, sector) in bytes.chunks_mut(SECTOR as usize).enumerate() {
                    if self.reader.raw(begin.plus(i as u64), sector).is_err() {
                        sector.fill(0);
                    }
                }
            }
            for sector in bytes.chunks(SECTOR as usize) {
                if let Some(header) = Header::decode(sector, &self.sb.uuid)
                    && header.seq > last.header.seq
                {
                    highest = highest.max(header.watermark);
                    runs.extend([header.next_a, header.next_b]);
                }
            }
        }
        highest
    }

    fn payload_is_whole(&self, link: &Link) -> bool {
        if bug(Bug::PayloadUnverified) {
            return true;
        }
        let mut payload = vec![0; link.header.payload as usize * SECTOR as usize];
        self.reader.raw(link.at.plus(1), &mut payload).is_ok()
            && crc_matches(&payload, link.header.payload_crc)
    }

    /// The committed records from an anchor's checkpoint to the end of the log.
    fn follow(
        &self,
        from: Anchor,
        mut watermark: u64,
        salvage: bool,
    ) -> Result<Followed, OpenError> {
        let lost = |seq, at: Sector| OpenError::Lost { seq, at: at.get() };
        let first = self
            .record(from.addr, |h| h.seq == from.seq)
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
            match self.next(last) {
                Some(link) => chain.push(link),
                None => {
                    watermark = watermark.max(self.testimony(last));
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
            .rposition(|l| l.header.is(record::COMMIT))
            .map_or(0, |i| i + 1);
        if bug(Bug::TornTailRefused) && committed < found {
            return Err(lost(0, from.addr));
        }
        chain.truncate(if bug(Bug::CommitFlagIgnored) {
            chain.len()
        } else {
            committed
        });
        Ok(Followed { chain, last })
    }
}
