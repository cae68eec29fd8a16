//! Lays out the tree of a fileset: its directories, and the places of its files. Pure.
//!
//! # Guarantees
//! 1. The same fileset and seed give the same tree, sizes included.
//! 2. There are exactly as many files and empty leaf directories as were asked for, and none lies
//!    in the root.

use super::plan::Fileset;
use super::random::{FixedOrDrawn, RandomStream, RandomVariable};

/// Describes a directory: its parent (0 is the root) and its number within it, from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LayoutDir {
    pub(super) parent: u32,
    pub(super) number: u32,
}

/// Describes a file, or an empty leaf directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LayoutEntry {
    pub(super) dir: u32,
    pub(super) number: u32,
    pub(super) size: u64,
}

/// Holds the directories, files and leaves of a fileset.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct TreeLayout {
    /// Directories, parents before children; the first is the root.
    pub(super) dirs: Vec<LayoutDir>,
    pub(super) files: Vec<LayoutEntry>,
    pub(super) leaves: Vec<LayoutEntry>,
}

impl TreeLayout {
    /// Returns the bytes of all files.
    pub(super) fn total_bytes(&self) -> u64 {
        self.files
            .iter()
            .map(|file| file.size)
            .fold(0, u64::saturating_add)
    }

    /// Returns the mean depth of a file: 1 is in a directory of the root, 0 means that there is no
    /// file.
    pub(super) fn mean_depth(&self) -> f64 {
        if self.files.is_empty() {
            return 0.0;
        }
        let mut depths = vec![0_u32; self.dirs.len()];
        for (at, dir) in self.dirs.iter().enumerate().skip(1) {
            depths[at] = depths[dir.parent as usize] + 1;
        }
        let sum: f64 = self
            .files
            .iter()
            .map(|file| f64::from(depths[file.dir as usize]))
            .sum();
        sum / self.files.len() as f64
    }
}

/// Limits the depth of a tree.
const DEPTH_MAX: usize = 64;

struct LayoutBuilder<'a> {
    set: &'a Fileset,
    randoms: &'a [RandomVariable],
    draws: RandomStream,
    sizes: RandomStream,
    depth: f64,
    /// Files that are still to be placed.
    files: u64,
    leaves: u64,
    layout: TreeLayout,
}

/// Returns the mean of the drawn depths, which Filebench calls a set's average depth. Deep
/// directories hold more, so files lie deeper than that.
pub(super) fn mean_drawn_depth(set: &Fileset, randoms: &[RandomVariable]) -> f64 {
    let all = (set.entries + set.leafdirs) as f64;
    let width = match set.dirwidth {
        FixedOrDrawn::Fixed(width) => width as f64,
        FixedOrDrawn::Drawn(which) => randoms[which].mean.unwrap_or(1.0),
    };
    // A width of 1 would make an endless chain of directories.
    if width > 1.0 {
        all.max(1.0).ln() / width.ln()
    } else {
        DEPTH_MAX as f64
    }
}

/// Lays the fileset out; random variables draw from `seed`.
pub(super) fn lay_out(set: &Fileset, randoms: &[RandomVariable], seed: u64) -> TreeLayout {
    let depth = mean_drawn_depth(set, randoms);
    // Two streams: sizes do not change when the tree does.
    let mut builder = LayoutBuilder {
        set,
        randoms,
        draws: RandomStream::new(seed, 0x7472_6565),
        sizes: RandomStream::new(seed, 0x7369_7a65),
        depth,
        files: set.entries,
        leaves: 0,
        layout: TreeLayout::default(),
    };
    builder.layout.dirs.push(LayoutDir {
        parent: 0,
        number: 0,
    });
    let mut children = 0;
    // Directories of the root are added until all files have a place.
    while builder.files > 0 {
        children += 1;
        builder.add_directory(0, children, 2);
    }
    // Leaves come after the files, so that adding leaves does not move files.
    builder.leaves = set.leafdirs;
    while builder.leaves > 0 {
        children += 1;
        builder.add_directory(0, children, 2);
    }
    debug_assert!(
        builder.layout.files.len() as u64 == set.entries
            && builder.layout.leaves.len() as u64 == set.leafdirs,
        "each entry has its place"
    );
    builder.layout
}

impl LayoutBuilder<'_> {
    fn draw_depth_limit(&mut self) -> f64 {
        let drawn = match (self.set.dirdepth, self.set.dirgamma) {
            (Some(which), _) => {
                let mut variable = self.randoms[which].clone();
                variable.mean = Some(self.depth);
                variable.draw(&mut self.draws)
            }
            (None, 0) => self.depth,
            (None, gamma) => {
                let shape = gamma as f64 / 1000.0;
                self.draws.draw_gamma(shape) * self.depth / shape
            }
        };
        drawn.floor().clamp(1.0, DEPTH_MAX as f64)
    }

    fn draw_width(&mut self) -> u64 {
        let drawn = match (self.set.dirwidth, self.set.dirgamma) {
            (FixedOrDrawn::Drawn(which), _) => self.randoms[which].draw(&mut self.draws),
            (FixedOrDrawn::Fixed(width), 0) => width as f64,
            (FixedOrDrawn::Fixed(width), gamma) => {
                let shape = gamma as f64 / 1000.0;
                self.draws.draw_gamma(shape) * width as f64 / shape
            }
        };
        drawn.max(1.0) as u64
    }

    /// Adds a directory at this depth (the root is 1), with its content.
    fn add_directory(&mut self, parent: u32, number: u32, depth: usize) {
        let here = u32::try_from(self.layout.dirs.len()).unwrap_or(u32::MAX);
        self.layout.dirs.push(LayoutDir { parent, number });
        // Drawn for each directory, which makes the tree irregular, as Filebench's are.
        let (limit, width) = (self.draw_depth_limit(), self.draw_width());
        // A directory holds either directories or files and leaves, as its depth says.
        for number in 1..=u32::try_from(width).unwrap_or(u32::MAX) {
            if self.files == 0 && self.leaves == 0 {
                return;
            }
            if (depth as f64) < limit {
                self.add_directory(here, number, depth + 1);
            } else if self.files > 0 {
                self.files -= 1;
                let size = self.draw_size();
                self.layout.files.push(LayoutEntry {
                    dir: here,
                    number,
                    size,
                });
            } else {
                self.leaves -= 1;
                self.layout.leaves.push(LayoutEntry {
                    dir: here,
                    number,
                    size: 0,
                });
            }
        }
    }

    fn draw_size(&mut self) -> u64 {
        let size = match self.set.size {
            FixedOrDrawn::Fixed(size) => size as f64,
            FixedOrDrawn::Drawn(which) => self.randoms[which].draw(&mut self.sizes),
        };
        (size * self.set.size_scale) as u64
    }
}

#[cfg(test)]
mod tests;
