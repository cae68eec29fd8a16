//! Moving names: rename, with and without replacing, leaving a whiteout, and exchange.
//!
//! # Guarantees
//! 1. The directories are always one tree: a directory never comes to lie inside itself.
//!
//! # How
//! Names are looked up without locks, the objects are locked together, the names are looked at
//! again. Directories change their parent only under `moves`, so the way up from the target, walked
//! before the locks are taken, stays true until they are released.

use crate::remove::lock_found;
use crate::{Caller, FileSystem, flags};
use teal_log::{Cost, LockedObjects};
use teal_types::{FileType, Name, ObjectNo, RenameMode};
use teal_volume::FsError;
use teal_volume::{ObjectChange, ObjectFate, touch_directory, touch_object};

/// A directory deeper than this is taken to lie inside everything: it cannot be moved into, and
/// damage cannot lead in circles.
const DEPTH_MAX: u32 = 1 << 20;

/// The parts of a rename besides moving a name.
#[derive(Clone, Copy)]
struct RenamePlan<'a> {
    mode: RenameMode,
    /// The caller that leaves a whiteout where the name was, if one is asked for.
    whiteout: Option<&'a Caller>,
}

/// Both ends of a rename.
struct RenameEnds {
    from: (ObjectNo, Name),
    to: (ObjectNo, Name),
}

/// Returns whether a rename moves a directory to another directory, which alone can make a cycle.
fn moves_directory(
    ends: &RenameEnds,
    found: (ObjectNo, FileType),
    there: Option<(ObjectNo, FileType)>,
) -> bool {
    let is_other_parent = ends.from.0 != ends.to.0;
    let is_directory = found.1.is_dir() || there.is_some_and(|(_, kind)| kind.is_dir());
    is_other_parent && is_directory
}

/// Refuses a rename that the flags of the locked objects forbid: names are taken away from the
/// source's directory, and from the target's if it has one.
fn check_rename_flags(
    locked: &LockedObjects<'_>,
    ends: &RenameEnds,
    found: (ObjectNo, FileType),
    there: Option<(ObjectNo, FileType)>,
) -> Result<(), FsError> {
    flags::check_attributes(locked, found.0)?;
    if let Some((there, _)) = there {
        flags::check_attributes(locked, there)?;
    }
    flags::check_attributes(locked, ends.from.0)?;
    match there {
        Some(_) => flags::check_attributes(locked, ends.to.0),
        None => flags::check_growth(locked, ends.to.0),
    }
}

impl FileSystem {
    /// Moves a name, or exchanges two.
    ///
    /// # Errors
    /// [`FsError::Exists`], [`FsError::Invalid`] for a directory below itself,
    /// [`FsError::NotEmpty`], [`FsError::IsDir`], [`FsError::NotDir`], [`FsError::NotFound`] also
    /// into a removed directory, and as [`lookup`](Self::lookup).
    pub fn rename(
        &self,
        parent: ObjectNo,
        name: &[u8],
        new_parent: ObjectNo,
        new_name: &[u8],
        mode: RenameMode,
    ) -> Result<(), FsError> {
        let plan = RenamePlan {
            mode,
            whiteout: None,
        };
        self.rename_as(parent, name, new_parent, new_name, plan)
    }

    /// Moves a name, and leaves a whiteout in its place that belongs to the caller
    /// (`RENAME_WHITEOUT`). The mode is not [`RenameMode::Exchange`].
    ///
    /// # Errors
    /// As [`rename`](Self::rename).
    pub fn rename_leaving_whiteout(
        &self,
        caller: &Caller,
        parent: ObjectNo,
        name: &[u8],
        (new_parent, new_name): (ObjectNo, &[u8]),
        mode: RenameMode,
    ) -> Result<(), FsError> {
        debug_assert!(mode != RenameMode::Exchange, "an exchange leaves no place");
        let plan = RenamePlan {
            mode,
            whiteout: Some(caller),
        };
        self.rename_as(parent, name, new_parent, new_name, plan)
    }

    fn rename_as(
        &self,
        parent: ObjectNo,
        name: &[u8],
        new_parent: ObjectNo,
        new_name: &[u8],
        plan: RenamePlan<'_>,
    ) -> Result<(), FsError> {
        let fate = self.volume.name_damage(parent, || {
            let from = (parent, self.name_in(parent, name)?);
            // A missing source is reported before any error about the target.
            let to = self
                .name_in(new_parent, new_name)
                .or_else(|e| self.find_entry(parent, name).and(Err(e)))?;
            // A directory at the target must be known to be empty.
            self.list_below(new_parent, &to)?;
            let ends = RenameEnds {
                from,
                to: (new_parent, to),
            };
            self.retry_names(|| self.try_rename(&ends, plan))
        })?;
        // After all locks are released: giving back may take several operations.
        self.volume.reclaim(fate, &*self.changes);
        Ok(self.changes.after_rename()?)
    }

    fn try_rename(
        &self,
        ends: &RenameEnds,
        plan: RenamePlan<'_>,
    ) -> Result<Option<ObjectFate>, FsError> {
        let mode = plan.mode;
        let (from, to) = (&ends.from, &ends.to);
        let source = self.store().lookup(from.0, &from.1)?;
        let found = source.ok_or(FsError::NotFound)?;
        let there = self.store().lookup(to.0, &to.1)?;
        self.check_target(there, mode)?;
        let moves_dir = moves_directory(ends, found, there);
        let _moves = moves_dir.then(|| self.volume.lock_moves());
        if moves_dir {
            self.check_cycle(ends, found, there, mode)?;
        }
        // The objects are locked together with both directories.
        let mut objects = vec![found.0];
        objects.extend(there.map(|(no, _)| no));
        let changed = [&objects[..], &[from.0, to.0]].concat();
        let mut cost = self.volume.cost_of_names(Cost::rename(), &changed)?;
        if plan.whiteout.is_some() {
            cost = cost.and_also(self.cost_of_new(from.0)?);
        }
        let op = self.begin_operation(cost)?;
        let Some(mut locked) = lock_found(&op, &[from.0, to.0], &objects)? else {
            return Ok(None);
        };
        // A name leads elsewhere by now: the caller looks again.
        if locked.entry(from.0, &from.1)? != Some(found) || locked.entry(to.0, &to.1)? != there {
            return Ok(None);
        }
        check_rename_flags(&locked, ends, found, there)?;
        let fate = self.carry_out_rename(&mut locked, ends, (found, there), plan)?;
        Ok(Some(fate))
    }

    /// Carries out a rename of which both names and the objects they lead to are locked.
    fn carry_out_rename(
        &self,
        locked: &mut LockedObjects<'_>,
        ends: &RenameEnds,
        (found, there): ((ObjectNo, FileType), Option<(ObjectNo, FileType)>),
        plan: RenamePlan<'_>,
    ) -> Result<ObjectFate, FsError> {
        match there {
            // Both names are of the same object: POSIX says that nothing happens.
            Some((there, _)) if there == found.0 => return Ok(ObjectFate::Decided),
            Some((there, _)) if plan.mode == RenameMode::Exchange => {
                self.exchange_names(locked, ends, found.0, there)?;
                return Ok(ObjectFate::Decided);
            }
            _ => {}
        }
        let fate = self.move_name(locked, ends, found, there)?;
        if let Some(caller) = plan.whiteout {
            let (dir, name) = &ends.from;
            self.make_whiteout(locked, caller, *dir, name)?;
        }
        Ok(fate)
    }

    /// Refuses a target that the mode of a rename does not allow.
    fn check_target(
        &self,
        there: Option<(ObjectNo, FileType)>,
        mode: RenameMode,
    ) -> Result<(), FsError> {
        // A directory that is not listed may have entries.
        if let Some((there, FileType::Dir)) = there
            && !self.residency.is_listed(there)?
            && mode != RenameMode::Exchange
        {
            return Err(FsError::NotEmpty);
        }
        match (mode, there) {
            (RenameMode::NoReplace, Some(_)) => Err(FsError::Exists),
            (RenameMode::Exchange, None) => Err(FsError::NotFound),
            _ => Ok(()),
        }
    }

    /// Refuses to move a directory below itself. The caller holds the lock of moves.
    fn check_cycle(
        &self,
        ends: &RenameEnds,
        found: (ObjectNo, FileType),
        there: Option<(ObjectNo, FileType)>,
        mode: RenameMode,
    ) -> Result<(), FsError> {
        if found.1.is_dir() && self.is_above(found.0, ends.to.0)? {
            return Err(FsError::Invalid);
        }
        // The target directory contains the source, so it is not empty; an exchange would make a
        // cycle.
        if let Some((there, FileType::Dir)) = there
            && self.is_above(there, ends.from.0)?
        {
            return Err(if mode == RenameMode::Exchange {
                FsError::Invalid
            } else {
                FsError::NotEmpty
            });
        }
        Ok(())
    }

    fn move_name(
        &self,
        locked: &mut LockedObjects<'_>,
        ends: &RenameEnds,
        (moved, kind): (ObjectNo, FileType),
        there: Option<(ObjectNo, FileType)>,
    ) -> Result<ObjectFate, FsError> {
        let RenameEnds { from, to } = ends;
        let now = self.volume.now();
        match there.map(|(no, there)| (no, kind.is_dir(), there.is_dir())) {
            // The target directory was removed.
            None if !locked.is_linked(to.0) => return Err(FsError::NotFound),
            Some((_, true, false)) => return Err(FsError::NotDir),
            Some((_, false, true)) => return Err(FsError::IsDir),
            Some((no, true, true)) if locked.entry_count(no) > 0 => return Err(FsError::NotEmpty),
            _ => {}
        }
        let mut fate = ObjectFate::Decided;
        // Recorded before the change, while the old names are there.
        self.changes.record(locked, moved, ObjectChange::Names)?;
        if let Some((there, _)) = there {
            self.changes.record(locked, there, ObjectChange::Names)?;
            locked.remove_entry(to.0, &to.1)?;
            touch_object(locked, there, now);
            fate = self.volume.decide_fate(locked, there, &*self.changes)?;
            // Pins and affinity pass to the object that takes the name.
            self.changes.on_replaced(there, moved);
        }
        locked.remove_entry(from.0, &from.1)?;
        locked.insert_entry(to.0, &to.1, moved)?;
        touch_directory(locked, from.0, now);
        touch_directory(locked, to.0, now);
        touch_object(locked, moved, now);
        self.changes.on_moved(moved);
        Ok(fate)
    }

    fn exchange_names(
        &self,
        locked: &mut LockedObjects<'_>,
        ends: &RenameEnds,
        moved: ObjectNo,
        there: ObjectNo,
    ) -> Result<(), FsError> {
        let RenameEnds { from, to } = ends;
        let now = self.volume.now();
        // Recorded before the change, while the old names are there.
        self.changes.record(locked, moved, ObjectChange::Names)?;
        self.changes.record(locked, there, ObjectChange::Names)?;
        // Both entries go first: a directory must not have a name twice.
        locked.remove_entry(from.0, &from.1)?;
        locked.remove_entry(to.0, &to.1)?;
        locked.insert_entry(from.0, &from.1, there)?;
        locked.insert_entry(to.0, &to.1, moved)?;
        touch_directory(locked, from.0, now);
        touch_directory(locked, to.0, now);
        touch_object(locked, moved, now);
        touch_object(locked, there, now);
        self.changes.on_moved(moved);
        self.changes.on_moved(there);
        Ok(())
    }

    /// Returns whether `no` is `dir` or lies above it.
    fn is_above(&self, no: ObjectNo, mut dir: ObjectNo) -> Result<bool, FsError> {
        for _ in 0..DEPTH_MAX {
            let parent = self.store().parent(dir)?;
            if dir == no || parent == dir {
                return Ok(dir == no);
            }
            dir = parent;
        }
        // The tree is deeper than any real one: a cycle, so the move is refused.
        Ok(true)
    }
}
