//! What the threads of a run have together.
//!
//! # Guarantees
//! 1. A thread's figures are written by it alone.
//! 2. The threads of one process (in the script's sense) lie side by side.

use super::aio::WriteQueue;
use super::fileset::FilesetState;
use super::plan::{FlowopId, WorkloadPlan};
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

/// Where threads meet: an instance of `block` or of `semblock`.
#[derive(Debug)]
pub(super) enum MeetingPoint {
    Gate(Gate),
    Semaphore(Semaphore),
}

/// What is known of one thread.
#[derive(Debug)]
pub(super) struct ThreadState {
    /// Which process and which thread of the plan.
    pub(super) process: usize,
    pub(super) thread: usize,
    /// Which instance of a process, of all there are.
    pub(super) instance: usize,
    /// By flowop.
    pub(super) tallies: Vec<FlowopTally>,
    pub(super) meetings: Vec<Option<MeetingPoint>>,
    pub(super) totals: ThreadTotals,
}

/// Mean and spread of what a random variable has given.
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

    /// Mean, and standard deviation as a part of it.
    pub(super) fn mean_and_spread(&self) -> (f64, f64) {
        let mean = self.sum / (self.count as f64).max(1.0);
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

/// All of it.
pub(super) struct RunState<'a, T> {
    pub(super) plan: &'a WorkloadPlan,
    pub(super) clock: &'a T,
    pub(super) sets: Vec<FilesetState>,
    pub(super) stop: StopFlag,
    /// If a run is to have so many operations.
    quota: Option<OperationQuota>,
    pub(super) events: EventSource,
    pub(super) queue: WriteQueue,
    pub(super) threads: Vec<ThreadState>,
    /// Filebench's offsets, by process: each the same. Guards the stream.
    pub(super) offsets: Vec<Mutex<RandomStream>>,
    /// Where the threads of each process are.
    processes: Vec<Range<usize>>,
    /// Where instances of each kind of thread are: by process and thread of the plan.
    kinds: Vec<Vec<Vec<usize>>>,
    /// Guards what `testrandvar` has seen.
    pub(super) tested: Mutex<BTreeMap<String, DrawStatistics>>,
    pub(super) say: &'a (dyn Fn(&str) + Sync),
}

impl<'a, T: Timer> RunState<'a, T> {
    pub(super) fn new(
        plan: &'a WorkloadPlan,
        clock: &'a T,
        sets: Vec<FilesetState>,
        say: &'a (dyn Fn(&str) + Sync),
    ) -> Self {
        let (mut threads, mut processes) = (Vec::new(), Vec::new());
        let mut kinds: Vec<Vec<Vec<usize>>> = plan
            .processes
            .iter()
            .map(|p| vec![Vec::new(); p.threads.len()])
            .collect();
        for (p, process) in plan.processes.iter().enumerate() {
            for _ in 0..process.instances {
                let first = threads.len();
                for (t, thread) in process.threads.iter().enumerate() {
                    for _ in 0..thread.instances {
                        kinds[p][t].push(threads.len());
                        threads.push(ThreadState {
                            process: p,
                            thread: t,
                            instance: processes.len(),
                            tallies: thread.ops.iter().map(|_| FlowopTally::new()).collect(),
                            meetings: thread
                                .ops
                                .iter()
                                .map(|op| match op.kind {
                                    FlowopKind::Block => Some(MeetingPoint::Gate(Gate::default())),
                                    FlowopKind::SemBlock => {
                                        Some(MeetingPoint::Semaphore(Semaphore::new(op.highwater)))
                                    }
                                    _ => None,
                                })
                                .collect(),
                            totals: ThreadTotals::default(),
                        });
                    }
                }
                processes.push(first..threads.len());
            }
        }
        let same = || Mutex::new(RandomStream::new(mix_bits(plan.options.seed), 0x7361_6d65));
        Self {
            plan,
            clock,
            sets,
            stop: StopFlag::default(),
            quota: plan.options.operations.map(OperationQuota::new),
            events: EventSource::new(clock.monotonic_time().as_nanos() as u64),
            queue: WriteQueue::new(),
            threads,
            offsets: processes.iter().map(|_| same()).collect(),
            processes,
            kinds,
            tested: Mutex::default(),
            say,
        }
    }

    /// Monotonic time in nanoseconds.
    pub(super) fn now_nanos(&self) -> u64 {
        let now = self.clock.monotonic_time();
        now.as_secs() * 1_000_000_000 + u64::from(now.subsec_nanos())
    }

    /// Returns whether one operation more counts; the first that does not ends the run.
    pub(super) fn take_quota(&self) -> bool {
        let counts = self.quota.as_ref().is_none_or(OperationQuota::take_one);
        if !counts {
            self.stop.set();
        }
        counts
    }

    /// An operation that counts is in the figures.
    pub(super) fn note_recorded(&self) {
        if let Some(quota) = &self.quota {
            quota.note_recorded();
        }
    }

    /// Returns whether as many operations as a run is to have were done and are in the figures.
    pub(super) fn is_done(&self) -> bool {
        self.quota.as_ref().is_some_and(OperationQuota::is_met)
    }

    /// The threads of the same process.
    pub(super) fn process_of(&self, thread: &ThreadState) -> &[ThreadState] {
        &self.threads[self.processes[thread.instance].clone()]
    }

    /// All threads that run this flowop.
    pub(super) fn threads_running(&self, id: FlowopId) -> impl Iterator<Item = &ThreadState> {
        self.kinds[id.process][id.thread]
            .iter()
            .map(|at| &self.threads[*at])
    }

    /// All instances of these flowops where threads meet.
    pub(super) fn meeting_points<'b>(
        &'b self,
        ids: &'b [FlowopId],
    ) -> impl Iterator<Item = &'b MeetingPoint> {
        ids.iter().flat_map(|id| {
            self.threads_running(*id)
                .filter_map(|thread| thread.meetings[id.op].as_ref())
        })
    }

    /// Ends the run and wakes whoever waits.
    pub(super) fn end_run(&self) {
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

    /// The figures of each name, in the order of definition.
    pub(super) fn figures_by_name(&self) -> Vec<(String, FlowopKind, LatencyFigures)> {
        let mut lines: Vec<(String, FlowopKind, LatencyFigures)> = Vec::new();
        for (p, process) in self.plan.processes.iter().enumerate() {
            for (t, thread) in process.threads.iter().enumerate() {
                for (o, op) in thread.ops.iter().enumerate() {
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

    /// Operations, reads, writes, bytes and nanoseconds of everything that counts, so far: cheap,
    /// for each second.
    pub(super) fn sum_figures(&self) -> [u64; 5] {
        let mut sums = [0; 5];
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
