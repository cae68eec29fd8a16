//! Resolves processes and their threads: writes composite flowops out, and replaces their locals.

use super::super::random::FixedOrDrawn;
use super::values::{ResolvedValue, Scope};
use super::{FlowopId, PlanBuilder, PlannedFlowop, PlannedProcess, PlannedThread, ProgramNode};
use crate::wml::{
    AttributeList, AttributeValue, CompositeFlowop, Flowop, FlowopKind, ScriptCommand,
    SourcePosition, WmlError, WorkloadScript, did_you_mean,
};
use std::collections::BTreeMap;

/// Limits the flowops of one thread, with composite ones written out.
const OPS_MAX: usize = 16_384;
/// Limits the nesting of composite flowops: each level takes some of the stack, here and where they
/// run.
const NESTED_MAX: usize = 100;
/// Number of file descriptors that a thread can name; 0 is the one it uses when it names none.
pub(crate) const SLOTS: usize = 128;
/// Length that a name stays below.
const NAME_MAX: usize = 128;

impl PlanBuilder<'_> {
    pub(super) fn make_processes(&mut self, place: SourcePosition) -> Result<(), WmlError> {
        for (at, command) in self.defined.clone() {
            if let ScriptCommand::Process(process) = command {
                let made = self.resolve_process(at, process)?;
                // Filebench would merge the two under one name.
                if self
                    .plan
                    .processes
                    .iter()
                    .any(|other| other.name == made.name)
                {
                    let message = format!(
                        "a process '{}' is defined already; call this one differently",
                        made.name
                    );
                    return Err(self.script.error_at(at, message));
                }
                self.plan.processes.push(made);
            }
        }
        // A plan without threads would end at once, and look like a success.
        if self.plan.thread_count() == 0 {
            return Err(self.script.error_at(
                place,
                "nothing runs: no process with a thread is defined before this 'run'",
            ));
        }
        self.find_targets()
    }

    fn resolve_process(
        &self,
        place: SourcePosition,
        process: &crate::wml::ProcessDefinition,
    ) -> Result<PlannedProcess, WmlError> {
        // Processes have attributes and threads, and nothing of their own to run.
        let read = ResolvedAttributes {
            script: self.script,
            scope: Scope::global(&self.variables),
            given: &process.attributes,
        };
        let name = read.required_name(place, "a process")?;
        let threads = process
            .threads
            .iter()
            .map(|thread| self.resolve_thread(thread))
            .collect::<Result<_, _>>()?;
        Ok(PlannedProcess {
            name,
            instances: read.fixed_number("instances", 1)?,
            nice: read.fixed_number("nice", 0)?,
            threads,
        })
    }

    fn resolve_thread(
        &self,
        thread: &crate::wml::ThreadDefinition,
    ) -> Result<PlannedThread, WmlError> {
        let scope = Scope::global(&self.variables);
        let read = ResolvedAttributes {
            script: self.script,
            scope: scope.with_locals(BTreeMap::new()),
            given: &thread.attributes,
        };
        let name = read.required_name(thread.place, "a thread")?;
        // Each thread writes its composite flowops out on its own, as instances do not share state.
        let mut expansion = FlowopExpansion {
            maker: self,
            ops: Vec::new(),
            open: Vec::new(),
        };
        let program = expansion.expand_body(&thread.body, &scope, "")?;
        let ops = expansion.ops;
        // A thread without flowops would spin for ever.
        if ops.is_empty() {
            return Err(self
                .script
                .error_at(thread.place, format!("thread '{name}' has no flowop")));
        }
        Ok(PlannedThread {
            name,
            instances: read.fixed_number("instances", 1)?,
            memsize: read.number("memsize", 0)?,
            ioprio: read.fixed_number("ioprio", 8)?,
            ops,
            program,
        })
    }

    /// Returns whether the script defines a fileset of this name, even if too late.
    fn is_defined_late(&self, wanted: &str) -> bool {
        let is_it = |attributes: &AttributeList| {
            attributes.get("name").is_some_and(
                |name| matches!(&name.value, AttributeValue::Text(text) if text == wanted),
            )
        };
        self.script
            .commands
            .iter()
            .any(|(_, command)| matches!(command, ScriptCommand::Files(_, of) if is_it(of)))
    }

    fn find_composite(&self, name: &str) -> Option<&CompositeFlowop> {
        self.script
            .commands
            .iter()
            .find_map(|(_, command)| match command {
                ScriptCommand::Composite(composite) if composite.name == name => Some(composite),
                _ => None,
            })
    }

    /// Finds the targets of flowops: limits look at their own thread, all others at all threads.
    fn find_targets(&mut self) -> Result<(), WmlError> {
        // Targets may be in threads that are defined later, so all names are collected first.
        let mut all = Vec::new();
        for (p, process) in self.plan.processes.iter().enumerate() {
            for (t, thread) in process.threads.iter().enumerate() {
                let named = |(o, op): (usize, &PlannedFlowop)| {
                    // Names are compared by what the script wrote, prefixes included.
                    (
                        op.name.clone(),
                        op.kind,
                        FlowopId {
                            process: p,
                            thread: t,
                            op: o,
                        },
                    )
                };
                all.extend(thread.ops.iter().enumerate().map(named));
            }
        }
        for (p, process) in self.plan.processes.iter_mut().enumerate() {
            for (t, thread) in process.threads.iter_mut().enumerate() {
                for op in &mut thread.ops {
                    let Some(target) = op.target.clone() else {
                        continue;
                    };
                    // A limit charges what its own thread has done.
                    let own = matches!(
                        op.kind,
                        FlowopKind::IopsLimit | FlowopKind::OpsLimit | FlowopKind::BwLimit
                    );
                    let wanted = match op.kind {
                        FlowopKind::Wakeup => Some(FlowopKind::Block),
                        FlowopKind::SemPost => Some(FlowopKind::SemBlock),
                        _ => None,
                    };
                    let near = |id: &FlowopId| !own || (id.process, id.thread) == (p, t);
                    // A target inside a composite flowop is first looked for among the flowops
                    // beside it.
                    let inner = op
                        .name
                        .rsplit_once('.')
                        .map(|(of, _)| format!("{of}.{target}"));
                    // Several flowops may have the target's name: all of them are targets.
                    let of = |name: &str| -> Vec<(FlowopKind, FlowopId)> {
                        let these = all
                            .iter()
                            .filter(|(other, _, id)| other == name && near(id));
                        these.map(|(_, kind, id)| (*kind, *id)).collect()
                    };
                    let mut found = inner.map_or(Vec::new(), |inner| of(&inner));
                    if found.is_empty() {
                        found = of(&target);
                    }
                    if found.is_empty() {
                        let hint =
                            did_you_mean(&target, all.iter().map(|(name, ..)| name.as_str()));
                        let room = if own { " in this thread" } else { "" };
                        let message = format!(
                            "the target '{target}' of '{}' is no flowop{room}{hint}",
                            op.name
                        );
                        return Err(self.script.error_at(op.place, message));
                    }
                    // A wakeup is for a block, and a post for a semaphore: another target would
                    // wait for ever.
                    if let Some(wanted) =
                        wanted.filter(|wanted| found.iter().any(|(kind, _)| kind != wanted))
                    {
                        let message = format!(
                            "the target '{target}' of '{}' is no {}",
                            op.name,
                            wanted.name()
                        );
                        return Err(self.script.error_at(op.place, message));
                    }
                    debug_assert!(!found.is_empty(), "a target was found");
                    op.targets = found.into_iter().map(|(_, id)| id).collect();
                }
            }
        }
        Ok(())
    }
}

/// Reads the attributes of one definition with their defaults.
struct ResolvedAttributes<'a> {
    script: &'a WorkloadScript,
    scope: Scope<'a>,
    given: &'a AttributeList,
}

impl ResolvedAttributes<'_> {
    fn fixed_number(&self, name: &str, default: u64) -> Result<u64, WmlError> {
        self.given.get(name).map_or(Ok(default), |found| {
            self.scope.resolve_fixed(self.script, found)
        })
    }

    fn is_set(&self, name: &str) -> Result<bool, WmlError> {
        self.fixed_number(name, 0).map(|n| n != 0)
    }

    fn number(&self, name: &str, default: u64) -> Result<FixedOrDrawn, WmlError> {
        self.given
            .get(name)
            .map_or(Ok(FixedOrDrawn::Fixed(default)), |found| {
                self.scope.resolve_number(self.script, found)
            })
    }

    fn text(&self, name: &str) -> Result<Option<String>, WmlError> {
        self.given
            .get(name)
            .map(|found| self.scope.resolve_text(self.script, found))
            .transpose()
    }

    fn required_name(&self, place: SourcePosition, what: &str) -> Result<String, WmlError> {
        match self.text("name")? {
            Some(name) if name.is_empty() || name.len() >= NAME_MAX => Err(self.script.error_at(
                place,
                format!("a name has 1 to {} characters", NAME_MAX - 1),
            )),
            Some(name) => Ok(name),
            None => Err(self
                .script
                .error_at(place, format!("{what} needs a name: name=…"))),
        }
    }
}

struct FlowopExpansion<'a> {
    maker: &'a PlanBuilder<'a>,
    ops: Vec<PlannedFlowop>,
    /// Composite flowops that are being written out.
    open: Vec<String>,
}

impl FlowopExpansion<'_> {
    fn expand_body(
        &mut self,
        body: &[Flowop],
        scope: &Scope<'_>,
        prefix: &str,
    ) -> Result<Vec<ProgramNode>, WmlError> {
        body.iter()
            .map(|flowop| self.expand_flowop(flowop, scope, prefix))
            .collect()
    }

    fn expand_flowop(
        &mut self,
        flowop: &Flowop,
        scope: &Scope<'_>,
        prefix: &str,
    ) -> Result<ProgramNode, WmlError> {
        let script = self.maker.script;
        if self.ops.len() >= OPS_MAX {
            return Err(script.error_at(
                flowop.place,
                format!("a thread has more than {OPS_MAX} flowops"),
            ));
        }
        let read = ResolvedAttributes {
            script,
            scope: scope.with_locals(scope.locals.clone()),
            given: &flowop.attributes,
        };
        // The prefix tells instances of the same composite flowop apart.
        let name = format!("{prefix}{}", read.required_name(flowop.place, "a flowop")?);
        let iters = read.number("iters", 1)?;
        if let Some(kind) = flowop.kind {
            let op = self.resolve_flowop(flowop, &read, kind, name, iters)?;
            self.ops.push(op);
            return Ok(ProgramNode::Op(self.ops.len() - 1));
        }
        let Some(composite) = self.maker.find_composite(&flowop.name) else {
            return Err(script.error_at(flowop.place, format!("unknown flowop '{}'", flowop.name)));
        };
        // A flowop that calls itself would be written out for ever.
        if self.open.contains(&composite.name) {
            let chain = format!("{} -> {}", self.open.join(" -> "), composite.name);
            let message = format!("cyclic composite flowop: {chain}; take one of these calls out");
            return Err(script.error_at(flowop.place, message));
        }
        if self.open.len() >= NESTED_MAX {
            let message = format!(
                "composite flowops lie more than {NESTED_MAX} deep in each other: call this one \
                 from fewer"
            );
            return Err(script.error_at(flowop.place, message));
        }
        let inner = self.resolve_locals(flowop, composite, scope)?;
        // The attribute of the call comes first, then that of the definition.
        let own = ResolvedAttributes {
            script,
            scope: scope.with_locals(inner.clone()),
            given: &composite.attributes,
        };
        let repeats = if flowop.attributes.get("iters").is_some() {
            iters
        } else {
            own.number("iters", 1)?
        };
        // The stack of open flowops finds cycles.
        self.open.push(composite.name.clone());
        let body = self.expand_body(
            &composite.body,
            &scope.with_locals(inner),
            &format!("{name}."),
        )?;
        self.open.pop();
        Ok(ProgramNode::Group(repeats, body))
    }

    fn resolve_locals(
        &self,
        flowop: &Flowop,
        composite: &CompositeFlowop,
        scope: &Scope<'_>,
    ) -> Result<BTreeMap<String, ResolvedValue>, WmlError> {
        let script = self.maker.script;
        let mut locals = BTreeMap::new();
        // Each local is given by the call, or has a default.
        for (name, default) in &composite.locals {
            let given = flowop.locals.iter().find(|(other, ..)| other == name);
            let (value, place) = match (given, default) {
                (Some((_, value, place)), _) => (value, *place),
                (None, Some(default)) => (default, composite.place),
                (None, None) => {
                    let message = format!(
                        "'{}' needs its local ${name}; write {} ${name}=…",
                        composite.name, composite.name
                    );
                    return Err(script.error_at(flowop.place, message));
                }
            };
            locals.insert(name.clone(), scope.resolve_value(script, place, value)?);
        }
        // A local that the definition does not have is a typing error.
        if let Some((name, _, place)) = flowop
            .locals
            .iter()
            .find(|(name, ..)| !locals.contains_key(name))
        {
            let hint = did_you_mean(name, locals.keys().map(String::as_str));
            return Err(script.error_at(
                *place,
                format!("'{}' has no local ${name}{hint}", composite.name),
            ));
        }
        Ok(locals)
    }

    fn resolve_flowop(
        &self,
        flowop: &Flowop,
        read: &ResolvedAttributes<'_>,
        kind: FlowopKind,
        name: String,
        iters: FixedOrDrawn,
    ) -> Result<PlannedFlowop, WmlError> {
        let script = self.maker.script;
        // Errors point to the attribute, or else to the flowop.
        let place = |name: &str| {
            flowop
                .attributes
                .get(name)
                .map_or(flowop.place, |found| found.place)
        };
        // The fileset is known by now, because filesets are made before the run.
        let set = match read.text("filename")? {
            None => None,
            Some(wanted) => {
                let sets = || self.maker.plan.filesets.iter().map(|set| set.name.as_str());
                match sets().position(|known| known == wanted) {
                    Some(found) => Some(found),
                    None => {
                        // The message differs, because a late definition is the most common
                        // mistake.
                        let hint = match self.maker.is_defined_late(&wanted) {
                            true => " before the files are created; define it above 'create files'"
                                .to_owned(),
                            false => did_you_mean(&wanted, sets()),
                        };
                        let message = format!(
                            "'{name}' works on the fileset '{wanted}', which is not defined{hint}"
                        );
                        return Err(script.error_at(place("filename"), message));
                    }
                }
            }
        };
        // Slots are numbers that the thread chooses.
        let slot = |name: &str| match read.fixed_number(name, 0)? {
            fd if fd < SLOTS as u64 => Ok(fd as usize),
            fd => Err(script.error_at(
                place(name),
                format!("'{name}' is {fd}; a thread has slots 1 to {}", SLOTS - 1),
            )),
        };
        // The value of `print` is its text, that of all others a number.
        let (message, value) = if kind == FlowopKind::Print {
            (read.text("value")?, FixedOrDrawn::Fixed(0))
        } else {
            (None, read.number("value", 0)?)
        };
        // Everything that the worker needs is resolved here, once.
        Ok(PlannedFlowop {
            name,
            kind,
            place: flowop.place,
            iters,
            set,
            fd: slot("fd")?,
            srcfd: slot("srcfd")?,
            iosize: read.number("iosize", 0)?,
            workingset: read.number("workingset", 0)?,
            random: read.is_set("random")?,
            dsync: read.is_set("dsync")?,
            directio: read.is_set("directio")?,
            opennext: read.is_set("opennext")?,
            indexed: flowop
                .attributes
                .get("indexed")
                .map(|found| read.scope.resolve_number(script, found))
                .transpose()?,
            value,
            message,
            target: read.text("target")?,
            targets: Vec::new(),
            blocking: read.is_set("blocking")?,
            highwater: read.fixed_number("highwater", 1)?,
            noreadahead: read.is_set("noreadahead")?,
        })
    }
}
