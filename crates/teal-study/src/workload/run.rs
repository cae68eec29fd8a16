//! Carries a plan out: files, threads, time, end.
//!
//! # Guarantees
//! 1. All threads begin together; none has done anything before.
//! 2. A run ends: by its time, by the number of its operations, by its end rule, or by the first
//!    thing that goes wrong. A thread that panics ends it, too.
//! 3. Figures are those between the common start and the end; what is on its way then is not in
//!    them.

use super::aio::{WRITERS, WRITERS_MAX};
use super::error::RunError;
use super::fileset::FilesetState;
use super::plan::{RunStep, WorkloadPlan};
use super::populate::{check_room, populate_filesets};
use super::shared::RunState;
use super::stats::LatencyFigures;
use super::worker::{FlowopRunner, LeaveReason};
use crate::wml::{FlowopKind, QuitMode};
use parking_lot::{Condvar, Mutex};
use std::time::Duration;
use teal_env::Timer;

/// Memory for a thread's stack: they are many, and go nowhere deep.
const STACK: usize = 256 << 10;
const SECOND: u64 = 1_000_000_000;
/// Slots of a thread that are open at once, generously; for the limit of descriptors.
const DESCRIPTORS: u64 = 128;

/// What was done within one second of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SecondFigures {
    /// Its end, in nanoseconds from the start.
    pub at: u64,
    /// Operations.
    pub operations: u64,
    /// Reads among them.
    pub reads: u64,
    /// Writes among them.
    pub writes: u64,
    /// Bytes.
    pub bytes: u64,
    /// Latencies together, in nanoseconds.
    pub nanos: u64,
}

/// One flowop's figures.
#[derive(Debug, Clone)]
pub struct FlowopFigures {
    /// Its name; `instance.inner` of a composite one.
    pub name: String,
    /// Which of the library.
    pub kind: FlowopKind,
    /// Its figures.
    pub figures: LatencyFigures,
}

/// What a run has shown.
#[derive(Debug, Clone)]
pub struct RunOutcome {
    /// Its length in nanoseconds; of figures on the way that begin anew, the time since they did.
    pub nanos: u64,
    /// Nanoseconds since the run began.
    pub at: u64,
    /// By flowop, in the order of definition.
    pub lines: Vec<FlowopFigures>,
    /// By second.
    pub seconds: Vec<SecondFigures>,
    /// Why it ended, for people.
    pub ended: String,
    /// It was interrupted: it has done less than it was asked for.
    pub was_interrupted: bool,
    /// Threads.
    pub threads: u64,
}

impl RunOutcome {
    /// All operations that count, together.
    pub fn summary(&self) -> RunSummary {
        RunSummary::from_flowops(&self.lines)
    }
}

/// Figures over all flowops that count: I/O.
#[derive(Debug, Clone, Default)]
pub struct RunSummary {
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// All.
    pub all: LatencyFigures,
}

impl RunSummary {
    fn from_flowops(lines: &[FlowopFigures]) -> Self {
        let mut summary = Self::default();
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

/// What the caller hears while a run goes on.
pub trait RunListener: Sync {
    /// All files are made and none is open: whoever wants to begin without what the kernel
    /// remembers mounts anew here.
    ///
    /// # Errors
    /// What makes a run impossible.
    fn files_made(&self) -> Result<(), RunError> {
        Ok(())
    }
    /// A line of the script or about it.
    fn print_line(&self, line: &str);
    /// Figures on the way: `psrun`.
    fn report_progress(&self, so_far: &RunOutcome);
    /// Returns whether the run shall end now.
    fn is_interrupted(&self) -> bool;
}

/// Carries out all steps of a plan; the figures of its run, if it has one.
///
/// # Errors
/// What made figures impossible.
pub fn execute_plan<T: Timer>(
    plan: &WorkloadPlan,
    clock: &T,
    listener: &dyn RunListener,
) -> Result<Option<RunOutcome>, RunError> {
    check_room(plan)?;
    let mut sets = None;
    let say = |line: &str| listener.print_line(line);
    for step in &plan.steps {
        match step {
            RunStep::Say(line) => say(line),
            RunStep::Sleep(seconds) => {
                let until = clock.monotonic_time() + Duration::from_secs(*seconds);
                while clock.monotonic_time() < until && !listener.is_interrupted() {
                    clock
                        .wait_until(until.min(clock.monotonic_time() + Duration::from_millis(200)));
                }
            }
            // Its exit status is not looked at: the language says so.
            RunStep::System(command) => {
                let done = std::process::Command::new("sh")
                    .arg("-c")
                    .arg(command)
                    .status();
                done.map_err(|e| RunError::from_io(format!("system \"{command}\""), e))?;
            }
            RunStep::Create => sets = Some(populate_filesets(plan, &say)?),
            RunStep::Run => {
                let mut sets = match sets.take() {
                    Some(sets) => sets,
                    None => populate_filesets(plan, &say)?,
                };
                sets.iter_mut().for_each(FilesetState::close_root);
                listener.files_made()?;
                sets.iter_mut().try_for_each(FilesetState::open_root)?;
                let shared = RunState::new(plan, clock, sets, &say);
                return measure_run(&shared, listener).map(Some);
            }
        }
    }
    Ok(None)
}

/// Threads that wait for the start, and those that have left.
#[derive(Debug, Default)]
struct ThreadRoll {
    /// Guards the counts; nothing is done under it.
    counts: Mutex<ThreadCounts>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct ThreadCounts {
    ready: usize,
    started: bool,
    gone: usize,
    first: Option<LeaveReason>,
}

impl ThreadRoll {
    /// A thread is ready; it returns when all are.
    fn wait_for_start(&self) {
        let mut held = self.counts.lock();
        held.ready += 1;
        self.changed.notify_all();
        while !held.started {
            self.changed.wait(&mut held);
        }
    }

    fn release_all(&self) {
        self.counts.lock().started = true;
        self.changed.notify_all();
    }

    fn note_left(&self, why: LeaveReason) {
        let mut held = self.counts.lock();
        held.gone += 1;
        // What went wrong counts more than that something ended.
        let worse = matches!(
            (&held.first, &why),
            (
                Some(LeaveReason::Done(_) | LeaveReason::Stopped),
                LeaveReason::Failed(_)
            )
        );
        if worse || held.first.is_none() {
            held.first = Some(why);
        }
        self.changed.notify_all();
    }
}

/// Says that a thread has left, even if it panics.
struct LeaveGuard<'a> {
    roll: &'a ThreadRoll,
    why: Option<LeaveReason>,
}

impl Drop for LeaveGuard<'_> {
    fn drop(&mut self) {
        let panicked =
            || LeaveReason::Failed(RunError::Failed("a thread of the run has panicked".into()));
        self.roll
            .note_left(self.why.take().unwrap_or_else(panicked));
    }
}

fn measure_run<T: Timer>(
    shared: &RunState<'_, T>,
    listener: &dyn RunListener,
) -> Result<RunOutcome, RunError> {
    raise_descriptors(shared.threads.len() as u64);
    let roll = ThreadRoll::default();
    std::thread::scope(|scope| {
        let spawned = spawn_threads(scope, shared, &roll);
        let all = match spawned {
            Ok(all) => all,
            Err(error) => {
                shared.end_run();
                roll.release_all();
                return Err(error);
            }
        };
        {
            let mut held = roll.counts.lock();
            while held.ready < all {
                roll.changed.wait(&mut held);
            }
        }
        let began = shared.now_nanos();
        shared.events.restart(began);
        roll.release_all();
        let watched = watch_run(shared, &roll, listener, began, all);
        shared.end_run();
        let mut outcome = watched?;
        for (name, tested) in shared
            .tested
            .lock()
            .iter()
            .filter(|_| shared.plan.debug >= 3)
        {
            let (mean, spread) = tested.mean_and_spread();
            outcome.ended +=
                &format!("; {name}: mean {mean:.3}, relative standard deviation {spread:.3}");
        }
        Ok(outcome)
    })
}

fn spawn_threads<'scope, T: Timer>(
    scope: &'scope std::thread::Scope<'scope, '_>,
    shared: &'scope RunState<'_, T>,
    roll: &'scope ThreadRoll,
) -> Result<usize, RunError> {
    let plan = shared.plan;
    let named = |name: String| std::thread::Builder::new().name(name).stack_size(STACK);
    let failed = |e| RunError::from_io(format!("starting {} threads", shared.threads.len()), e);
    let writes = |thread: &super::plan::PlannedThread| {
        thread.ops.iter().any(|op| op.kind == FlowopKind::AioWrite)
    };
    let writing = plan
        .processes
        .iter()
        .filter(|process| process.threads.iter().any(writes))
        .map(|p| p.instances);
    for writer in 0..(writing.sum::<u64>() * WRITERS).min(WRITERS_MAX) {
        named(format!("aio-{writer}"))
            .spawn_scoped(scope, || shared.queue.serve(&shared.stop))
            .map_err(failed)?;
    }
    for (number, state) in shared.threads.iter().enumerate() {
        let process = &plan.processes[state.process];
        let thread = &process.threads[state.thread];
        let work = move || {
            let mut leaving = LeaveGuard { roll, why: None };
            let prepared = super::priority::set_priorities(process.nice, thread.ioprio);
            let mut worker = FlowopRunner::new(shared, number);
            roll.wait_for_start();
            leaving.why = Some(match prepared {
                Ok(()) => worker.run(),
                Err(error) => LeaveReason::Failed(error),
            });
        };
        named(thread.name.clone())
            .spawn_scoped(scope, work)
            .map_err(failed)?;
    }
    Ok(shared.threads.len())
}

/// Waits for the end, with a look at each second. The figures are taken before the end is
/// announced.
fn watch_run<T: Timer>(
    shared: &RunState<'_, T>,
    roll: &ThreadRoll,
    listener: &dyn RunListener,
    began: u64,
    all: usize,
) -> Result<RunOutcome, RunError> {
    let plan = shared.plan;
    let deadline = plan.seconds.map(|seconds| began + seconds * SECOND);
    let mut series = SecondSeries {
        began,
        last: [0; 5],
        seconds: Vec::new(),
    };
    let (mut next, mut before, mut told) = (began + SECOND, None, 0);
    let end = loop {
        let until = deadline.map_or(next, |deadline| deadline.min(next));
        if let Some(reason) = wait_until(shared, roll, listener, until, all)? {
            break reason;
        }
        let now = shared.now_nanos();
        if deadline.is_some_and(|deadline| now >= deadline) {
            break RunEnd::Over("the time was over".to_owned());
        }
        if now >= next {
            series.add_second(now, shared.sum_figures());
            next = now - (now - began) % SECOND + SECOND;
        }
        let period = plan.period.unsigned_abs();
        let due = ((now - began) / SECOND).checked_div(period).unwrap_or(0);
        if due > told {
            told = due;
            let now = take_outcome(shared, began, &series, RunEnd::Over(String::new()));
            listener.report_progress(&outcome_since(&now, before.as_ref()));
            before = (plan.period < 0).then_some(now);
        }
    };
    let now = shared.now_nanos();
    // A rest of a second is one, if it is more than a moment.
    if now - began - series.seconds.last().map_or(0, |last| last.at) > SECOND / 10 {
        series.add_second(now, shared.sum_figures());
    }
    shared.stop.set();
    Ok(take_outcome(shared, began, &series, end))
}

/// How a run came to its end.
#[derive(Debug, PartialEq, Eq)]
enum RunEnd {
    /// It is over, for this reason.
    Over(String),
    /// Its listener wants no more of it.
    Interrupted,
}

/// Waits until then, or for the reason to end before.
fn wait_until<T: Timer>(
    shared: &RunState<'_, T>,
    roll: &ThreadRoll,
    listener: &dyn RunListener,
    until: u64,
    all: usize,
) -> Result<Option<RunEnd>, RunError> {
    let quit = shared.plan.quit;
    let mut held = roll.counts.lock();
    loop {
        match held.first.take() {
            Some(LeaveReason::Failed(error)) => return Err(error),
            Some(LeaveReason::Done(why)) if quit == QuitMode::Timeout => {
                return Err(RunError::Early(why));
            }
            Some(LeaveReason::Done(why)) if quit == QuitMode::FirstDone || held.gone == all => {
                return Ok(Some(RunEnd::Over(why)));
            }
            // Whoever comes after the last operation that counts ends the run, and leaves.
            Some(LeaveReason::Stopped) if shared.is_done() => {
                return Ok(Some(RunEnd::Over("all operations were done".into())));
            }
            first => held.first = first,
        }
        if listener.is_interrupted() {
            return Ok(Some(RunEnd::Interrupted));
        }
        let Some(left) = until
            .checked_sub(shared.now_nanos())
            .filter(|left| *left > 0)
        else {
            return Ok(None);
        };
        // Not longer than somebody who interrupts would like to wait.
        let _ = roll
            .changed
            .wait_for(&mut held, Duration::from_nanos(left.min(SECOND / 5)));
    }
}

struct SecondSeries {
    began: u64,
    last: [u64; 5],
    seconds: Vec<SecondFigures>,
}

impl SecondSeries {
    fn add_second(&mut self, now: u64, sums: [u64; 5]) {
        let [operations, reads, writes, bytes, nanos] =
            std::array::from_fn(|at| sums[at].saturating_sub(self.last[at]));
        self.seconds.push(SecondFigures {
            at: now - self.began,
            operations,
            reads,
            writes,
            bytes,
            nanos,
        });
        self.last = sums;
    }
}

fn take_outcome<T: Timer>(
    shared: &RunState<'_, T>,
    began: u64,
    series: &SecondSeries,
    end: RunEnd,
) -> RunOutcome {
    let was_interrupted = end == RunEnd::Interrupted;
    let nanos = shared.now_nanos() - began;
    let lines = shared
        .figures_by_name()
        .into_iter()
        .map(|(name, kind, figures)| FlowopFigures {
            name,
            kind,
            figures,
        })
        .collect();
    RunOutcome {
        nanos,
        at: nanos,
        lines,
        seconds: series.seconds.clone(),
        ended: match end {
            RunEnd::Over(why) => why,
            RunEnd::Interrupted => "it was interrupted".into(),
        },
        was_interrupted,
        threads: shared.threads.len() as u64,
    }
}

fn outcome_since(now: &RunOutcome, before: Option<&RunOutcome>) -> RunOutcome {
    let Some(before) = before else {
        return now.clone();
    };
    let mut since = now.clone();
    since.nanos -= before.nanos;
    for (line, old) in since.lines.iter_mut().zip(&before.lines) {
        line.figures = line.figures.since(&old.figures);
    }
    since
}

/// As many descriptors as the threads may want, if they may be had.
fn raise_descriptors(threads: u64) {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let now = getrlimit(Resource::Nofile);
    let wanted = threads * DESCRIPTORS + 256;
    if now.current.is_some_and(|current| current < wanted) {
        let current = Some(now.maximum.map_or(wanted, |maximum| maximum.min(wanted)));
        // Refused, the run goes on: few threads use more than a handful.
        let _ = setrlimit(
            Resource::Nofile,
            Rlimit {
                current,
                maximum: now.maximum,
            },
        );
    }
}
