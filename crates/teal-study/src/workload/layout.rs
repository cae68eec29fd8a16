//! The tree of a fileset: which directories there are, and which files lie where. Pure.
//!
//! # Guarantees
//! 1. The same fileset and seed give the same tree, sizes included.
//! 2. There are exactly as many files and empty leaf directories as were asked for; none lies in
//!    the root.

use super::plan::Fileset;
use super::random::{FixedOrDrawn, RandomStream, RandomVariable};

/// A directory: its parent (0 is the root) and its number within it, from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LayoutDir {
    pub(super) parent: u32,
    pub(super) number: u32,
}

/// A file, or an empty leaf directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LayoutEntry {
    pub(super) dir: u32,
    pub(super) number: u32,
    pub(super) size: u64,
}

/// What a fileset consists of.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct TreeLayout {
    /// Directories, parents before children; the first is the root.
    pub(super) dirs: Vec<LayoutDir>,
    pub(super) files: Vec<LayoutEntry>,
    pub(super) leaves: Vec<LayoutEntry>,
}

impl TreeLayout {
    /// Bytes of all files.
    pub(super) fn total_bytes(&self) -> u64 {
        self.files
            .iter()
            .map(|file| file.size)
            .fold(0, u64::saturating_add)
    }

    /// How deep a file lies on average: 1 is in a directory of the root.
    pub(super) fn mean_depth(&self) -> f64 {
        let mut depths = vec![0_u32; self.dirs.len()];
        for (at, dir) in self.dirs.iter().enumerate().skip(1) {
            depths[at] = depths[dir.parent as usize] + 1;
        }
        let sum: f64 = self
            .files
            .iter()
            .map(|file| f64::from(depths[file.dir as usize]))
            .sum();
        sum / (self.files.len() as f64).max(1.0)
    }
}

/// No tree is deeper.
const DEPTH_MAX: usize = 64;

struct LayoutBuilder<'a> {
    set: &'a Fileset,
    randoms: &'a [RandomVariable],
    draws: RandomStream,
    sizes: RandomStream,
    depth: f64,
    /// Files and leaves that are still to be placed.
    files: u64,
    leaves: u64,
    layout: TreeLayout,
}

/// The mean of the depths that are drawn: what Filebench calls a set's average depth. Directories
/// that come out deep hold more, so files lie deeper.
pub(super) fn mean_drawn_depth(set: &Fileset, randoms: &[RandomVariable]) -> f64 {
    let all = (set.entries + set.leafdirs) as f64;
    let width = match set.dirwidth {
        FixedOrDrawn::Fixed(width) => width as f64,
        FixedOrDrawn::Drawn(which) => randoms[which].mean.unwrap_or(1.0),
    };
    // A width of 1 would have no end.
    if width > 1.0 {
        all.max(1.0).ln() / width.ln()
    } else {
        DEPTH_MAX as f64
    }
}

/// Lays the fileset out; random variables draw from `seed`.
pub(super) fn lay_out(set: &Fileset, randoms: &[RandomVariable], seed: u64) -> TreeLayout {
    let depth = mean_drawn_depth(set, randoms);
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
    while builder.files > 0 {
        children += 1;
        builder.add_directory(0, children, 2);
    }
    builder.leaves = set.leafdirs;
    while builder.leaves > 0 {
        children += 1;
        builder.add_directory(0, children, 2);
    }
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

    /// A directory at this depth (the root is 1), with what lies in it.
    fn add_directory(&mut self, parent: u32, number: u32, depth: usize) {
        let here = u32::try_from(self.layout.dirs.len()).unwrap_or(u32::MAX);
        self.layout.dirs.push(LayoutDir { parent, number });
        let (limit, width) = (self.draw_depth_limit(), self.draw_width());
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
