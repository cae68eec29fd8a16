//! Carries out phases on real files.
//!
//! # Guarantees
//! 1. Each phase begins on a file system that was mounted anew. Unmounting writes the rest of its
//!    data, and counts.
//! 2. In mode T the whole file system is synced after each write call, and the data of each
//!    operation, a file or a piece of one, is dropped from the cache after it.
//! 3. Each write call that is synced comes in a tick of its own of the kernel's clock, as on a disk
//!    that takes longer than that. Otherwise files' times would not change, and their inodes would
//!    not be written.
//! 4. Written data differs from file to file and from phase to phase.

use super::orders;
use super::plan::{FillFiles, PIECE, PhaseAct, PhaseFiles, SyncMode, VisitOrder, WorkloadPhase};
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

/// Says why a phase did not end.
#[derive(Debug, thiserror::Error)]
pub enum PhaseError {
    /// A system call failed.
    #[error("{what}")]
    Io {
        /// System call and object.
        what: String,
        /// Error of the system call.
        #[source]
        source: io::Error,
    },
    /// The environment failed.
    #[error("{0}")]
    Environment(String),
    /// The caller wants it to end.
    #[error("interrupted")]
    Interrupted,
}

/// Provides the mounts of phases, and counts their requests.
pub trait PhaseEnvironment {
    /// Mounts the file system with an empty cache, and returns the mount point.
    ///
    /// # Errors
    /// Returns the reason why it cannot; so do the other methods.
    fn mount(&mut self) -> Result<PathBuf, PhaseError>;
    /// Writes the remaining data, and unmounts.
    ///
    /// # Errors
    /// See [`PhaseEnvironment::mount`].
    fn unmount(&mut self) -> Result<(), PhaseError>;
    /// Starts counting.
    ///
    /// # Errors
    /// See [`PhaseEnvironment::mount`].
    fn begin_phase(&mut self, phase: &WorkloadPhase) -> Result<(), PhaseError>;
    /// Notes that the last operation is done; data may still have to be written.
    ///
    /// # Errors
    /// See [`PhaseEnvironment::mount`].
    fn end_operations(&mut self, phase: &WorkloadPhase) -> Result<(), PhaseError>;
    /// Notes that all data is written.
    ///
    /// # Errors
    /// See [`PhaseEnvironment::mount`].
    fn end_drain(&mut self, phase: &WorkloadPhase, operations: u64) -> Result<(), PhaseError>;
    /// Drops what the kernel caches of a file.
    ///
    /// # Errors
    /// See [`PhaseEnvironment::mount`].
    fn drop_cached(&self, file: &File) -> Result<(), PhaseError>;
    /// Returns in the next tick of the kernel's clock, in which times of files differ from those of
    /// this one.
    fn next_tick(&self);
    /// Checks whether the phases shall end.
    fn is_over(&self) -> bool;
}

/// Carries out the phases of a group.
///
/// # Errors
/// Returns the first error.
pub fn carry_out(
    phases: &[WorkloadPhase],
    mode: SyncMode,
    environment: &mut impl PhaseEnvironment,
) -> Result<(), PhaseError> {
    let mut filled = 0;
    for (at, phase) in phases.iter().enumerate() {
        let dir = environment.mount()?;
        if phase.counts {
            environment.begin_phase(phase)?;
        }
        // The number of the phase makes its content differ from that of all others.
        let salt = at as u64;
        // Preparation is not measured, so it need not be slow.
        let mode = if phase.counts { mode } else { SyncMode::C };
        let operations = RunningPhase {
            dir,
            mode,
            salt,
            environment,
            filled: &mut filled,
        }
        .perform_act(&phase.act)?;
        if phase.counts {
            environment.end_operations(phase)?;
        }
        // The unmount writes what is left: it belongs to the phase.
        environment.unmount()?;
        if phase.counts {
            environment.end_drain(phase, operations)?;
        }
    }
    Ok(())
}

fn io_failure(what: &str, path: &Path) -> impl FnOnce(io::Error) -> PhaseError {
    let what = format!("{what} {}", path.display());
    move |source| PhaseError::Io { what, source }
}

/// Runs a phase.
struct RunningPhase<'a, G> {
    dir: PathBuf,
    mode: SyncMode,
    salt: u64,
    environment: &'a G,
    /// Number of files that filled the file system.
    filled: &'a mut u64,
}

impl<G: PhaseEnvironment> RunningPhase<'_, G> {
    /// Does the work; returns the number of operations.
    fn perform_act(&mut self, act: &PhaseAct) -> Result<u64, PhaseError> {
        let operations = match *act {
            // Each kind of work counts its operations itself.
            PhaseAct::Write { set, call, again } => self.write_files(&set, call, again)?,
            PhaseAct::Read { set, call, order } => self.read_files(&set, call, order)?,
            PhaseAct::Touch {
                set,
                pieces,
                write,
                seed,
            } => self.access_pieces(&set, pieces, write, seed)?,
            PhaseAct::Fill(filling) => self.fill_up(&filling)?,
            PhaseAct::Thin { percent, seed } => self.thin_out(percent, seed)?,
            PhaseAct::Remove(set) => self.remove_files(&set)?,
        };
        let writes = !matches!(
            act,
            PhaseAct::Read { .. } | PhaseAct::Touch { write: false, .. }
        );
        // In mode C this sync is the only one.
        if self.mode == SyncMode::C && writes {
            let dir = self.open(&self.dir, OpenOptions::new().read(true))?;
            rustix::fs::syncfs(&dir).map_err(|e| io_failure("syncing", &self.dir)(e.into()))?;
        }
        Ok(operations)
    }

    fn open(&self, path: &Path, how: &OpenOptions) -> Result<File, PhaseError> {
        if self.environment.is_over() {
            return Err(PhaseError::Interrupted);
        }
        how.open(path).map_err(io_failure("opening", path))
    }

    fn file_path(&self, set: &PhaseFiles, at: u64) -> PathBuf {
        let (dir, file) = set.path_parts(at);
        self.dir.join(dir).join(file)
    }

    /// Returns bytes that no other file has.
    fn unique_content(&self, file: u64, bytes: u64) -> Vec<u8> {
        // The phase is in the upper bits, the file in the lower ones.
        let seed = orders::draw_number(self.salt << 48 | file);
        let words =
            (0..bytes.div_ceil(8)).flat_map(|at| (seed ^ orders::draw_number(at)).to_le_bytes());
        words.take(bytes as usize).collect()
    }

    /// Makes the data of a write call durable, as the mode wants it.
    fn after_write_call(&self, file: &File, path: &Path) -> Result<(), PhaseError> {
        match self.mode {
            SyncMode::T => {
                rustix::fs::syncfs(file).map_err(|e| io_failure("syncing", path)(e.into()))?
            }
            SyncMode::F => file.sync_all().map_err(io_failure("syncing", path))?,
            SyncMode::C => return Ok(()),
        }
        // In the same tick the file's times would not change, and its inode would not be written.
        self.environment.next_tick();
        Ok(())
    }

    /// Drops the data of an operation from the cache, in mode T.
    fn after_operation(&self, file: &File) -> Result<(), PhaseError> {
        if self.mode == SyncMode::T {
            self.environment.drop_cached(file)
        } else {
            Ok(())
        }
    }

    /// Makes the directory of a file, if it is the first in it.
    fn make_directory(&self, path: &Path) -> Result<(), PhaseError> {
        let dir = path.parent().unwrap_or(&self.dir);
        match std::fs::create_dir(dir) {
            Err(e) if e.kind() == ErrorKind::AlreadyExists => Ok(()),
            made => made.map_err(io_failure("making", dir)),
        }
    }

    fn write_files(
        &self,
        set: &PhaseFiles,
        call: Option<u64>,
        again: bool,
    ) -> Result<u64, PhaseError> {
        for (at, size) in (0..).zip(set.file_sizes()) {
            let path = self.file_path(set, at);
            if !again {
                self.make_directory(&path)?;
            }
            // A rewrite truncates the existing file, and never makes one.
            let how = OpenOptions::new()
                .write(true)
                .create_new(!again)
                .truncate(again)
                .clone();
            let mut file = self.open(&path, &how)?;
            let content = self.unique_content(at, size);
            for part in content.chunks(call.map_or(content.len().max(1), |call| call as usize)) {
                file.write_all(part).map_err(io_failure("writing", &path))?;
                self.after_write_call(&file, &path)?;
            }
            self.after_operation(&file)?;
        }
        Ok(set.count)
    }

    fn read_files(
        &self,
        set: &PhaseFiles,
        call: Option<u64>,
        order: VisitOrder,
    ) -> Result<u64, PhaseError> {
        let sizes = set.file_sizes();
        // Without a size of calls, one call reads the largest file.
        let mut buffer =
            vec![0; call.or_else(|| sizes.iter().copied().max()).unwrap_or(1) as usize];
        let places = match order {
            VisitOrder::Made => (0..set.count).collect(),
            VisitOrder::Random => orders::shuffle_places(set.count, set.count, VisitOrder::SEED),
        };
        // Each file is opened anew, as the thesis did.
        for at in places {
            let path = self.file_path(set, at);
            let mut file = self.open(&path, OpenOptions::new().read(true))?;
            let mut left = sizes[at as usize];
            while left > 0 {
                let got = file
                    .read(&mut buffer)
                    .map_err(io_failure("reading", &path))?;
                // A file that lost its end would make reads look cheap.
                if got == 0 {
                    let short = io::Error::new(
                        ErrorKind::UnexpectedEof,
                        "it is shorter than it was written",
                    );
                    return Err(io_failure("reading", &path)(short));
                }
                left = left.saturating_sub(got as u64);
            }
            self.after_operation(&file)?;
        }
        Ok(set.count)
    }

    fn access_pieces(
        &self,
        set: &PhaseFiles,
        pieces: u64,
        write: bool,
        seed: u64,
    ) -> Result<u64, PhaseError> {
        let path = self.file_path(set, 0);
        let file = self.open(&path, OpenOptions::new().read(true).write(write))?;
        debug_assert!(pieces <= set.bytes / PIECE, "each piece is accessed once");
        let mut buffer = vec![0; PIECE as usize];
        for at in orders::shuffle_places(set.bytes / PIECE, pieces, seed) {
            if self.environment.is_over() {
                return Err(PhaseError::Interrupted);
            }
            if write {
                file.write_all_at(&self.unique_content(at, PIECE), at * PIECE)
                    .map_err(io_failure("writing", &path))?;
                self.after_write_call(&file, &path)?;
            } else {
                file.read_exact_at(&mut buffer, at * PIECE)
                    .map_err(io_failure("reading", &path))?;
            }
            self.after_operation(&file)?;
        }
        Ok(pieces)
    }

    fn fill_up(&mut self, filling: &FillFiles) -> Result<u64, PhaseError> {
        loop {
            let at = *self.filled;
            let path = self.file_path(&FILLING, at);
            let made = self.make_directory(&path).and_then(|()| {
                let mut file = self.open(&path, OpenOptions::new().write(true).create_new(true))?;
                file.write_all(&self.unique_content(at, filling.file_size(at)))
                    .map_err(io_failure("writing", &path))
            });
            match made {
                Ok(()) => *self.filled += 1,
                Err(PhaseError::Io { source, .. }) if source.kind() == ErrorKind::StorageFull => {
                    // A part of the file takes room, so it is removed; if there is none, removing
                    // fails harmlessly.
                    let _ = std::fs::remove_file(&path);
                    return Ok(at);
                }
                Err(other) => return Err(other),
            }
        }
    }

    fn thin_out(&self, percent: u64, seed: u64) -> Result<u64, PhaseError> {
        // One seed gives one order, so each thinning keeps a subset of the one before.
        let order = orders::shuffle_places(*self.filled, *self.filled, seed);
        let mut removed = 0;
        for at in &order[(*self.filled * percent / 100) as usize..] {
            let path = self.file_path(&FILLING, *at);
            match std::fs::remove_file(&path) {
                // An earlier thinning took it.
                Err(e) if e.kind() == ErrorKind::NotFound => {}
                gone => {
                    gone.map_err(io_failure("removing", &path))?;
                    removed += 1;
                }
            }
        }
        Ok(removed)
    }

    fn remove_files(&self, set: &PhaseFiles) -> Result<u64, PhaseError> {
        // Files go in the order in which they were made.
        for at in 0..set.count {
            let path = self.file_path(set, at);
            std::fs::remove_file(&path).map_err(io_failure("removing", &path))?;
            // The directory goes with its last file.
            if at + 1 == set.count || set.path_parts(at).0 != set.path_parts(at + 1).0 {
                let dir = path.parent().unwrap_or(&self.dir);
                std::fs::remove_dir(dir).map_err(io_failure("removing", dir))?;
            }
        }
        Ok(set.count)
    }
}

/// Names the files that fill a file system.
const FILLING: PhaseFiles = PhaseFiles {
    name: "fill",
    count: 0,
    bytes: 0,
    is_mixed: false,
};

impl VisitOrder {
    /// Seed of random orders of files.
    pub(super) const SEED: u64 = 2004;
}
