//! Adds up what the test binaries say.

use std::fmt::Write as _;

/// The results of a run.
#[derive(Debug, Default)]
pub(super) struct Summary {
    passed: u64,
    failed: u64,
    skipped: u64,
    names: Vec<String>,
    reasons: Vec<String>,
    has_died: bool,
}

impl Summary {
    /// Takes in one line of output.
    pub(super) fn see(&mut self, line: &str) {
        if let Some((passed, failed, ignored)) = counts(line) {
            self.passed += passed;
            self.failed += failed;
            self.skipped += ignored;
        } else if let Some(name) = line.trim_end().strip_prefix("test ").and_then(|l| l.strip_suffix(" ... FAILED")) {
            self.names.push(name.to_owned());
        }
    }

    /// Counts tests that said they could not run as skipped instead of passed.
    pub(super) fn skip<'a>(&mut self, reasons: impl Iterator<Item = &'a str>) {
        self.reasons = reasons.map(str::to_owned).collect();
        let skips = (self.reasons.len() as u64).min(self.passed);
        self.passed -= skips;
        self.skipped += skips;
    }

    /// Takes in how `cargo test` ended: a failure that no test reported is a test binary that died or did not build.
    pub(super) fn settle(&mut self, is_good: bool) {
        if !is_good && self.failed == 0 {
            self.failed = 1;
            self.has_died = true;
        }
    }

    pub(super) fn is_good(&self) -> bool {
        self.failed == 0 && self.passed > 0
    }

    /// What failed and why tests were skipped; the last line is the count.
    pub(super) fn report(&self) -> String {
        let mut out = String::new();
        let mut say = |what: &str, of: &[String]| of.iter().for_each(|one| _ = writeln!(out, "{what}: {one}"));
        say("failed", &self.names);
        say("skipped", &self.reasons);
        if self.has_died {
            out.push_str("failed: a test binary did not build or died without a result; see above\n");
        }
        if self.passed + self.failed == 0 {
            out.push_str("no test ran\n");
        }
        let _ = write!(out, "{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped);
        out
    }
}

/// (passed, failed, ignored) of a line `test result: ok. 3 passed; 0 failed; 0 ignored; …`.
fn counts(line: &str) -> Option<(u64, u64, u64)> {
    let (_, counts) = line.split_once("test result: ")?.1.split_once(". ")?;
    let mut counts = counts.split("; ");
    let mut count = |what: &str| counts.next()?.strip_suffix(what)?.trim().parse().ok();
    Some((count("passed")?, count("failed")?, count("ignored")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn last(summary: &Summary) -> String {
        summary.report().lines().last().unwrap().to_owned()
    }

    #[test]
    fn results_of_all_binaries_are_added_up() {
        let mut summary = Summary::default();
        summary.see("test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s\n");
        summary.see("test result: FAILED. 4 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1s\n");
        summary.see("test a::b ... FAILED\n");
        summary.settle(false);
        assert_eq!(summary.report(), "failed: a::b\n7 passed, 2 failed, 1 skipped");
        assert!(!summary.is_good());
    }

    #[test]
    fn a_test_that_could_not_run_is_skipped_not_passed() {
        let mut summary = Summary::default();
        summary.see("test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s");
        summary.skip(["mount: no /dev/fuse"].into_iter());
        summary.settle(true);
        assert_eq!(last(&summary), "2 passed, 0 failed, 1 skipped");
        assert!(summary.is_good());
    }

    #[test]
    fn a_binary_that_died_is_a_failure() {
        let mut summary = Summary::default();
        summary.see("test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s");
        summary.settle(false);
        assert_eq!(last(&summary), "3 passed, 1 failed, 0 skipped");
        assert!(!summary.is_good());
    }

    #[test]
    fn no_test_at_all_is_a_failure() {
        let mut summary = Summary::default();
        summary.settle(true);
        assert_eq!(last(&summary), "0 passed, 0 failed, 0 skipped");
        assert!(!summary.is_good());
    }
}
