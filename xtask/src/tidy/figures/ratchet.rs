//! Compares figures with those recorded in `xtask/words.toml`, which may only become better.

use super::measure::CrateFigures;
use super::rules::{FigureRule, RULES};
use crate::tidy::finding::Finding;
use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

const PATH: &str = "xtask/words.toml";

const HEADER: &str = "\
# The figures of the chapter *Words* for each crate, tests left out. `cargo xtask tidy` refuses \
    a figure that is worse than
# here by more than its tolerance (xtask/src/tidy/figures.rs); `cargo xtask tidy --figures \
    --write` records what is better.
# An exception allows one figure of one crate to be worse, and gives the reason in a line.

";

/// The recorded figures of each crate, by the figure's key.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Ratchet {
    #[serde(default)]
    exceptions: Vec<FigureException>,
    #[serde(default)]
    crates: BTreeMap<String, BTreeMap<String, f64>>,
}

/// Permission for one figure of one crate to be worse than recorded.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct FigureException {
    #[serde(rename = "crate")]
    crate_name: String,
    figure: String,
    limit: f64,
    reason: String,
}

impl Ratchet {
    pub(super) fn read(root: &Path) -> Result<Self> {
        let path = root.join(PATH);
        match std::fs::read_to_string(&path) {
            Ok(text) => toml::from_str(&text).context(PATH),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(error).context(PATH),
        }
    }

    pub(super) fn write(&self, root: &Path) -> Result<()> {
        let text = HEADER.to_owned() + &toml::to_string(self)?;
        std::fs::write(root.join(PATH), text).context(PATH)
    }

    /// Records the figures of `rows` that are better than recorded, those of new crates, and
    /// forgets crates that are gone.
    pub(super) fn record_better(&mut self, rows: &BTreeMap<String, CrateFigures>) {
        // A crate that is gone must not set the limit for new ones.
        self.crates.retain(|name, _| rows.contains_key(name));
        for (name, figures) in rows {
            let recorded = self.crates.entry(name.clone()).or_default();
            for rule in RULES {
                let measured = figures[&rule.figure];
                let best = recorded.entry(rule.key.to_owned()).or_insert(measured);
                // A worse figure is never recorded.
                if rule.is_worse(*best, measured) {
                    *best = measured;
                }
            }
        }
    }

    /// Returns a finding for each figure that is worse than its limit, and for each exception that
    /// says nothing.
    pub(super) fn check_figures(&self, rows: &BTreeMap<String, CrateFigures>) -> Vec<Finding> {
        let mut findings = self.check_exceptions();
        for (name, figures) in rows {
            for rule in RULES {
                let measured = figures[&rule.figure];
                let Some(limit) = self.worst_allowed(name, rule) else {
                    continue;
                };
                if rule.is_worse(measured, limit) {
                    let advice = format!(
                        "{name}: {} is {measured:.1}, and may be {limit:.1} (the aim is {:.1}): \
                            mend the words of this change",
                        rule.key, rule.aim
                    );
                    findings.push(Finding::new(PATH, 1, "words", advice));
                }
            }
        }
        findings
    }

    fn check_exceptions(&self) -> Vec<Finding> {
        let unclear = self.exceptions.iter().filter(|exception| {
            let is_known = RULES.iter().any(|rule| rule.key == exception.figure);
            !is_known || exception.reason.trim().is_empty()
        });
        let findings = unclear.map(|exception| {
            let advice = format!(
                "the exception of {} for `{}` needs the key of a figure and a reason",
                exception.crate_name, exception.figure
            );
            Finding::new(PATH, 1, "words", advice)
        });
        findings.collect()
    }

    /// Returns the worst figure that crate `name` may have. A crate that isn't recorded may be as
    /// bad as the worst that is.
    fn worst_allowed(&self, name: &str, rule: &FigureRule) -> Option<f64> {
        let exception = self
            .exceptions
            .iter()
            .find(|exception| exception.crate_name == name && exception.figure == rule.key);
        if let Some(exception) = exception {
            return Some(exception.limit);
        }
        let recorded = match self.crates.get(name) {
            Some(figures) => figures.get(rule.key).copied(),
            None => self.worst_recorded(rule),
        };
        recorded.map(|figure| rule.with_tolerance(figure))
    }

    fn worst_recorded(&self, rule: &FigureRule) -> Option<f64> {
        let recorded = self
            .crates
            .values()
            .filter_map(|figures| figures.get(rule.key).copied());
        recorded.reduce(|a, b| if rule.is_worse(a, b) { a } else { b })
    }
}

/// Makes the figures of a crate for a test: every figure at its aim, but for `changed`.
#[cfg(test)]
pub(super) fn figures_at_aim(changed: &[(super::rules::WordFigure, f64)]) -> CrateFigures {
    let mut figures: CrateFigures = RULES.iter().map(|rule| (rule.figure, rule.aim)).collect();
    figures.extend(changed.iter().copied());
    figures
}
