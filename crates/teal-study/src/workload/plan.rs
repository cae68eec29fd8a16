//! Turns commands into a plan: resolves variables, writes composite flowops out, and checks
//! everything.
//!
//! # Guarantees
//! 1. Pure: nothing in the world changes before the whole script has been found sound.
//! 2. Everything that a plan refers to exists: filesets, targets, random variables.
//! 3. No fileset lies outside of the directory of the run.

mod attributes;
mod builder;
mod check;
mod files;
mod flowops;
mod randoms;
mod scaling;
mod threads;
mod values;

use super::random::{FixedOrDrawn, RandomVariable, ThreadDraws};
use crate::wml::{FlowopKind, QuitMode, SourcePosition};
pub use builder::plan_script;
pub(super) use flowops::SLOTS;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Says how a script is to be run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct WorkloadOptions {
    /// Absolute path of the directory of filesets.
    pub dir: PathBuf,
    /// Ends the run after this number of seconds, whatever the script says.
    pub seconds: Option<u64>,
    /// Ends the run after this number of operations, or when its time is over, whatever the script
    /// says.
    pub operations: Option<u64>,
    /// Factor on the number of files, or on their sizes where they are few.
    pub scale: f64,
    /// Seed of all random numbers.
    pub seed: u64,
    /// Variables that override the script's.
    pub set: Vec<(String, String)>,
    /// Is true when Filebench's known bugs are wanted too.
    pub strict: bool,
}

impl WorkloadOptions {
    /// Follows the script in everything, in this directory.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        let (seconds, operations) = (None, None);
        Self {
            dir: dir.into(),
            seconds,
            operations,
            scale: 1.0,
            seed: 1,
            set: Vec::new(),
            strict: false,
        }
    }
}

/// Names the way in which files are opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenAccess {
    /// For reading: `readonly`.
    Read,
    /// For writing: `writeonly`.
    Write,
    /// For both.
    Both,
}

/// Says how the files of a set are made before a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Populating {
    /// One after the other.
    OneThread,
    /// By many threads at once.
    ManyThreads,
}

/// Says what becomes of the files of an earlier run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExistingFiles {
    /// They are removed first.
    Removed,
    /// Files of the right size are kept.
    Reused,
    /// They are not even looked at.
    Trusted,
}

/// Describes a set of files, as it is defined.
#[derive(Debug, Clone)]
pub struct Fileset {
    /// Position of the definition: file, line and column.
    pub place: String,
    /// Name of the set.
    pub name: String,
    /// Root directory: path and name.
    pub root: PathBuf,
    /// Number of files.
    pub entries: u64,
    /// Number of files that the script asks for, before scaling.
    pub entries_asked: u64,
    /// Sizes of the files.
    pub size: FixedOrDrawn,
    /// Factor on sizes: 1 except for scaled sets of few files.
    pub size_scale: f64,
    /// Mean number of files or directories in a directory.
    pub dirwidth: FixedOrDrawn,
    /// Random variable for depths, if one is given.
    pub dirdepth: Option<usize>,
    /// Shape of depths and widths, in thousandths; 0 means always the mean.
    pub dirgamma: u64,
    /// Number of empty leaf directories.
    pub leafdirs: u64,
    /// Percent of the files that exist from the beginning.
    pub prealloc: u64,
    /// Way in which the files are made: `paralloc`.
    pub populating: Populating,
    /// Fate of existing files: `reuse`, `trusttree`.
    pub existing: ExistingFiles,
    /// Way in which its files are opened.
    pub access: OpenAccess,
}

bitflags::bitflags! {
    /// Says how a flowop works, by the language's attributes that are true or false.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    pub struct FlowopFlags: u8 {
        /// Transfers at random offsets.
        const RANDOM = 1;
        /// Opens files so that each write waits for the device.
        const DSYNC = 1 << 1;
        /// Opens files so that transfers pass the page cache by.
        const DIRECTIO = 1 << 2;
        /// Takes the next slot each time, and the next file of the thread.
        const OPENNEXT = 1 << 3;
        /// Posts no further ahead than the target's high-water mark.
        const BLOCKING = 1 << 4;
        /// Advises the kernel against reading ahead.
        const NOREADAHEAD = 1 << 5;
    }
}

/// Describes a flowop of a thread, with everything it needs.
#[derive(Debug, Clone)]
#[allow(
    missing_docs,
    reason = "fields are the language's attributes; docs/wml.md has the table"
)]
pub struct PlannedFlowop {
    pub name: String,
    pub kind: FlowopKind,
    pub place: SourcePosition,
    pub iters: FixedOrDrawn,
    pub set: Option<usize>,
    pub fd: usize,
    pub srcfd: usize,
    pub iosize: FixedOrDrawn,
    pub workingset: FixedOrDrawn,
    pub flags: FlowopFlags,
    pub indexed: Option<FixedOrDrawn>,
    pub value: FixedOrDrawn,
    pub message: Option<String>,
    pub target: Option<String>,
    /// Flowops of the target's name.
    pub targets: Vec<FlowopId>,
    pub highwater: u64,
}

impl PlannedFlowop {
    /// Returns whether the script has set an attribute of the flowop.
    pub(super) fn has(&self, flag: FlowopFlags) -> bool {
        self.flags.contains(flag)
    }

    /// Returns whether the flowop works on a slot of its thread.
    pub(super) fn uses_slot(&self) -> bool {
        use FlowopKind::{AioWait, ListDir, MakeDir, RemoveDir};
        self.kind.is_io() && !matches!(self.kind, AioWait | ListDir | MakeDir | RemoveDir)
    }
}

/// Identifies a flowop by process, thread and flowop, as they are defined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "indices into the lists of these names")]
pub struct FlowopId {
    pub process: usize,
    pub thread: usize,
    pub op: usize,
}

/// Orders a thread's flowops.
#[derive(Debug, Clone)]
pub enum ProgramNode {
    /// Runs the flowop of this index.
    Op(usize),
    /// Runs a composite flowop: a number of times, the flowops in it.
    Group(FixedOrDrawn, Vec<ProgramNode>),
}

/// Describes a kind of thread.
#[derive(Debug, Clone)]
pub struct PlannedThread {
    /// Name of the thread.
    pub name: String,
    /// Number of such threads in each process.
    pub instances: u64,
    /// Bytes of memory that transfers use.
    pub memsize: FixedOrDrawn,
    /// I/O priority from 0 to 7; 8 leaves it alone.
    pub ioprio: u64,
    /// Flowops of the thread.
    pub ops: Vec<PlannedFlowop>,
    /// Order of the flowops.
    pub program: Vec<ProgramNode>,
}

/// Describes a kind of process.
#[derive(Debug, Clone)]
pub struct PlannedProcess {
    /// Name of the process.
    pub name: String,
    /// Number of such processes.
    pub instances: u64,
    /// Niceness of its threads.
    pub nice: u64,
    /// Kinds of threads in it.
    pub threads: Vec<PlannedThread>,
}

/// Names a step of a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunStep {
    /// Prints a line.
    Say(String),
    /// Waits for this number of seconds.
    Sleep(u64),
    /// Runs a command of the shell.
    System(String),
    /// Makes the filesets.
    Create,
    /// Runs the threads; no step follows it.
    Run,
}

/// Holds the whole plan.
#[derive(Debug, Clone)]
pub struct WorkloadPlan {
    /// Sets of files.
    pub filesets: Vec<Fileset>,
    /// Random variables.
    pub randoms: Vec<RandomVariable>,
    /// Processes.
    pub processes: Vec<PlannedProcess>,
    /// Steps, in their order.
    pub steps: Vec<RunStep>,
    /// Event that ends the run.
    pub quit: QuitMode,
    /// Seconds of the run, if time ends it.
    pub seconds: Option<u64>,
    /// Events in a second; `None` means that limits let everything pass.
    pub rate: Option<FixedOrDrawn>,
    /// Seconds between figures on the way. Negative ones begin anew each time; 0 means none.
    pub period: i64,
    /// Is true when histograms are printed.
    pub lathist: bool,
    /// Level of messages.
    pub debug: i64,
    /// Options of the run.
    pub options: WorkloadOptions,
    /// Remarks, such as on commands that were accepted although they have no effect.
    pub remarks: Vec<String>,
}

impl WorkloadPlan {
    /// Returns the number of all threads.
    pub fn thread_count(&self) -> u64 {
        let of = |process: &PlannedProcess| {
            // Products saturate: a script may ask for any number of instances.
            process
                .threads
                .iter()
                .map(|thread| thread.instances)
                .sum::<u64>()
        };
        self.processes
            .iter()
            .map(|process| process.instances.saturating_mul(of(process)))
            .sum()
    }

    /// Returns about the bytes of memory that the threads of a run hold for themselves: their
    /// buffers, and their figures.
    pub fn memory_bytes(&self) -> u64 {
        self.memory_by_kind()
            .into_iter()
            .map(|(_, bytes)| bytes)
            .fold(0, u64::saturating_add)
    }

    /// Returns these bytes for each kind of thread, by its name.
    pub(super) fn memory_by_kind(&self) -> Vec<(&str, u64)> {
        const FOR_ITSELF: u64 = 64 << 10;
        const FOR_A_FLOWOP: u64 = 5 << 10;
        let mut draws = ThreadDraws::new(&self.randoms, self.options.seed, 0);
        let mut of = |thread: &PlannedThread| match draws.draw_whole(thread.memsize) {
            // Without memory of the thread, each flowop has a buffer of its own.
            0 => thread
                .ops
                .iter()
                .map(|op| draws.draw_whole(op.iosize))
                .fold(0, u64::saturating_add),
            memory => memory,
        };
        let mut all = Vec::new();
        // Each kind of thread counts with all of its instances.
        for process in &self.processes {
            for thread in &process.threads {
                let each =
                    of(thread).saturating_add(FOR_ITSELF + FOR_A_FLOWOP * thread.ops.len() as u64);
                let many = process.instances.saturating_mul(thread.instances);
                all.push((thread.name.as_str(), each.saturating_mul(many)));
            }
        }
        all
    }
}

#[cfg(test)]
mod tests;
