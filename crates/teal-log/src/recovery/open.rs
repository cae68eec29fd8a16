//! Opening a store: superblock, anchors, the chain of records, and what it says.
//!
//! # How
//! 1. The backing store is synced first: after a SIGKILL the tail may exist only in a page cache.
//! 2. The newest whole anchor leads to a checkpoint. From there the chain is followed: each record
//!    names where the next one may start, and the next one names the digest of the one before.
//! 3. If the newest anchor leads nowhere, the store is damaged and does not open: an older one
//!    would lead to an older state of it. The chain ends at the first record that is not whole. If
//!    any record or anchor says that this one was durable, the store is damaged and does not open;
//!    otherwise it is a torn tail, which is normal. Above the watermark payloads are verified too.
//! 4. An unfinished batch at the end is dropped. The last checkpoint in the chain is loaded. Of the
//!    batches after it, what they say of the store is redone, and what they say of objects
//!    [waits](crate::object::deferred) until they are asked for: so opening takes as long as
//!    reading the log, however many objects there are and however they are spread.
//! 5. Nothing is written. The first commit writes a record of a fresh epoch where the dropped tail
//!    began.

use crate::commit::anchors::Anchors;
use crate::commit::committer::Committer;
use crate::commit::durability::Durability;
use crate::commit::layout::ChainPosition;
use crate::commit::log::{CommitLog, StoreSettings};
use crate::commit::witness::OverwriteWitness;
use crate::error::StoreError;
use crate::format::anchor::Anchor;
use crate::format::codec::COUNTER_LIMIT;
use crate::format::delta::{CheckpointRoots, Delta, decode_body};
use crate::format::geometry::Geometry;
use crate::format::owner::StoreOwner;
use crate::format::page::{STORE_WIDE, TreeKind};
use crate::format::record;
use crate::format::superblock::Superblock;
use crate::format::usage::SegmentUse;
use crate::object::deferred::DeferredDeltas;
use crate::object::objects::ObjectStore;
use crate::recovery::chain::{ChainRecord, FollowedChain, OpeningDisk};
use crate::recovery::find_superblock::read_superblock;
use crate::recovery::ownership::OwnedElsewhere;
use crate::recovery::refusal::StoreOpenError;
use crate::recovery::roll_forward::RedoRule;
use crate::recovery::salvage::SalvageGoal;
use crate::seeded::{Bug, bug};
use crate::space::segments::{LogHead, SegmentTable};
use crate::tree::Tree;
use crate::tree::reader::CachedReader;
use crate::tree::shared_extents::SharedTable;
use std::cell::RefCell;
use std::ops::ControlFlow;
use std::sync::Arc;
use teal_env::{Clock, Disk};
use teal_types::{ObjectNo, SECTOR, Timestamp};

/// The options of opening a store.
#[derive(Debug, Clone, Copy, Default)]
pub struct OpenOptions {
    /// Never write.
    pub read_only: bool,
    /// Give what can be read, although durable records or tables of the store are lost (only with
    /// `read_only`).
    pub salvage: bool,
    /// The machine that opens it; if it is not known, the store is not marked and no mark is looked
    /// at.
    pub owner: StoreOwner,
    /// The treatment of a store that another machine has open.
    pub elsewhere: OwnedElsewhere,
    /// Settings to start with.
    pub settings: StoreSettings,
}

/// The findings of opening.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Recovery {
    /// The store had been closed properly.
    pub clean: bool,
    /// Batches redone since the last checkpoint.
    pub batches: u64,
    /// Bytes of log read for that.
    pub bytes: u64,
    /// How often records are missing, in between or at the end; only where a store is salvaged.
    pub losses: u32,
}

impl OpenOptions {
    /// Returns whether what can be read is wanted, however little that is.
    pub(super) fn is_salvage(&self) -> bool {
        self.read_only && self.salvage
    }

    /// Returns what becomes of changes that the tables of the store cannot take.
    fn redo_rule(&self) -> RedoRule {
        if self.is_salvage() {
            RedoRule::Salvage
        } else {
            RedoRule::Strict
        }
    }

    /// Checks whether a store with this mark may be opened. `written` is the time of its last
    /// record.
    fn may_open(&self, mark: Option<StoreOwner>, written: Timestamp) -> Result<(), StoreOpenError> {
        let is_free =
            self.read_only || self.owner.is_unknown() || self.elsewhere == OwnedElsewhere::TakeOver;
        // A store that another machine has open may be written by it at any time.
        match mark {
            Some(owner) if !is_free && !owner.is_same_machine(&self.owner) => {
                Err(StoreOpenError::OwnedElsewhere {
                    owner,
                    since: written.format_minute(),
                })
            }
            _ => Ok(()),
        }
    }
}

/// The log as it was found on the disk, from the last checkpoint's anchor on.
pub(super) struct FoundLog {
    pub(super) sb: Superblock,
    pub(super) anchors: Anchors,
    /// The anchor from which the chain was followed.
    pub(super) anchor: Anchor,
    pub(super) followed: FollowedChain,
    /// The record in the chain with the roots of the checkpoint to begin with.
    pub(super) checkpoint: usize,
}

impl FoundLog {
    /// Finds superblock and anchors, and follows the chain from the newest anchor.
    fn read(reader: &CachedReader, options: &OpenOptions) -> Result<Self, StoreOpenError> {
        let sb = read_superblock(reader.disk())?;
        // Features that a program may ignore for reading only.
        if sb.read_only_compatible != 0 && !options.read_only {
            return Err(StoreOpenError::ReadOnlyFeatures(sb.read_only_compatible));
        }
        let geometry = Geometry::new(&sb);
        let anchors = Anchors::read(reader, &sb, &geometry);
        let opening = OpeningDisk {
            reader,
            sb: &sb,
            geometry,
            window: RefCell::default(),
        };
        // An older one would lead to an older state.
        let anchor = anchors.newest().ok_or(StoreOpenError::Anchors)?;
        let followed = opening.follow_anchor(anchor, &anchors, false)?;
        // The last checkpoint in the chain, which may be newer than its anchor.
        let checkpoint = followed
            .chain
            .iter()
            .rposition(|record| record.header.has_flag(record::CHECKPOINT))
            .ok_or(StoreOpenError::Lost {
                seq: anchor.seq,
                at: anchor.addr.get(),
            })?;
        Ok(Self {
            sb,
            anchors,
            anchor,
            followed,
            checkpoint,
        })
    }

    /// Returns the records of the checkpoint's batch, and those from its last one on.
    fn split_at_checkpoint(&self) -> (&[ChainRecord], &[ChainRecord]) {
        let chain = &self.followed.chain;
        let last = self.checkpoint;
        // The checkpoint's batch may have several records.
        let batch = chain[last].header.batch;
        let first = chain[..last]
            .iter()
            .rposition(|record| record.header.batch != batch)
            .map_or(0, |before| before + 1);
        (&chain[first..=last], &chain[last..])
    }

    /// Returns where the last record of the chain says that the next one goes.
    fn log_head(&self, last: &ChainRecord) -> Result<LogHead, StoreError> {
        let head = LogHead {
            a: last.header.next_a,
            b: last.header.next_b,
        };
        let geometry = Geometry::new(&self.sb);
        // A full disk has no next run.
        let is_taken = |run: &record::SectorRun| run.sectors == 0 || geometry.accepts_run(*run);
        if [head.a, head.b].iter().all(is_taken) {
            Ok(head)
        } else {
            Err(StoreError::Corrupt {
                what: "a record",
                at: last.at.get(),
                object: None,
            })
        }
    }
}

impl CommitLog {
    /// Opens the store on `disk`, recovering what a crash left; see the module for the steps.
    ///
    /// # Errors
    /// [`StoreOpenError`]; nothing has been written.
    pub(crate) fn open(
        disk: Arc<dyn Disk>,
        clock: Arc<dyn Clock>,
        options: OpenOptions,
    ) -> Result<(Self, Recovery), StoreOpenError> {
        let reader = CachedReader::new(disk);
        // Opening reads the log and the maps in the order of their places.
        reader.set_sweeping(true);
        // A crash may have left written data in the disk's cache: it must be durable before it is
        // relied upon.
        if !bug(Bug::NoSyncOnOpen) {
            reader.sync()?;
        }
        if options.is_salvage() {
            return Self::salvage(reader, &clock, options, SalvageGoal::RootDirectory);
        }
        let found = FoundLog::read(&reader, &options)?;
        Self::open_found(&found, reader, clock, options)
    }

    /// Opens the store with the log that was found.
    pub(super) fn open_found(
        found: &FoundLog,
        reader: CachedReader,
        clock: Arc<dyn Clock>,
        options: OpenOptions,
    ) -> Result<(Self, Recovery), StoreOpenError> {
        // The mark is compared before anything is written.
        let mark = found.followed.last.open_owner();
        options.may_open(mark, found.followed.last.time)?;

        let last = found.followed.chain.last().ok_or(StoreOpenError::Anchors)?;
        let (checkpoint, behind) = found.split_at_checkpoint();
        let roots = roots_of(&found.followed.chain[found.checkpoint])?;
        let head = match found.log_head(last) {
            // A store that is salvaged has no next record.
            Err(_) if options.is_salvage() => LogHead::default(),
            head => head?,
        };
        // The log goes on behind the last committed record.
        let chain_end = ChainPosition {
            uuid: found.sb.uuid,
            epoch: last.header.epoch,
            seq: last.header.seq + 1,
            batch: last.header.batch + 1,
            digest: last.digest,
            // All of the chain is durable: it was synced above.
            watermark: last.header.seq,
            sums: last.header.sums,
            owner: options.owner,
        };
        let slots = found
            .anchors
            .last_slots(&found.sb, &Geometry::new(&found.sb));
        let is_marked = mark.is_some() && !options.owner.is_unknown();
        let committer = Committer::new(chain_end, roots.checkpoint, slots, is_marked);
        let sb = found.sb.clone();
        let log = Self::assemble(sb, reader, clock, options, committer, &roots)?;

        // Without an anchor it is not known whether its second copies are durable.
        if roots.checkpoint > found.anchor.checkpoint {
            log.objects.reader.note_unfinished_copies(checkpoint);
        }
        // Changes of objects are deferred; the rest is redone now.
        let mut recovery = log
            .objects
            .roll_forward(checkpoint, behind, options.redo_rule())?;
        recovery.losses += u32::from(found.followed.is_end_lost);
        recovery.clean = last.header.has_flag(record::CLEAN);
        log.restore_segments(found, head, options)?;
        // Read before the first write: later, another opening may have written there.
        let is_marking = !options.read_only && !options.owner.is_unknown();
        let witness = is_marking.then(|| OverwriteWitness::read_from(&log.objects, head));
        let log_bytes = recovery.bytes * u64::from(recovery.batches > 0);
        log.committer().resume_from(log_bytes, witness);
        // Numbers are given only where objects can be made.
        if !options.read_only {
            log.objects.count_on()?;
        }
        log.objects.reader.set_sweeping(false);
        log.objects.refresh_budget();
        Ok((log, recovery))
    }

    /// Puts a store together from a checkpoint's roots.
    pub(crate) fn assemble(
        sb: Superblock,
        mut reader: CachedReader,
        clock: Arc<dyn Clock>,
        options: OpenOptions,
        committer: Committer,
        roots: &CheckpointRoots,
    ) -> Result<Self, StoreError> {
        let geometry = Geometry::new(&sb);
        reader.shared = SharedTable::new(roots.shared);
        let mut segments = SegmentTable::new(geometry, reader.disk().shape().sparse);
        // The interval of the checkpoint that was opened.
        segments.restore_interval(roots.checkpoint);
        let usage = Tree::with_root(TreeKind::Usage, STORE_WIDE, roots.usage);
        let damaged = StoreError::Corrupt {
            what: "the usage table",
            at: 0,
            object: None,
        };
        let scanned = usage.scan(&reader, 0, &mut |segment, value| {
            let item = SegmentUse::decode(value);
            // A table that does not fit the disk is damage.
            item.and_then(|item| segments.restore_item(u32::try_from(segment).ok()?, item))
                .ok_or(damaged.clone())?;
            Ok(ControlFlow::Continue(()))
        });
        // Items that changed while the table was folded are in the roots.
        let restored =
            scanned.and_then(|()| segments.apply_overrides(roots).ok_or(damaged.clone()));
        // Nothing is written to a store that is salvaged: it needs no usage.
        if !options.is_salvage() {
            restored?;
        }
        let settings = options.settings;
        let cached = settings.cached_objects;
        let objects = ObjectStore::new(sb, reader, clock, segments, roots, cached);
        let durability = Durability::new(options.read_only);
        Ok(Self::new(objects, usage, committer, durability, settings))
    }

    /// Lets the segment table know where the log goes on, what the last life had set free, and what
    /// the host may not have allocated.
    fn restore_segments(
        &self,
        found: &FoundLog,
        head: LogHead,
        options: OpenOptions,
    ) -> Result<(), StoreError> {
        let mut segments = self.objects.segments.lock();
        segments.set_head(head);
        if options.is_salvage() {
            return Ok(());
        }
        segments.check_lengths(self.objects.deferred.surplus())?;
        let is_read_only = self.durability.is_read_only();
        // A store that is read needs no sound table.
        if !is_read_only {
            segments.check_sound()?;
        }
        // Segments that the last opening set free after the table was written are free again.
        segments.free_ripe(found.anchor.checkpoint);
        // A record may have survived a crash and the host's allocation of the rest of its segment
        // not.
        if self.objects.reader.disk().shape().sparse && !is_read_only {
            // Segments with records of this chain, and the two that come next.
            let records = found.followed.chain.iter().map(|record| record.at);
            let used = records.chain([head.a.addr, head.b.addr]);
            let of = |at| self.objects.geometry.segment_of(at);
            let used = used.filter_map(of).map(|segment| segment.0);
            let copies = segments.copy_position().map(|at| at.segment);
            let doubtful = used.chain(copies).collect();
            segments.set_doubtful(doubtful);
        }
        Ok(())
    }
}

impl ObjectStore {
    /// Redoes what the log says behind a checkpoint; `checkpoint` are the records of its batch,
    /// `behind` begins with the last of them.
    fn roll_forward(
        &self,
        checkpoint: &[ChainRecord],
        behind: &[ChainRecord],
        rule: RedoRule,
    ) -> Result<Recovery, StoreError> {
        let mut recovery = Recovery::default();
        let mut losses = 0;
        let mut deltas = DeferredDeltas::new();
        // The checkpoint repeats the changes that are still not made.
        for record in checkpoint {
            self.redo_kept(record, &mut deltas)?;
        }
        // Each record after the checkpoint.
        for pair in behind.windows(2) {
            let before = &pair[0];
            let record = &pair[1];
            // Entering a segment begins its chain of records anew.
            let is_entry =
                self.geometry.segment_of(before.at) != self.geometry.segment_of(record.at);
            let ends_batch = record.header.has_flag(record::COMMIT) && record.header.deltas > 0;
            recovery.batches += u64::from(ends_batch);
            recovery.bytes += record.header.sectors() * SECTOR;
            if record.is_behind_loss {
                losses += 1;
                // All operations that are known so far have lower numbers.
                self.reader.shared.pass_loss(self.numbers.next_lsn());
            }
            self.redo_record(record, is_entry, (losses, rule), &mut deltas)?;
        }
        recovery.losses = losses;
        if let Some(last) = behind.last() {
            // The sums of the last record hold for the state after it.
            self.numbers.set_objects(last.header.sums.objects);
            self.defer_changes(deltas, last.header.sums);
        }
        Ok(recovery)
    }

    /// Raises the next number above all existing objects, whatever the roots say. A page of the map
    /// that cannot be read is left out: only a store that is made up or badly broken has such
    /// roots.
    fn count_on(&self) -> Result<(), StoreError> {
        let highest = self
            .inode_map
            .read()
            // A map that cannot be read is no reason to refuse the store.
            .highest_number(&self.reader)
            .unwrap_or(0)
            .max(ObjectNo::FIRST_FREE.get() - 1);
        if highest >= COUNTER_LIMIT {
            return Err(StoreError::Corrupt {
                what: "the inode map",
                at: 0,
                object: Some(ObjectNo::new(highest)),
            });
        }
        self.numbers.raise_above_object(ObjectNo::new(highest));
        Ok(())
    }
}

/// Returns the roots at the end of a checkpoint's last record.
pub(super) fn roots_of(link: &ChainRecord) -> Result<CheckpointRoots, StoreError> {
    let damaged = StoreError::Corrupt {
        what: "a checkpoint's roots",
        at: link.at.get(),
        object: None,
    };
    // The roots are the only delta of their kind.
    for placed in decode_body(&link.body, link.header.deltas) {
        if let Delta::Roots(roots) = placed.map_err(|_| damaged.clone())?.delta {
            return Ok(*roots);
        }
    }
    Err(damaged)
}
