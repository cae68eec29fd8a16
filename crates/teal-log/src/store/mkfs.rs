//! Making a store: geometry for the disk, a root directory, the first checkpoint, and last of all
//! the superblocks.

use crate::commit::committer::{BatchKind, Committer};
use crate::commit::layout::ChainPosition;
use crate::commit::log::CommitLog;
use crate::error::{DiskRequest, StoreError};
use crate::format::delta::CheckpointRoots;
use crate::format::geometry::{Geometry, Segment};
use crate::format::owner::StoreOwner;
use crate::format::record::BatchSums;
use crate::format::superblock::{
    self, GROUPED_NAMES, LABEL_MAX, SECOND_COPIES, Superblock, UNWRITTEN_EXTENTS,
};
use crate::recovery::open::OpenOptions;
use crate::space::cost::Cost;
use crate::space::segments::LogHead;
use crate::store::handle::Store;
use crate::store::locked::NewObject;
use crate::tree::reader::CachedReader;
use std::sync::Arc;
use teal_env::{Clock, Disk, Entropy};
use teal_types::{FileType, ObjectNo, SECTOR, Sector};

/// The smallest disk a store fits on, in bytes.
pub const SMALLEST_STORE: u64 = 16 << 20;
const SMALLEST_SEGMENT: u64 = 512 << 10;
const USUAL_SEGMENT: u64 = 1 << 20;
const MOST_SEGMENTS: u64 = 1 << 16;
const ANCHOR_PLACES: u32 = 4;

/// The owner's choices for a new store.
#[derive(Debug, Clone, Default)]
pub struct MkfsOptions {
    /// A name for people, at most 64 bytes.
    pub label: String,
    /// Owner and group of the root directory.
    pub owner: (u32, u32),
    /// Names lie anywhere in their directories, as in stores made before `GROUPED_NAMES` was there.
    pub scattered_names: bool,
}

/// Why no store can be made.
#[derive(Debug, thiserror::Error)]
pub enum MkfsError {
    /// The disk is too small.
    #[error("{0} bytes are too few: a store needs at least {SMALLEST_STORE} (16 MiB)")]
    TooSmall(u64),
    /// The label is too long.
    #[error("a label has at most {LABEL_MAX} bytes")]
    Label,
    /// The disk failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Returns the geometry for a disk.
fn choose_geometry(
    disk: &dyn Disk,
    options: &MkfsOptions,
    clock: &dyn Clock,
    entropy: &dyn Entropy,
) -> Superblock {
    let shape = disk.shape();
    let bytes = shape.sectors * SECTOR;
    let mut segment = if bytes < 256 << 20 {
        SMALLEST_SEGMENT
    } else {
        USUAL_SEGMENT
    };
    // A disk has at most so many segments, so that the table stays small.
    while bytes / segment > MOST_SEGMENTS {
        segment *= 2;
    }
    // Room for the second superblock.
    let tail = superblock::BYTES as u64 + 4096;
    let mut volume = [0; 4];
    entropy.fill(&mut volume);
    Superblock {
        uuid: entropy.random_id(),
        compatible: 0,
        read_only_compatible: 0,
        incompatible: if options.scattered_names {
            SECOND_COPIES | UNWRITTEN_EXTENTS
        } else {
            GROUPED_NAMES | SECOND_COPIES | UNWRITTEN_EXTENTS
        },
        sectors: shape.sectors,
        segment_sectors: (segment / SECTOR) as u32,
        segments: ((bytes - tail) / segment) as u32,
        // Records are aligned to the larger sector, so that none shares one with another.
        commit_align: shape.logical.max(shape.physical),
        anchor_places: ANCHOR_PLACES,
        volume: u32::from_le_bytes(volume),
        rotational: shape.rotational,
        created: clock.civil_time(),
        hash_seed: entropy.random_id(),
        label: options.label.clone(),
    }
}

fn allocate_run(reader: &CachedReader, at: Sector, sectors: u64) -> Result<(), StoreError> {
    let allocated = reader.disk().allocate(at, sectors);
    allocated.map_err(|source| StoreError::Io {
        doing: DiskRequest::Allocate,
        at: at.get(),
        source: Arc::new(source),
    })
}

impl Store {
    /// Makes an empty store on `disk`. Whatever was there is gone from the moment this starts.
    ///
    /// # Errors
    /// [`MkfsError`].
    pub fn mkfs(
        disk: Arc<dyn Disk>,
        clock: Arc<dyn Clock>,
        entropy: &dyn Entropy,
        options: &MkfsOptions,
    ) -> Result<(), MkfsError> {
        let bytes = disk.shape().sectors * SECTOR;
        // Everything is validated before the first write.
        if bytes < SMALLEST_STORE {
            return Err(MkfsError::TooSmall(bytes));
        }
        if options.label.len() > LABEL_MAX || options.label.contains('\0') {
            return Err(MkfsError::Label);
        }
        let sb = choose_geometry(&*disk, options, &*clock, entropy);
        let geometry = Geometry::new(&sb);
        let reader = CachedReader::new(disk);
        let copies = [Sector::new(0), Superblock::second_copy(sb.sectors)];
        // Old anchors and superblocks go first: a crash must not leave a mixture.
        for at in copies.into_iter().chain(geometry.anchor_slots()) {
            // Fixed places are written for ever, whether or not their segment is in use.
            let slot = geometry.slot_sectors().min(sb.sectors - at.get());
            allocate_run(&reader, at, slot)?;
            reader.write(at, vec![0; superblock::BYTES].into())?;
        }
        // Durable before the new store is begun.
        reader.sync()?;
        let superblock = sb.encode();
        let store = Self::create_empty(sb, reader, clock)?;
        store.make_root(options.owner)?;
        // The superblocks come last: with them the store exists.
        for at in copies {
            store
                .objects()
                .reader
                .write(at, superblock.clone().into())?;
        }
        store.objects().reader.sync()?;
        Ok(())
    }

    /// Returns a store with nothing in it, not even a root.
    fn create_empty(
        sb: Superblock,
        reader: CachedReader,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, StoreError> {
        let chain = ChainPosition {
            uuid: sb.uuid,
            epoch: 1,
            seq: 1,
            batch: 1,
            digest: 0,
            watermark: 0,
            sums: BatchSums::default(),
            owner: StoreOwner::default(),
        };
        let committer = Committer::of_new_store(chain, sb.anchor_places);
        let roots = CheckpointRoots {
            next_object: ObjectNo::ROOT.get(),
            ..CheckpointRoots::default()
        };
        let options = OpenOptions::default();
        let log = CommitLog::assemble(sb, reader, clock, options, committer, &roots)?;
        let store = Self { log };
        // The first segment of a sparse disk must be allocated before it is written.
        let first = Segment(0);
        let whole = store.objects().geometry.whole_run(first);
        let sectors = u64::from(whole.sectors);
        allocate_run(&store.objects().reader, whole.addr, sectors)?;
        let mut segments = store.objects().segments.lock();
        segments.set_ready(first);
        segments.set_head(LogHead {
            a: store.objects().geometry.usable_run(first),
            b: Default::default(),
        });
        drop(segments);
        store.objects().refresh_budget();
        Ok(store)
    }

    fn make_root(&self, owner: (u32, u32)) -> Result<(), StoreError> {
        let op = self.begin(Cost::create())?;
        let now = self.objects().clock.civil_time();
        let (uid, gid) = owner;
        let mut locked = op.lock(&[])?;
        let root = locked.create(NewObject {
            kind: FileType::Dir,
            perm: 0o755,
            uid,
            gid,
            rdev: 0,
            now,
        });
        assert_eq!(root, ObjectNo::ROOT, "the first object is the root");
        drop(locked);
        drop(op);
        // Low numbers are reserved.
        let below_first_free = ObjectNo::new(ObjectNo::FIRST_FREE.get() - 1);
        self.objects().numbers.raise_above_object(below_first_free);
        self.log
            .commit_as(&mut self.log.committer(), BatchKind::Checkpoint)
    }
}
