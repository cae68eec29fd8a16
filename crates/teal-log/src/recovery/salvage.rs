//! Opens a damaged store for reading, so that what is left can be copied out.
//!
//! # Guarantees
//! 1. *Read only*: nothing is written, and so no table of space, of orphans or of shared extents is
//!    needed. Whoever needs one meets its damage then.
//! 2. *The newest that leads somewhere*: the newest checkpoint is taken whose roots, map of inodes
//!    and root directory can be read; an older one with all of the log behind it otherwise.
//! 3. *Behind damage*: records behind one that cannot be read are redone, see
//!    [`resume`](crate::recovery::resume). Content that a lost record may have changed in part is
//!    refused, see [`losses`](crate::object::losses).
//!
//! # How
//! 1. The anchors are tried, the newest first. Each leads to a chain of records with one checkpoint
//!    or several, which are tried from the newest on.
//! 2. If none of them will do, the segments are searched for checkpoints that no anchor names.

use crate::commit::anchors::Anchors;
use crate::commit::log::CommitLog;
use crate::format::anchor::Anchor;
use crate::format::geometry::Geometry;
use crate::format::record;
use crate::format::superblock::Superblock;
use crate::object::state::ObjectContent;
use crate::recovery::chain::OpeningDisk;
use crate::recovery::find_superblock::read_superblock;
use crate::recovery::open::{FoundLog, OpenOptions, Recovery, roots_of};
use crate::recovery::refusal::StoreOpenError;
use crate::tree::reader::CachedReader;
use std::cell::RefCell;
use std::ops::ControlFlow;
use std::sync::Arc;
use teal_env::{Clock, Disk};
use teal_types::ObjectNo;

/// The most checkpoints without an anchor that are tried, the newest first: what older ones lead to
/// was given back and overwritten long ago.
const SEARCHED_MAX: usize = 16;

/// The least that a checkpoint has to lead to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SalvageGoal {
    /// The root directory, from which everything else is found by its path.
    RootDirectory,
    /// The first page of the inode map: objects have their names, too.
    InodeMap,
}

/// A store that was opened from one of its checkpoints.
type OpenedLog = (CommitLog, Recovery);

impl CommitLog {
    /// Opens the store for reading, from the newest checkpoint that leads to its root directory;
    /// or, if that leaves out something newer, from the newest one of which the map of inodes can
    /// be read.
    ///
    /// # Errors
    /// [`StoreOpenError`]; [`StoreOpenError::Unsalvageable`] if no checkpoint leads there.
    pub(crate) fn open_for_repair(
        disk: &Arc<dyn Disk>,
        clock: &Arc<dyn Clock>,
    ) -> Result<OpenedLog, StoreOpenError> {
        let options = OpenOptions {
            read_only: true,
            salvage: true,
            ..OpenOptions::default()
        };
        let salvage = |goal| {
            let reader = CachedReader::new(Arc::clone(disk));
            reader.sync()?;
            Self::salvage(reader, clock, options, goal)
        };
        let by_root = salvage(SalvageGoal::RootDirectory);
        // All that was durable is there.
        if by_root.as_ref().is_ok_and(|opened| opened.1.losses == 0) {
            return by_root;
        }
        // An older state that has a root directory is worth less than a newer one without.
        match (by_root, salvage(SalvageGoal::InodeMap)) {
            (Ok(by_root), Ok(by_map)) if by_root.1.losses <= by_map.1.losses => Ok(by_root),
            (Ok(by_root), Err(_)) => Ok(by_root),
            (_, by_map) => by_map,
        }
    }

    /// Opens the store for reading, from the newest checkpoint that leads to the goal.
    ///
    /// # Errors
    /// [`StoreOpenError`]; [`StoreOpenError::Unsalvageable`] if no checkpoint leads there.
    pub(super) fn salvage(
        reader: CachedReader,
        clock: &Arc<dyn Clock>,
        options: OpenOptions,
        goal: SalvageGoal,
    ) -> Result<OpenedLog, StoreOpenError> {
        let sb = read_superblock(reader.disk())?;
        let geometry = Geometry::new(&sb);
        let anchors = Anchors::read(&reader, &sb, &geometry);
        for anchor in anchors.by_age() {
            if let Some(opened) = open_from(anchor, &sb, &reader, clock, (options, goal)) {
                return Ok(opened);
            }
        }
        let opening = OpeningDisk {
            reader: &reader,
            sb: &sb,
            geometry,
            window: RefCell::default(),
        };
        for found in opening.find_checkpoints(SEARCHED_MAX) {
            let Ok(roots) = roots_of(&found) else {
                continue;
            };
            let anchor = Anchor {
                checkpoint: roots.checkpoint,
                addr: found.at,
                seq: found.header.seq,
                watermark: found.header.watermark,
                secs: 0,
            };
            if let Some(opened) = open_from(anchor, &sb, &reader, clock, (options, goal)) {
                return Ok(opened);
            }
        }
        Err(StoreOpenError::Unsalvageable)
    }

    fn leads_to(&self, goal: SalvageGoal) -> bool {
        match goal {
            SalvageGoal::RootDirectory => self.has_root(),
            SalvageGoal::InodeMap => self
                .objects
                .inode_map
                .read()
                .tree
                .has_root_page(&self.objects.reader),
        }
    }

    /// Returns whether the root directory and its first entries can be read.
    fn has_root(&self) -> bool {
        let root = self.objects.with_state(ObjectNo::ROOT, |state| {
            let ObjectContent::Dir(dir) = &state.content else {
                return Ok(false);
            };
            let stop = &mut |_, _| Ok(ControlFlow::Break(()));
            dir.each_from(&self.objects.reader, ObjectNo::ROOT, 0, stop)
                .map(|()| true)
        });
        matches!(root, Ok(true))
    }
}

/// Opens the store from the newest checkpoint in the chain behind `anchor` that leads to the goal.
fn open_from(
    anchor: Anchor,
    sb: &Superblock,
    reader: &CachedReader,
    clock: &Arc<dyn Clock>,
    (options, goal): (OpenOptions, SalvageGoal),
) -> Option<OpenedLog> {
    let geometry = Geometry::new(sb);
    let anchors = Anchors::read(reader, sb, &geometry);
    let opening = OpeningDisk {
        reader,
        sb,
        geometry,
        window: RefCell::default(),
    };
    let followed = opening.follow_anchor(anchor, &anchors, true).ok()?;
    let mut found = FoundLog {
        sb: sb.clone(),
        anchors,
        anchor,
        followed,
        checkpoint: 0,
    };
    for at in (0..found.followed.chain.len()).rev() {
        if !found.followed.chain[at].header.has_flag(record::CHECKPOINT) {
            continue;
        }
        found.checkpoint = at;
        // Nothing that one attempt has cached may help the next one.
        let reader = CachedReader::new(reader.shared_disk());
        let opened = CommitLog::open_found(&found, reader, Arc::clone(clock), options);
        if let Ok(opened) = opened
            && opened.0.leads_to(goal)
        {
            return Some(opened);
        }
    }
    None
}
