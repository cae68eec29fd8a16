//! One run of one cell: a fresh file system, its files, a cold start, the workload, the drain.

use super::ground::{Ground, Mounted};
use super::memory::Fence;
use super::meter::{self, Meter, Watch};
use super::shown::Shown;
use super::{Bench, age};
use anyhow::{Context, Result};
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::time::Duration;
use teal_env::{Clock as _, SystemClock, Timer as _};
use teal_study::matrix::{Cache, Cell, Run, Spent, System};
use teal_study::workload::{Listener, Outcome, RunError, execute, plan};

/// What happens between the files and the run.
struct Start<'a> {
    bench: &'a Bench,
    ground: &'a Ground,
    system: &'a System,
    dir: PathBuf,
    mounted: Mutex<Option<Mounted>>,
    /// Bytes that the run may hold.
    memory: Option<u64>,
    fence: Mutex<Option<Fence>>,
    /// What was counted when the run began.
    from: Mutex<Spent>,
    meter: Option<Meter>,
    /// The meter that is being read, since when, and when the run began, in seconds.
    watch: Mutex<Option<(Watch, f64, f64)>>,
}

fn held<T>(of: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    of.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

impl Start<'_> {
    /// From here on there is nothing in memory, if that is wanted, and everything is counted.
    fn begin(&self) -> Result<()> {
        let cache = self.bench.matrix.runs.cache;
        let mut mounted = held(&self.mounted);
        if cache == Cache::Warm {
            // Nothing of making the files is left to be written.
            rustix::fs::sync();
        } else {
            if let Some(mounted) = mounted.take() {
                mounted.end()?;
            }
            *mounted = Some(self.ground.mount(self.system, &self.dir, cache)?);
        }
        if let Some(meter) = &self.meter {
            let (watch, began) = (meter.watch()?, meter::now());
            let idle = self
                .bench
                .matrix
                .meter
                .as_ref()
                .map_or(0, |of| of.idle_seconds);
            let clock = SystemClock;
            let end = clock.monotonic() + Duration::from_secs(idle);
            while clock.monotonic() < end && !self.interrupted() {
                clock.wait_until(end.min(clock.monotonic() + Duration::from_millis(200)));
            }
            *held(&self.watch) = Some((watch, began, meter::now()));
        }
        *held(&self.from) = self.ground.mark()?;
        *held(&self.fence) = self.memory.map(Fence::enter).transpose()?;
        Ok(())
    }
}

impl Start<'_> {
    /// Puts the joules of the meter, if there is one, to the run and the drain, which has ended now; and gives the power of that time, thinned.
    fn joules(&self, ended: f64, ran: &mut Spent, drain: &mut Spent) -> Result<Vec<[f64; 2]>> {
        const POINTS: usize = 200;
        let (Some(meter), Some((watch, since, began))) = (&self.meter, held(&self.watch).take())
        else {
            return Ok(Vec::new());
        };
        let drained = meter::now();
        let power = watch.end(meter)?;
        let few = |from: f64, to: f64| {
            let (read, least) = (power.count(from, to), teal_study::matrix::LEAST);
            format!(
                "the meter was read {read} times in {:.1} s, and {least} readings are needed: say a smaller meter.every_ms, or a longer runs.seconds",
                to - from
            )
        };
        let idles = self
            .bench
            .matrix
            .meter
            .as_ref()
            .is_some_and(|of| of.idle_seconds > 0);
        let idle = if idles {
            power
                .watts(since, began)
                .with_context(|| few(since, began))?
        } else {
            0.0
        };
        let net = |to: f64| {
            power
                .joules(began, to)
                .map(|joules| joules - idle * (to - began))
        };
        ran.joules = net(ended).with_context(|| few(began, ended))?;
        drain.joules = net(drained).with_context(|| few(began, drained))? - ran.joules;
        let of_run: Vec<_> = power
            .readings()
            .iter()
            .filter(|(at, _)| *at >= began)
            .collect();
        let every = of_run.len().div_ceil(POINTS).max(1);
        Ok(of_run
            .chunks(every)
            .map(|some| {
                [0, 1].map(|which| {
                    let values = some
                        .iter()
                        .map(|(at, watts)| if which == 0 { at - began } else { *watts });
                    values.sum::<f64>() / some.len() as f64
                })
            })
            .collect())
    }
}

impl Listener for Start<'_> {
    fn made(&self) -> Result<(), RunError> {
        self.begin().map_err(|e| RunError::Failed(format!("{e:#}")))
    }

    fn say(&self, line: &str) {
        log::debug!("{line}");
    }

    fn progress(&self, _: &Outcome) {}

    fn interrupted(&self) -> bool {
        self.bench.ended.load(Ordering::Relaxed)
    }
}

/// Runs a cell; `None` if that was interrupted.
pub(super) fn run(bench: &Bench, cell: Cell, block: u32) -> Result<Option<Run>> {
    let matrix = &bench.matrix;
    let load_before = load();
    let ground = bench.ground()?;
    let [workload, system, scheduler] = matrix.names(cell).map(str::to_owned);
    ground.schedule(&scheduler, &matrix.schedulers.names)?;
    let of = &matrix.systems[cell.system];
    ground.make(of)?;
    let dir = bench.results.join("mount");
    if !age::age(
        matrix.runs.aged,
        matrix.seed(block),
        &ground,
        of,
        &dir,
        &bench.ended,
    )? {
        return Ok(None);
    }
    let mounted = ground.mount(of, &dir, Cache::Cold)?;
    let plan = plan(
        &bench.scripts[cell.workload],
        bench.options(cell.workload, block, &dir)?,
    )?;
    let memory = matrix
        .runs
        .memory
        .map(|memory| memory.saturating_add(plan.memory()));
    let start = Start {
        bench,
        ground: &ground,
        system: of,
        dir,
        mounted: Mutex::new(Some(mounted)),
        memory,
        fence: Mutex::default(),
        from: Mutex::default(),
        meter: matrix.meter.as_ref().map(Meter::open).transpose()?,
        watch: Mutex::default(),
    };
    let outcome = execute(&plan, &SystemClock, &start);
    drop(held(&start.fence).take());
    let outcome = outcome?.context("the script of this workload runs nothing")?;
    let from = *held(&start.from);
    let ended = meter::now();
    let mut ran = ground.spent()?.since(&from);
    let mounted = held(&start.mounted).take();
    mounted.context("nothing is mounted")?.end()?;
    let mut drain = ground.spent()?.since(&from).since(&ran);
    let mut power = ground.power()?;
    power.extend(start.joules(ended, &mut ran, &mut drain)?);
    if start.interrupted() {
        return Ok(None);
    }
    Ok(Some(Run {
        meter: match &matrix.meter {
            Some(of) => teal_study::matrix::Meter::Measured(of.name()),
            None => ground.meter(),
        },
        run: ran,
        drain,
        power,
        ..Shown::of(&outcome).run([workload, system, scheduler], block, load_before)
    }))
}

/// Processes that wanted to run in the last minute.
pub(super) fn load() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ')
        .next()
        .and_then(|load| load.parse().ok())
        .unwrap_or(0.0)
}
