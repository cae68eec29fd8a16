//! The findings of tidy: each says where a rule is broken, which one, and what to do.

use std::fmt;

/// One breach of a rule.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Finding {
    pub(super) path: String,
    pub(super) line: usize,
    pub(super) rule: &'static str,
    pub(super) advice: String,
}

impl Finding {
    pub(super) fn new(
        path: &str,
        line: usize,
        rule: &'static str,
        advice: impl Into<String>,
    ) -> Self {
        Self {
            path: path.to_owned(),
            line,
            rule,
            advice: advice.into(),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            path,
            line,
            rule,
            advice,
        } = self;
        write!(f, "{path}:{line}: {rule}: {advice}")
    }
}
