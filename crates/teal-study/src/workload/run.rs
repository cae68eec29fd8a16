//! Runs a plan: files, threads, time, end.
//!
//! # Guarantees
//! 1. All threads begin together, and none has done anything before.
//! 2. A run ends: by its time, by the number of its operations, by its end rule, or by the first
//!    error. A thread that panics ends it too.
//! 3. Figures are those between the common start and the end. An operation that is still on its way
//!    at the end is not in them.

mod outcome;

use super::aio::{WRITERS, WRITERS_MAX};
use super::descriptors::provide_descriptors;
use super::error::RunError;
use super::fileset::FilesetState;
use super::plan::{RunStep, WorkloadPlan};
use super::populate::populate_filesets;
use super::room::check_room;
use super::shared::RunState;
use super::worker::{FlowopRunner, LeaveReason};
use crate::wml::{FlowopKind, QuitMode};
use parking_lot::{Condvar, Mutex};
use std::time::Duration;
use teal_env::Timer;

pub use outcome::{FlowopFigures, RunOutcome, RunSummary, SecondFigures};

/// Bytes of a thread's stack: threads are many, and their calls are not deep.
const STACK: usize = 256 << 10;
const SECOND: u64 = 1_000_000_000;

/// Receives the events of a run.
pub trait RunListener: Sync {
    /// Is called when all files are made and none is open. A caller that wants to begin without
    /// cached content mounts anew here.
    ///
    /// # Errors
    /// Returns an error that makes a run impossible.
    fn files_made(&self) -> Result<(), RunError> {
        Ok(())
    }
    /// Receives a line of the script or about it.
    fn print_line(&self, line: &str);
    /// Receives figures on the way, of `psrun`.
    fn report_progress(&self, so_far: &RunOutcome);
    /// Returns whether the run shall end now.
    fn is_interrupted(&self) -> bool;
}

/// Runs all steps of a plan; returns the figures of its run, if it has one.
///
/// # Errors
/// Returns the error that made figures impossible.
pub fn execute_plan<T: Timer>(
    plan: &WorkloadPlan,
    clock: &T,
    listener: &dyn RunListener,
) -> Result<Option<RunOutcome>, RunError> {
    check_room(plan)?;
    let descriptors = provide_descriptors(plan)?;
    let mut sets = None;
    let say = |line: &str| listener.print_line(line);
    // Steps run in the order of the script.
    for step in &plan.steps {
        match step {
            RunStep::Say(line) => say(line),
            RunStep::Sleep(seconds) => {
                let until = clock.monotonic_time() + Duration::from_secs(*seconds);
                // Short waits, so that an interruption is seen.
                while clock.monotonic_time() < until && !listener.is_interrupted() {
                    clock
                        .wait_until(until.min(clock.monotonic_time() + Duration::from_millis(200)));
                }
            }
            // The language ignores the exit status of the command.
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
                // No descriptor may be open while the caller mounts anew.
                sets.iter_mut().for_each(FilesetState::close_root);
                listener.files_made()?;
                sets.iter_mut().try_for_each(FilesetState::open_root)?;
                let shared = RunState::new(plan, clock, sets, descriptors, &say);
                return measure_run(&shared, listener).map(Some);
            }
        }
    }
    Ok(None)
}

/// Registers threads that wait for the start, and those that have left.
#[derive(Debug, Default)]
struct ThreadRoll {
    /// Guards the counts, and is held for a few instructions only.
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
    /// Counts a thread as ready; returns when all are.
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
        // The first reason is kept, unless a failure comes later.
        let mut held = self.counts.lock();
        held.gone += 1;
        // A failure is worth more than a regular end.
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

/// Reports that a thread has left, even if it panics.
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
    let roll = ThreadRoll::default();
    std::thread::scope(|scope| {
        let spawned = spawn_threads(scope, shared, &roll);
        let all = match spawned {
            Ok(all) => all,
            // The threads that were started wait for the release: they are let go, see the end and
            // leave.
            Err(error) => {
                shared.end_run();
                roll.release_all();
                return Err(error);
            }
        };
        // Released only when every thread is ready: thread creation is not part of the run.
        {
            let mut held = roll.counts.lock();
            while held.ready < all {
                roll.changed.wait(&mut held);
            }
        }
        let began = shared.now_nanos();
        // The event source starts with the run, so that no events have piled up before.
        shared.events.restart(began);
        roll.release_all();
        let watched = watch_run(shared, &roll, listener, began, all);
        // Threads that wait are woken, because the scope joins them all.
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
    // Writers come first: a thread may queue a write with its first flowop.
    let failed = |e| RunError::from_io(format!("starting {} threads", shared.threads.len()), e);
    for writer in 0..background_writers(shared.plan) {
        named_thread(format!("aio-{writer}"))
            .spawn_scoped(scope, || shared.queue.serve(&shared.stop))
            .map_err(failed)?;
    }
    for (number, state) in shared.threads.iter().enumerate() {
        let thread = &shared.plan.processes[state.process].threads[state.thread];
        named_thread(thread.name.clone())
            .spawn_scoped(scope, move || run_thread(shared, roll, number))
            .map_err(failed)?;
    }
    Ok(shared.threads.len())
}

/// Returns a builder of threads with small stacks: a run may have thousands of them.
fn named_thread(name: String) -> std::thread::Builder {
    std::thread::Builder::new().name(name).stack_size(STACK)
}

/// Returns the number of writers in the background: as many as the C library would have, within a
/// limit.
fn background_writers(plan: &WorkloadPlan) -> u64 {
    let mut writing = 0;
    for process in &plan.processes {
        // A process counts once, however many of its threads write.
        let mut ops = process.threads.iter().flat_map(|thread| &thread.ops);
        if ops.any(|op| op.kind == FlowopKind::AioWrite) {
            writing += process.instances;
        }
    }
    (writing * WRITERS).min(WRITERS_MAX)
}

/// Runs a thread: it prepares itself, then waits for all others.
fn run_thread<T: Timer>(shared: &RunState<'_, T>, roll: &ThreadRoll, number: usize) {
    let mut leaving = LeaveGuard { roll, why: None };
    let state = &shared.threads[number];
    let process = &shared.plan.processes[state.process];
    let thread = &process.threads[state.thread];
    // A priority that is refused is an error of the run, told only after all have started.
    let prepared = super::priority::set_priorities(process.nice, thread.ioprio);
    let mut worker = FlowopRunner::new(shared, number);
    roll.wait_for_start();
    leaving.why = Some(match prepared {
        Ok(()) => worker.run(),
        Err(error) => LeaveReason::Failed(error),
    });
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
    let mut reports = ProgressReports {
        period: plan.period,
        told: 0,
        before: None,
    };
    let mut next = began + SECOND;
    let end = loop {
        let until = deadline.map_or(next, |deadline| deadline.min(next));
        // The wait ends at the next second, or at the deadline before it.
        if let Some(reason) = wait_until(shared, roll, listener, until, all)? {
            break reason;
        }
        let now = shared.now_nanos();
        if deadline.is_some_and(|deadline| now >= deadline) {
            break RunEnd::Over("the time was over".to_owned());
        }
        if now >= next {
            series.add_second(now, shared.sum_figures());
            // The next look is at a whole second from the start, even after a late one.
            next = now - (now - began) % SECOND + SECOND;
        }
        if reports.are_due(now - began) {
            let now = take_outcome(shared, began, &series, RunEnd::Over(String::new()));
            reports.tell(now, listener);
        }
    };
    let now = shared.now_nanos();
    // The rest of a second counts as one, if it is more than a moment.
    if now - began - series.seconds.last().map_or(0, |last| last.at) > SECOND / 10 {
        series.add_second(now, shared.sum_figures());
    }
    // The figures are read after this: an operation that ends now counts no more.
    shared.stop.set();
    Ok(take_outcome(shared, began, &series, end))
}

/// Tells figures on the way, by `psrun`'s period.
struct ProgressReports {
    /// Seconds between reports; negative ones begin anew each time, 0 means none.
    period: i64,
    told: u64,
    before: Option<RunOutcome>,
}

impl ProgressReports {
    /// Returns whether a report is due after this time, and counts it as told then.
    fn are_due(&mut self, elapsed: u64) -> bool {
        // A period of 0 never comes.
        let period = self.period.unsigned_abs();
        let due = (elapsed / SECOND).checked_div(period).unwrap_or(0);
        // A look that came late tells once for all periods that it missed.
        let is_due = due > self.told;
        if is_due {
            self.told = due;
        }
        is_due
    }

    fn tell(&mut self, now: RunOutcome, listener: &dyn RunListener) {
        // The first report has nothing before it, and tells all.
        listener.report_progress(&outcome_since(&now, self.before.as_ref()));
        self.before = (self.period < 0).then_some(now);
    }
}

/// Says how a run came to its end.
#[derive(Debug, PartialEq, Eq)]
enum RunEnd {
    /// The run is over, for this reason.
    Over(String),
    /// Its listener has interrupted it.
    Interrupted,
}

/// Waits until then, or returns the reason to end before.
fn wait_until<T: Timer>(
    shared: &RunState<'_, T>,
    roll: &ThreadRoll,
    listener: &dyn RunListener,
    until: u64,
    all: usize,
) -> Result<Option<RunEnd>, RunError> {
    let quit = shared.plan.quit;
    let mut held = roll.counts.lock();
    // The first leaver decides: by the end rule, or by its error.
    loop {
        match held.first.take() {
            Some(LeaveReason::Failed(error)) => return Err(error),
            Some(LeaveReason::Done(why)) if quit == QuitMode::Timeout => {
                return Err(RunError::Early(why));
            }
            Some(LeaveReason::Done(why)) if quit == QuitMode::FirstDone || held.gone == all => {
                return Ok(Some(RunEnd::Over(why)));
            }
            // The first thread that gets no operation more ends the run, and leaves.
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
        // The wait is limited, so that an interruption is seen soon.
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
        // Tallies grow by other threads meanwhile, so differences saturate.
        debug_assert!(
            now >= self.began,
            "a second of the run lies behind its beginning"
        );
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
    // The length is taken before the figures, which take time themselves.
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
    // Nanoseconds and figures since the last report; the rest stays that of the run.
    let mut since = now.clone();
    since.nanos -= before.nanos;
    for (line, old) in since.lines.iter_mut().zip(&before.lines) {
        line.figures = line.figures.since(&old.figures);
    }
    since
}
