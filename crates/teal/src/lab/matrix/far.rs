//! A run of a cell in a guest: what goes in, what is done there, what comes out. The steps are those of `cell.rs`; joules and requests are counted by the host of the guest.

use super::cell::load;
use super::ground::{Ground, Mounted};
use super::memory::Fence;
use super::shown::Shown;
use super::{Bench, age, ground};
use crate::lab::guest::{self, Has, Job, Line};
use crate::lab::script::Sources;
use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, MutexGuard, PoisonError};
use teal_env::SystemClock;
use teal_study::matrix::{Cache, Cell, Meter, Place, Run, Spent, System};
use teal_study::workload::{Listener, Options, Outcome, RunError, execute, plan};

/// What a guest is told of a run.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::lab) struct Task {
    pub(in crate::lab) system: System,
    scheduler: String,
    cache: Cache,
    /// Percent.
    aged: Option<u64>,
    /// Bytes that the run may hold, what its threads hold included.
    pub(in crate::lab) memory: Option<u64>,
    /// With the directory as it is called there.
    options: Options,
    script: Sources,
}

/// What happens in the guest between the files and the run.
struct Start<'a> {
    of: &'a Task,
    ground: &'a Ground,
    mounted: Mutex<Option<Mounted>>,
    fence: Mutex<Option<Fence>>,
    line: Mutex<&'a mut Line>,
}

fn held<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Start<'_> {
    fn begin(&self) -> Result<()> {
        let mut mounted = held(&self.mounted);
        if self.of.cache == Cache::Warm {
            rustix::fs::sync();
        } else {
            if let Some(mounted) = mounted.take() {
                mounted.end()?;
            }
            *mounted = Some(self.ground.mount(
                &self.of.system,
                &self.of.options.dir,
                self.of.cache,
            )?);
        }
        held(&self.line).begin()?;
        *held(&self.fence) = self.of.memory.map(Fence::enter).transpose()?;
        Ok(())
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

    /// It is ended from outside.
    fn interrupted(&self) -> bool {
        false
    }
}

/// In the guest: does the run, and gives what the workload has shown.
pub(in crate::lab) fn inside(
    of: &Task,
    ground: &Ground,
    line: &mut Line,
) -> Result<impl Serialize + use<>> {
    ground.schedule(&of.scheduler, &[])?;
    ground.make(&of.system)?;
    // It is ended from outside.
    age::age(
        of.aged,
        of.options.seed,
        ground,
        &of.system,
        &of.options.dir,
        &AtomicBool::new(false),
    )?;
    let mounted = ground.mount(&of.system, &of.options.dir, Cache::Cold)?;
    let plan = plan(&of.script.script()?, of.options.clone())?;
    let start = Start {
        of,
        ground,
        mounted: Mutex::new(Some(mounted)),
        fence: Mutex::default(),
        line: Mutex::new(line),
    };
    let outcome = execute(&plan, &SystemClock, &start);
    drop(held(&start.fence).take());
    let outcome = outcome?.context("the script of this workload runs nothing")?;
    held(&start.line).ran()?;
    let mounted = held(&start.mounted).take();
    mounted.context("nothing is mounted")?.end()?;
    held(&start.line).drained()?;
    Ok(Shown::of(&outcome))
}

impl Bench {
    /// Whether a file system runs in a guest.
    pub(super) fn in_guest(&self, system: usize) -> bool {
        guest::place(&self.matrix.systems[system]) == Place::Guest
    }

    /// Whether a file system can be made where it runs.
    pub(super) fn check_system(&self, system: usize) -> Result<()> {
        let of = &self.matrix.systems[system];
        let kind = of.kind;
        let lacks = || format!("this kernel has no {}: it needs a guest", kind.name());
        match (of.place, self.in_guest(system)) {
            (Some(_), true) => guest::check(kind),
            (None, true) if self.matrix.device.path.is_some() => {
                bail!(
                    "{}, and a guest has modelled disks only; say device.profile and size",
                    lacks()
                )
            }
            (None, true) => guest::check(kind).with_context(lacks),
            (Some(_), false) if !kind.is_ours() && !ground::kernel_has(kind) => {
                bail!(
                    "this kernel has no {}; leave `where` out, and it runs in a guest",
                    kind.name()
                )
            }
            (_, false) => ground::check_kind(kind),
        }
    }

    fn job(&self, busy: u64, memory: u64, task: guest::Task) -> Job {
        let device = &self.matrix.device;
        let profile = device.profile.clone().unwrap_or_default();
        Job {
            profile,
            size: device.size.unwrap_or(0),
            memory,
            busy,
            task,
        }
    }

    /// The kernel of guests, if a file system runs in one; schedulers that it lacks are refused. `None`, too, if that was interrupted.
    pub(super) fn guest_kernel(&self) -> Result<Option<String>> {
        let Some(first) = (0..self.matrix.systems.len()).find(|system| self.in_guest(*system))
        else {
            return Ok(None);
        };
        let Some(outcome) = guest::run(&self.job(0, 0, guest::Task::Look), &self.ended)? else {
            return Ok(None);
        };
        let Has { schedulers } =
            serde_json::from_value(outcome.answer).context("the guest's answer")?;
        let wanted = &self.matrix.schedulers.names;
        if let Some(missing) = wanted.iter().find(|name| !schedulers.contains(name)) {
            bail!(
                "system {} runs in a guest, and that has no scheduler {missing}; it has {}",
                self.matrix.systems[first].name,
                schedulers.join(", ")
            );
        }
        Ok(Some(outcome.kernel))
    }

    /// Makes a file system in a guest and mounts it.
    pub(super) fn try_in_guest(&self, system: &System) -> Result<()> {
        guest::run(
            &self.job(0, 0, guest::Task::Try(system.clone())),
            &self.ended,
        )
        .map(drop)
    }
}

/// Runs a cell; `None` if that was interrupted.
pub(super) fn run(bench: &Bench, cell: Cell, block: u32) -> Result<Option<Run>> {
    let matrix = &bench.matrix;
    let load_before = load();
    let names = matrix.names(cell).map(str::to_owned);
    let options = bench.options(cell.workload, block, Path::new(guest::DIR))?;
    let held = plan(&bench.scripts[cell.workload], options.clone())?.memory();
    let memory = matrix.runs.memory;
    let task = Task {
        system: matrix.systems[cell.system].clone(),
        scheduler: names[2].clone(),
        cache: matrix.runs.cache,
        aged: matrix.runs.aged,
        memory: memory.map(|memory| memory.saturating_add(held)),
        options,
        script: bench.sources[cell.workload].clone(),
    };
    let memory = held.saturating_add(memory.unwrap_or(0));
    let job = bench.job(
        matrix.runs.seconds,
        memory,
        guest::Task::Run(Box::new(task)),
    );
    let Some(outcome) = guest::run(&job, &bench.ended)? else {
        return Ok(None);
    };
    let [counted] = &outcome.counted[..] else {
        bail!("the guest counted {} runs", outcome.counted.len())
    };
    let shown: Shown = serde_json::from_value(outcome.answer).context("the guest's answer")?;
    let ran = Spent::from(&counted.ran);
    Ok(Some(Run {
        meter: Meter::Model(job.profile),
        drain: Spent::from(&counted.all).since(&ran),
        run: ran,
        power: counted.all.watts(),
        guest: Some(outcome.kernel),
        ..shown.run(names, block, load_before)
    }))
}
