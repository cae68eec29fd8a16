//! The error of a profile that is refused, with its place in the text.

use std::ops::Range;

/// A profile that cannot be used: the place and what to change.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {problem}")]
pub struct ProfileError {
    /// Line of the text, from 1.
    pub line: usize,
    /// Character within the line, from 1.
    pub column: usize,
    /// The problem there, in words.
    pub problem: String,
}

impl ProfileError {
    /// A problem with the bytes `span` of `text`.
    pub(super) fn at_span(text: &str, span: Range<usize>, problem: impl Into<String>) -> Self {
        let before = text.get(..span.start).unwrap_or(text);
        let line = before.matches('\n').count() + 1;
        let column = before
            .rsplit('\n')
            .next()
            .unwrap_or_default()
            .chars()
            .count()
            + 1;
        Self {
            line,
            column,
            problem: problem.into(),
        }
    }

    /// Makes an error of the parser's, with the nearest known name where a field or word is
    /// unknown.
    pub(super) fn from_parser(text: &str, said: &toml::de::Error) -> Self {
        let mut problem = said.message().to_owned();
        if problem.starts_with("unknown field") || problem.starts_with("unknown variant") {
            // The parser quotes the unknown name first, and then the known ones.
            let mut quoted = problem.split('`').skip(1).step_by(2);
            let given = quoted.next().unwrap_or_default();
            let distance = |known: &&str| strsim::damerau_levenshtein(given, known);
            let nearest = quoted
                .min_by_key(distance)
                // A name that differs in more than half of its letters is no help.
                .filter(|known| distance(known) <= known.len().div_ceil(2));
            if let Some(nearest) = nearest {
                problem = format!("{problem}; did you mean `{nearest}`?");
            }
        }
        Self::at_span(text, said.span().unwrap_or(0..0), problem)
    }
}
