//! Resolves variables, and the values of attributes.

use super::super::random::FixedOrDrawn;
use super::WorkloadOptions;
use super::scaling::scale_entries;
use crate::wml::{
    AttributeValue, NamedAttribute, ScriptCommand, SourcePosition, WmlError, WorkloadScript,
    did_you_mean,
};
use std::collections::BTreeMap;

/// Holds the value that an attribute has in the end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ResolvedValue {
    Int(u64),
    Text(String),
    Random(usize),
}

/// Holds global variables, as they are set at this point of the script.
#[derive(Debug)]
pub(super) struct ScriptVariables {
    set: BTreeMap<String, ResolvedValue>,
    /// Variables that the script cannot change, because the caller has set them.
    fixed_names: Vec<String>,
    /// Variables that say how many files a set has. They are scaled, with all else that they count.
    counts: Vec<String>,
    /// Values of these variables before scaling.
    asked: BTreeMap<String, u64>,
    scale: f64,
}

fn parse_setting(text: &str) -> ResolvedValue {
    // The suffixes are those of the language.
    let (digits, shift) = match text.char_indices().next_back() {
        Some((at, 'k')) => (&text[..at], 10),
        Some((at, 'm')) => (&text[..at], 20),
        Some((at, 'g')) => (&text[..at], 30),
        _ => (text, 0),
    };
    match (
        digits
            .parse::<u64>()
            .ok()
            .and_then(|n| n.checked_mul(1 << shift)),
        text,
    ) {
        (Some(n), _) => ResolvedValue::Int(n),
        (None, "true") => ResolvedValue::Int(1),
        (None, "false") => ResolvedValue::Int(0),
        (None, text) => ResolvedValue::Text(text.to_owned()),
    }
}

/// Returns the variables that are used as `entries` of a set: only these are scaled.
fn variables_that_count_files(script: &WorkloadScript) -> Vec<String> {
    // A number that is written out is no variable: its set is scaled by itself.
    let mut counts = Vec::new();
    for (_, command) in &script.commands {
        if let ScriptCommand::Files(_, attributes) = command
            && let Some(entries) = attributes.get("entries")
            && let AttributeValue::Variable(name) = &entries.value
        {
            counts.push(name.clone());
        }
    }
    counts
}

/// Returns the variables that the script sets: only these can be overridden.
fn variables_set_by(script: &WorkloadScript) -> Vec<&str> {
    // Random variables count too: a number may take their place.
    let mut known = Vec::new();
    for (_, command) in &script.commands {
        if let ScriptCommand::Set(name, _) = command {
            known.push(name.as_str());
        }
    }
    known
}

// `dir` is known before the script begins.
impl ScriptVariables {
    pub(super) fn new(
        script: &WorkloadScript,
        options: &WorkloadOptions,
    ) -> Result<Self, WmlError> {
        let dir = ResolvedValue::Text(options.dir.display().to_string());
        let mut variables = Self {
            set: BTreeMap::from([("dir".to_owned(), dir)]),
            fixed_names: vec!["dir".into()],
            counts: variables_that_count_files(script),
            asked: BTreeMap::new(),
            scale: options.scale,
        };
        // A variable that the script never sets would have no effect.
        let known = variables_set_by(script);
        for (name, text) in &options.set {
            if !known.contains(&name.as_str()) {
                let hint = did_you_mean(name, known.iter().copied());
                let message = format!(
                    "--set {name}: the script sets no such variable{hint}; it sets {}",
                    known.join(", ")
                );
                return Err(WmlError {
                    file: script.files[0].clone(),
                    line: 0,
                    column: 0,
                    message,
                });
            }
            variables.assign(name, parse_setting(text));
            variables.fixed_names.push(name.clone());
        }
        Ok(variables)
    }

    pub(super) fn assign(&mut self, name: &str, to: ResolvedValue) {
        if self.fixed_names.iter().any(|held| held == name) {
            return;
        }
        // Scaling happens once, where the variable is set.
        let to = match to {
            ResolvedValue::Int(asked) if self.counts.iter().any(|count| count == name) => {
                self.asked.insert(name.to_owned(), asked);
                ResolvedValue::Int(scale_entries(asked, self.scale).0)
            }
            to => to,
        };
        self.set.insert(name.to_owned(), to);
    }

    /// Returns the value before scaling, if this is a variable that is scaled.
    pub(super) fn asked_before_scaling(&self, value: &AttributeValue) -> Option<u64> {
        match value {
            AttributeValue::Variable(name) => self.asked.get(name).copied(),
            _ => None,
        }
    }

    /// Replaces `$name`, `${name}`, `$(name)` in a text.
    pub(super) fn expand_text(
        &self,
        script: &WorkloadScript,
        place: SourcePosition,
        text: &str,
    ) -> Result<String, WmlError> {
        let mut out = String::new();
        // Text is copied up to the next dollar.
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('$') {
            out.push_str(before);
            let inner = after.trim_start_matches(['{', '(']);
            let end = inner
                .find(|c: char| !c.is_ascii_alphanumeric() && c != '_')
                .unwrap_or(inner.len());
            // A dollar without a name is text.
            if !inner.starts_with(|c: char| c.is_ascii_alphabetic()) {
                out.push('$');
                rest = after;
                continue;
            }
            // A random variable has no value before the run.
            match self.get(script, place, &inner[..end])? {
                ResolvedValue::Int(n) => out.push_str(&n.to_string()),
                ResolvedValue::Text(text) => out.push_str(text),
                ResolvedValue::Random(_) => out.push_str("(random)"),
            }
            rest = &inner[end..];
            // The bracket was skipped, so its end is skipped too.
            if inner.len() < after.len() {
                rest = rest.strip_prefix(['}', ')']).unwrap_or(rest);
            }
        }
        Ok(out + rest)
    }

    fn get(
        &self,
        script: &WorkloadScript,
        place: SourcePosition,
        name: &str,
    ) -> Result<&ResolvedValue, WmlError> {
        self.set.get(name).ok_or_else(|| {
            let hint = did_you_mean(name, self.set.keys().map(String::as_str));
            script.error_at(
                place,
                format!("undefined variable '${name}'{hint}; set it before: set ${name}=…"),
            )
        })
    }
}

/// Looks up names of variables: locals of a composite flowop first.
#[derive(Debug)]
pub(super) struct Scope<'a> {
    variables: &'a ScriptVariables,
    pub(super) locals: BTreeMap<String, ResolvedValue>,
}

impl<'a> Scope<'a> {
    pub(super) fn global(variables: &'a ScriptVariables) -> Self {
        Self {
            variables,
            locals: BTreeMap::new(),
        }
    }

    /// Returns a scope with these locals and no others, over the same variables.
    pub(super) fn with_locals(&self, locals: BTreeMap<String, ResolvedValue>) -> Self {
        Self {
            variables: self.variables,
            locals,
        }
    }

    pub(super) fn resolve_value(
        &self,
        script: &WorkloadScript,
        place: SourcePosition,
        value: &AttributeValue,
    ) -> Result<ResolvedValue, WmlError> {
        Ok(match value {
            AttributeValue::Int(n) => ResolvedValue::Int(n.unsigned_abs()),
            AttributeValue::Bool(truth) => ResolvedValue::Int(u64::from(*truth)),
            AttributeValue::Text(text) => ResolvedValue::Text(text.clone()),
            AttributeValue::Variable(name) => match self.locals.get(name) {
                Some(local) => local.clone(),
                None => self.variables.get(script, place, name)?.clone(),
            },
        })
    }

    fn type_error<T>(
        &self,
        script: &WorkloadScript,
        attribute: &NamedAttribute,
        wanted: &str,
    ) -> Result<T, WmlError> {
        let shown = match &attribute.value {
            AttributeValue::Variable(name) => format!("${name}"),
            AttributeValue::Text(text) => format!("\"{text}\""),
            AttributeValue::Int(n) => n.to_string(),
            AttributeValue::Bool(truth) => truth.to_string(),
        };
        Err(script.error_at(
            attribute.place,
            format!("'{}' is {shown}, which is not {wanted}", attribute.name),
        ))
    }

    /// Resolves a number, or a random one.
    pub(super) fn resolve_number(
        &self,
        script: &WorkloadScript,
        attribute: &NamedAttribute,
    ) -> Result<FixedOrDrawn, WmlError> {
        match self.resolve_value(script, attribute.place, &attribute.value)? {
            ResolvedValue::Int(n) => Ok(FixedOrDrawn::Fixed(n)),
            ResolvedValue::Random(which) => Ok(FixedOrDrawn::Drawn(which)),
            ResolvedValue::Text(_) => self.type_error(script, attribute, "a number"),
        }
    }

    /// Resolves a number that is known now.
    pub(super) fn resolve_fixed(
        &self,
        script: &WorkloadScript,
        attribute: &NamedAttribute,
    ) -> Result<u64, WmlError> {
        match self.resolve_number(script, attribute)? {
            FixedOrDrawn::Fixed(n) => Ok(n),
            FixedOrDrawn::Drawn(_) => self.type_error(
                script,
                attribute,
                "a fixed number: this attribute cannot be random",
            ),
        }
    }

    /// Resolves a string.
    pub(super) fn resolve_text(
        &self,
        script: &WorkloadScript,
        attribute: &NamedAttribute,
    ) -> Result<String, WmlError> {
        match self.resolve_value(script, attribute.place, &attribute.value)? {
            ResolvedValue::Text(text) => Ok(text),
            _ => self.type_error(script, attribute, "a string"),
        }
    }
}
