//! Turns commands into a plan, one after the other, in the order of the script.

use super::super::random::ThreadDraws;
use super::check;
use super::values::{Scope, ScriptVariables};
use super::{RunStep, WorkloadOptions, WorkloadPlan};
use crate::wml::{
    AttributeValue, NamedAttribute, QuitMode, ScriptCommand, SourcePosition, WmlError,
    WorkloadScript,
};

/// Seconds of a run that ends by time and says nothing of its length.
const SECONDS_DEFAULT: u64 = 60;

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
    // A script without `run` is one for interactive use: `run` is typed behind it. A caller that
    // says how long it runs does the same.
    let options = &maker.plan.options;
    if options.seconds.is_some() || options.operations.is_some() {
        let last = script.commands.last();
        maker.finish_with_run(
            last.map_or_else(Default::default, |(place, _)| *place),
            None,
        )?;
        return Ok(maker.plan);
    }
    let message = "there is no 'run' in this script, so nothing would be done; end it with \
                   'run 60', or say how long it runs: --seconds 60";
    Err(WmlError {
        file: script.files[0].clone(),
        line: 0,
        column: 0,
        message: message.into(),
    })
}

/// Grows a plan command by command.
pub(super) struct PlanBuilder<'a> {
    pub(super) script: &'a WorkloadScript,
    pub(super) variables: ScriptVariables,
    pub(super) plan: WorkloadPlan,
    /// Processes and filesets so far, by their commands.
    pub(super) defined: Vec<(SourcePosition, &'a ScriptCommand)>,
    rate: Option<&'a NamedAttribute>,
    pub(super) created: bool,
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
            ScriptCommand::Create => self.add_creation(place)?,
            ScriptCommand::Run(seconds) => {
                self.finish_with_run(place, seconds.as_ref())?;
                return Ok(true);
            }
            ScriptCommand::Psrun(period, seconds) => {
                // A run by `psrun` is one by `run` with figures on the way.
                self.plan.period = *period;
                self.finish_with_run(place, seconds.as_ref())?;
                return Ok(true);
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
            ScriptCommand::Sleep(_)
            | ScriptCommand::System(_)
            | ScriptCommand::Echo(_)
            | ScriptCommand::List(_)
            | ScriptCommand::Version => {
                let step = self.resolve_step(place, command)?;
                self.plan.steps.extend(step);
            }
        }
        Ok(false)
    }

    /// Adds the making of the files, which is done once.
    fn add_creation(&mut self, place: SourcePosition) -> Result<(), WmlError> {
        if self.created {
            self.plan.remarks.push(format!(
                "line {}: files are created once; this is ignored",
                place.line
            ));
            return Ok(());
        }
        // Variables that are set later have no effect on these files.
        self.make_filesets()?;
        self.plan.steps.push(RunStep::Create);
        Ok(())
    }

    /// Returns the step of a command that only prints, waits, or runs a program.
    fn resolve_step(
        &mut self,
        place: SourcePosition,
        command: &ScriptCommand,
    ) -> Result<Option<RunStep>, WmlError> {
        // Texts are expanded now, with the values that variables have at this point.
        let step = match command {
            ScriptCommand::Sleep(seconds) => RunStep::Sleep(self.resolve_seconds(place, seconds)?),
            ScriptCommand::System(text) => {
                RunStep::System(self.variables.expand_text(self.script, place, text)?)
            }
            ScriptCommand::Echo(text) => {
                RunStep::Say(self.variables.expand_text(self.script, place, text)?)
            }
            ScriptCommand::List(what) => {
                RunStep::Say(format!("{what}: {}", self.defined_names(what).join(", ")))
            }
            ScriptCommand::Version => RunStep::Say(format!(
                "teal lab {}, Filebench's language",
                env!("CARGO_PKG_VERSION")
            )),
            _ => return Ok(None),
        };
        Ok(Some(step))
    }

    /// Returns the names of the filesets that are defined up to this point, or of the composite
    /// flowops of the script.
    fn defined_names(&self, what: &str) -> Vec<String> {
        let mut names = Vec::new();
        if what == "flowop" {
            for (_, command) in &self.script.commands {
                if let ScriptCommand::Composite(composite) = command {
                    names.push(composite.name.clone());
                }
            }
            return names;
        }
        for (_, command) in &self.defined {
            if let ScriptCommand::Files(_, attributes) = command
                && let Some(named) = attributes.get("name")
                && let AttributeValue::Text(name) = &named.value
            {
                names.push(name.clone());
            }
        }
        names
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
        let attribute = NamedAttribute {
            name: "value",
            place,
            value: value.clone(),
        };
        let number = Scope::global(&self.variables).resolve_number(self.script, &attribute)?;
        let mut draws = ThreadDraws::new(&self.plan.randoms, self.plan.options.seed, u64::MAX);
        Ok(draws.draw_whole(number))
    }
}
