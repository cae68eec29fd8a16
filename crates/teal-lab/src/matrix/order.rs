//! Cells, and the order in which a block runs them.

use super::file::Matrix;

/// One combination, by the places of its parts in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cell {
    /// Of the workload.
    pub workload: usize,
    /// Of the file system.
    pub system: usize,
    /// Of the scheduler.
    pub scheduler: usize,
}

/// Numbers that look drawn, always the same ones (splitmix64).
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

impl Matrix {
    /// All cells, in the order of the file.
    pub fn cells(&self) -> Vec<Cell> {
        let mut cells = Vec::new();
        for workload in 0..self.workloads.len() {
            for system in 0..self.systems.len() {
                let schedulers = 0..self.schedulers.names.len();
                cells.extend(schedulers.map(|scheduler| Cell { workload, system, scheduler }));
            }
        }
        cells
    }

    /// The cells in the order in which this block runs them. (Fisher and Yates)
    pub fn block(&self, block: u32) -> Vec<Cell> {
        let mut cells = self.cells();
        let mut state = self.runs.seed ^ u64::from(block).wrapping_mul(0xd6e8_feb8_6659_fd93);
        for last in (1..cells.len()).rev() {
            let at = next(&mut state) % (last as u64 + 1);
            cells.swap(last, at as usize);
        }
        cells
    }

    /// What the workload draws from in this block: the same for all its cells.
    pub fn seed(&self, block: u32) -> u64 {
        self.runs.seed.wrapping_add(u64::from(block))
    }

    /// A cell's parts by name: workload, system, scheduler.
    pub fn names(&self, cell: Cell) -> [&str; 3] {
        [&self.workloads[cell.workload].name, &self.systems[cell.system].name, &self.schedulers.names[cell.scheduler]]
    }
}
