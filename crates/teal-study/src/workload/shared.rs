//! What the threads of a run have together.
//!
//! # Guarantees
//! 1. A thread's figures are written by it alone.
//! 2. The threads of one process (in the script's sense) lie side by side.

use super::aio::Queue;
use super::fileset::Files;
use super::plan::{OpId, Plan};
use super::quota::Quota;
use super::random::Stream;
use super::stats::{Figures, Tally, Totals};
use super::waiting::{Events, Gate, Semaphore, Stop};
use crate::numbers::mix;
use crate::wml::Kind;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::ops::Range;
use teal_env::Timer;

/// Where threads meet: an instance of `block` or of `semblock`.
#[derive(Debug)]
pub(super) enum Meeting {
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
    pub(super) tallies: Vec<Tally>,
    pub(super) meetings: Vec<Option<Meeting>>,
    pub(super) totals: Totals,
}

/// Mean and spread of what a random variable has given.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Tested {
    count: u64,
    sum: f64,
    squares: f64,
}

impl Tested {
    pub(super) fn add(&mut self, drawn: f64) {
        self.count += 1;
        self.sum += drawn;
        self.squares += drawn * drawn;
    }

    /// Mean, and standard deviation as a part of it.
    pub(super) fn figures(&self) -> (f64, f64) {
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
pub(super) struct Shared<'a, T> {
    pub(super) plan: &'a Plan,
    pub(super) clock: &'a T,
    pub(super) sets: Vec<Files>,
    pub(super) stop: Stop,
    /// If a run is to have so many operations.
    quota: Option<Quota>,
    pub(super) events: Events,
    pub(super) queue: Queue,
    pub(super) threads: Vec<ThreadState>,
    /// Filebench's offsets, by process: each the same. Guards the stream.
    pub(super) offsets: Vec<Mutex<Stream>>,
    /// Where the threads of each process are.
    processes: Vec<Range<usize>>,
    /// Where instances of each kind of thread are: by process and thread of the plan.
    kinds: Vec<Vec<Vec<usize>>>,
    /// Guards what `testrandvar` has seen.
    pub(super) tested: Mutex<BTreeMap<String, Tested>>,
    pub(super) say: &'a (dyn Fn(&str) + Sync),
}

impl<'a, T: Timer> Shared<'a, T> {
    pub(super) fn new(
        plan: &'a Plan,
        clock: &'a T,
        sets: Vec<Files>,
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
                            tallies: thread.ops.iter().map(|_| Tally::new()).collect(),
                            meetings: thread
                                .ops
                                .iter()
                                .map(|op| match op.kind {
                                    Kind::Block => Some(Meeting::Gate(Gate::default())),
                                    Kind::SemBlock => {
                                        Some(Meeting::Semaphore(Semaphore::new(op.highwater)))
                                    }
                                    _ => None,
                                })
                                .collect(),
                            totals: Totals::default(),
                        });
                    }
                }
                processes.push(first..threads.len());
            }
        }
        let same = || Mutex::new(Stream::new(mix(plan.options.seed), 0x7361_6d65));
        Self {
            plan,
            clock,
            sets,
            stop: Stop::default(),
            quota: plan.options.operations.map(Quota::new),
            events: Events::new(clock.monotonic().as_nanos() as u64),
            queue: Queue::new(),
            threads,
            offsets: processes.iter().map(|_| same()).collect(),
            processes,
            kinds,
            tested: Mutex::default(),
            say,
        }
    }

    /// Monotonic time in nanoseconds.
    pub(super) fn now(&self) -> u64 {
        let now = self.clock.monotonic();
        now.as_secs() * 1_000_000_000 + u64::from(now.subsec_nanos())
    }

    /// Returns whether one operation more counts; the first that does not ends the run.
    pub(super) fn counts(&self) -> bool {
        let counts = self.quota.as_ref().is_none_or(Quota::take);
        if !counts {
            self.stop.set();
        }
        counts
    }

    /// An operation that counts is in the figures.
    pub(super) fn recorded(&self) {
        if let Some(quota) = &self.quota {
            quota.recorded();
        }
    }

    /// Returns whether as many operations as a run is to have were done and are in the figures.
    pub(super) fn is_done(&self) -> bool {
        self.quota.as_ref().is_some_and(Quota::is_met)
    }

    /// The threads of the same process.
    pub(super) fn process_of(&self, thread: &ThreadState) -> &[ThreadState] {
        &self.threads[self.processes[thread.instance].clone()]
    }

    /// All threads that run this flowop.
    pub(super) fn instances(&self, id: OpId) -> impl Iterator<Item = &ThreadState> {
        self.kinds[id.process][id.thread]
            .iter()
            .map(|at| &self.threads[*at])
    }

    /// All instances of these flowops where threads meet.
    pub(super) fn meetings<'b>(&'b self, ids: &'b [OpId]) -> impl Iterator<Item = &'b Meeting> {
        ids.iter().flat_map(|id| {
            self.instances(*id)
                .filter_map(|thread| thread.meetings[id.op].as_ref())
        })
    }

    /// Ends the run and wakes whoever waits.
    pub(super) fn end(&self) {
        self.stop.set();
        for meeting in self
            .threads
            .iter()
            .flat_map(|thread| thread.meetings.iter().flatten())
        {
            match meeting {
                Meeting::Gate(gate) => gate.open(),
                Meeting::Semaphore(semaphore) => semaphore.wake(),
            }
        }
    }

    /// The figures of each name, in the order of definition.
    pub(super) fn figures(&self) -> Vec<(String, Kind, Figures)> {
        let mut lines: Vec<(String, Kind, Figures)> = Vec::new();
        for (p, process) in self.plan.processes.iter().enumerate() {
            for (t, thread) in process.threads.iter().enumerate() {
                for (o, op) in thread.ops.iter().enumerate() {
                    let at = lines
                        .iter()
                        .position(|(name, kind, _)| *name == op.name && *kind == op.kind);
                    let at = at.unwrap_or_else(|| {
                        lines.push((op.name.clone(), op.kind, Figures::default()));
                        lines.len() - 1
                    });
                    let instances = self.kinds[p][t]
                        .iter()
                        .map(|at| &self.threads[*at].tallies[o]);
                    instances.for_each(|tally| lines[at].2.add(tally));
                }
            }
        }
        lines
    }

    /// Operations, reads, writes, bytes and nanoseconds of everything that counts, so far: cheap,
    /// for each second.
    pub(super) fn sums(&self) -> [u64; 5] {
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
