//! Reads the attributes of a definition, each with its default.

use super::super::random::FixedOrDrawn;
use super::values::Scope;
use crate::wml::{AttributeList, SourcePosition, WmlError, WorkloadScript};

/// Length that a name stays below.
const NAME_MAX: usize = 128;

/// Reads the attributes of one definition with their defaults.
pub(super) struct ResolvedAttributes<'a> {
    pub(super) script: &'a WorkloadScript,
    pub(super) scope: Scope<'a>,
    pub(super) given: &'a AttributeList,
}

impl ResolvedAttributes<'_> {
    /// Returns the position of an attribute, or else that of the definition.
    pub(super) fn position(&self, name: &str, definition: SourcePosition) -> SourcePosition {
        self.given.get(name).map_or(definition, |found| found.place)
    }

    pub(super) fn fixed_number(&self, name: &str, default: u64) -> Result<u64, WmlError> {
        self.given.get(name).map_or(Ok(default), |found| {
            self.scope.resolve_fixed(self.script, found)
        })
    }

    pub(super) fn is_set(&self, name: &str) -> Result<bool, WmlError> {
        self.fixed_number(name, 0).map(|n| n != 0)
    }

    pub(super) fn number(&self, name: &str, default: u64) -> Result<FixedOrDrawn, WmlError> {
        self.given
            .get(name)
            .map_or(Ok(FixedOrDrawn::Fixed(default)), |found| {
                self.scope.resolve_number(self.script, found)
            })
    }

    pub(super) fn text(&self, name: &str) -> Result<Option<String>, WmlError> {
        self.given
            .get(name)
            .map(|found| self.scope.resolve_text(self.script, found))
            .transpose()
    }

    pub(super) fn required_name(
        &self,
        place: SourcePosition,
        what: &str,
    ) -> Result<String, WmlError> {
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
