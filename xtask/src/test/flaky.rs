//! What two runs of a test program mean.
//!
//! # Guarantees
//! 1. A test counts as passed if it passed in either run, and as failed if it did in neither; it counts once.
//! 2. A test that failed and then passed is named as flaky. So is one that was running when its program hung; those that the program
//!    only had not come to are not.
//! 3. A program that ends badly without a test to blame is one failure.

use super::attempt::{Attempt, Ending};
use std::collections::BTreeSet;

/// What a program adds to the summary.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Verdict {
    pub(super) passed: u64,
    pub(super) failed: u64,
    pub(super) skipped: u64,
    /// Names of what failed, as many as known.
    pub(super) failures: Vec<String>,
    /// What passed at the second try only.
    pub(super) flaky: Vec<String>,
}

impl Verdict {
    /// A program that did not come to run.
    pub(super) fn failure(why: String) -> Self {
        Self { failed: 1, failures: vec![why], ..Self::default() }
    }
}

/// What is run a second time.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Again {
    Nothing,
    Only(BTreeSet<String>),
    Whole,
}

/// Whether the program itself says that all is well.
fn is_good(attempt: &Attempt) -> bool {
    attempt.ending == Ending::Exit(Some(0)) && attempt.outcome.counts.is_some_and(|counts| counts.failed == 0)
}

/// What is to be run again after `attempt`, of the tests that were `expected` as far as known.
pub(super) fn again(attempt: &Attempt, expected: &BTreeSet<String>) -> Again {
    if is_good(attempt) {
        return Again::Nothing;
    }
    let outcome = &attempt.outcome;
    let mut names = outcome.failed.clone();
    match outcome.counts {
        // It came to its end: the failed ones are to blame, if it named them all.
        Some(counts) if counts.failed != names.len() as u64 => return Again::Whole,
        Some(_) => {}
        None => names.extend(outcome.unfinished(expected)),
    }
    if names.is_empty() || !names.is_subset(expected) { Again::Whole } else { Again::Only(names) }
}

/// The verdict on a program that needed one run.
pub(super) fn first(attempt: &Attempt) -> Verdict {
    let counts = attempt.outcome.counts.unwrap_or_default();
    Verdict { passed: counts.passed, skipped: counts.ignored, ..Verdict::default() }
}

/// The verdict after a second run of only `names`.
pub(super) fn second(program: &str, names: &BTreeSet<String>, tries: [&Attempt; 2]) -> Verdict {
    let [one, two] = tries;
    let count = |set: &BTreeSet<String>| set.len() as u64;
    let counts = two.outcome.counts.unwrap_or_default();
    // A run in which the tests did not take place is no good one.
    let is_over = is_good(two) && counts.passed + counts.ignored == count(names);
    // A good second run counts even where the output of a child has spoiled the line of a test.
    let seen = &two.outcome.passed | &two.outcome.ignored;
    let lost = if is_over { BTreeSet::new() } else { names - &seen };
    let suspects = &one.outcome.failed | &one.running;
    let suspects = if suspects.is_empty() { names.clone() } else { suspects };
    let again_ignored = if is_over { counts.ignored } else { count(&(names & &two.outcome.ignored)) };
    let mut verdict = Verdict {
        passed: count(&one.outcome.passed) + count(names) - count(&lost) - again_ignored,
        failed: count(&lost),
        skipped: count(&one.outcome.ignored) + again_ignored,
        failures: lost.iter().map(|name| format!("{program}: {name}")).collect(),
        flaky: suspects.iter().filter(|name| !lost.contains(*name)).map(|name| flaky(program, name, one)).collect(),
    };
    if !is_over && lost.is_empty() {
        verdict.failed += 1;
        verdict.failures.push(format!("{program} {}", how(two)));
    }
    verdict
}

/// The verdict after a second run of everything.
pub(super) fn second_whole(program: &str, tries: [&Attempt; 2]) -> Verdict {
    let [one, two] = tries;
    let mut verdict = first(two);
    if is_good(two) {
        verdict.flaky = vec![format!("{program} {}, then passed", how(one))];
        return verdict;
    }
    verdict.failed = two.outcome.counts.map_or(two.outcome.failed.len() as u64, |counts| counts.failed);
    if two.outcome.counts.is_none() {
        verdict.passed = two.outcome.passed.len() as u64;
        verdict.skipped = two.outcome.ignored.len() as u64;
    }
    verdict.failures = two.outcome.failed.iter().map(|name| format!("{program}: {name}")).collect();
    if verdict.failed == 0 || two.ending == Ending::Hung {
        verdict.failed += 1;
        verdict.failures.push(format!("{program} {}", how(two)));
    }
    verdict
}

fn flaky(program: &str, name: &str, one: &Attempt) -> String {
    let how = if one.outcome.failed.contains(name) { "failed" } else { how(one) };
    format!("{program}: {name} {how}, then passed")
}

fn how(attempt: &Attempt) -> &'static str {
    match attempt.ending {
        Ending::Hung => "did not end",
        Ending::Stopped => "was stopped",
        Ending::Exit(None) => "was killed by a signal",
        Ending::Exit(Some(0)) if attempt.outcome.counts.is_none() => "ended without a result",
        Ending::Exit(Some(_)) => "failed",
    }
}
