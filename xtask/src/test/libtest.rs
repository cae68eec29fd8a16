//! Reads the output of test programs, in the words of the standard harness.

use std::collections::BTreeSet;

/// The results of a run that were read so far.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct TestOutcome {
    /// Over all `test result:` lines; `None` before the first.
    pub(super) counts: Option<TestCounts>,
    pub(super) passed: BTreeSet<String>,
    pub(super) failed: BTreeSet<String>,
    pub(super) ignored: BTreeSet<String>,
}

/// The number of tests by result.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct TestCounts {
    pub(super) passed: u64,
    pub(super) failed: u64,
    pub(super) ignored: u64,
}

impl TestOutcome {
    /// Adds one line of output.
    pub(super) fn add_line(&mut self, line: &str) {
        if let Some(new) = parse_counts(line) {
            // A program may run several harnesses, one after the other.
            let sum = self.counts.get_or_insert_default();
            sum.passed += new.passed;
            sum.failed += new.failed;
            sum.ignored += new.ignored;
        } else if let Some((name, how)) = parse_result(line) {
            let set = match how.trim_end() {
                "ok" => &mut self.passed,
                "FAILED" => &mut self.failed,
                how if how == "ignored" || how.starts_with("ignored,") => &mut self.ignored,
                _ => return,
            };
            set.insert(name.to_owned());
        }
    }

    /// Returns those of `listed` without a result.
    pub(super) fn unfinished_tests(&self, listed: &BTreeSet<String>) -> BTreeSet<String> {
        // A test without any of the three results did not finish.
        let is_seen = |name: &&String| {
            self.passed.contains(*name)
                || self.failed.contains(*name)
                || self.ignored.contains(*name)
        };
        listed
            .iter()
            .filter(|name| !is_seen(name))
            .cloned()
            .collect()
    }
}

/// Parses a line `test name ... how` into `name` and `how`; other output may stand before it.
pub(super) fn parse_result(line: &str) -> Option<(&str, &str)> {
    // The last separator counts: a test may print one itself.
    let (left, how) = line.rsplit_once(" ... ")?;
    let name = &left[left.rfind("test ")? + "test ".len()..];
    Some((name.strip_suffix(" - should panic").unwrap_or(name), how))
}

/// Parses the counts of a line `test result: ok. 3 passed; 0 failed; 0 ignored; …`.
fn parse_counts(line: &str) -> Option<TestCounts> {
    let (_, counts) = line.split_once("test result: ")?.1.split_once(". ")?;
    let mut counts = counts.split("; ");
    let mut count = |what: &str| counts.next()?.strip_suffix(what)?.trim().parse().ok();
    Some(TestCounts {
        passed: count("passed")?,
        failed: count("failed")?,
        ignored: count("ignored")?,
    })
}

/// Returns the tests in the output of `--list --format terse`; `None` if it is something else.
pub(super) fn parse_list(output: &str) -> Option<BTreeSet<String>> {
    let lines = output.lines().filter(|line| !line.is_empty());
    lines
        .map(|line| line.strip_suffix(": test").map(str::to_owned))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn every_result_line_counts_and_names_are_kept() {
        let mut outcome = TestOutcome::default();
        let text = "running 5 tests
test a::good ... ok
test bad ... FAILED
test later ... ignored, for a reason
noise of a child without an end of linetest odd - should panic ... ok
test a::good has been running for over 60 seconds
test result: FAILED. 3 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s
test crates/x/src/lib.rs - part (line 3) ... ok
test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s";
        text.lines().for_each(|line| outcome.add_line(line));
        assert_eq!(
            outcome.counts,
            Some(TestCounts {
                passed: 4,
                failed: 1,
                ignored: 1
            })
        );
        assert_eq!(
            outcome.passed,
            set(&["a::good", "odd", "crates/x/src/lib.rs - part (line 3)"])
        );
        assert_eq!(
            (outcome.failed.clone(), outcome.ignored.clone()),
            (set(&["bad"]), set(&["later"]))
        );
        assert_eq!(
            outcome.unfinished_tests(&set(&["a::good", "bad", "later", "hung"])),
            set(&["hung"])
        );
    }

    #[test]
    fn a_list_is_a_list_of_tests_or_none() {
        assert_eq!(
            parse_list("a: test\nb::c: test\n"),
            Some(set(&["a", "b::c"]))
        );
        assert_eq!(parse_list(""), Some(set(&[])));
        assert_eq!(parse_list("a: test\nsomething else\n"), None);
    }
}
