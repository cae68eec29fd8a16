//! Resolves processes and their threads, and finds the targets of their flowops.

use super::attributes::ResolvedAttributes;
use super::builder::PlanBuilder;
use super::flowops::FlowopExpansion;
use super::values::Scope;
use super::{FlowopId, PlannedFlowop, PlannedProcess, PlannedThread};
use crate::wml::{FlowopKind, ScriptCommand, SourcePosition, WmlError, did_you_mean};
use std::collections::BTreeMap;

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
        let mut expansion = FlowopExpansion::new(self);
        let program = expansion.expand_body(&thread.body, &scope, "")?;
        let ops = expansion.into_flowops();
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

    /// Finds the targets of flowops: limits look at their own thread, all others at all threads.
    fn find_targets(&mut self) -> Result<(), WmlError> {
        // Targets may be in threads that are defined later, so all names are collected first.
        let all = collect_flowops(&self.plan.processes);
        for (p, process) in self.plan.processes.iter_mut().enumerate() {
            for (t, thread) in process.threads.iter_mut().enumerate() {
                for op in &mut thread.ops {
                    if let Some(target) = op.target.clone() {
                        op.targets = targets_of(op, &target, (p, t), &all)
                            .map_err(|message| self.script.error_at(op.place, message))?;
                    }
                }
            }
        }
        Ok(())
    }
}

/// Names a flowop: its name in the script, its kind and its place in the plan.
type NamedFlowop = (String, FlowopKind, FlowopId);

/// Returns the names of all flowops. They are those of the script, prefixes included.
fn collect_flowops(processes: &[PlannedProcess]) -> Vec<NamedFlowop> {
    let mut all = Vec::new();
    for (p, process) in processes.iter().enumerate() {
        for (t, thread) in process.threads.iter().enumerate() {
            for (o, op) in thread.ops.iter().enumerate() {
                let id = FlowopId {
                    process: p,
                    thread: t,
                    op: o,
                };
                all.push((op.name.clone(), op.kind, id));
            }
        }
    }
    all
}

/// Returns the targets of a flowop in this process and thread.
fn targets_of(
    op: &PlannedFlowop,
    target: &str,
    here: (usize, usize),
    all: &[NamedFlowop],
) -> Result<Vec<FlowopId>, String> {
    // A limit charges what its own thread has done.
    let own = matches!(
        op.kind,
        FlowopKind::IopsLimit | FlowopKind::OpsLimit | FlowopKind::BwLimit
    );
    // All others look at the instances of all threads.
    let within = own.then_some(here);
    // A target inside a composite flowop is first looked for among the flowops beside it.
    let mut found = match op.name.rsplit_once('.') {
        Some((outer, _)) => flowops_named(&format!("{outer}.{target}"), within, all),
        None => Vec::new(),
    };
    if found.is_empty() {
        found = flowops_named(target, within, all);
    }
    if found.is_empty() {
        let hint = did_you_mean(target, all.iter().map(|(name, ..)| name.as_str()));
        let room = if own { " in this thread" } else { "" };
        return Err(format!(
            "the target '{target}' of '{}' is no flowop{room}{hint}",
            op.name
        ));
    }
    check_target_kinds(op, target, &found)?;
    Ok(found.into_iter().map(|(_, id)| id).collect())
}

/// Returns the flowops of a name, in one thread or in all.
fn flowops_named(
    name: &str,
    within: Option<(usize, usize)>,
    all: &[NamedFlowop],
) -> Vec<(FlowopKind, FlowopId)> {
    // Several flowops may have the same name: all of them are targets.
    let mut found = Vec::new();
    for (other, kind, id) in all {
        if other == name && within.is_none_or(|thread| thread == (id.process, id.thread)) {
            found.push((*kind, *id));
        }
    }
    found
}

/// Checks that a wakeup is for a block, and a post for a semaphore: with another target a thread
/// would wait for ever.
fn check_target_kinds(
    op: &PlannedFlowop,
    target: &str,
    found: &[(FlowopKind, FlowopId)],
) -> Result<(), String> {
    // Limits and end rules may look at any flowop.
    let wanted = match op.kind {
        FlowopKind::Wakeup => FlowopKind::Block,
        FlowopKind::SemPost => FlowopKind::SemBlock,
        _ => return Ok(()),
    };
    if found.iter().any(|(kind, _)| *kind != wanted) {
        return Err(format!(
            "the target '{target}' of '{}' is no {}",
            op.name,
            wanted.name()
        ));
    }
    Ok(())
}
