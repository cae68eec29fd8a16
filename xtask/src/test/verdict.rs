//! The verdict on the run of a test program.
//!
//! # Guarantees
//! 1. Each test counts once: as passed if the program said so, as skipped if it was ignored, as
//!    failed in any other case.
//! 2. Nothing is run to change a verdict: a test that failed has failed.
//! 3. A program that did not come to its end fails with every test without a result. Tests that
//!    were running are told apart from tests that had not begun.
//! 4. A program that ends badly without a test to blame is one failure.

use super::attempt::{RunEnding, TestRun};
use super::libtest::TestCounts;
use std::collections::BTreeSet;

/// The counts and failures that a program adds to the summary.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct TestVerdict {
    pub(super) passed: u64,
    pub(super) failed: u64,
    pub(super) skipped: u64,
    /// The names of tests that failed, as far as known.
    pub(super) failures: Vec<String>,
}

impl TestVerdict {
    /// Makes the verdict on a program that did not come to run.
    pub(super) fn from_failure(why: String) -> Self {
        Self {
            failed: 1,
            failures: vec![why],
            ..Self::default()
        }
    }

    /// Makes the verdict on a run, of the tests that were `expected` as far as known.
    pub(super) fn from_run(program: &str, attempt: &TestRun, expected: &BTreeSet<String>) -> Self {
        let outcome = &attempt.outcome;
        // The harness's own counts are complete only if the program came to its end.
        let mut verdict = match outcome.counts.filter(|_| has_ended(attempt)) {
            Some(TestCounts {
                passed,
                failed,
                ignored,
            }) => Self {
                passed,
                failed,
                skipped: ignored,
                ..Self::default()
            },
            None => Self {
                passed: outcome.passed.len() as u64,
                failed: outcome.failed.len() as u64,
                skipped: outcome.ignored.len() as u64,
                ..Self::default()
            },
        };
        verdict.failures.extend(
            outcome
                .failed
                .iter()
                .map(|name| format!("{program}: {name}")),
        );
        if !has_ended(attempt) || outcome.counts.is_none() {
            for name in outcome.unfinished_tests(expected) {
                let why = if attempt.running.contains(&name) {
                    "did not end"
                } else {
                    "has no result"
                };
                verdict.failed += 1;
                verdict.failures.push(format!("{program}: {name} {why}"));
            }
        }
        // Some failures may lack names, when output was cut off.
        let unnamed = verdict.failed.saturating_sub(verdict.failures.len() as u64);
        if unnamed > 0 {
            verdict
                .failures
                .push(format!("{program}: {unnamed} whose names are not known"));
        }
        // A bad exit without a failed test must not pass.
        if !is_good(attempt) && verdict.failed == 0 {
            verdict.failed = 1;
        }
        debug_assert!(
            is_good(attempt) || verdict.failed > 0,
            "a bad end is a failure"
        );
        let is_explained = is_good(attempt) || !verdict.failures.is_empty();
        if !has_ended(attempt) || outcome.counts.is_none() || !is_explained {
            verdict
                .failures
                .push(format!("{program} {}", describe_ending(attempt)));
        }
        verdict
    }
}

/// Returns whether the program came to an end of its own.
fn has_ended(attempt: &TestRun) -> bool {
    matches!(attempt.ending, RunEnding::Exit(Some(_)))
}

/// Returns whether the program itself says that all is well.
pub(super) fn is_good(attempt: &TestRun) -> bool {
    attempt.ending == RunEnding::Exit(Some(0))
        && attempt
            .outcome
            .counts
            .is_some_and(|counts| counts.failed == 0)
}

fn describe_ending(attempt: &TestRun) -> &'static str {
    match attempt.ending {
        RunEnding::Hung => "did not end",
        RunEnding::Stopped => "was stopped",
        RunEnding::Exit(None) => "was killed by a signal",
        RunEnding::Exit(Some(0)) if attempt.outcome.counts.is_none() => "ended without a result",
        RunEnding::Exit(Some(_)) => "failed",
    }
}
