//! Runs flowops on names: open, create, close, delete, stat, directories.

use super::super::fileset::{EntryKind, FilesetState, PickTurn};
use super::super::plan::{FlowopFlags, OpenAccess, PlannedFlowop, SLOTS};
use super::super::{c_path, random::FixedOrDrawn};
use super::{FlowopResult, FlowopRunner, LeaveReason, NamedFile, OpenSlot};
use rustix::fd::OwnedFd;
use rustix::fs::{Advice, AtFlags, Mode, OFlags};
use rustix::io::Errno;
use std::sync::Arc;
use teal_env::Timer;

/// Number of open files that a deletion passes over before it gives up.
const TRIES: usize = 64;
/// Bytes that an entry of a directory counts beside its name: Filebench's `sizeof dirent - 1`.
const DIRENT: u64 = 279;

/// Returns the flags of an opening: the fileset says how its files are opened, the flowop how they
/// are written.
fn open_flags(op: &PlannedFlowop, access: OpenAccess) -> OFlags {
    let mut flags = OFlags::CLOEXEC;
    flags |= match access {
        OpenAccess::Read => OFlags::RDONLY,
        OpenAccess::Write => OFlags::WRONLY,
        OpenAccess::Both => OFlags::RDWR,
    };
    flags.set(OFlags::SYNC, op.has(FlowopFlags::DSYNC));
    flags.set(OFlags::DIRECT, op.has(FlowopFlags::DIRECTIO));
    flags
}

impl<'a, T: Timer> FlowopRunner<'a, T> {
    pub(super) fn fileset_of(&self, op: &PlannedFlowop) -> FlowopResult<(usize, &'a FilesetState)> {
        let Some(set) = op.set else {
            return Err(self.usage_failure(
                op,
                "its slot is empty and it names no fileset; say filesetname=…",
            ));
        };
        Ok((set, &self.shared.sets[set]))
    }

    /// Returns the slot by the rule of the language: the named one, the next of `opennext`, or 0.
    pub(super) fn slot_of(&mut self, op: &PlannedFlowop) -> usize {
        if op.fd > 0 || !op.has(FlowopFlags::OPENNEXT) {
            return op.fd;
        }
        // Slots of `opennext` go down, and begin anew at the top.
        self.next_slot = self.next_slot.checked_sub(1).unwrap_or(SLOTS - 1);
        self.next_slot
    }

    /// Picks an entry of a set, by index or by turn.
    fn pick_entry(
        &mut self,
        op: &PlannedFlowop,
        set: usize,
        what: EntryKind,
        existing: bool,
    ) -> FlowopResult<usize> {
        // The index comes first, then the thread's own turn, then that of the set.
        let files = &self.shared.sets[set];
        let turn = match op.indexed {
            Some(number) => PickTurn::Index(self.draw_index(number, files, what)),
            None if op.has(FlowopFlags::OPENNEXT) => PickTurn::Own(&mut self.rotors[set]),
            None => PickTurn::Next,
        };
        let picked = files.pick_entry(what, existing, turn, &self.shared.stop);
        picked.ok_or_else(|| {
            // The end of the run makes a pick fail, too.
            if self.shared.stop.is_set() {
                return LeaveReason::Stopped;
            }
            let (what, state) = match (what, existing) {
                (EntryKind::File, true) => ("file", "exists"),
                (EntryKind::File, false) => ("file", "is missing"),
                (EntryKind::Leaf, true) => ("leaf directory", "exists"),
                (EntryKind::Leaf, false) => ("leaf directory", "is missing"),
            };
            LeaveReason::Done(format!(
                "flowop '{}' found no {what} in '{}' that {state}",
                op.name, files.name
            ))
        })
    }

    fn draw_index(&mut self, number: FixedOrDrawn, files: &FilesetState, what: EntryKind) -> usize {
        let count = files.entry_count(what).max(1);
        let drawn = self.draws.draw_real(number);
        // Filebench takes the index of a leaf for half of the range.
        let index = if what == EntryKind::Leaf {
            (drawn * count as f64 / 2.0) as u64
        } else {
            drawn as u64
        };
        (index % count as u64) as usize
    }

    pub(super) fn open_file(&mut self, at: usize, op: &PlannedFlowop) -> FlowopResult {
        let slot = self.slot_of(op);
        if self.slots[slot].is_some() {
            return Err(self.usage_failure(
                op,
                &format!("slot fd={slot} is in use; close it before: flowop closefile"),
            ));
        }
        let began = self.open_existing(op, slot)?;
        self.record_operation(at, began, 0);
        Ok(())
    }

    /// Opens an existing file into a slot; returns the time at which the call began.
    pub(super) fn open_existing(&mut self, op: &PlannedFlowop, slot: usize) -> FlowopResult<u64> {
        let (set, files) = self.fileset_of(op)?;
        let index = self.pick_entry(op, set, EntryKind::File, true)?;
        let began = self.open_entry(op, set, index, slot, OFlags::empty());
        // Released even if the open failed: the file is still there.
        files.release_entry(EntryKind::File, index, true);
        began
    }

    fn open_entry(
        &mut self,
        op: &PlannedFlowop,
        set: usize,
        index: usize,
        slot: usize,
        more: OFlags,
    ) -> FlowopResult<u64> {
        let files = &self.shared.sets[set];
        files.write_path(EntryKind::File, index, &mut self.path);
        // The latency covers one call: that which succeeded, or failed for good.
        let flags = open_flags(op, files.access) | more;
        let mut began = self.now();
        let mut opened = self.open_path(files, flags);
        // Files of a set that was not populated have no directories yet.
        if matches!(opened, Err(Errno::NOENT)) && more.contains(OFlags::CREATE) {
            self.make_parents(files, op)?;
            began = self.now();
            opened = self.open_path(files, flags);
        }
        let opened = opened.map_err(|e| {
            let what = format!("opening {}", files.display_path(&self.path));
            self.io_failure(op, &what, e)
        })?;
        if op.has(FlowopFlags::NOREADAHEAD) {
            // The advice is best effort: a file system may ignore it.
            let _ = rustix::fs::fadvise(&opened, 0, None, Advice::Random);
        }
        // Counted while the entry is busy, so that no deletion comes in between.
        files.note_opened(index);
        let named = NamedFile {
            set,
            index,
            size: files.layout.files[index].size,
        };
        self.named[slot] = Some(named);
        self.slots[slot] = Some(OpenSlot {
            descriptor: self.keep_descriptor(op, named, opened),
            file: named,
        });
        Ok(began)
    }

    /// Opens the path that was built last.
    fn open_path(&self, files: &FilesetState, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        let mode = Mode::from_raw_mode(0o666);
        rustix::fs::openat(files.root_fd(), c_path(&self.path), flags, mode)
    }

    /// Returns the descriptor that the slot keeps of a file that was just opened: this one, or
    /// the one that another thread has, if threads share them.
    fn keep_descriptor(
        &self,
        op: &PlannedFlowop,
        file: NamedFile,
        opened: OwnedFd,
    ) -> Arc<OwnedFd> {
        // Sharing needs both: too few descriptors, and a thread that does not notice.
        match &self.shared.descriptors {
            Some(shared) if self.shares => shared.share(file.set, file.index, op.flags, opened),
            _ => Arc::new(opened),
        }
    }

    /// Makes the directories above the path that was built last.
    fn make_parents(&self, files: &FilesetState, op: &PlannedFlowop) -> FlowopResult {
        for (slash, _) in self
            .path
            .iter()
            .enumerate()
            .filter(|(_, byte)| **byte == b'/')
        {
            let mut above = self.path[..slash].to_vec();
            above.push(0);
            match rustix::fs::mkdirat(files.root_fd(), c_path(&above), Mode::from_raw_mode(0o755)) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(e) => {
                    return Err(self.io_failure(
                        op,
                        &format!("making {}", files.display_path(&above)),
                        e,
                    ));
                }
            }
        }
        Ok(())
    }

    pub(super) fn create_file(&mut self, at: usize, op: &PlannedFlowop) -> FlowopResult {
        let slot = self.slot_of(op);
        if self.slots[slot].is_some() {
            return Err(self.usage_failure(
                op,
                &format!("slot fd={slot} is in use; close it before: flowop closefile"),
            ));
        }
        let (set, files) = self.fileset_of(op)?;
        let index = self.pick_entry(op, set, EntryKind::File, false)?;
        let began = self.open_entry(op, set, index, slot, OFlags::CREATE);
        // The entry exists only if the call has succeeded.
        files.release_entry(EntryKind::File, index, began.is_ok());
        self.record_operation(at, began?, 0);
        Ok(())
    }

    pub(super) fn close_file(&mut self, at: usize, op: &PlannedFlowop) -> FlowopResult {
        let Some(slot) = self.slots[op.fd].take() else {
            return Err(self.usage_failure(
                op,
                &format!("slot fd={} is empty; open a file into it before", op.fd),
            ));
        };
        let began = self.now();
        // The last reference to the descriptor closes it, unless a background write still holds
        // one.
        drop(slot.descriptor);
        self.record_operation(at, began, 0);
        self.shared.sets[slot.file.set].note_closed(slot.file.index);
        Ok(())
    }

    pub(super) fn delete_file(&mut self, at: usize, op: &PlannedFlowop) -> FlowopResult {
        // A named slot chooses its own file.
        if op.fd > 0
            && let Some(file) = self.named[op.fd]
        {
            return self.delete_named_file(at, op, file);
        }
        let strict = self.shared.plan.options.strict;
        let (set, files) = self.fileset_of(op)?;
        for tried in 1.. {
            let index = self.pick_entry(op, set, EntryKind::File, true)?;
            let open = files.times_open(index) > 0;
            // Filebench gives up here and counts nothing, but there may be a file that is not open.
            if open
                && !strict
                && op.indexed.is_none()
                && tried < TRIES.min(files.entry_count(EntryKind::File))
            {
                files.release_entry(EntryKind::File, index, true);
                continue;
            }
            return self.unlink_file(at, op, files, index, open);
        }
        Ok(())
    }

    /// Deletes the file that was opened last into a slot, which may be closed by now.
    fn delete_named_file(
        &mut self,
        at: usize,
        op: &PlannedFlowop,
        file: NamedFile,
    ) -> FlowopResult {
        let files = &self.shared.sets[file.set];
        if !files.claim_file(file.index, &self.shared.stop) {
            // Another thread has deleted it meanwhile.
            self.named[op.fd] = None;
            self.state.tallies[at].note_skipped();
            return Ok(());
        }
        // The slot of this thread may be one of the openings.
        let own = u32::from(self.slots[op.fd].is_some());
        let elsewhere = files.times_open(file.index) > own;
        if !elsewhere {
            self.named[op.fd] = None;
        }
        self.unlink_file(at, op, files, file.index, elsewhere)
    }

    /// Removes a file that is busy, unless it is open elsewhere.
    fn unlink_file(
        &mut self,
        at: usize,
        op: &PlannedFlowop,
        files: &FilesetState,
        index: usize,
        open: bool,
    ) -> FlowopResult {
        if open {
            files.release_entry(EntryKind::File, index, true);
            self.state.tallies[at].note_skipped();
            return Ok(());
        }
        files.write_path(EntryKind::File, index, &mut self.path);
        let began = self.now();
        // An open file keeps its blocks, so its deletion would cost nothing.
        let done = rustix::fs::unlinkat(files.root_fd(), c_path(&self.path), AtFlags::empty());
        self.record_operation(at, began, 0);
        files.release_entry(EntryKind::File, index, false);
        self.unless_strict(
            op,
            &format!("deleting {}", files.display_path(&self.path)),
            done,
        )
    }

    pub(super) fn stat_file(&mut self, at: usize, op: &PlannedFlowop) -> FlowopResult {
        // An open file is asked by its descriptor, any other by its path.
        if let Some(slot) = self.slots[op.fd].as_ref().filter(|_| op.fd > 0) {
            let began = self.now();
            let done = rustix::fs::fstat(&*slot.descriptor);
            self.record_operation(at, began, 0);
            return done
                .map(drop)
                .map_err(|e| self.io_failure(op, "asking for attributes", e));
        }
        let (set, files) = self.fileset_of(op)?;
        let index = self.pick_entry(op, set, EntryKind::File, true)?;
        files.write_path(EntryKind::File, index, &mut self.path);
        let began = self.now();
        let done = rustix::fs::statat(files.root_fd(), c_path(&self.path), AtFlags::empty());
        self.record_operation(at, began, 0);
        files.release_entry(EntryKind::File, index, true);
        done.map(drop).map_err(|e| {
            self.io_failure(
                op,
                &format!("looking at {}", files.display_path(&self.path)),
                e,
            )
        })
    }

    pub(super) fn make_dir(&mut self, at: usize, op: &PlannedFlowop) -> FlowopResult {
        let (set, files) = self.fileset_of(op)?;
        let index = self.pick_entry(op, set, EntryKind::Leaf, false)?;
        files.write_path(EntryKind::Leaf, index, &mut self.path);
        let mode = Mode::from_raw_mode(0o755);
        let mut began = self.now();
        let mut done = rustix::fs::mkdirat(files.root_fd(), c_path(&self.path), mode);
        // A set that was not populated has no directories yet.
        if done == Err(Errno::NOENT) {
            self.make_parents(files, op)?;
            began = self.now();
            done = rustix::fs::mkdirat(files.root_fd(), c_path(&self.path), mode);
        }
        self.record_operation(at, began, 0);
        files.release_entry(EntryKind::Leaf, index, true);
        self.unless_strict(
            op,
            &format!("making {}", files.display_path(&self.path)),
            done,
        )
    }

    pub(super) fn remove_dir(&mut self, at: usize, op: &PlannedFlowop) -> FlowopResult {
        let (set, files) = self.fileset_of(op)?;
        let index = self.pick_entry(op, set, EntryKind::Leaf, true)?;
        files.write_path(EntryKind::Leaf, index, &mut self.path);
        let began = self.now();
        let done = rustix::fs::unlinkat(files.root_fd(), c_path(&self.path), AtFlags::REMOVEDIR);
        self.record_operation(at, began, 0);
        files.release_entry(EntryKind::Leaf, index, false);
        self.unless_strict(
            op,
            &format!("removing {}", files.display_path(&self.path)),
            done,
        )
    }

    pub(super) fn list_dir(&mut self, at: usize, op: &PlannedFlowop) -> FlowopResult {
        let (_, files) = self.fileset_of(op)?;
        // Directories are listed in turn, busy or not.
        files.write_dir_path(files.next_dir(), &mut self.path);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let began = self.now();
        // Opening is part of listing.
        let listed = rustix::fs::openat(files.root_fd(), c_path(&self.path), flags, Mode::empty())
            .and_then(|dir| {
                let mut bytes = 0;
                for entry in rustix::fs::Dir::new(dir)? {
                    bytes += entry?.file_name().count_bytes() as u64 + DIRENT;
                }
                Ok(bytes)
            });
        let bytes = listed.map_err(|e| {
            self.io_failure(
                op,
                &format!("listing {}", files.display_path(&self.path)),
                e,
            )
        })?;
        self.record_operation(at, began, bytes);
        Ok(())
    }
}
