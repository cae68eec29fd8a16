//! Variables, and what attributes come to.

use super::super::random::Number;
use super::{Maker, Options};
use crate::wml::{Assigned, Attribute, Command, Place, Script, Value, WmlError, did_you_mean};
use std::collections::BTreeMap;

/// What a value comes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Resolved {
    Int(u64),
    Text(String),
    Random(usize),
}

/// Global variables, as they are set at this point of the script.
#[derive(Debug)]
pub(super) struct Variables {
    set: BTreeMap<String, Resolved>,
    /// These do not change: somebody outside has set them.
    held: Vec<String>,
    /// These say how many files a set has: they are scaled, with whatever else they count.
    counts: Vec<String>,
    /// What those were before.
    asked: BTreeMap<String, u64>,
    scale: f64,
}

fn of_text(text: &str) -> Resolved {
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
        (Some(n), _) => Resolved::Int(n),
        (None, "true") => Resolved::Int(1),
        (None, "false") => Resolved::Int(0),
        (None, text) => Resolved::Text(text.to_owned()),
    }
}

impl Variables {
    pub(super) fn new(script: &Script, options: &Options) -> Result<Self, WmlError> {
        let set = BTreeMap::from([(
            "dir".to_owned(),
            Resolved::Text(options.dir.display().to_string()),
        )]);
        let counts = script
            .commands
            .iter()
            .filter_map(|(_, command)| match command {
                Command::Files(_, attributes) => match &attributes.get("entries")?.value {
                    Value::Variable(name) => Some(name.clone()),
                    _ => None,
                },
                _ => None,
            });
        let counts = counts.collect();
        let mut variables = Self {
            set,
            held: vec!["dir".into()],
            counts,
            asked: BTreeMap::new(),
            scale: options.scale,
        };
        let known: Vec<&str> = script
            .commands
            .iter()
            .filter_map(|(_, command)| match command {
                Command::Set(name, _) => Some(name.as_str()),
                _ => None,
            })
            .collect();
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
            variables.put(name, of_text(text));
            variables.held.push(name.clone());
        }
        Ok(variables)
    }

    fn put(&mut self, name: &str, to: Resolved) {
        if self.held.iter().any(|held| held == name) {
            return;
        }
        let to = match to {
            Resolved::Int(asked) if self.counts.iter().any(|count| count == name) => {
                self.asked.insert(name.to_owned(), asked);
                Resolved::Int(super::files::scaled(asked, self.scale).0)
            }
            to => to,
        };
        self.set.insert(name.to_owned(), to);
    }

    /// Returns what was asked for before scaling, if this is a variable that is scaled.
    pub(super) fn asked(&self, value: &Value) -> Option<u64> {
        match value {
            Value::Variable(name) => self.asked.get(name).copied(),
            _ => None,
        }
    }

    /// Replaces `$name`, `${name}`, `$(name)` in a text.
    pub(super) fn expand(
        &self,
        script: &Script,
        place: Place,
        text: &str,
    ) -> Result<String, WmlError> {
        let mut out = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('$') {
            out.push_str(before);
            let inner = after.trim_start_matches(['{', '(']);
            let end = inner
                .find(|c: char| !c.is_ascii_alphanumeric() && c != '_')
                .unwrap_or(inner.len());
            if !inner.starts_with(|c: char| c.is_ascii_alphabetic()) {
                out.push('$');
                rest = after;
                continue;
            }
            match self.get(script, place, &inner[..end])? {
                Resolved::Int(n) => out.push_str(&n.to_string()),
                Resolved::Text(text) => out.push_str(text),
                Resolved::Random(_) => out.push_str("(random)"),
            }
            rest = &inner[end..];
            if inner.len() < after.len() {
                rest = rest.strip_prefix(['}', ')']).unwrap_or(rest);
            }
        }
        Ok(out + rest)
    }

    fn get(&self, script: &Script, place: Place, name: &str) -> Result<&Resolved, WmlError> {
        self.set.get(name).ok_or_else(|| {
            let hint = did_you_mean(name, self.set.keys().map(String::as_str));
            script.error(
                place,
                format!("undefined variable '${name}'{hint}; set it before: set ${name}=…"),
            )
        })
    }
}

/// Where names of variables are looked up: locals of a composite flowop first.
#[derive(Debug)]
pub(super) struct Scope<'a> {
    variables: &'a Variables,
    pub(super) locals: BTreeMap<String, Resolved>,
}

impl<'a> Scope<'a> {
    pub(super) fn of(variables: &'a Variables) -> Self {
        Self {
            variables,
            locals: BTreeMap::new(),
        }
    }

    /// The same variables, with these locals and no others.
    pub(super) fn with(&self, locals: BTreeMap<String, Resolved>) -> Self {
        Self {
            variables: self.variables,
            locals,
        }
    }

    pub(super) fn value(
        &self,
        script: &Script,
        place: Place,
        value: &Value,
    ) -> Result<Resolved, WmlError> {
        Ok(match value {
            Value::Int(n) => Resolved::Int(n.unsigned_abs()),
            Value::Bool(truth) => Resolved::Int(u64::from(*truth)),
            Value::Text(text) => Resolved::Text(text.clone()),
            Value::Variable(name) => match self.locals.get(name) {
                Some(local) => local.clone(),
                None => self.variables.get(script, place, name)?.clone(),
            },
        })
    }

    fn wrong<T>(
        &self,
        script: &Script,
        attribute: &Attribute,
        wanted: &str,
    ) -> Result<T, WmlError> {
        let shown = match &attribute.value {
            Value::Variable(name) => format!("${name}"),
            Value::Text(text) => format!("\"{text}\""),
            Value::Int(n) => n.to_string(),
            Value::Bool(truth) => truth.to_string(),
        };
        Err(script.error(
            attribute.place,
            format!("'{}' is {shown}, which is not {wanted}", attribute.name),
        ))
    }

    /// A number, or a random one.
    pub(super) fn number(
        &self,
        script: &Script,
        attribute: &Attribute,
    ) -> Result<Number, WmlError> {
        match self.value(script, attribute.place, &attribute.value)? {
            Resolved::Int(n) => Ok(Number::Fixed(n)),
            Resolved::Random(which) => Ok(Number::Drawn(which)),
            Resolved::Text(_) => self.wrong(script, attribute, "a number"),
        }
    }

    /// A number that is known now.
    pub(super) fn fixed(&self, script: &Script, attribute: &Attribute) -> Result<u64, WmlError> {
        match self.number(script, attribute)? {
            Number::Fixed(n) => Ok(n),
            Number::Drawn(_) => self.wrong(
                script,
                attribute,
                "a fixed number: this attribute cannot be random",
            ),
        }
    }

    /// A string.
    pub(super) fn text(&self, script: &Script, attribute: &Attribute) -> Result<String, WmlError> {
        match self.value(script, attribute.place, &attribute.value)? {
            Resolved::Text(text) => Ok(text),
            _ => self.wrong(script, attribute, "a string"),
        }
    }
}

impl Maker<'_> {
    pub(super) fn set(
        &mut self,
        place: Place,
        name: &str,
        assigned: &Assigned,
    ) -> Result<(), WmlError> {
        let scope = Scope::of(&self.variables);
        let resolved = match assigned {
            Assigned::Value(value) => scope.value(self.script, place, value)?,
            Assigned::Random(attributes, rows) => {
                let random =
                    super::randoms::randvar(self.script, &scope, place, name, attributes, rows)?;
                self.plan.randoms.push(random);
                Resolved::Random(self.plan.randoms.len() - 1)
            }
            Assigned::Custom(attributes) => {
                let random = super::randoms::cvar(self.script, &scope, place, name, attributes)?;
                self.plan.randoms.push(random);
                Resolved::Random(self.plan.randoms.len() - 1)
            }
        };
        self.variables.put(name, resolved);
        Ok(())
    }
}
