//! Checks, before anything is written, that the files of a run fit into their directory, and its
//! threads into memory.

use super::error::RunError;
use super::layout::{TreeLayout, lay_out};
use super::plan::{Fileset, WorkloadPlan};
use crate::numbers::mix_bits;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

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
    /// Factor on the sizes of the files that the script asks for.
    pub size_scale: f64,
    /// Number of directories, leaves included.
    pub dirs: u64,
    /// Bytes of all files.
    pub bytes: u64,
    /// Mean depth of a file.
    pub depth: f64,
    /// Percent of the files that exist from the beginning.
    pub prealloc: u64,
}

pub(super) fn lay_out_all(plan: &WorkloadPlan) -> Vec<TreeLayout> {
    let mut layouts = Vec::new();
    for (at, set) in plan.filesets.iter().enumerate() {
        let seed = mix_bits(plan.options.seed ^ mix_bits(at as u64));
        layouts.push(lay_out(set, &plan.randoms, seed));
    }
    layouts
}

/// Returns the sizes of the filesets of a plan. Touches nothing.
pub fn preview_filesets(plan: &WorkloadPlan) -> Vec<FilesetPreview> {
    let mut previews = Vec::new();
    for (set, layout) in plan.filesets.iter().zip(lay_out_all(plan)) {
        previews.push(FilesetPreview {
            name: set.name.clone(),
            files: layout.files.len() as u64,
            files_asked: set.entries_asked,
            size_scale: set.size_scale,
            dirs: (layout.dirs.len() + layout.leaves.len()) as u64,
            bytes: layout.total_bytes(),
            depth: layout.mean_depth(),
            prealloc: set.prealloc,
        });
    }
    previews
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

/// Compares the room that the filesets of a plan take with that of their directory.
struct RoomCheck<'a> {
    need: FileRoom,
    room: FileRoom,
    /// Largest set with its bytes. It is named, because scaling it helps most.
    largest: Option<(u64, &'a Fileset)>,
}

impl<'a> RoomCheck<'a> {
    /// Adds up all sets, as one may fit alone.
    fn of_plan(plan: &'a WorkloadPlan) -> Result<Self, RunError> {
        let mut check = Self {
            need: FileRoom::default(),
            room: FileRoom::free_in(&plan.options.dir)?,
            largest: None,
        };
        // A device is one file that exists already, and takes no room.
        for (set, layout) in plan.filesets.iter().zip(&lay_out_all(plan)) {
            if !is_device(&set.root) {
                check.add_set(set, FileRoom::taken_by(layout));
            }
        }
        Ok(check)
    }

    fn add_set(&mut self, set: &'a Fileset, taken: FileRoom) {
        self.need.bytes = self.need.bytes.saturating_add(taken.bytes);
        self.need.inodes += taken.inodes;
        // Existing files of a set will be removed, or are used: their room counts as free.
        let (old_bytes, old_files) = measure_tree(&set.root);
        self.room.bytes += old_bytes;
        self.room.inodes = self.room.inodes.saturating_add(old_files);
        if self.largest.is_none_or(|(bytes, _)| taken.bytes >= bytes) {
            self.largest = Some((taken.bytes, set));
        }
    }

    fn is_enough(&self) -> bool {
        self.need.bytes <= self.room.bytes && self.need.inodes <= self.room.inodes
    }

    /// Returns the part of the files that would fit.
    fn fitting_part(&self) -> f64 {
        // Scaling changes bytes and files alike, so the scarcer of the two decides.
        let by_bytes = self.room.bytes as f64 / self.need.bytes as f64;
        by_bytes.min(self.room.inodes as f64 / self.need.inodes as f64)
    }
}

/// Refuses sets that do not fit into their directory, and threads that do not fit into memory.
///
/// # Errors
/// Returns [`RunError::Space`], [`RunError::Memory`], or the error of asking for the room.
pub fn check_room(plan: &WorkloadPlan) -> Result<(), RunError> {
    check_memory(plan)?;
    let check = RoomCheck::of_plan(plan)?;
    if check.is_enough() {
        return Ok(());
    }
    let at = match check.largest {
        Some((_, set)) => format!("{}: {}, most of all: ", set.place, set.name),
        None => String::new(),
    };
    Err(RunError::Space {
        at,
        need: check.need.bytes,
        files: check.need.inodes,
        room: check.room.bytes,
        inodes: check.room.inodes,
        dir: plan.options.dir.display().to_string(),
        hint: format_fitting_scale(check.fitting_part() * plan.options.scale),
    })
}

/// Returns a scale with one digit that leaves a tenth of the room.
fn format_fitting_scale(largest: f64) -> String {
    let fits = largest * 0.9;
    let digits = (-fits.max(1e-9).log10()).ceil().max(0.0);
    let unit = 10_f64.powf(digits);
    format!("{:.*}", digits as usize, (fits * unit).floor() / unit)
}

pub(super) fn is_device(path: &Path) -> bool {
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
