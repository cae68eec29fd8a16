//! One thread of a run: its flowops, top to bottom, for ever.
//!
//! # Guarantees
//! 1. Between two operations it looks at one flag; it takes a lock only where the language makes
//!    threads meet: filesets, semaphores, events.
//! 2. Latencies cover system calls and waiting, not picks or the making of content.
//! 3. What is on its way when the run ends is not counted.

mod control;
mod data;
mod names;

use super::aio::Outstanding;
use super::content::Memory;
use super::error::RunError;
use super::plan::{Node, Op, SLOTS, Thread};
use super::random::{Draws, Stream};
use super::shared::{Shared, ThreadState};
use crate::numbers::mix;
use crate::wml::Kind;
use rustix::fd::OwnedFd;
use std::sync::Arc;
use teal_env::Timer;

/// Why a thread leaves its loop.
#[derive(Debug)]
pub(super) enum Leave {
    /// The run is over.
    Stopped,
    /// Nothing left to do: by an end rule, or for want of files.
    Done(String),
    /// It cannot go on.
    Failed(RunError),
}

pub(super) type Went<T = ()> = Result<T, Leave>;

/// An open file.
#[derive(Debug, Clone)]
struct Slot {
    file: Arc<OwnedFd>,
    set: usize,
    index: usize,
    size: u64,
}

/// A thread's state.
pub(super) struct Worker<'a, T> {
    shared: &'a Shared<'a, T>,
    me: &'a ThreadState,
    thread: &'a Thread,
    draws: Draws<'a>,
    offsets: Stream,
    slots: Vec<Option<Slot>>,
    /// Where slots of `opennext` go on, downwards.
    next_slot: usize,
    /// Turns of `opennext`, by fileset.
    rotors: Vec<usize>,
    /// By flowop: working set and value, drawn once.
    constants: Vec<(u64, u64)>,
    /// By flowop: what a limit has seen.
    seen: Vec<Option<u64>>,
    memory: Memory,
    /// The thread's memory; 0: each flowop has its own.
    memsize: usize,
    seed: u64,
    path: Vec<u8>,
    aio: Arc<Outstanding>,
    /// Writes that were asked for and not waited for.
    in_flight: u64,
}

impl<'a, T: Timer> Worker<'a, T> {
    pub(super) fn new(shared: &'a Shared<'a, T>, number: usize) -> Self {
        let me = &shared.threads[number];
        let thread = &shared.plan.processes[me.process].threads[me.thread];
        let options = &shared.plan.options;
        let seed = mix(options.seed ^ mix(number as u64 + 1));
        let mut draws = Draws::new(&shared.plan.randoms, options.seed, number as u64);
        let constants = thread
            .ops
            .iter()
            .map(|op| (draws.whole(op.workingset), draws.whole(op.value)))
            .collect();
        let memsize = draws.whole(thread.memsize) as usize;
        Self {
            shared,
            me,
            thread,
            draws,
            offsets: Stream::new(seed, 0x6f66_6673),
            slots: vec![None; SLOTS],
            next_slot: SLOTS,
            rotors: vec![0; shared.sets.len()],
            constants,
            seen: vec![None; thread.ops.len()],
            memory: Memory::new(memsize, seed, options.strict),
            memsize,
            seed,
            path: Vec::new(),
            aio: Arc::default(),
            in_flight: 0,
        }
    }

    /// Runs until there is a reason to leave.
    pub(super) fn run(&mut self) -> Leave {
        let program = &self.thread.program;
        loop {
            if self.shared.stop.is_set() {
                return Leave::Stopped;
            }
            if let Err(leave) = self.nodes(program) {
                return leave;
            }
        }
    }

    fn nodes(&mut self, nodes: &'a [Node]) -> Went {
        for node in nodes {
            match node {
                Node::Op(at) => {
                    let op = &self.thread.ops[*at];
                    for _ in 0..self.draws.whole(op.iters) {
                        if self.shared.stop.is_set() {
                            return Err(Leave::Stopped);
                        }
                        self.once(*at, op)?;
                    }
                }
                Node::Group(iters, body) => {
                    for _ in 0..self.draws.whole(*iters) {
                        if self.shared.stop.is_set() {
                            return Err(Leave::Stopped);
                        }
                        self.nodes(body)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn once(&mut self, at: usize, op: &'a Op) -> Went {
        match op.kind {
            Kind::OpenFile => self.open_file(at, op),
            Kind::CreateFile => self.create_file(at, op),
            Kind::CloseFile => self.close_file(at, op),
            Kind::DeleteFile => self.delete_file(at, op),
            Kind::StatFile => self.stat_file(at, op),
            Kind::Read => self.read(at, op),
            Kind::Write => self.write(at, op),
            Kind::ReadWholeFile => self.read_whole(at, op),
            Kind::WriteWholeFile => self.write_whole(at, op),
            Kind::AppendFile | Kind::AppendFileRand => self.append(at, op),
            Kind::Fsync => self.fsync(at, op),
            Kind::FsyncSet => self.fsync_set(at, op),
            Kind::MakeDir => self.make_dir(at, op),
            Kind::RemoveDir => self.remove_dir(at, op),
            Kind::ListDir => self.list_dir(at, op),
            Kind::AioWrite => self.aio_write(at, op),
            Kind::AioWait => self.aio_wait(at, op),
            Kind::Block => self.block(at, op),
            Kind::Wakeup => self.wake_up(at, op),
            Kind::SemBlock => self.sem_block(at, op),
            Kind::SemPost => self.sem_post(at, op),
            Kind::EventLimit => self.event_limit(at),
            Kind::IopsLimit | Kind::OpsLimit | Kind::BwLimit => self.limit(at, op),
            Kind::FinishOnCount | Kind::FinishOnBytes => self.finish_on(at, op),
            Kind::Hog => self.hog(at, op),
            Kind::Delay => self.delay(at, op),
            Kind::Print => self.print(at, op),
            Kind::TestRandVar => self.test_random(at, op),
        }
    }

    fn now(&self) -> u64 {
        self.shared.now()
    }

    /// Counts an operation that began then.
    fn did(&self, at: usize, began: u64, bytes: u64) {
        if self.shared.stop.is_set() {
            return;
        }
        let kind = self.thread.ops[at].kind;
        if kind.is_io() && !self.shared.counts() {
            return;
        }
        self.me.tallies[at].record(self.now().saturating_sub(began), bytes);
        if kind.is_io() {
            self.me
                .totals
                .record(kind.is_read() || kind.is_write(), bytes);
            self.shared.recorded();
        }
    }

    fn failed(&self, op: &Op, what: &str, error: impl Into<std::io::Error>) -> Leave {
        Leave::Failed(RunError::io(format!("flowop '{}': {what}", op.name), error))
    }

    fn refused(&self, op: &Op, why: &str) -> Leave {
        Leave::Failed(RunError::Failed(format!("flowop '{}': {why}", op.name)))
    }

    /// Errors of calls that Filebench does not look at.
    fn unless_strict(&self, op: &Op, what: &str, result: rustix::io::Result<()>) -> Went {
        match result {
            Err(error) if !self.shared.plan.options.strict => Err(self.failed(op, what, error)),
            _ => Ok(()),
        }
    }
}
