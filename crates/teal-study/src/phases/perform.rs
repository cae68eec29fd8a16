//! Doing what the phases say, on real files.
//!
//! # Guarantees
//! 1. Each phase begins on a file system that was mounted anew; what it left to be written is
//!    written by its unmounting, which counts.
//! 2. In mode T all of the file system is synced after each write call, and what was read or
//!    written is forgotten after each operation: a file, or a piece of one.
//! 3. Each write call that is synced comes in a tick of its own of the kernel's clock, as on a disk
//!    that takes longer than that: else files' times would not change, and their inodes would not
//!    be written.
//! 4. What is written differs from file to file and from phase to phase.

use super::orders;
use super::plan::{Act, Filling, Mode, Order, PIECE, Phase, Set};
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

/// Why a phase came to no end.
#[derive(Debug, thiserror::Error)]
pub enum PhaseError {
    /// A system call failed.
    #[error("{what}")]
    Io {
        /// Which, on what.
        what: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The environment gave way.
    #[error("{0}")]
    Environment(String),
    /// Somebody wants it to end.
    #[error("interrupted")]
    Interrupted,
}

/// Where phases take place, and who counts.
pub trait PhaseEnvironment {
    /// Mounts the file system with nothing of it in memory, and says where.
    ///
    /// # Errors
    /// What stands in the way; so do the others.
    fn mount(&mut self) -> Result<PathBuf, PhaseError>;
    /// Writes what is left to be written, and unmounts.
    ///
    /// # Errors
    /// See [`PhaseEnvironment::mount`].
    fn unmount(&mut self) -> Result<(), PhaseError>;
    /// From here on it counts.
    ///
    /// # Errors
    /// See [`PhaseEnvironment::mount`].
    fn begin(&mut self, phase: &Phase) -> Result<(), PhaseError>;
    /// The last operation is done; what is left to be written is not.
    ///
    /// # Errors
    /// See [`PhaseEnvironment::mount`].
    fn ran(&mut self, phase: &Phase) -> Result<(), PhaseError>;
    /// Nothing is left to be written.
    ///
    /// # Errors
    /// See [`PhaseEnvironment::mount`].
    fn drained(&mut self, phase: &Phase, operations: u64) -> Result<(), PhaseError>;
    /// Takes what the kernel remembers of a file out of memory.
    ///
    /// # Errors
    /// See [`PhaseEnvironment::mount`].
    fn forget(&self, file: &File) -> Result<(), PhaseError>;
    /// Returns in the next tick of the kernel's clock, in which times of files differ from those of
    /// this one.
    fn next_tick(&self);
    /// Checks whether somebody wants it to end.
    fn is_over(&self) -> bool;
}

/// Carries out the phases of a group.
///
/// # Errors
/// The first that went wrong.
pub fn carry_out(
    phases: &[Phase],
    mode: Mode,
    environment: &mut impl PhaseEnvironment,
) -> Result<(), PhaseError> {
    let mut filled = 0;
    for (at, phase) in phases.iter().enumerate() {
        let dir = environment.mount()?;
        if phase.counts {
            environment.begin(phase)?;
        }
        let salt = at as u64;
        let mode = if phase.counts { mode } else { Mode::C };
        let operations = Work {
            dir,
            mode,
            salt,
            environment,
            filled: &mut filled,
        }
        .perform(&phase.act)?;
        if phase.counts {
            environment.ran(phase)?;
        }
        environment.unmount()?;
        if phase.counts {
            environment.drained(phase, operations)?;
        }
    }
    Ok(())
}

fn failed(what: &str, path: &Path) -> impl FnOnce(io::Error) -> PhaseError {
    let what = format!("{what} {}", path.display());
    move |source| PhaseError::Io { what, source }
}

/// A phase under way.
struct Work<'a, G> {
    dir: PathBuf,
    mode: Mode,
    salt: u64,
    environment: &'a G,
    /// Files that filled the file system.
    filled: &'a mut u64,
}

impl<G: PhaseEnvironment> Work<'_, G> {
    /// Returns how many operations it was.
    fn perform(&mut self, act: &Act) -> Result<u64, PhaseError> {
        let operations = match *act {
            Act::Write { set, call, again } => self.write(&set, call, again)?,
            Act::Read { set, call, order } => self.read(&set, call, order)?,
            Act::Touch {
                set,
                pieces,
                write,
                seed,
            } => self.touch(&set, pieces, write, seed)?,
            Act::Fill(filling) => self.fill(&filling)?,
            Act::Thin { percent, seed } => self.thin(percent, seed)?,
            Act::Remove(set) => self.remove(&set)?,
        };
        let writes = !matches!(act, Act::Read { .. } | Act::Touch { write: false, .. });
        if self.mode == Mode::C && writes {
            let dir = self.open(&self.dir, OpenOptions::new().read(true))?;
            rustix::fs::syncfs(&dir).map_err(|e| failed("syncing", &self.dir)(e.into()))?;
        }
        Ok(operations)
    }

    fn open(&self, path: &Path, how: &OpenOptions) -> Result<File, PhaseError> {
        if self.environment.is_over() {
            return Err(PhaseError::Interrupted);
        }
        how.open(path).map_err(failed("opening", path))
    }

    fn path(&self, set: &Set, at: u64) -> PathBuf {
        let (dir, file) = set.path(at);
        self.dir.join(dir).join(file)
    }

    /// Bytes that are nowhere else.
    fn content(&self, file: u64, bytes: u64) -> Vec<u8> {
        let seed = orders::drawn(self.salt << 48 | file);
        let words = (0..bytes.div_ceil(8)).flat_map(|at| (seed ^ orders::drawn(at)).to_le_bytes());
        words.take(bytes as usize).collect()
    }

    /// After a write call.
    fn written(&self, file: &File, path: &Path) -> Result<(), PhaseError> {
        match self.mode {
            Mode::T => rustix::fs::syncfs(file).map_err(|e| failed("syncing", path)(e.into()))?,
            Mode::F => file.sync_all().map_err(failed("syncing", path))?,
            Mode::C => return Ok(()),
        }
        self.environment.next_tick();
        Ok(())
    }

    /// After an operation.
    fn done(&self, file: &File) -> Result<(), PhaseError> {
        if self.mode == Mode::T {
            self.environment.forget(file)
        } else {
            Ok(())
        }
    }

    /// The directory of a file, if that is the first in it.
    fn make_directory(&self, path: &Path) -> Result<(), PhaseError> {
        let dir = path.parent().unwrap_or(&self.dir);
        match std::fs::create_dir(dir) {
            Err(e) if e.kind() == ErrorKind::AlreadyExists => Ok(()),
            made => made.map_err(failed("making", dir)),
        }
    }

    fn write(&self, set: &Set, call: Option<u64>, again: bool) -> Result<u64, PhaseError> {
        for (at, size) in (0..).zip(set.sizes()) {
            let path = self.path(set, at);
            if !again {
                self.make_directory(&path)?;
            }
            let how = OpenOptions::new()
                .write(true)
                .create_new(!again)
                .truncate(again)
                .clone();
            let mut file = self.open(&path, &how)?;
            let content = self.content(at, size);
            for part in content.chunks(call.map_or(content.len().max(1), |call| call as usize)) {
                file.write_all(part).map_err(failed("writing", &path))?;
                self.written(&file, &path)?;
            }
            self.done(&file)?;
        }
        Ok(set.count)
    }

    fn read(&self, set: &Set, call: Option<u64>, order: Order) -> Result<u64, PhaseError> {
        let sizes = set.sizes();
        let mut buffer =
            vec![0; call.or_else(|| sizes.iter().copied().max()).unwrap_or(1) as usize];
        let places = match order {
            Order::Made => (0..set.count).collect(),
            Order::Random => orders::shuffled(set.count, set.count, Order::SEED),
        };
        for at in places {
            let path = self.path(set, at);
            let mut file = self.open(&path, OpenOptions::new().read(true))?;
            let mut left = sizes[at as usize];
            while left > 0 {
                let got = file.read(&mut buffer).map_err(failed("reading", &path))?;
                if got == 0 {
                    let short = io::Error::new(
                        ErrorKind::UnexpectedEof,
                        "it is shorter than it was written",
                    );
                    return Err(failed("reading", &path)(short));
                }
                left = left.saturating_sub(got as u64);
            }
            self.done(&file)?;
        }
        Ok(set.count)
    }

    fn touch(&self, set: &Set, pieces: u64, write: bool, seed: u64) -> Result<u64, PhaseError> {
        let path = self.path(set, 0);
        let file = self.open(&path, OpenOptions::new().read(true).write(write))?;
        let mut buffer = vec![0; PIECE as usize];
        for at in orders::shuffled(set.bytes / PIECE, pieces, seed) {
            if self.environment.is_over() {
                return Err(PhaseError::Interrupted);
            }
            if write {
                file.write_all_at(&self.content(at, PIECE), at * PIECE)
                    .map_err(failed("writing", &path))?;
                self.written(&file, &path)?;
            } else {
                file.read_exact_at(&mut buffer, at * PIECE)
                    .map_err(failed("reading", &path))?;
            }
            self.done(&file)?;
        }
        Ok(pieces)
    }

    fn fill(&mut self, filling: &Filling) -> Result<u64, PhaseError> {
        loop {
            let at = *self.filled;
            let path = self.path(&FILLING, at);
            let made = self.make_directory(&path).and_then(|()| {
                let mut file = self.open(&path, OpenOptions::new().write(true).create_new(true))?;
                file.write_all(&self.content(at, filling.size(at)))
                    .map_err(failed("writing", &path))
            });
            match made {
                Ok(()) => *self.filled += 1,
                Err(PhaseError::Io { source, .. }) if source.kind() == ErrorKind::StorageFull => {
                    // What is there of it takes room; where nothing is, nothing is to be removed.
                    let _ = std::fs::remove_file(&path);
                    return Ok(at);
                }
                Err(other) => return Err(other),
            }
        }
    }

    fn thin(&self, percent: u64, seed: u64) -> Result<u64, PhaseError> {
        let order = orders::shuffled(*self.filled, *self.filled, seed);
        let mut removed = 0;
        for at in &order[(*self.filled * percent / 100) as usize..] {
            let path = self.path(&FILLING, *at);
            match std::fs::remove_file(&path) {
                // An earlier thinning took it.
                Err(e) if e.kind() == ErrorKind::NotFound => {}
                gone => {
                    gone.map_err(failed("removing", &path))?;
                    removed += 1;
                }
            }
        }
        Ok(removed)
    }

    fn remove(&self, set: &Set) -> Result<u64, PhaseError> {
        for at in 0..set.count {
            let path = self.path(set, at);
            std::fs::remove_file(&path).map_err(failed("removing", &path))?;
            if at + 1 == set.count || set.path(at).0 != set.path(at + 1).0 {
                let dir = path.parent().unwrap_or(&self.dir);
                std::fs::remove_dir(dir).map_err(failed("removing", dir))?;
            }
        }
        Ok(set.count)
    }
}

/// What files that fill a file system are called.
const FILLING: Set = Set {
    name: "fill",
    count: 0,
    bytes: 0,
    is_mixed: false,
};

impl Order {
    /// What random orders of files are drawn with.
    pub(super) const SEED: u64 = 2004;
}
