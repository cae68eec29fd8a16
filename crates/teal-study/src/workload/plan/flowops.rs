//! Writes the flowops of a thread out: composite ones become what is in them, and their locals
//! are replaced.

use super::super::random::FixedOrDrawn;
use super::attributes::ResolvedAttributes;
use super::builder::PlanBuilder;
use super::values::{ResolvedValue, Scope};
use super::{FlowopFlags, PlannedFlowop, ProgramNode};
use crate::wml::{
    AttributeList, AttributeValue, CompositeFlowop, Flowop, FlowopKind, ScriptCommand,
    SourcePosition, WmlError, did_you_mean,
};
use std::collections::BTreeMap;

/// Limits the flowops of one thread, with composite ones written out.
const OPS_MAX: usize = 16_384;
/// Limits the nesting of composite flowops: each level takes some of the stack, here and where they
/// run.
const NESTED_MAX: usize = 100;
/// Number of file descriptors that a thread can name; 0 is the one it uses when it names none.
pub(crate) const SLOTS: usize = 128;

impl PlanBuilder<'_> {
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
}

/// Writes the flowops of one thread out.
pub(super) struct FlowopExpansion<'a> {
    maker: &'a PlanBuilder<'a>,
    ops: Vec<PlannedFlowop>,
    /// Composite flowops that are being written out.
    open: Vec<String>,
}

impl<'a> FlowopExpansion<'a> {
    pub(super) fn new(maker: &'a PlanBuilder<'a>) -> Self {
        Self {
            maker,
            ops: Vec::new(),
            open: Vec::new(),
        }
    }

    /// Returns the flowops that were written out.
    pub(super) fn into_flowops(self) -> Vec<PlannedFlowop> {
        self.ops
    }

    pub(super) fn expand_body(
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
        self.check_nesting(flowop, composite)?;
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

    /// Refuses a composite flowop that calls itself, and calls that lie too deep in each other.
    fn check_nesting(&self, flowop: &Flowop, composite: &CompositeFlowop) -> Result<(), WmlError> {
        // The chain of calls is told, because a circle may go through several scripts.
        let script = self.maker.script;
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
        Ok(())
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
        let indexed = match flowop.attributes.get("indexed") {
            Some(found) => Some(read.scope.resolve_number(self.maker.script, found)?),
            None => None,
        };
        // The value of `print` is its text, that of all others a number.
        let (message, value) = if kind == FlowopKind::Print {
            (read.text("value")?, FixedOrDrawn::Fixed(0))
        } else {
            (None, read.number("value", 0)?)
        };
        // Everything that the worker needs is resolved here, once.
        Ok(PlannedFlowop {
            set: self.resolve_fileset_name(flowop, read, &name)?,
            name,
            kind,
            place: flowop.place,
            iters,
            fd: self.resolve_slot(flowop, read, "fd")?,
            srcfd: self.resolve_slot(flowop, read, "srcfd")?,
            iosize: read.number("iosize", 0)?,
            workingset: read.number("workingset", 0)?,
            flags: resolve_flags(read)?,
            indexed,
            value,
            message,
            target: read.text("target")?,
            targets: Vec::new(),
            highwater: read.fixed_number("highwater", 1)?,
        })
    }

    /// Returns the fileset that a flowop names. It is known by now, because filesets are made
    /// before the run.
    fn resolve_fileset_name(
        &self,
        flowop: &Flowop,
        read: &ResolvedAttributes<'_>,
        name: &str,
    ) -> Result<Option<usize>, WmlError> {
        // A flowop without a fileset works on a slot that another one has opened.
        let Some(wanted) = read.text("filename")? else {
            return Ok(None);
        };
        let filesets = &self.maker.plan.filesets;
        if let Some(found) = filesets.iter().position(|set| set.name == wanted) {
            return Ok(Some(found));
        }
        // The message differs, because a late definition is the most common mistake.
        let hint = if self.maker.is_defined_late(&wanted) {
            " before the files are created; define it above 'create files'".to_owned()
        } else {
            did_you_mean(&wanted, filesets.iter().map(|set| set.name.as_str()))
        };
        let message =
            format!("'{name}' works on the fileset '{wanted}', which is not defined{hint}");
        Err(self
            .maker
            .script
            .error_at(attribute_position(flowop, "filename"), message))
    }

    /// Returns the slot that an attribute names: a number that the thread chooses.
    fn resolve_slot(
        &self,
        flowop: &Flowop,
        read: &ResolvedAttributes<'_>,
        attribute: &str,
    ) -> Result<usize, WmlError> {
        let slot = read.fixed_number(attribute, 0)?;
        if slot < SLOTS as u64 {
            return Ok(slot as usize);
        }
        let message = format!(
            "'{attribute}' is {slot}; a thread has slots 1 to {}",
            SLOTS - 1
        );
        Err(self
            .maker
            .script
            .error_at(attribute_position(flowop, attribute), message))
    }
}

/// Returns the position of an attribute, or else of its flowop, for errors.
fn attribute_position(flowop: &Flowop, attribute: &str) -> SourcePosition {
    match flowop.attributes.get(attribute) {
        Some(found) => found.place,
        None => flowop.place,
    }
}

fn resolve_flags(read: &ResolvedAttributes<'_>) -> Result<FlowopFlags, WmlError> {
    // An attribute may be a variable, so each is resolved like a number.
    let mut flags = FlowopFlags::empty();
    for (attribute, flag) in [
        ("random", FlowopFlags::RANDOM),
        ("dsync", FlowopFlags::DSYNC),
        ("directio", FlowopFlags::DIRECTIO),
        ("opennext", FlowopFlags::OPENNEXT),
        ("blocking", FlowopFlags::BLOCKING),
        ("noreadahead", FlowopFlags::NOREADAHEAD),
    ] {
        flags.set(flag, read.is_set(attribute)?);
    }
    Ok(flags)
}
