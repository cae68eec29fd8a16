//! Makes filesets on the disk before a run.
//!
//! # Guarantees
//! 1. Nothing is written or removed before it is known that all sets fit.
//! 2. Only trees that look as if a fileset had made them are removed.
//! 3. The same seed makes the same files.

use super::content::TransferMemory;
use super::error::RunError;
use super::fileset::{EntryKind, FilesetState};
use super::layout::{TreeLayout, lay_out};
use super::plan::{Fileset, WorkloadPlan};
use super::random::RandomStream;
use crate::numbers::mix_bits;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes of one write.
const CHUNK: usize = 1 << 20;
/// Number of threads that make files of one set.
const PARALLEL: usize = 32;
/// Least bytes that a file takes.
const BLOCK: u64 = 4096;

/// Describes the size of a fileset, before anything is made.
#[derive(Debug, Clone)]
pub struct FilesetPreview {
    /// Name of the fileset.
    pub name: String,
    /// Number of files.
    pub files: u64,
    /// Number of files that the script asks for.
    pub files_asked: u64,
    /// Number of directories, leaves included.
    pub dirs: u64,
    /// Bytes of all files.
    pub bytes: u64,
    /// Mean depth of a file.
    pub depth: f64,
    /// Percent of the files that exist from the beginning.
    pub prealloc: u64,
}

fn lay_out_all(plan: &WorkloadPlan) -> Vec<TreeLayout> {
    let seed = |at: usize| mix_bits(plan.options.seed ^ mix_bits(at as u64));
    plan.filesets
        .iter()
        .enumerate()
        .map(|(at, set)| lay_out(set, &plan.randoms, seed(at)))
        .collect()
}

/// Returns the sizes of the filesets of a plan. Touches nothing.
pub fn preview_filesets(plan: &WorkloadPlan) -> Vec<FilesetPreview> {
    let both = plan.filesets.iter().zip(lay_out_all(plan));
    both.map(|(set, layout)| FilesetPreview {
        name: set.name.clone(),
        files: layout.files.len() as u64,
        files_asked: set.entries_asked,
        dirs: (layout.dirs.len() + layout.leaves.len()) as u64,
        bytes: layout.total_bytes(),
        depth: layout.mean_depth(),
        prealloc: set.prealloc,
    })
    .collect()
}

/// Refuses threads that would hold more memory than this machine has.
fn check_memory(plan: &WorkloadPlan) -> Result<(), RunError> {
    // Swap counts too: a run that swaps is slow, but it ends.
    let machine = rustix::system::sysinfo();
    let has = machine
        .totalram
        .saturating_add(machine.totalswap)
        .saturating_mul(machine.mem_unit.into());
    let need = plan.memory_bytes();
    if need <= has {
        return Ok(());
    }
    let most = plan
        .memory_by_kind()
        .into_iter()
        .max_by_key(|(_, bytes)| *bytes);
    Err(RunError::Memory {
        need,
        has,
        thread: most.map_or_else(String::new, |(name, _)| name.to_owned()),
    })
}

/// The room that filesets take, or that their directory has.
#[derive(Debug, Clone, Copy, Default)]
struct FileRoom {
    bytes: u64,
    /// Files and directories.
    inodes: u64,
}

impl FileRoom {
    /// Returns the room that a fileset takes, in whole blocks. Drawn sizes can be as large as a
    /// number, so the sum saturates.
    fn taken_by(layout: &TreeLayout) -> Self {
        let dirs = (layout.dirs.len() + layout.leaves.len()) as u64;
        let mut bytes = dirs * BLOCK;
        for file in &layout.files {
            let size = file.size.div_ceil(BLOCK).saturating_mul(BLOCK);
            bytes = bytes.saturating_add(size);
        }
        Self {
            bytes,
            inodes: layout.files.len() as u64 + dirs,
        }
    }

    /// Returns the room in a directory, apart from what the filesets in it hold already.
    fn free_in(dir: &Path) -> Result<Self, RunError> {
        let stat = rustix::fs::statvfs(dir)
            .map_err(|e| RunError::at_path("asking for the room in", dir, e))?;
        // Some file systems have no limit on the number of files.
        let inodes = if stat.f_files == 0 {
            u64::MAX
        } else {
            stat.f_favail
        };
        Ok(Self {
            bytes: stat.f_bavail.saturating_mul(stat.f_frsize),
            inodes,
        })
    }
}

/// Refuses sets that do not fit into their directory, and threads that do not fit into memory.
///
/// # Errors
/// Returns [`RunError::Space`], [`RunError::Memory`], or the error of asking for the room.
pub fn check_room(plan: &WorkloadPlan) -> Result<(), RunError> {
    check_memory(plan)?;
    let dir = &plan.options.dir;
    let mut room = FileRoom::free_in(dir)?;
    // Sums of all sets, as one set may fit alone.
    let mut need = FileRoom::default();
    // The largest set is named, because scaling it helps most.
    let mut largest = None;
    for (set, layout) in plan.filesets.iter().zip(&lay_out_all(plan)) {
        if is_device(&set.root) {
            continue;
        }
        let taken = FileRoom::taken_by(layout);
        need.bytes = need.bytes.saturating_add(taken.bytes);
        need.inodes += taken.inodes;
        // Existing files of a set will be removed, or are used: their room counts as free.
        let (old_bytes, old_files) = measure_tree(&set.root);
        room.bytes += old_bytes;
        room.inodes = room.inodes.saturating_add(old_files);
        if largest.is_none_or(|(bytes, _)| taken.bytes >= bytes) {
            largest = Some((taken.bytes, set));
        }
    }
    if need.bytes <= room.bytes && need.inodes <= room.inodes {
        return Ok(());
    }
    let by_bytes = room.bytes as f64 / need.bytes as f64;
    let part = by_bytes.min(room.inodes as f64 / need.inodes as f64);
    let at = largest.map_or_else(String::new, |(_, set)| {
        format!("{}: {}, most of all: ", set.place, set.name)
    });
    Err(RunError::Space {
        at,
        need: need.bytes,
        files: need.inodes,
        room: room.bytes,
        inodes: room.inodes,
        dir: dir.display().to_string(),
        hint: format_fitting_scale(part * plan.options.scale),
    })
}

/// Returns a scale with one digit that leaves a tenth of the room.
fn format_fitting_scale(largest: f64) -> String {
    let fits = largest * 0.9;
    let digits = (-fits.max(1e-9).log10()).ceil().max(0.0);
    let unit = 10_f64.powf(digits);
    format!("{:.*}", digits as usize, (fits * unit).floor() / unit)
}

fn is_device(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|meta| meta.file_type().is_block_device())
}

/// Returns the bytes and files of a tree.
fn measure_tree(root: &Path) -> (u64, u64) {
    let (mut sums, mut dirs) = ((0, 0), vec![root.to_owned()]);
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
            let Ok(meta) = entry.metadata() else { continue };
            sums = (sums.0 + meta.blocks() * 512, sums.1 + 1);
            if meta.is_dir() {
                dirs.push(entry.path());
            }
        }
    }
    sums
}

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
    for set in plan
        .filesets
        .iter()
        .filter(|set| !set.reuse && !is_device(&set.root))
    {
        refuse_foreign_trees(&set.root)?;
    }
    // Each set has a seed of its own, which does not depend on the others.
    let sets = plan.filesets.iter().zip(lay_out_all(plan));
    sets.enumerate()
        .map(|(at, (set, layout))| {
            let seed = mix_bits(plan.options.seed ^ mix_bits(at as u64));
            FilesetMaker {
                set,
                seed,
                strict: plan.options.strict,
            }
            .make_fileset(layout, say)
        })
        .collect()
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
    fn make_fileset(
        &self,
        layout: TreeLayout,
        say: &dyn Fn(&str),
    ) -> Result<FilesetState, RunError> {
        let set = self.set;
        if is_device(&set.root) {
            return self.use_device(layout);
        }
        let mut files = FilesetState::new(&set.name, set.root.clone(), set.access, layout);
        // An old tree is removed, unless it is to be used.
        if !set.reuse && set.root.exists() {
            std::fs::remove_dir_all(&set.root)
                .map_err(|e| RunError::at_path("removing", &set.root, e))?;
        }
        std::fs::create_dir_all(&set.root)
            .map_err(|e| RunError::at_path("making", &set.root, e))?;
        files.open_root()?;
        // Files are missing at first, so nothing has to be made.
        if set.prealloc == 0 && !set.reuse {
            return Ok(files);
        }
        // Directories come first, parents before children.
        if set.prealloc > 0 && !set.trusttree {
            self.make_dirs(&files)?;
        }
        self.make_leaves(&files)?;
        let chosen = self.choose_existing(files.layout.files.len());
        let (made, bytes) = self.make_files(&files, &chosen)?;
        say(&format!(
            "{}: {} files, of which {made} made, {bytes} bytes",
            set.name,
            files.layout.files.len()
        ));
        Ok(files)
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
    ) -> Result<(u64, u64), RunError> {
        let next = AtomicUsize::new(0);
        // The first thread and all others do the same work.
        let work = |worker: u64| -> Result<(u64, u64), RunError> {
            let mut memory = TransferMemory::new(CHUNK, mix_bits(self.seed ^ worker), self.strict);
            let (mut made, mut bytes) = (0, 0);
            loop {
                // Threads share one counter, so that a slow file holds up only its own thread.
                let at = next.fetch_add(1, Ordering::Relaxed);
                let Some(&index) = order.get(at) else {
                    return Ok((made, bytes));
                };
                let written = self.make_file(files, index, at < *there, &mut memory)?;
                made += u64::from(written.is_some());
                bytes += written.unwrap_or(0);
            }
        };
        if !self.set.paralloc {
            return work(0);
        }
        std::thread::scope(|scope| {
            // The scope joins all threads, also after an error.
            let workers: Vec<_> = (0..PARALLEL.min(order.len()) as u64)
                .map(|worker| {
                    let named = std::thread::Builder::new().name(format!("populate-{worker}"));
                    named
                        .spawn_scoped(scope, move || work(worker))
                        .map_err(|e| RunError::from_io("starting a thread", e))
                })
                .collect::<Result<_, _>>()?;
            workers.into_iter().try_fold((0, 0), |sum, worker| {
                let done = worker.join().map_err(|_| {
                    RunError::Failed("a thread that made files has panicked".into())
                })??;
                Ok((sum.0 + done.0, sum.1 + done.1))
            })
        })
    }

    /// Makes one file; returns the bytes that were written, or `None` if the file was not written.
    fn make_file(
        &self,
        files: &FilesetState,
        index: usize,
        wanted: bool,
        memory: &mut TransferMemory,
    ) -> Result<Option<u64>, RunError> {
        let size = files.layout.files[index].size;
        let mut path = Vec::new();
        files.write_path(EntryKind::File, index, &mut path);
        let failed = |what: &str, e: rustix::io::Errno| {
            RunError::from_io(format!("{what} {}", files.display_path(&path)), e)
        };
        let name = super::c_path(&path);
        // A trusted tree is taken as it should be, without a look.
        if self.set.trusttree {
            if wanted {
                files.mark_existing(EntryKind::File, index);
            }
            return Ok(None);
        }
        let old = match rustix::fs::statat(files.root_fd(), name, rustix::fs::AtFlags::empty()) {
            // An old file of the right size is kept as it is.
            Ok(stat) if self.set.reuse => Some(stat.st_size.unsigned_abs()),
            Ok(_) | Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR) => None,
            Err(e) => return Err(failed("looking at", e)),
        };
        // A file that shall be missing is left out, unless an old one exists.
        if !wanted && old.is_none() {
            return Ok(None);
        }
        files.mark_existing(EntryKind::File, index);
        if old == Some(size) || !wanted {
            return Ok(None);
        }
        let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC;
        let file = rustix::fs::openat(files.root_fd(), name, flags, Mode::from_raw_mode(0o666))
            .map_err(|e| failed("making", e))?;
        // An old file that is too long is cut, and one that is too short is written anew.
        if old.is_some_and(|old| old > size) {
            rustix::fs::ftruncate(&file, size).map_err(|e| failed("shortening", e))?;
            return Ok(None);
        }
        fill_file(&file, size, memory).map_err(|e| failed("writing", e))?;
        Ok(Some(size))
    }
}

fn make_dir(files: &FilesetState, path: &[u8]) -> Result<(), RunError> {
    match rustix::fs::mkdirat(
        files.root_fd(),
        super::c_path(path),
        Mode::from_raw_mode(0o755),
    ) {
        Ok(()) | Err(rustix::io::Errno::EXIST) => Ok(()),
        Err(e) => Err(RunError::from_io(
            format!("making {}", files.display_path(path)),
            e,
        )),
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
