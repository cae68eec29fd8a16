//! Holds the figures of a run: of each second, of each flowop, and of all together.

use crate::wml::FlowopKind;
use crate::workload::stats::LatencyFigures;

/// Holds the work of one second of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SecondFigures {
    /// End of the second, in nanoseconds from the start.
    pub at: u64,
    /// Number of operations.
    pub operations: u64,
    /// Number of reads among them.
    pub reads: u64,
    /// Number of writes among them.
    pub writes: u64,
    /// Bytes that they moved.
    pub bytes: u64,
    /// Sum of their latencies, in nanoseconds.
    pub nanos: u64,
}

/// Holds one flowop's figures.
#[derive(Debug, Clone)]
pub struct FlowopFigures {
    /// Name of the flowop; `instance.inner` of a composite one.
    pub name: String,
    /// Kind of the flowop.
    pub kind: FlowopKind,
    /// Figures of the flowop.
    pub figures: LatencyFigures,
}

/// Holds the figures of a run.
#[derive(Debug, Clone)]
pub struct RunOutcome {
    /// Length in nanoseconds; of figures on the way that begin anew, the time since they did.
    pub nanos: u64,
    /// Nanoseconds since the run began.
    pub at: u64,
    /// Figures of each flowop, in the order of definition.
    pub lines: Vec<FlowopFigures>,
    /// Figures of each second.
    pub seconds: Vec<SecondFigures>,
    /// Reason of the end, for people.
    pub ended: String,
    /// Is true when it was interrupted: it has done less than was asked for.
    pub was_interrupted: bool,
    /// Number of threads.
    pub threads: u64,
}

impl RunOutcome {
    /// Sums up all operations that count.
    pub fn summary(&self) -> RunSummary {
        RunSummary::from_flowops(&self.lines)
    }
}

/// Sums up the figures of all flowops that count: I/O.
#[derive(Debug, Clone, Default)]
pub struct RunSummary {
    /// Number of reads.
    pub reads: u64,
    /// Number of writes.
    pub writes: u64,
    /// Figures of all operations.
    pub all: LatencyFigures,
}

impl RunSummary {
    fn from_flowops(lines: &[FlowopFigures]) -> Self {
        let mut summary = Self::default();
        // Only I/O counts in the summary.
        for line in lines.iter().filter(|line| line.kind.is_io()) {
            summary.all.merge(&line.figures);
            summary.reads += if line.kind.is_read() {
                line.figures.count
            } else {
                0
            };
            summary.writes += if line.kind.is_write() {
                line.figures.count
            } else {
                0
            };
        }
        summary
    }
}
