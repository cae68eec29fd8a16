//! Holds the state that the threads of a run share.
//!
//! # Guarantees
//! 1. A thread's figures are written by this thread alone.
//! 2. The threads of one process (in the script's sense) lie side by side.

use super::aio::WriteQueue;
use super::descriptors::{DescriptorUse, SharedDescriptors};
use super::fileset::FilesetState;
use super::plan::{FlowopId, PlannedProcess, PlannedThread, WorkloadPlan};
use super::quota::OperationQuota;
use super::random::RandomStream;
use super::stats::{FlowopTally, LatencyFigures, ThreadTotals};
use super::waiting::{EventSource, Gate, Semaphore, StopFlag};
use crate::numbers::mix_bits;
use crate::wml::FlowopKind;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::ops::Range;
use teal_env::Timer;

/// Holds a point where threads meet: an instance of `block` or of `semblock`.
#[derive(Debug)]
pub(super) enum MeetingPoint {
    Gate(Gate),
    Semaphore(Semaphore),
}

/// Holds the state of one thread that others may read.
#[derive(Debug)]
pub(super) struct ThreadState {
    /// Which process and which thread of the plan.
    pub(super) process: usize,
    pub(super) thread: usize,
    /// Number of the process instance, of all there are.
    pub(super) instance: usize,
    /// Figures of each flowop.
    pub(super) tallies: Vec<FlowopTally>,
    pub(super) meetings: Vec<Option<MeetingPoint>>,
    pub(super) totals: ThreadTotals,
}

/// Computes mean and spread of a random variable's values.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct DrawStatistics {
    count: u64,
    sum: f64,
    squares: f64,
}

impl DrawStatistics {
    pub(super) fn add_draw(&mut self, drawn: f64) {
        self.count += 1;
        self.sum += drawn;
        self.squares += drawn * drawn;
    }

    /// Returns the mean, and the standard deviation as a part of it.
    pub(super) fn mean_and_spread(&self) -> (f64, f64) {
        let mean = self.sum / (self.count as f64).max(1.0);
        // Rounding can make a variance negative.
        let variance = (self.squares / (self.count as f64).max(1.0) - mean * mean).max(0.0);
        (
            mean,
            if mean > 0.0 {
                variance.sqrt() / mean
            } else {
                0.0
            },
        )
    }
}

/// Holds everything that threads share.
pub(super) struct RunState<'a, T> {
    pub(super) plan: &'a WorkloadPlan,
    pub(super) clock: &'a T,
    pub(super) sets: Vec<FilesetState>,
    pub(super) stop: StopFlag,
    /// Number of operations that the run may still do, if it is limited.
    quota: Option<OperationQuota>,
    pub(super) events: EventSource,
    pub(super) queue: WriteQueue,
    /// Descriptors that threads share, if there are too few for all.
    pub(super) descriptors: Option<SharedDescriptors>,
    pub(super) threads: Vec<ThreadState>,
    /// Guards the stream of Filebench's offsets, which is the same in each process.
    pub(super) offsets: Vec<Mutex<RandomStream>>,
    /// Range of the threads of each process.
    processes: Vec<Range<usize>>,
    /// Places of the instances of each kind of thread, by process and thread of the plan.
    kinds: Vec<Vec<Vec<usize>>>,
    /// Guards the values that `testrandvar` has drawn.
    pub(super) tested: Mutex<BTreeMap<String, DrawStatistics>>,
    pub(super) say: &'a (dyn Fn(&str) + Sync),
}

impl ThreadState {
    /// Returns a thread that has done nothing yet.
    fn new(process: usize, thread: usize, instance: usize, planned: &PlannedThread) -> Self {
        // Everything is made before the start, so that no thread allocates during the run.
        let mut tallies = Vec::new();
        let mut meetings = Vec::new();
        for op in &planned.ops {
            tallies.push(FlowopTally::new());
            meetings.push(match op.kind {
                FlowopKind::Block => Some(MeetingPoint::Gate(Gate::default())),
                FlowopKind::SemBlock => Some(MeetingPoint::Semaphore(Semaphore::new(op.highwater))),
                _ => None,
            });
        }
        Self {
            process,
            thread,
            instance,
            tallies,
            meetings,
            totals: ThreadTotals::default(),
        }
    }
}

/// Holds the threads of a run, and where they are found.
#[derive(Default)]
struct ThreadTable {
    threads: Vec<ThreadState>,
    /// Range of the threads of each process.
    processes: Vec<Range<usize>>,
    /// Places of the instances of each kind of thread, by process and thread of the plan.
    kinds: Vec<Vec<Vec<usize>>>,
}

impl ThreadTable {
    fn from_plan(plan: &WorkloadPlan) -> Self {
        // Kinds are known before their instances are numbered.
        let mut table = Self::default();
        for (p, process) in plan.processes.iter().enumerate() {
            table.kinds.push(vec![Vec::new(); process.threads.len()]);
            for _ in 0..process.instances {
                table.add_process(p, process);
            }
        }
        table
    }

    /// Adds an instance of a process. Its threads are consecutive, so that a range finds them.
    fn add_process(&mut self, at: usize, process: &PlannedProcess) {
        // The instance is counted over all processes: it names the range of its threads.
        let first = self.threads.len();
        let instance = self.processes.len();
        for (t, thread) in process.threads.iter().enumerate() {
            for _ in 0..thread.instances {
                self.kinds[at][t].push(self.threads.len());
                self.threads.push(ThreadState::new(at, t, instance, thread));
            }
        }
        self.processes.push(first..self.threads.len());
    }
}

impl<'a, T: Timer> RunState<'a, T> {
    pub(super) fn new(
        plan: &'a WorkloadPlan,
        clock: &'a T,
        sets: Vec<FilesetState>,
        descriptors: DescriptorUse,
        say: &'a (dyn Fn(&str) + Sync),
    ) -> Self {
        // The table is taken apart: threads are many, and are found by plain indices.
        let ThreadTable {
            threads,
            processes,
            kinds,
        } = ThreadTable::from_plan(plan);
        // Each process draws the same offsets, as forked processes do in Filebench.
        let mut offsets = Vec::new();
        for _ in &processes {
            let stream = RandomStream::new(mix_bits(plan.options.seed), 0x7361_6d65);
            offsets.push(Mutex::new(stream));
        }
        Self {
            plan,
            clock,
            sets,
            stop: StopFlag::default(),
            quota: plan.options.operations.map(OperationQuota::new),
            events: EventSource::new(clock.monotonic_time().as_nanos() as u64),
            queue: WriteQueue::new(),
            descriptors: (descriptors == DescriptorUse::Shared).then(SharedDescriptors::default),
            threads,
            offsets,
            processes,
            kinds,
            tested: Mutex::default(),
            say,
        }
    }

    /// Returns monotonic time in nanoseconds.
    pub(super) fn now_nanos(&self) -> u64 {
        let now = self.clock.monotonic_time();
        now.as_secs() * 1_000_000_000 + u64::from(now.subsec_nanos())
    }

    /// Returns whether one more operation counts; the first that does not ends the run.
    pub(super) fn take_quota(&self) -> bool {
        let counts = self.quota.as_ref().is_none_or(OperationQuota::take_one);
        // No thread gets an operation after this one.
        if !counts {
            self.stop.set();
        }
        counts
    }

    /// Notes that an operation that counts is in the figures.
    pub(super) fn note_recorded(&self) {
        if let Some(quota) = &self.quota {
            quota.note_recorded();
        }
    }

    /// Returns whether all operations of a limited run were done and are in the figures.
    pub(super) fn is_done(&self) -> bool {
        self.quota.as_ref().is_some_and(OperationQuota::is_met)
    }

    /// Returns the threads of the same process.
    pub(super) fn process_of(&self, thread: &ThreadState) -> &[ThreadState] {
        &self.threads[self.processes[thread.instance].clone()]
    }

    /// Returns all threads that run this flowop.
    pub(super) fn threads_running(&self, id: FlowopId) -> impl Iterator<Item = &ThreadState> {
        self.kinds[id.process][id.thread]
            .iter()
            .map(|at| &self.threads[*at])
    }

    /// Returns all meeting points of these flowops.
    pub(super) fn meeting_points<'b>(
        &'b self,
        ids: &'b [FlowopId],
    ) -> impl Iterator<Item = &'b MeetingPoint> {
        ids.iter().flat_map(|id| {
            self.threads_running(*id)
                .filter_map(|thread| thread.meetings[id.op].as_ref())
        })
    }

    /// Ends the run and wakes all waiting threads.
    pub(super) fn end_run(&self) {
        // The flag comes first: a woken thread looks at it, and would wait again otherwise.
        self.stop.set();
        for meeting in self
            .threads
            .iter()
            .flat_map(|thread| thread.meetings.iter().flatten())
        {
            match meeting {
                MeetingPoint::Gate(gate) => gate.open(),
                MeetingPoint::Semaphore(semaphore) => semaphore.wake_all(),
            }
        }
    }

    /// Returns the figures of each name, in the order of definition.
    pub(super) fn figures_by_name(&self) -> Vec<(String, FlowopKind, LatencyFigures)> {
        let mut lines: Vec<(String, FlowopKind, LatencyFigures)> = Vec::new();
        for (p, process) in self.plan.processes.iter().enumerate() {
            for (t, thread) in process.threads.iter().enumerate() {
                for (o, op) in thread.ops.iter().enumerate() {
                    // Instances of one flowop share a line, and so do flowops of one name and kind.
                    let at = lines
                        .iter()
                        .position(|(name, kind, _)| *name == op.name && *kind == op.kind);
                    let at = at.unwrap_or_else(|| {
                        lines.push((op.name.clone(), op.kind, LatencyFigures::default()));
                        lines.len() - 1
                    });
                    let instances = self.kinds[p][t]
                        .iter()
                        .map(|at| &self.threads[*at].tallies[o]);
                    instances.for_each(|tally| lines[at].2.add_tally(tally));
                }
            }
        }
        lines
    }

    /// Returns operations, reads, writes, bytes and nanoseconds of everything that counts so far.
    /// This is cheap enough for each second.
    pub(super) fn sum_figures(&self) -> [u64; 5] {
        let mut sums = [0; 5];
        // Only I/O is counted, as in the summary.
        for state in &self.threads {
            let ops = &self.plan.processes[state.process].threads[state.thread].ops;
            for (op, tally) in ops
                .iter()
                .zip(&state.tallies)
                .filter(|(op, _)| op.kind.is_io())
            {
                let count = tally.count();
                sums[0] += count;
                sums[1] += if op.kind.is_read() { count } else { 0 };
                sums[2] += if op.kind.is_write() { count } else { 0 };
                sums[3] += tally.bytes();
                sums[4] += tally.nanos();
            }
        }
        sums
    }
}
