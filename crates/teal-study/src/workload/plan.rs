//! Turns commands into a plan: resolves variables, writes composite flowops out, and checks
//! everything.
//!
//! # Guarantees
//! 1. Pure: nothing in the world changes before the whole script has been found sound.
//! 2. Everything that a plan refers to exists: filesets, targets, random variables.
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

/// Seconds of a run that ends by time and says nothing of its length.
const SECONDS_DEFAULT: u64 = 60;

/// Says how a script is to be run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct WorkloadOptions {
    /// Absolute path of the directory of filesets.
    pub dir: PathBuf,
    /// Ends the run after this number of seconds, whatever the script says.
    pub seconds: Option<u64>,
    /// Ends the run after this number of operations, or when its time is over, whatever the script
    /// says.
    pub operations: Option<u64>,
    /// Factor on the number of files, or on their sizes where they are few.
    pub scale: f64,
    /// Seed of all random numbers.
    pub seed: u64,
    /// Variables that override the script's.
    pub set: Vec<(String, String)>,
    /// Is true when Filebench's known bugs are wanted too.
    pub strict: bool,
}

impl WorkloadOptions {
    /// Follows the script in everything, in this directory.
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

/// Names the way in which files are opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenAccess {
    /// For reading: `readonly`.
    Read,
    /// For writing: `writeonly`.
    Write,
    /// For both.
    Both,
}

/// Describes a set of files, as it is defined.
#[derive(Debug, Clone)]
pub struct Fileset {
    /// Position of the definition: file, line and column.
    pub place: String,
    /// Name of the set.
    pub name: String,
    /// Root directory: path and name.
    pub root: PathBuf,
    /// Number of files.
    pub entries: u64,
    /// Number of files that the script asks for, before scaling.
    pub entries_asked: u64,
    /// Sizes of the files.
    pub size: FixedOrDrawn,
    /// Factor on sizes: 1 except for scaled sets of few files.
    pub size_scale: f64,
    /// Mean number of files or directories in a directory.
    pub dirwidth: FixedOrDrawn,
    /// Random variable for depths, if one is given.
    pub dirdepth: Option<usize>,
    /// Shape of depths and widths, in thousandths; 0 means always the mean.
    pub dirgamma: u64,
    /// Number of empty leaf directories.
    pub leafdirs: u64,
    /// Percent of the files that exist from the beginning.
    pub prealloc: u64,
    /// Is true when many threads make the files.
    pub paralloc: bool,
    /// Is true when existing files are kept.
    pub reuse: bool,
    /// Is true when existing files are not even looked at.
    pub trusttree: bool,
    /// Way in which its files are opened.
    pub access: OpenAccess,
}

/// Describes a flowop of a thread, with everything it needs.
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
    /// Flowops of the target's name.
    pub targets: Vec<FlowopId>,
    pub blocking: bool,
    pub highwater: u64,
    pub noreadahead: bool,
}

/// Identifies a flowop by process, thread and flowop, as they are defined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "indices into the lists of these names")]
pub struct FlowopId {
    pub process: usize,
    pub thread: usize,
    pub op: usize,
}

/// Orders a thread's flowops.
#[derive(Debug, Clone)]
pub enum ProgramNode {
    /// Runs the flowop of this index.
    Op(usize),
    /// Runs a composite flowop: a number of times, the flowops in it.
    Group(FixedOrDrawn, Vec<ProgramNode>),
}

/// Describes a kind of thread.
#[derive(Debug, Clone)]
pub struct PlannedThread {
    /// Name of the thread.
    pub name: String,
    /// Number of such threads in each process.
    pub instances: u64,
    /// Bytes of memory that transfers use.
    pub memsize: FixedOrDrawn,
    /// I/O priority from 0 to 7; 8 leaves it alone.
    pub ioprio: u64,
    /// Flowops of the thread.
    pub ops: Vec<PlannedFlowop>,
    /// Order of the flowops.
    pub program: Vec<ProgramNode>,
}

/// Describes a kind of process.
#[derive(Debug, Clone)]
pub struct PlannedProcess {
    /// Name of the process.
    pub name: String,
    /// Number of such processes.
    pub instances: u64,
    /// Niceness of its threads.
    pub nice: u64,
    /// Kinds of threads in it.
    pub threads: Vec<PlannedThread>,
}

/// Names a step of a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunStep {
    /// Prints a line.
    Say(String),
    /// Waits for this number of seconds.
    Sleep(u64),
    /// Runs a command of the shell.
    System(String),
    /// Makes the filesets.
    Create,
    /// Runs the threads; no step follows it.
    Run,
}

/// Holds the whole plan.
#[derive(Debug, Clone)]
pub struct WorkloadPlan {
    /// Sets of files.
    pub filesets: Vec<Fileset>,
    /// Random variables.
    pub randoms: Vec<RandomVariable>,
    /// Processes.
    pub processes: Vec<PlannedProcess>,
    /// Steps, in their order.
    pub steps: Vec<RunStep>,
    /// Event that ends the run.
    pub quit: QuitMode,
    /// Seconds of the run, if time ends it.
    pub seconds: Option<u64>,
    /// Events in a second; `None` means that limits let everything pass.
    pub rate: Option<FixedOrDrawn>,
    /// Seconds between figures on the way. Negative ones begin anew each time; 0 means none.
    pub period: i64,
    /// Is true when histograms are printed.
    pub lathist: bool,
    /// Level of messages.
    pub debug: i64,
    /// Options of the run.
    pub options: WorkloadOptions,
    /// Remarks, such as on commands that were accepted although they have no effect.
    pub remarks: Vec<String>,
}

impl WorkloadPlan {
    /// Returns the number of all threads.
    pub fn thread_count(&self) -> u64 {
        let of = |process: &PlannedProcess| {
            // Products saturate: a script may ask for any number of instances.
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

    /// Returns about the bytes of memory that the threads of a run hold for themselves: their
    /// buffers, and their figures.
    pub fn memory_bytes(&self) -> u64 {
        self.memory_by_kind()
            .into_iter()
            .map(|(_, bytes)| bytes)
            .fold(0, u64::saturating_add)
    }

    /// Returns these bytes for each kind of thread, by its name.
    pub(super) fn memory_by_kind(&self) -> Vec<(&str, u64)> {
        const FOR_ITSELF: u64 = 64 << 10;
        const FOR_A_FLOWOP: u64 = 5 << 10;
        let mut draws = ThreadDraws::new(&self.randoms, self.options.seed, 0);
        let mut of = |thread: &PlannedThread| match draws.draw_whole(thread.memsize) {
            // Without memory of the thread, each flowop has a buffer of its own.
            0 => thread
                .ops
                .iter()
                .map(|op| draws.draw_whole(op.iosize))
                .fold(0, u64::saturating_add),
            memory => memory,
        };
        let mut all = Vec::new();
        // Each kind of thread counts with all of its instances.
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
/// Returns the first attribute that is undefined, of the wrong kind, zero where that means nothing,
/// or missing, with its position.
pub fn plan_script(
    script: &WorkloadScript,
    options: WorkloadOptions,
) -> Result<WorkloadPlan, WmlError> {
    // The plan grows command by command, in the order of the script.
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
        // The script ends at its `run` or `quit`.
        if maker.add_command(*place, command)? {
            return Ok(maker.plan);
        }
    }
    // A script without `run` is one for interactive use.
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
    /// Adds a command; returns whether the script ends with it.
    fn add_command(
        &mut self,
        place: SourcePosition,
        command: &'a ScriptCommand,
    ) -> Result<bool, WmlError> {
        // Definitions are collected, and resolved when they are used.
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
                // A run by `psrun` is one by `run` with figures on the way.
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
                    "'{what}' is for several machines, which are not led from here; run the \
                     script on each"
                );
                return Err(self.script.error_at(place, message));
            }
        }
        Ok(false)
    }

    fn list_names(&mut self, what: &str) {
        // Lists name what is defined up to this point.
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
        // Seconds may be a random variable, which is drawn once.
        let asked = seconds
            .map(|seconds| self.resolve_seconds(place, seconds))
            .transpose()?;
        // Only the mode that ends by time needs a length.
        let by_time = (self.plan.quit == QuitMode::Timeout).then_some(SECONDS_DEFAULT);
        // The caller's seconds come first, then the script's, then the default.
        self.plan.seconds = self
            .plan
            .options
            .seconds
            .or(asked.filter(|seconds| *seconds > 0))
            .or(by_time);
        // The rate is resolved at the run, when all variables have their values.
        if let Some(rate) = self.rate {
            let scope = Scope::global(&self.variables);
            self.plan.rate =
                Some(scope.resolve_number(self.script, rate)?).filter(|rate| !rate.is_zero());
        }
        self.make_processes(place)?;
        check::check_plan(self.script, &self.plan)?;
        debug_assert!(self.plan.thread_count() > 0, "a run has a thread at least");
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
