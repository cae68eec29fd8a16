//! From commands to what is to be done: variables resolved, composite flowops written out,
//! everything checked.
//!
//! # Guarantees
//! 1. Pure: nothing in the world changes before the whole script has been found sound.
//! 2. What a plan refers to is there: filesets, targets, random variables.
//! 3. No fileset lies outside of the directory of the run.

mod check;
mod files;
mod randoms;
mod threads;
mod values;

use super::random::{FixedOrDrawn, RandomVariable, ThreadDraws};
use crate::wml::{
    AttributeValue, FlowopKind, QuitMode, ScriptCommand, SourcePosition, WmlError, WorkloadScript,
};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
pub(super) use threads::SLOTS;
use values::{Scope, ScriptVariables};

/// The longest a run is when nothing is said of its length, in the mode that ends by time.
const SECONDS_DEFAULT: u64 = 60;

/// How a script is to be run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct WorkloadOptions {
    /// Where filesets lie: absolute.
    pub dir: PathBuf,
    /// Ends the run after this many seconds, whatever the script says.
    pub seconds: Option<u64>,
    /// Ends the run when so many operations have been done, whatever the script says; or when its
    /// time is over.
    pub operations: Option<u64>,
    /// Factor on the number of files; on sizes, where there are few.
    pub scale: f64,
    /// What all random numbers begin with.
    pub seed: u64,
    /// Variables, whatever the script sets them to.
    pub set: Vec<(String, String)>,
    /// Filebench's known bugs, too.
    pub strict: bool,
}

impl WorkloadOptions {
    /// As the script says, in this directory.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        let (seconds, operations) = (None, None);
        Self {
            dir: dir.into(),
            seconds,
            operations,
            scale: 1.0,
            seed: 1,
            set: Vec::new(),
            strict: false,
        }
    }
}

/// Which way files are opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenAccess {
    /// `readonly`
    Read,
    /// `writeonly`
    Write,
    /// Neither.
    Both,
}

/// A set of files, as it is defined.
#[derive(Debug, Clone)]
pub struct Fileset {
    /// Where it is defined: file, line and column.
    pub place: String,
    /// Its name.
    pub name: String,
    /// Where it lies: path and name.
    pub root: PathBuf,
    /// How many files.
    pub entries: u64,
    /// How many the script asks for, before scaling.
    pub entries_asked: u64,
    /// Their sizes.
    pub size: FixedOrDrawn,
    /// Factor on sizes: 1 but for scaled sets of few files.
    pub size_scale: f64,
    /// Files or directories in a directory, on average.
    pub dirwidth: FixedOrDrawn,
    /// The random variable for depths, if one is given.
    pub dirdepth: Option<usize>,
    /// Shape of depths and widths, in thousandths; 0: always the mean.
    pub dirgamma: u64,
    /// Empty leaf directories.
    pub leafdirs: u64,
    /// How many percent are there from the beginning.
    pub prealloc: u64,
    /// Made by many threads.
    pub paralloc: bool,
    /// What is there is kept.
    pub reuse: bool,
    /// It is not even looked at.
    pub trusttree: bool,
    /// How its files are opened.
    pub access: OpenAccess,
}

/// A flowop of a thread, with everything it needs.
#[derive(Debug, Clone)]
#[allow(
    missing_docs,
    reason = "fields are the language's attributes; docs/wml.md has the table"
)]
pub struct PlannedFlowop {
    pub name: String,
    pub kind: FlowopKind,
    pub place: SourcePosition,
    pub iters: FixedOrDrawn,
    pub set: Option<usize>,
    pub fd: usize,
    pub srcfd: usize,
    pub iosize: FixedOrDrawn,
    pub workingset: FixedOrDrawn,
    pub random: bool,
    pub dsync: bool,
    pub directio: bool,
    pub opennext: bool,
    pub indexed: Option<FixedOrDrawn>,
    pub value: FixedOrDrawn,
    pub message: Option<String>,
    pub target: Option<String>,
    /// The flowops of the target's name.
    pub targets: Vec<FlowopId>,
    pub blocking: bool,
    pub highwater: u64,
    pub noreadahead: bool,
}

/// Which flowop: process, thread, flowop, as they are defined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "indices into the lists of these names")]
pub struct FlowopId {
    pub process: usize,
    pub thread: usize,
    pub op: usize,
}

/// The order of a thread's flowops.
#[derive(Debug, Clone)]
pub enum ProgramNode {
    /// The flowop of this index.
    Op(usize),
    /// A composite one: how often, and what.
    Group(FixedOrDrawn, Vec<ProgramNode>),
}

/// A kind of thread.
#[derive(Debug, Clone)]
pub struct PlannedThread {
    /// Its name.
    pub name: String,
    /// How many of them in each process.
    pub instances: u64,
    /// Memory that transfers point into.
    pub memsize: FixedOrDrawn,
    /// 0 to 7; 8: as it is.
    pub ioprio: u64,
    /// Its flowops.
    pub ops: Vec<PlannedFlowop>,
    /// Their order.
    pub program: Vec<ProgramNode>,
}

/// A kind of process.
#[derive(Debug, Clone)]
pub struct PlannedProcess {
    /// Its name.
    pub name: String,
    /// How many of them.
    pub instances: u64,
    /// Niceness of its threads.
    pub nice: u64,
    /// Its kinds of threads.
    pub threads: Vec<PlannedThread>,
}

/// What happens, in this order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunStep {
    /// Print a line.
    Say(String),
    /// Wait so many seconds.
    Sleep(u64),
    /// Run a command of the shell.
    System(String),
    /// Make the filesets.
    Create,
    /// Run the threads; nothing comes after.
    Run,
}

/// All of it.
#[derive(Debug, Clone)]
pub struct WorkloadPlan {
    /// Sets of files.
    pub filesets: Vec<Fileset>,
    /// Random variables.
    pub randoms: Vec<RandomVariable>,
    /// Processes.
    pub processes: Vec<PlannedProcess>,
    /// What happens.
    pub steps: Vec<RunStep>,
    /// What ends the run.
    pub quit: QuitMode,
    /// Seconds, if time ends it.
    pub seconds: Option<u64>,
    /// Events in a second; `None`: limits let everything pass.
    pub rate: Option<FixedOrDrawn>,
    /// Seconds between figures on the way; negative: they begin anew each time. 0: none.
    pub period: i64,
    /// Histograms are printed.
    pub lathist: bool,
    /// How much is said.
    pub debug: i64,
    /// How it is run.
    pub options: WorkloadOptions,
    /// What was accepted although it means nothing, and the like.
    pub remarks: Vec<String>,
}

impl WorkloadPlan {
    /// The threads in all.
    pub fn thread_count(&self) -> u64 {
        let of = |process: &PlannedProcess| {
            process
                .threads
                .iter()
                .map(|thread| thread.instances)
                .sum::<u64>()
        };
        self.processes
            .iter()
            .map(|process| process.instances.saturating_mul(of(process)))
            .sum()
    }

    /// Bytes of memory that the threads of a run hold for themselves, about: what they transfer
    /// from and to, and their figures.
    pub fn memory_bytes(&self) -> u64 {
        self.memory_by_kind()
            .into_iter()
            .map(|(_, bytes)| bytes)
            .fold(0, u64::saturating_add)
    }

    /// The same for each kind of thread, by its name.
    pub(super) fn memory_by_kind(&self) -> Vec<(&str, u64)> {
        const FOR_ITSELF: u64 = 64 << 10;
        const FOR_A_FLOWOP: u64 = 5 << 10;
        let mut draws = ThreadDraws::new(&self.randoms, self.options.seed, 0);
        let mut of = |thread: &PlannedThread| match draws.draw_whole(thread.memsize) {
            // Each flowop has its own.
            0 => thread
                .ops
                .iter()
                .map(|op| draws.draw_whole(op.iosize))
                .fold(0, u64::saturating_add),
            memory => memory,
        };
        let mut all = Vec::new();
        for process in &self.processes {
            for thread in &process.threads {
                let each =
                    of(thread).saturating_add(FOR_ITSELF + FOR_A_FLOWOP * thread.ops.len() as u64);
                let many = process.instances.saturating_mul(thread.instances);
                all.push((thread.name.as_str(), each.saturating_mul(many)));
            }
        }
        all
    }
}

/// Makes a plan of a script.
///
/// # Errors
/// What is undefined, of the wrong kind, zero where that means nothing, or missing, with its place.
pub fn plan_script(
    script: &WorkloadScript,
    options: WorkloadOptions,
) -> Result<WorkloadPlan, WmlError> {
    let mut maker = PlanBuilder {
        script,
        variables: ScriptVariables::new(script, &options)?,
        plan: WorkloadPlan {
            filesets: Vec::new(),
            randoms: Vec::new(),
            processes: Vec::new(),
            steps: Vec::new(),
            quit: QuitMode::default(),
            seconds: None,
            rate: None,
            period: 0,
            lathist: false,
            debug: 0,
            options,
            remarks: script.remarks.clone(),
        },
        defined: Vec::new(),
        rate: None,
        created: false,
    };
    for (place, command) in &script.commands {
        if maker.add_command(*place, command)? {
            return Ok(maker.plan);
        }
    }
    let message = "there is no 'run' in this script, so nothing would be done; end it with: run 60";
    Err(WmlError {
        file: script.files[0].clone(),
        line: 0,
        column: 0,
        message: message.into(),
    })
}

struct PlanBuilder<'a> {
    script: &'a WorkloadScript,
    variables: ScriptVariables,
    plan: WorkloadPlan,
    /// Processes and filesets so far, by their commands.
    defined: Vec<(SourcePosition, &'a ScriptCommand)>,
    rate: Option<&'a crate::wml::NamedAttribute>,
    created: bool,
}

impl<'a> PlanBuilder<'a> {
    /// Returns whether the script ends with this command.
    fn add_command(
        &mut self,
        place: SourcePosition,
        command: &'a ScriptCommand,
    ) -> Result<bool, WmlError> {
        match command {
            ScriptCommand::Set(name, assigned) => self.assign_variable(place, name, assigned)?,
            ScriptCommand::Mode(quit) => self.plan.quit = *quit,
            ScriptCommand::Files(..) | ScriptCommand::Process(_) => {
                self.defined.push((place, command))
            }
            ScriptCommand::Composite(_) | ScriptCommand::Nothing => {}
            ScriptCommand::Eventgen(rate) => self.rate = rate.as_ref(),
            ScriptCommand::Create if self.created => {
                self.plan.remarks.push(format!(
                    "line {}: files are created once; this is ignored",
                    place.line
                ));
            }
            ScriptCommand::Create => {
                self.make_filesets()?;
                self.plan.steps.push(RunStep::Create);
            }
            ScriptCommand::Run(seconds) => {
                return self.finish_with_run(place, seconds.as_ref()).map(|()| true);
            }
            ScriptCommand::Psrun(period, seconds) => {
                self.plan.period = *period;
                return self.finish_with_run(place, seconds.as_ref()).map(|()| true);
            }
            ScriptCommand::Sleep(seconds) => {
                let seconds = self.resolve_seconds(place, seconds)?;
                self.plan.steps.push(RunStep::Sleep(seconds));
            }
            ScriptCommand::System(text) => {
                let text = self.variables.expand_text(self.script, place, text)?;
                self.plan.steps.push(RunStep::System(text));
            }
            ScriptCommand::Echo(text) => {
                let text = self.variables.expand_text(self.script, place, text)?;
                self.plan.steps.push(RunStep::Say(text));
            }
            ScriptCommand::List(what) => self.list_names(what),
            ScriptCommand::Version => {
                self.plan.steps.push(RunStep::Say(format!(
                    "teal lab {}, Filebench's language",
                    env!("CARGO_PKG_VERSION")
                )));
            }
            ScriptCommand::Quit => return Ok(true),
            ScriptCommand::Debug(level) => self.plan.debug = *level,
            ScriptCommand::Lathist => self.plan.lathist = true,
            ScriptCommand::Multi(what) => {
                let message = format!(
                    "'{what}' is for several machines, which are not led from here; run the script on each"
                );
                return Err(self.script.error_at(place, message));
            }
        }
        Ok(false)
    }

    fn list_names(&mut self, what: &str) {
        let names: Vec<String> = match what {
            "flowop" => self
                .script
                .commands
                .iter()
                .filter_map(|(_, command)| match command {
                    ScriptCommand::Composite(composite) => Some(composite.name.clone()),
                    _ => None,
                })
                .collect(),
            _ => self
                .defined
                .iter()
                .filter_map(|(_, command)| match command {
                    ScriptCommand::Files(_, attributes) => match &attributes.get("name")?.value {
                        AttributeValue::Text(name) => Some(name.clone()),
                        _ => None,
                    },
                    _ => None,
                })
                .collect(),
        };
        self.plan
            .steps
            .push(RunStep::Say(format!("{what}: {}", names.join(", "))));
    }

    fn finish_with_run(
        &mut self,
        place: SourcePosition,
        seconds: Option<&AttributeValue>,
    ) -> Result<(), WmlError> {
        if !self.created {
            self.make_filesets()?;
        }
        let asked = seconds
            .map(|seconds| self.resolve_seconds(place, seconds))
            .transpose()?;
        let by_time = (self.plan.quit == QuitMode::Timeout).then_some(SECONDS_DEFAULT);
        self.plan.seconds = self
            .plan
            .options
            .seconds
            .or(asked.filter(|seconds| *seconds > 0))
            .or(by_time);
        if let Some(rate) = self.rate {
            let scope = Scope::global(&self.variables);
            self.plan.rate =
                Some(scope.resolve_number(self.script, rate)?).filter(|rate| !rate.is_zero());
        }
        self.make_processes(place)?;
        check::check_plan(self.script, &self.plan)?;
        self.plan.steps.push(RunStep::Run);
        Ok(())
    }

    fn resolve_seconds(
        &mut self,
        place: SourcePosition,
        value: &AttributeValue,
    ) -> Result<u64, WmlError> {
        let attribute = crate::wml::NamedAttribute {
            name: "value",
            place,
            value: value.clone(),
        };
        let number = Scope::global(&self.variables).resolve_number(self.script, &attribute)?;
        Ok(
            super::random::ThreadDraws::new(&self.plan.randoms, self.plan.options.seed, u64::MAX)
                .draw_whole(number),
        )
    }
}

#[cfg(test)]
mod tests;
