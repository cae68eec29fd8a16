//! Reads the language of workloads: Filebench's, from its text to commands. `docs/wml.md` has each
//! rule with its test.
//!
//! # Guarantees
//! 1. Pure: nothing is read, drawn or run here. The caller's function gives the files that a script
//!    loads.
//! 2. No text makes the parser panic. An error names file, line, column and a way out.
//! 3. Names of flowops, attributes and their kinds are checked here, so that the runner of a script
//!    need not.

mod lex;
mod parse;
mod syntax;
mod words;

pub use parse::{ScriptLoader, parse_script};
pub use syntax::{
    AssignedValue, AttributeList, AttributeValue, CompositeFlowop, Flowop, NamedAttribute,
    ProcessDefinition, QuitMode, ScriptCommand, SetKind, SourcePosition, ThreadDefinition,
    WorkloadScript,
};
pub use words::FlowopKind;

use std::fmt;

/// Says what is wrong with a script, and at which place.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct WmlError {
    /// The file, as it was named.
    pub file: String,
    /// Line, from 1; 0 means the whole file.
    pub line: u32,
    /// The column in characters, from 1.
    pub column: u32,
    /// Fault, and the way out.
    pub message: String,
}

impl fmt::Display for WmlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            file,
            line,
            column,
            message,
        } = self;
        if *line == 0 {
            write!(f, "{file}: {message}")
        } else {
            write!(f, "{file}:{line}:{column}: {message}")
        }
    }
}

/// Returns the known word that is most like a given one, as a question; nothing if none is near.
pub(crate) fn did_you_mean<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> String {
    // A word that needs more changes than half of its letters is another one.
    let near = known
        .map(|known| (strsim::damerau_levenshtein(word, known), known))
        .min();
    match near {
        Some((distance, known)) if distance <= known.len() / 2 => {
            format!("; did you mean {known}?")
        }
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests;
