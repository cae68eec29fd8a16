//! Runs one thread of a run: its flowops, top to bottom, again and again.
//!
//! # Guarantees
//! 1. Between two operations it looks at one flag. It takes a lock only where the language makes
//!    threads meet: filesets, semaphores, events.
//! 2. Latencies cover system calls and waiting, not picks or the making of content.
//! 3. An operation that is on its way when the run ends is not counted.

mod control;
mod data;
mod names;

use super::aio::OutstandingWrites;
use super::content::TransferMemory;
use super::descriptors;
use super::error::RunError;
use super::plan::{PlannedFlowop, PlannedThread, ProgramNode, SLOTS};
use super::random::{RandomStream, ThreadDraws};
use super::shared::{RunState, ThreadState};
use crate::numbers::mix_bits;
use crate::wml::FlowopKind;
use rustix::fd::OwnedFd;
use std::sync::Arc;
use teal_env::Timer;

/// Says why a thread leaves its loop.
#[derive(Debug)]
pub(super) enum LeaveReason {
    /// The run is over.
    Stopped,
    /// Nothing is left to do: by an end rule, or for want of files.
    Done(String),
    /// An operation failed.
    Failed(RunError),
}

pub(super) type FlowopResult<T = ()> = Result<T, LeaveReason>;

/// Names a file of a set.
#[derive(Debug, Clone, Copy)]
struct NamedFile {
    set: usize,
    index: usize,
    size: u64,
}

/// Holds an open file.
#[derive(Debug, Clone)]
struct OpenSlot {
    descriptor: Arc<OwnedFd>,
    file: NamedFile,
}

/// Holds a thread's state.
pub(super) struct FlowopRunner<'a, T> {
    shared: &'a RunState<'a, T>,
    state: &'a ThreadState,
    thread: &'a PlannedThread,
    draws: ThreadDraws<'a>,
    offsets: RandomStream,
    slots: Vec<Option<OpenSlot>>,
    /// File that was opened last into each slot. A slot keeps its file's name when it is closed,
    /// until the file is deleted by the slot.
    named: Vec<Option<NamedFile>>,
    /// Next slot of `opennext`, which go downwards.
    next_slot: usize,
    /// Rotor of `opennext` in each fileset.
    rotors: Vec<usize>,
    /// Working set and value of each flowop, drawn once.
    constants: Vec<(u64, u64)>,
    /// Operations that a limit has seen, by flowop.
    seen: Vec<Option<u64>>,
    memory: TransferMemory,
    /// Is true when the thread can use descriptors of other threads.
    shares: bool,
    /// Bytes of the thread's memory; 0 means that each flowop has its own.
    memsize: usize,
    seed: u64,
    path: Vec<u8>,
    aio: Arc<OutstandingWrites>,
    /// Number of background writes that were not waited for.
    in_flight: u64,
}

impl<'a, T: Timer> FlowopRunner<'a, T> {
    pub(super) fn new(shared: &'a RunState<'a, T>, number: usize) -> Self {
        // The thread of the plan is found by the place of its state.
        let me = &shared.threads[number];
        let thread = &shared.plan.processes[me.process].threads[me.thread];
        let options = &shared.plan.options;
        // Different threads write different content and draw different numbers.
        let seed = mix_bits(options.seed ^ mix_bits(number as u64 + 1));
        let mut draws = ThreadDraws::new(&shared.plan.randoms, options.seed, number as u64);
        // Drawn once, as in Filebench.
        let constants = thread
            .ops
            .iter()
            .map(|op| (draws.draw_whole(op.workingset), draws.draw_whole(op.value)))
            .collect();
        let memsize = draws.draw_whole(thread.memsize) as usize;
        // Everything that would allocate is allocated here, before the start.
        Self {
            shared,
            state: me,
            thread,
            draws,
            offsets: RandomStream::new(seed, 0x6f66_6673),
            slots: vec![None; SLOTS],
            named: vec![None; SLOTS],
            next_slot: SLOTS,
            rotors: vec![0; shared.sets.len()],
            constants,
            seen: vec![None; thread.ops.len()],
            shares: descriptors::can_share(thread),
            memory: TransferMemory::new(memsize, seed, options.strict),
            memsize,
            seed,
            path: Vec::new(),
            aio: Arc::default(),
            in_flight: 0,
        }
    }

    /// Runs until there is a reason to leave.
    pub(super) fn run(&mut self) -> LeaveReason {
        let program = &self.thread.program;
        loop {
            if self.shared.stop.is_set() {
                return LeaveReason::Stopped;
            }
            if let Err(leave) = self.run_nodes(program) {
                return leave;
            }
        }
    }

    fn run_nodes(&mut self, nodes: &'a [ProgramNode]) -> FlowopResult {
        // Composites are nested programs.
        for node in nodes {
            match node {
                ProgramNode::Op(at) => {
                    let op = &self.thread.ops[*at];
                    // The number of iterations is drawn anew each time.
                    for _ in 0..self.draws.draw_whole(op.iters) {
                        if self.shared.stop.is_set() {
                            return Err(LeaveReason::Stopped);
                        }
                        self.run_flowop(*at, op)?;
                    }
                }
                ProgramNode::Group(iters, body) => {
                    for _ in 0..self.draws.draw_whole(*iters) {
                        if self.shared.stop.is_set() {
                            return Err(LeaveReason::Stopped);
                        }
                        self.run_nodes(body)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn run_flowop(&mut self, at: usize, op: &'a PlannedFlowop) -> FlowopResult {
        // One arm for each flowop, in the order of the language's table.
        match op.kind {
            FlowopKind::OpenFile => self.open_file(at, op),
            FlowopKind::CreateFile => self.create_file(at, op),
            FlowopKind::CloseFile => self.close_file(at, op),
            FlowopKind::DeleteFile => self.delete_file(at, op),
            FlowopKind::StatFile => self.stat_file(at, op),
            FlowopKind::Read => self.read(at, op),
            FlowopKind::Write => self.write(at, op),
            FlowopKind::ReadWholeFile => self.read_whole(at, op),
            FlowopKind::WriteWholeFile => self.write_whole(at, op),
            FlowopKind::AppendFile | FlowopKind::AppendFileRand => self.append(at, op),
            FlowopKind::Fsync => self.fsync(at, op),
            FlowopKind::FsyncSet => self.fsync_set(at, op),
            FlowopKind::MakeDir => self.make_dir(at, op),
            FlowopKind::RemoveDir => self.remove_dir(at, op),
            FlowopKind::ListDir => self.list_dir(at, op),
            FlowopKind::AioWrite => self.aio_write(at, op),
            FlowopKind::AioWait => self.aio_wait(at, op),
            FlowopKind::Block => self.block(at, op),
            FlowopKind::Wakeup => self.wake_up(at, op),
            FlowopKind::SemBlock => self.sem_block(at, op),
            FlowopKind::SemPost => self.sem_post(at, op),
            FlowopKind::EventLimit => self.event_limit(at),
            FlowopKind::IopsLimit | FlowopKind::OpsLimit | FlowopKind::BwLimit => {
                self.apply_limit(at, op)
            }
            FlowopKind::FinishOnCount | FlowopKind::FinishOnBytes => self.finish_on(at, op),
            FlowopKind::Hog => self.hog(at, op),
            FlowopKind::Delay => self.delay(at, op),
            FlowopKind::Print => self.print(at, op),
            FlowopKind::TestRandVar => self.test_random(at, op),
        }
    }

    fn now(&self) -> u64 {
        self.shared.now_nanos()
    }

    /// Counts an operation that began at `began`.
    fn record_operation(&self, at: usize, began: u64, bytes: u64) {
        // After the end the figures are being read.
        if self.shared.stop.is_set() {
            return;
        }
        let kind = self.thread.ops[at].kind;
        // Control flowops do not use up the quota of a limited run.
        if kind.is_io() && !self.shared.take_quota() {
            return;
        }
        self.state.tallies[at].record(self.now().saturating_sub(began), bytes);
        if kind.is_io() {
            self.state
                .totals
                .record(kind.is_read() || kind.is_write(), bytes);
            // Recorded before it is counted as such: the quota is met only when the figures are
            // complete.
            self.shared.note_recorded();
        }
    }

    fn io_failure(
        &self,
        op: &PlannedFlowop,
        what: &str,
        error: impl Into<std::io::Error>,
    ) -> LeaveReason {
        LeaveReason::Failed(RunError::from_io(
            format!("flowop '{}': {what}", op.name),
            error,
        ))
    }

    fn usage_failure(&self, op: &PlannedFlowop, why: &str) -> LeaveReason {
        LeaveReason::Failed(RunError::Failed(format!("flowop '{}': {why}", op.name)))
    }

    /// Handles errors of calls with results that Filebench ignores.
    fn unless_strict(
        &self,
        op: &PlannedFlowop,
        what: &str,
        result: rustix::io::Result<()>,
    ) -> FlowopResult {
        match result {
            Err(error) if !self.shared.plan.options.strict => Err(self.io_failure(op, what, error)),
            _ => Ok(()),
        }
    }
}
