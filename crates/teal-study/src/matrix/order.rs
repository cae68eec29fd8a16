//! Lists cells, and orders them for a block.

use super::file::Matrix;
use crate::workload::RandomStream;

/// Names one combination, by the places of its parts in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MatrixCell {
    /// Place of the workload.
    pub workload: usize,
    /// Place of the file system.
    pub system: usize,
    /// Place of the scheduler.
    pub scheduler: usize,
}

impl Matrix {
    /// Returns all cells, in the order of the file.
    pub fn cells(&self) -> Vec<MatrixCell> {
        let mut cells = Vec::new();
        for workload in 0..self.workloads.len() {
            for system in 0..self.systems.len() {
                let schedulers = 0..self.schedulers.names.len();
                cells.extend(schedulers.map(|scheduler| MatrixCell {
                    workload,
                    system,
                    scheduler,
                }));
            }
        }
        debug_assert_eq!(
            cells.len(),
            self.workloads.len() * self.systems.len() * self.schedulers.names.len()
        );
        cells
    }

    /// Returns the cells in the order in which this block runs them. (Fisher and Yates)
    pub fn cells_in_block(&self, block: u32) -> Vec<MatrixCell> {
        let mut cells = self.cells();
        let mut drawn = RandomStream::new(self.runs.seed, block.into());
        for last in (1..cells.len()).rev() {
            cells.swap(last, drawn.next_below(last as u64 + 1) as usize);
        }
        cells
    }

    /// Returns the seed of workloads in this block: it is the same for all its cells.
    pub fn block_seed(&self, block: u32) -> u64 {
        self.runs.seed.wrapping_add(u64::from(block))
    }

    /// Returns the names of a cell's parts: workload, system, scheduler.
    pub fn cell_names(&self, cell: MatrixCell) -> [&str; 3] {
        [
            &self.workloads[cell.workload].name,
            &self.systems[cell.system].name,
            &self.schedulers.names[cell.scheduler],
        ]
    }
}
