//! Makes filesets on the disk before a run.
//!
//! # Guarantees
//! 1. Nothing is written or removed before it is known that all sets fit.
//! 2. Only trees that look as if a fileset had made them are removed.
//! 3. The same seed makes the same files.

use super::content::TransferMemory;
use super::error::RunError;
use super::fileset::{EntryKind, FilesetState};
use super::layout::TreeLayout;
use super::plan::{ExistingFiles, Fileset, Populating, WorkloadPlan};
use super::random::RandomStream;
use super::room::{check_room, is_device, lay_out_all};
use crate::numbers::mix_bits;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes of one write.
const CHUNK: usize = 1 << 20;
/// Number of threads that make files of one set.
const PARALLEL: usize = 32;
/// Makes all filesets of a plan; reports on each with `say`.
///
/// # Errors
/// Returns an error for sets that do not fit, for trees that are not a fileset's, and for failed
/// system calls.
pub(super) fn populate_filesets(
    plan: &WorkloadPlan,
    say: &dyn Fn(&str),
) -> Result<Vec<FilesetState>, RunError> {
    check_room(plan)?;
    // All trees are checked before the first one is removed.
    for set in &plan.filesets {
        if set.existing == ExistingFiles::Removed && !is_device(&set.root) {
            refuse_foreign_trees(&set.root)?;
        }
    }
    let mut sets = Vec::new();
    // Single files are many in some scripts, so they are told together.
    let (mut singles, mut single_names) = (MadeFiles::default(), Vec::new());
    for (at, (set, layout)) in plan.filesets.iter().zip(lay_out_all(plan)).enumerate() {
        let maker = FilesetMaker {
            set,
            // Each set has a seed of its own, which does not depend on the others.
            seed: mix_bits(plan.options.seed ^ mix_bits(at as u64)),
            strict: plan.options.strict,
        };
        let (files, made) = maker.make_fileset(layout)?;
        if let Some(made) = made {
            if files.layout.files.len() == 1 {
                singles.add(made);
                single_names.push(set.name.as_str());
            } else {
                let count = files.layout.files.len();
                say(&describe_made(&set.name, &format!("{count} files"), made));
            }
        }
        sets.push(files);
    }
    tell_singles(&single_names, singles, say);
    Ok(sets)
}

/// Tells what was made of sets of one file each.
fn tell_singles(names: &[&str], made: MadeFiles, say: &dyn Fn(&str)) {
    let MadeFiles { files, bytes } = made;
    match names {
        [] => {}
        [name] => say(&describe_made(name, "1 files", made)),
        _ => {
            let count = names.len();
            say(&format!(
                "{count} single files, of which {files} made, {bytes} bytes"
            ));
        }
    }
}

/// Refuses a tree that no fileset has made, as it would be removed.
fn refuse_foreign_trees(root: &Path) -> Result<(), RunError> {
    let entries = match std::fs::read_dir(root) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(|e| RunError::at_path("reading", root, e))?,
    };
    for entry in entries {
        let entry = entry.map_err(|e| RunError::at_path("reading", root, e))?;
        let name = entry.file_name();
        // Directories of filesets have eight digits.
        let ours = name.len() >= 8 && name.as_encoded_bytes().iter().all(u8::is_ascii_digit);
        if !ours || !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            return Err(RunError::Failed(format!(
                "{} is there and holds {}, which no fileset has made; a run would remove it: take \
                 another --dir, or remove it yourself",
                root.display(),
                name.to_string_lossy()
            )));
        }
    }
    Ok(())
}

struct FilesetMaker<'a> {
    set: &'a Fileset,
    seed: u64,
    strict: bool,
}

impl FilesetMaker<'_> {
    /// Makes the set; returns also what was made, if anything had to be.
    fn make_fileset(
        &self,
        layout: TreeLayout,
    ) -> Result<(FilesetState, Option<MadeFiles>), RunError> {
        let set = self.set;
        if is_device(&set.root) {
            return Ok((self.use_device(layout)?, None));
        }
        let mut files = FilesetState::new(&set.name, set.root.clone(), set.access, layout);
        // An old tree is removed, unless it is to be used.
        if set.existing == ExistingFiles::Removed && set.root.exists() {
            std::fs::remove_dir_all(&set.root)
                .map_err(|e| RunError::at_path("removing", &set.root, e))?;
        }
        std::fs::create_dir_all(&set.root)
            .map_err(|e| RunError::at_path("making", &set.root, e))?;
        files.open_root()?;
        // Files are missing at first, so nothing has to be made.
        if set.prealloc == 0 && set.existing == ExistingFiles::Removed {
            return Ok((files, None));
        }
        // Directories come first, parents before children.
        if set.prealloc > 0 && set.existing != ExistingFiles::Trusted {
            self.make_dirs(&files)?;
        }
        self.make_leaves(&files)?;
        let chosen = self.choose_existing(files.layout.files.len());
        let made = self.make_files(&files, &chosen)?;
        Ok((files, Some(made)))
    }

    /// Takes a device as one file of its own size, which exists from the beginning.
    fn use_device(&self, mut layout: TreeLayout) -> Result<FilesetState, RunError> {
        let root = &self.set.root;
        // An exclusive open is refused while the device is mounted or part of something else.
        let flags = OFlags::RDONLY | OFlags::EXCL | OFlags::CLOEXEC;
        let opened = rustix::fs::open(root, flags, Mode::empty())
            .map_err(|e| RunError::at_path("opening the device", root, e))?;
        let size = rustix::fs::seek(&opened, rustix::fs::SeekFrom::End(0))
            .map_err(|e| RunError::at_path("measuring", root, e))?;
        layout.files.truncate(1);
        for file in &mut layout.files {
            file.size = size;
        }
        let mut files = FilesetState::new(&self.set.name, root.clone(), self.set.access, layout);
        files.device = true;
        files.mark_existing(EntryKind::File, 0);
        Ok(files)
    }

    fn make_dirs(&self, files: &FilesetState) -> Result<(), RunError> {
        let mut path = Vec::new();
        for dir in 1..files.layout.dirs.len() {
            files.write_dir_path(dir, &mut path);
            make_dir(files, &path)?;
        }
        Ok(())
    }

    fn make_leaves(&self, files: &FilesetState) -> Result<(), RunError> {
        let (mut path, mut stream) = (Vec::new(), RandomStream::new(self.seed, 0x6c65_6166));
        for leaf in 0..files.entry_count(EntryKind::Leaf) {
            if stream.next_below(100) < self.set.prealloc {
                files.write_path(EntryKind::Leaf, leaf, &mut path);
                make_dir(files, &path)?;
                files.mark_existing(EntryKind::Leaf, leaf);
            }
        }
        Ok(())
    }

    /// Returns the order in which files are made, and the number of its first ones that shall
    /// exist.
    fn choose_existing(&self, len: usize) -> (Vec<usize>, usize) {
        let mut stream = RandomStream::new(self.seed, 0x6f72_6465);
        // Fisher and Yates: files that are neighbours in the tree are not neighbours on the disk.
        let mut order: Vec<usize> = (0..len).collect();
        for at in (1..len).rev() {
            order.swap(at, stream.next_below(at as u64 + 1) as usize);
        }
        let (mut there, mut not): (Vec<usize>, Vec<usize>) = order
            .into_iter()
            .partition(|_| stream.next_below(100) < self.set.prealloc);
        let count = there.len();
        there.append(&mut not);
        debug_assert_eq!(there.len(), len, "each file has its place in the order");
        (there, count)
    }

    /// Makes the files; returns their number and their bytes.
    fn make_files(
        &self,
        files: &FilesetState,
        (order, there): &(Vec<usize>, usize),
    ) -> Result<MadeFiles, RunError> {
        // Threads share one queue, so that a slow file holds up only its own thread.
        let queue = FileQueue {
            order,
            there: *there,
            next: AtomicUsize::new(0),
        };
        if self.set.populating == Populating::OneThread {
            return self.make_queued(files, &queue, 0);
        }
        let queue = &queue;
        std::thread::scope(|scope| {
            // The scope joins all threads, also after an error.
            let mut workers = Vec::new();
            for worker in 0..PARALLEL.min(order.len()) as u64 {
                let named = std::thread::Builder::new().name(format!("populate-{worker}"));
                let spawned =
                    named.spawn_scoped(scope, move || self.make_queued(files, queue, worker));
                workers.push(spawned.map_err(|e| RunError::from_io("starting a thread", e))?);
            }
            // A worker that failed ends the making, but only after all have left.
            let mut sum = MadeFiles::default();
            for worker in workers {
                let Ok(done) = worker.join() else {
                    let message = "a thread that made files has panicked";
                    return Err(RunError::Failed(message.into()));
                };
                sum.add(done?);
            }
            Ok(sum)
        })
    }

    /// Makes the next file of the queue, until there is none; the worker's number decides the
    /// content.
    fn make_queued(
        &self,
        files: &FilesetState,
        queue: &FileQueue<'_>,
        worker: u64,
    ) -> Result<MadeFiles, RunError> {
        // Each worker has content of its own, so that no two files of different workers are alike.
        let mut memory = TransferMemory::new(CHUNK, mix_bits(self.seed ^ worker), self.strict);
        let mut made = MadeFiles::default();
        while let Some((index, is_wanted)) = queue.take_next() {
            if let Some(bytes) = self.make_file(files, index, is_wanted, &mut memory)? {
                made.files += 1;
                made.bytes += bytes;
            }
        }
        Ok(made)
    }

    /// Makes one file; returns the bytes that were written, or `None` if the file was not written.
    fn make_file(
        &self,
        files: &FilesetState,
        index: usize,
        wanted: bool,
        memory: &mut TransferMemory,
    ) -> Result<Option<u64>, RunError> {
        // A trusted tree is taken as it should be, without a look.
        if self.set.existing == ExistingFiles::Trusted {
            if wanted {
                files.mark_existing(EntryKind::File, index);
            }
            return Ok(None);
        }
        let mut path = Vec::new();
        files.write_path(EntryKind::File, index, &mut path);
        let old = self.old_size(files, &path)?;
        // A file that shall be missing is left out, unless an old one exists.
        if !wanted && old.is_none() {
            return Ok(None);
        }
        files.mark_existing(EntryKind::File, index);
        let size = files.layout.files[index].size;
        if old == Some(size) || !wanted {
            return Ok(None);
        }
        self.write_file(files, &path, size, old, memory)
    }

    /// Returns the size of an old file that may be kept.
    fn old_size(&self, files: &FilesetState, path: &[u8]) -> Result<Option<u64>, RunError> {
        // A directory on the way that is missing means that the file is, too.
        let name = super::c_path(path);
        match rustix::fs::statat(files.root_fd(), name, rustix::fs::AtFlags::empty()) {
            Ok(stat) if self.set.existing == ExistingFiles::Reused => {
                Ok(Some(stat.st_size.unsigned_abs()))
            }
            Ok(_) | Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR) => Ok(None),
            Err(e) => Err(path_error(files, path, "looking at", e)),
        }
    }

    /// Writes a file. An old one that is too long is cut, and one that is too short is written
    /// anew.
    fn write_file(
        &self,
        files: &FilesetState,
        path: &[u8],
        size: u64,
        old: Option<u64>,
        memory: &mut TransferMemory,
    ) -> Result<Option<u64>, RunError> {
        // A file that is kept keeps its content up to the size that is wanted.
        let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(0o666);
        let file = rustix::fs::openat(files.root_fd(), super::c_path(path), flags, mode)
            .map_err(|e| path_error(files, path, "making", e))?;
        if old.is_some_and(|old| old > size) {
            rustix::fs::ftruncate(&file, size)
                .map_err(|e| path_error(files, path, "shortening", e))?;
            return Ok(None);
        }
        fill_file(&file, size, memory).map_err(|e| path_error(files, path, "writing", e))?;
        Ok(Some(size))
    }
}

/// Counts files that were made.
#[derive(Debug, Clone, Copy, Default)]
struct MadeFiles {
    files: u64,
    bytes: u64,
}

impl MadeFiles {
    fn add(&mut self, other: Self) {
        self.files += other.files;
        self.bytes += other.bytes;
    }
}

/// Describes what was made of a set, or of several.
fn describe_made(name: &str, what: &str, made: MadeFiles) -> String {
    let MadeFiles { files, bytes } = made;
    format!("{name}: {what}, of which {files} made, {bytes} bytes")
}

/// Hands out the files that are to be made.
struct FileQueue<'a> {
    order: &'a [usize],
    /// Number of the first files in the order that shall exist.
    there: usize,
    next: AtomicUsize,
}

impl FileQueue<'_> {
    /// Returns the next file, and whether it shall exist.
    fn take_next(&self) -> Option<(usize, bool)> {
        let at = self.next.fetch_add(1, Ordering::Relaxed);
        let index = self.order.get(at)?;
        Some((*index, at < self.there))
    }
}

fn path_error(files: &FilesetState, path: &[u8], what: &str, error: rustix::io::Errno) -> RunError {
    RunError::from_io(format!("{what} {}", files.display_path(path)), error)
}

fn make_dir(files: &FilesetState, path: &[u8]) -> Result<(), RunError> {
    match rustix::fs::mkdirat(
        files.root_fd(),
        super::c_path(path),
        Mode::from_raw_mode(0o755),
    ) {
        Ok(()) | Err(rustix::io::Errno::EXIST) => Ok(()),
        Err(e) => Err(path_error(files, path, "making", e)),
    }
}

fn fill_file(file: &OwnedFd, size: u64, memory: &mut TransferMemory) -> rustix::io::Result<()> {
    let mut left = size;
    while left > 0 {
        let chunk = memory.fresh_content(0, left.min(CHUNK as u64) as usize);
        let written = rustix::io::write(file.as_fd(), chunk)?;
        left -= written as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
