//! Flowops on names: open, create, close, delete, stat, directories.

use super::super::fileset::{Files, Turn, What};
use super::super::plan::{Access, Op, SLOTS};
use super::super::{c_path, random::Number};
use super::{Leave, Slot, Went, Worker};
use rustix::fs::{Advice, AtFlags, Mode, OFlags};
use rustix::io::Errno;
use std::sync::Arc;
use teal_env::Timer;

/// How many files that are open elsewhere are passed over before a deletion is.
const TRIES: usize = 64;
/// What an entry of a directory counts beside its name: Filebench's `sizeof dirent - 1`.
const DIRENT: u64 = 279;

impl<'a, T: Timer> Worker<'a, T> {
    pub(super) fn set(&self, op: &Op) -> Went<(usize, &'a Files)> {
        let Some(set) = op.set else {
            return Err(self.refused(
                op,
                "its slot is empty and it names no fileset; say filesetname=…",
            ));
        };
        Ok((set, &self.shared.sets[set]))
    }

    /// The slot the language's rule gives: the one that is named, the next of `opennext`, or 0.
    pub(super) fn slot_of(&mut self, op: &Op) -> usize {
        match op {
            Op { fd: 1.., .. } => op.fd,
            Op { opennext: true, .. } => {
                self.next_slot = self.next_slot.checked_sub(1).unwrap_or(SLOTS - 1);
                self.next_slot
            }
            _ => 0,
        }
    }

    /// An entry of a set, by index or by turn.
    fn pick(&mut self, op: &Op, set: usize, what: What, existing: bool) -> Went<usize> {
        let files = &self.shared.sets[set];
        let turn = match op.indexed {
            Some(number) => Turn::Index(self.index(number, files, what)),
            None if op.opennext => Turn::Own(&mut self.rotors[set]),
            None => Turn::Next,
        };
        let picked = files.pick(what, existing, turn, &self.shared.stop);
        picked.ok_or_else(|| {
            if self.shared.stop.is_set() {
                return Leave::Stopped;
            }
            let (what, state) = match (what, existing) {
                (What::File, true) => ("file", "exists"),
                (What::File, false) => ("file", "is missing"),
                (What::Leaf, true) => ("leaf directory", "exists"),
                (What::Leaf, false) => ("leaf directory", "is missing"),
            };
            Leave::Done(format!(
                "flowop '{}' found no {what} in '{}' that {state}",
                op.name, files.name
            ))
        })
    }

    fn index(&mut self, number: Number, files: &Files, what: What) -> usize {
        let count = files.count(what).max(1);
        let drawn = self.draws.real(number);
        let index = if what == What::Leaf {
            (drawn * count as f64 / 2.0) as u64
        } else {
            drawn as u64
        };
        (index % count as u64) as usize
    }

    pub(super) fn open_file(&mut self, at: usize, op: &Op) -> Went {
        let slot = self.slot_of(op);
        if self.slots[slot].is_some() {
            return Err(self.refused(
                op,
                &format!("slot fd={slot} is in use; close it before: flowop closefile"),
            ));
        }
        let began = self.open_existing(op, slot)?;
        self.did(at, began, 0);
        Ok(())
    }

    /// Opens an existing file into a slot, and says when the call began.
    pub(super) fn open_existing(&mut self, op: &Op, slot: usize) -> Went<u64> {
        let (set, files) = self.set(op)?;
        let index = self.pick(op, set, What::File, true)?;
        let began = self.open_as(op, set, index, slot, OFlags::empty());
        files.release(What::File, index, true);
        began
    }

    fn open_as(
        &mut self,
        op: &Op,
        set: usize,
        index: usize,
        slot: usize,
        more: OFlags,
    ) -> Went<u64> {
        let files = &self.shared.sets[set];
        files.path(What::File, index, &mut self.path);
        let mut flags = OFlags::CLOEXEC | more;
        flags |= match files.access {
            Access::Read => OFlags::RDONLY,
            Access::Write => OFlags::WRONLY,
            Access::Both => OFlags::RDWR,
        };
        flags.set(OFlags::SYNC, op.dsync);
        flags.set(OFlags::DIRECT, op.directio);
        let (name, mode) = (c_path(&self.path), Mode::from_raw_mode(0o666));
        let mut began = self.now();
        let mut opened = rustix::fs::openat(files.at(), name, flags, mode);
        if matches!(opened, Err(Errno::NOENT)) && more.contains(OFlags::CREATE) {
            self.make_parents(files, op)?;
            began = self.now();
            opened = rustix::fs::openat(files.at(), c_path(&self.path), flags, mode);
        }
        let file = match opened {
            Ok(file) => file,
            Err(e) => {
                return Err(self.failed(op, &format!("opening {}", files.shown(&self.path)), e));
            }
        };
        if op.noreadahead {
            // Advice: a file system that takes none is none the worse.
            let _ = rustix::fs::fadvise(&file, 0, None, Advice::Random);
        }
        files.opened(index);
        self.slots[slot] = Some(Slot {
            file: Arc::new(file),
            set,
            index,
            size: files.layout.files[index].size,
        });
        Ok(began)
    }

    /// Directories above the path that was built last.
    fn make_parents(&self, files: &Files, op: &Op) -> Went {
        for (slash, _) in self
            .path
            .iter()
            .enumerate()
            .filter(|(_, byte)| **byte == b'/')
        {
            let mut above = self.path[..slash].to_vec();
            above.push(0);
            match rustix::fs::mkdirat(files.at(), c_path(&above), Mode::from_raw_mode(0o755)) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(e) => {
                    return Err(self.failed(op, &format!("making {}", files.shown(&above)), e));
                }
            }
        }
        Ok(())
    }

    pub(super) fn create_file(&mut self, at: usize, op: &Op) -> Went {
        let slot = self.slot_of(op);
        if self.slots[slot].is_some() {
            return Err(self.refused(
                op,
                &format!("slot fd={slot} is in use; close it before: flowop closefile"),
            ));
        }
        let (set, files) = self.set(op)?;
        let index = self.pick(op, set, What::File, false)?;
        let began = self.open_as(op, set, index, slot, OFlags::CREATE);
        files.release(What::File, index, began.is_ok());
        self.did(at, began?, 0);
        Ok(())
    }

    pub(super) fn close_file(&mut self, at: usize, op: &Op) -> Went {
        let Some(slot) = self.slots[op.fd].take() else {
            return Err(self.refused(
                op,
                &format!("slot fd={} is empty; open a file into it before", op.fd),
            ));
        };
        let began = self.now();
        drop(slot.file);
        self.did(at, began, 0);
        self.shared.sets[slot.set].closed(slot.index);
        Ok(())
    }

    pub(super) fn delete_file(&mut self, at: usize, op: &Op) -> Went {
        let strict = self.shared.plan.options.strict;
        if let Some(slot) = self.slots[op.fd].clone().filter(|_| op.fd > 0) {
            let files = &self.shared.sets[slot.set];
            if !files.claim(slot.index, &self.shared.stop) {
                return Ok(());
            }
            // This thread's own slot is one.
            let elsewhere = files.times_open(slot.index) > 1;
            return self.unlink(at, op, files, slot.index, elsewhere);
        }
        let (set, files) = self.set(op)?;
        for tried in 1.. {
            let index = self.pick(op, set, What::File, true)?;
            let open = files.times_open(index) > 0;
            // Filebench gives up here and counts nothing; there may be one that nobody has open.
            if open && !strict && op.indexed.is_none() && tried < TRIES.min(files.count(What::File))
            {
                files.release(What::File, index, true);
                continue;
            }
            return self.unlink(at, op, files, index, open);
        }
        Ok(())
    }

    /// Removes a file that is busy, unless it is open elsewhere.
    fn unlink(&mut self, at: usize, op: &Op, files: &Files, index: usize, open: bool) -> Went {
        if open {
            files.release(What::File, index, true);
            self.me.tallies[at].skipped();
            return Ok(());
        }
        files.path(What::File, index, &mut self.path);
        let began = self.now();
        let done = rustix::fs::unlinkat(files.at(), c_path(&self.path), AtFlags::empty());
        self.did(at, began, 0);
        files.release(What::File, index, false);
        self.unless_strict(op, &format!("deleting {}", files.shown(&self.path)), done)
    }

    pub(super) fn stat_file(&mut self, at: usize, op: &Op) -> Went {
        if let Some(slot) = self.slots[op.fd].as_ref().filter(|_| op.fd > 0) {
            let began = self.now();
            let done = rustix::fs::fstat(&*slot.file);
            self.did(at, began, 0);
            return done
                .map(drop)
                .map_err(|e| self.failed(op, "asking for attributes", e));
        }
        let (set, files) = self.set(op)?;
        let index = self.pick(op, set, What::File, true)?;
        files.path(What::File, index, &mut self.path);
        let began = self.now();
        let done = rustix::fs::statat(files.at(), c_path(&self.path), AtFlags::empty());
        self.did(at, began, 0);
        files.release(What::File, index, true);
        done.map(drop)
            .map_err(|e| self.failed(op, &format!("looking at {}", files.shown(&self.path)), e))
    }

    pub(super) fn make_dir(&mut self, at: usize, op: &Op) -> Went {
        let (set, files) = self.set(op)?;
        let index = self.pick(op, set, What::Leaf, false)?;
        files.path(What::Leaf, index, &mut self.path);
        let mode = Mode::from_raw_mode(0o755);
        let mut began = self.now();
        let mut done = rustix::fs::mkdirat(files.at(), c_path(&self.path), mode);
        if done == Err(Errno::NOENT) {
            self.make_parents(files, op)?;
            began = self.now();
            done = rustix::fs::mkdirat(files.at(), c_path(&self.path), mode);
        }
        self.did(at, began, 0);
        files.release(What::Leaf, index, true);
        self.unless_strict(op, &format!("making {}", files.shown(&self.path)), done)
    }

    pub(super) fn remove_dir(&mut self, at: usize, op: &Op) -> Went {
        let (set, files) = self.set(op)?;
        let index = self.pick(op, set, What::Leaf, true)?;
        files.path(What::Leaf, index, &mut self.path);
        let began = self.now();
        let done = rustix::fs::unlinkat(files.at(), c_path(&self.path), AtFlags::REMOVEDIR);
        self.did(at, began, 0);
        files.release(What::Leaf, index, false);
        self.unless_strict(op, &format!("removing {}", files.shown(&self.path)), done)
    }

    pub(super) fn list_dir(&mut self, at: usize, op: &Op) -> Went {
        let (_, files) = self.set(op)?;
        files.dir_path(files.next_dir(), &mut self.path);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let began = self.now();
        let listed = rustix::fs::openat(files.at(), c_path(&self.path), flags, Mode::empty())
            .and_then(|dir| {
                let mut bytes = 0;
                for entry in rustix::fs::Dir::new(dir)? {
                    bytes += entry?.file_name().count_bytes() as u64 + DIRENT;
                }
                Ok(bytes)
            });
        let bytes = listed
            .map_err(|e| self.failed(op, &format!("listing {}", files.shown(&self.path)), e))?;
        self.did(at, began, bytes);
        Ok(())
    }
}
