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
//!    store is redone, and what they say of objects [waits](crate::object::deferred) for whoever asks for them: so opening takes as long as
//!    reading the log, however many objects there are and however they are spread.
//! 5. Nothing is written. The first commit writes a record of a fresh epoch where the dropped tail began.

use crate::commit::anchors::Anchors;
use crate::commit::committer::Committer;
use crate::commit::layout::Chain;
use crate::commit::witness::Witness;
use crate::error::StoreError;
use crate::format::codec::COUNTER_LIMIT;
use crate::format::delta::{Delta, Roots, decode_body};
use crate::format::geometry::Geometry;
use crate::format::owner::Owner;
use crate::format::page::{STORE_WIDE, TreeKind};
use crate::format::record::{self};
use crate::format::superblock::Superblock;
use crate::object::cache::Table;
use crate::object::deferred::{Deferred, Dues};
use crate::object::directory::NameHash;
use crate::recovery::chain::{Followed, Link, Opening};
use crate::recovery::find_superblock::read_superblock;
use crate::recovery::ownership::OwnedElsewhere;
use crate::recovery::refusal::OpenError;
use crate::seeded::{Bug, bug};
use crate::space::segments::{Head, Segments};
use crate::store::{Settings, Store};
use crate::tree::Tree;
use crate::tree::inode_map::InodeMap;
use crate::tree::reader::Reader;
use crate::tree::shared_extents::SharedTable;
use parking_lot::{Mutex, RwLock};
use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use teal_env::{Clock, Disk};
use teal_types::{ObjectNo, SECTOR, Timestamp};

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
        let mark = last.open_owner();
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
