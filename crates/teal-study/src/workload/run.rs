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
use super::fileset::Files;
use super::plan::{Plan, Step};
use super::populate::{check_room, populate};
use super::shared::Shared;
use super::stats::Figures;
use super::worker::{Leave, Worker};
use crate::wml::{Kind, Quit};
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
pub struct Second {
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
pub struct Line {
    /// Its name; `instance.inner` of a composite one.
    pub name: String,
    /// Which of the library.
    pub kind: Kind,
    /// Its figures.
    pub figures: Figures,
}

/// What a run has shown.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// Its length in nanoseconds; of figures on the way that begin anew, the time since they did.
    pub nanos: u64,
    /// Nanoseconds since the run began.
    pub at: u64,
    /// By flowop, in the order of definition.
    pub lines: Vec<Line>,
    /// By second.
    pub seconds: Vec<Second>,
    /// Why it ended, for people.
    pub ended: String,
    /// It was interrupted: it has done less than it was asked for.
    pub was_interrupted: bool,
    /// Threads.
    pub threads: u64,
}

impl Outcome {
    /// All operations that count, together.
    pub fn summary(&self) -> Summary {
        Summary::of(&self.lines)
    }
}

/// Figures over all flowops that count: I/O.
#[derive(Debug, Clone, Default)]
pub struct Summary {
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// All.
    pub all: Figures,
}

impl Summary {
    fn of(lines: &[Line]) -> Self {
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
pub trait Listener: Sync {
    /// All files are made and none is open: whoever wants to begin without what the kernel
    /// remembers mounts anew here.
    ///
    /// # Errors
    /// What makes a run impossible.
    fn made(&self) -> Result<(), RunError> {
        Ok(())
    }
    /// A line of the script or about it.
    fn say(&self, line: &str);
    /// Figures on the way: `psrun`.
    fn progress(&self, so_far: &Outcome);
    /// Returns whether the run shall end now.
    fn interrupted(&self) -> bool;
}

/// Carries out all steps of a plan; the figures of its run, if it has one.
///
/// # Errors
/// What made figures impossible.
pub fn execute<T: Timer>(
    plan: &Plan,
    clock: &T,
    listener: &dyn Listener,
) -> Result<Option<Outcome>, RunError> {
    check_room(plan)?;
    let mut sets = None;
    let say = |line: &str| listener.say(line);
    for step in &plan.steps {
        match step {
            Step::Say(line) => say(line),
            Step::Sleep(seconds) => {
                let until = clock.monotonic() + Duration::from_secs(*seconds);
                while clock.monotonic() < until && !listener.interrupted() {
                    clock.wait_until(until.min(clock.monotonic() + Duration::from_millis(200)));
                }
            }
            // Its exit status is not looked at: the language says so.
            Step::System(command) => {
                let done = std::process::Command::new("sh")
                    .arg("-c")
                    .arg(command)
                    .status();
                done.map_err(|e| RunError::io(format!("system \"{command}\""), e))?;
            }
            Step::Create => sets = Some(populate(plan, &say)?),
            Step::Run => {
                let mut sets = match sets.take() {
                    Some(sets) => sets,
                    None => populate(plan, &say)?,
                };
                sets.iter_mut().for_each(Files::leave);
                listener.made()?;
                sets.iter_mut().try_for_each(Files::enter)?;
                let shared = Shared::new(plan, clock, sets, &say);
                return measure(&shared, listener).map(Some);
            }
        }
    }
    Ok(None)
}

/// Threads that wait for the start, and those that have left.
#[derive(Debug, Default)]
struct Roll {
    /// Guards the counts; nothing is done under it.
    held: Mutex<Counts>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Counts {
    ready: usize,
    started: bool,
    gone: usize,
    first: Option<Leave>,
}

impl Roll {
    /// A thread is ready; it returns when all are.
    fn wait_for_start(&self) {
        let mut held = self.held.lock();
        held.ready += 1;
        self.changed.notify_all();
        while !held.started {
            self.changed.wait(&mut held);
        }
    }

    fn start(&self) {
        self.held.lock().started = true;
        self.changed.notify_all();
    }

    fn leave(&self, why: Leave) {
        let mut held = self.held.lock();
        held.gone += 1;
        // What went wrong counts more than that something ended.
        let worse = matches!(
            (&held.first, &why),
            (Some(Leave::Done(_) | Leave::Stopped), Leave::Failed(_))
        );
        if worse || held.first.is_none() {
            held.first = Some(why);
        }
        self.changed.notify_all();
    }
}

/// Says that a thread has left, even if it panics.
struct Leaving<'a> {
    roll: &'a Roll,
    why: Option<Leave>,
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        let panicked =
            || Leave::Failed(RunError::Failed("a thread of the run has panicked".into()));
        self.roll.leave(self.why.take().unwrap_or_else(panicked));
    }
}

fn measure<T: Timer>(shared: &Shared<'_, T>, listener: &dyn Listener) -> Result<Outcome, RunError> {
    raise_descriptors(shared.threads.len() as u64);
    let roll = Roll::default();
    std::thread::scope(|scope| {
        let spawned = start_all(scope, shared, &roll);
        let all = match spawned {
            Ok(all) => all,
            Err(error) => {
                shared.end();
                roll.start();
                return Err(error);
            }
        };
        {
            let mut held = roll.held.lock();
            while held.ready < all {
                roll.changed.wait(&mut held);
            }
        }
        let began = shared.now();
        shared.events.start(began);
        roll.start();
        let watched = watch(shared, &roll, listener, began, all);
        shared.end();
        let mut outcome = watched?;
        for (name, tested) in shared
            .tested
            .lock()
            .iter()
            .filter(|_| shared.plan.debug >= 3)
        {
            let (mean, spread) = tested.figures();
            outcome.ended +=
                &format!("; {name}: mean {mean:.3}, relative standard deviation {spread:.3}");
        }
        Ok(outcome)
    })
}

fn start_all<'scope, T: Timer>(
    scope: &'scope std::thread::Scope<'scope, '_>,
    shared: &'scope Shared<'_, T>,
    roll: &'scope Roll,
) -> Result<usize, RunError> {
    let plan = shared.plan;
    let named = |name: String| std::thread::Builder::new().name(name).stack_size(STACK);
    let failed = |e| RunError::io(format!("starting {} threads", shared.threads.len()), e);
    let writes =
        |thread: &super::plan::Thread| thread.ops.iter().any(|op| op.kind == Kind::AioWrite);
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
            let mut leaving = Leaving { roll, why: None };
            let prepared = super::priority::set(process.nice, thread.ioprio);
            let mut worker = Worker::new(shared, number);
            roll.wait_for_start();
            leaving.why = Some(match prepared {
                Ok(()) => worker.run(),
                Err(error) => Leave::Failed(error),
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
fn watch<T: Timer>(
    shared: &Shared<'_, T>,
    roll: &Roll,
    listener: &dyn Listener,
    began: u64,
    all: usize,
) -> Result<Outcome, RunError> {
    let plan = shared.plan;
    let deadline = plan.seconds.map(|seconds| began + seconds * SECOND);
    let mut series = Series {
        began,
        last: [0; 5],
        seconds: Vec::new(),
    };
    let (mut next, mut before, mut told) = (began + SECOND, None, 0);
    let end = loop {
        let until = deadline.map_or(next, |deadline| deadline.min(next));
        if let Some(reason) = wait(shared, roll, listener, until, all)? {
            break reason;
        }
        let now = shared.now();
        if deadline.is_some_and(|deadline| now >= deadline) {
            break RunEnd::Over("the time was over".to_owned());
        }
        if now >= next {
            series.look(now, shared.sums());
            next = now - (now - began) % SECOND + SECOND;
        }
        let period = plan.period.unsigned_abs();
        let due = ((now - began) / SECOND).checked_div(period).unwrap_or(0);
        if due > told {
            told = due;
            let now = outcome(shared, began, &series, RunEnd::Over(String::new()));
            listener.progress(&since(&now, before.as_ref()));
            before = (plan.period < 0).then_some(now);
        }
    };
    let now = shared.now();
    // A rest of a second is one, if it is more than a moment.
    if now - began - series.seconds.last().map_or(0, |last| last.at) > SECOND / 10 {
        series.look(now, shared.sums());
    }
    shared.stop.set();
    Ok(outcome(shared, began, &series, end))
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
fn wait<T: Timer>(
    shared: &Shared<'_, T>,
    roll: &Roll,
    listener: &dyn Listener,
    until: u64,
    all: usize,
) -> Result<Option<RunEnd>, RunError> {
    let quit = shared.plan.quit;
    let mut held = roll.held.lock();
    loop {
        match held.first.take() {
            Some(Leave::Failed(error)) => return Err(error),
            Some(Leave::Done(why)) if quit == Quit::Timeout => return Err(RunError::Early(why)),
            Some(Leave::Done(why)) if quit == Quit::FirstDone || held.gone == all => {
                return Ok(Some(RunEnd::Over(why)));
            }
            // Whoever comes after the last operation that counts ends the run, and leaves.
            Some(Leave::Stopped) if shared.is_done() => {
                return Ok(Some(RunEnd::Over("all operations were done".into())));
            }
            first => held.first = first,
        }
        if listener.interrupted() {
            return Ok(Some(RunEnd::Interrupted));
        }
        let Some(left) = until.checked_sub(shared.now()).filter(|left| *left > 0) else {
            return Ok(None);
        };
        // Not longer than somebody who interrupts would like to wait.
        let _ = roll
            .changed
            .wait_for(&mut held, Duration::from_nanos(left.min(SECOND / 5)));
    }
}

struct Series {
    began: u64,
    last: [u64; 5],
    seconds: Vec<Second>,
}

impl Series {
    fn look(&mut self, now: u64, sums: [u64; 5]) {
        let [operations, reads, writes, bytes, nanos] =
            std::array::from_fn(|at| sums[at].saturating_sub(self.last[at]));
        self.seconds.push(Second {
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

fn outcome<T: Timer>(shared: &Shared<'_, T>, began: u64, series: &Series, end: RunEnd) -> Outcome {
    let was_interrupted = end == RunEnd::Interrupted;
    let nanos = shared.now() - began;
    let lines = shared
        .figures()
        .into_iter()
        .map(|(name, kind, figures)| Line {
            name,
            kind,
            figures,
        })
        .collect();
    Outcome {
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

fn since(now: &Outcome, before: Option<&Outcome>) -> Outcome {
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
