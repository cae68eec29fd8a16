//! Adds up what the test programs say.

use super::flaky::Verdict;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

/// Programs in the list of the slowest.
const SLOWEST: usize = 10;
/// Lines shown again of the run in which a flaky test failed.
const LINES: usize = 60;

/// The results of a run.
#[derive(Debug, Default)]
pub(super) struct Summary {
    total: Verdict,
    reasons: Vec<String>,
    left: Vec<String>,
    times: Vec<(Duration, String)>,
    /// The ends of the first runs of what is flaky.
    first_runs: Vec<String>,
}

impl Summary {
    /// Adds what came of one program.
    pub(super) fn add(&mut self, verdict: Verdict) {
        self.total.passed += verdict.passed;
        self.total.failed += verdict.failed;
        self.total.skipped += verdict.skipped;
        self.total.failures.extend(verdict.failures);
        self.total.flaky.extend(verdict.flaky);
    }

    /// Counts tests that said they could not run as skipped instead of passed.
    pub(super) fn skip(&mut self, reasons: Vec<String>) {
        let skips = (reasons.len() as u64).min(self.total.passed);
        self.total.passed -= skips;
        self.total.skipped += skips;
        self.reasons.extend(reasons);
    }

    /// What a program left behind.
    pub(super) fn left(&mut self, program: &str, what: Vec<String>) {
        self.left.extend(what.iter().map(|one| format!("{program}: {one}")));
    }

    pub(super) fn took(&mut self, program: &str, time: Duration) {
        self.times.push((time, program.to_owned()));
    }

    /// Where both runs of a flaky program are kept, and the output of the first.
    pub(super) fn kept(&mut self, program: &str, one: PathBuf, two: PathBuf, output: &[u8]) {
        let text = String::from_utf8_lossy(output);
        let lines: Vec<&str> = text.lines().collect();
        let mut said =
            format!("the first run of {program}, all of it in {}; the second in {}\n", one.display(), two.display());
        for line in &lines[lines.len().saturating_sub(LINES)..] {
            let _ = writeln!(said, "  | {line}");
        }
        self.first_runs.push(said);
    }

    pub(super) fn is_good(&self) -> bool {
        self.total.failed == 0 && self.total.passed > 0
    }

    /// What took long, what was left behind, skipped, failed and flaky; the last line is the count.
    pub(super) fn report(&self) -> String {
        let mut out = String::new();
        let mut times: Vec<&(Duration, String)> = self.times.iter().collect();
        times.sort_by(|a, b| b.cmp(a));
        for (time, program) in times.into_iter().take(SLOWEST) {
            let _ = writeln!(out, "slowest: {:7.1} s {program}", time.as_secs_f64());
        }
        self.left.iter().for_each(|one| _ = writeln!(out, "left behind by {one}"));
        let mut say = |what: &str, of: &[String]| of.iter().for_each(|one| _ = writeln!(out, "{what}: {one}"));
        say("skipped", &self.reasons);
        say("failed", &self.total.failures);
        if self.total.passed + self.total.failed == 0 {
            out.push_str("no test ran\n");
        }
        if !self.total.flaky.is_empty() {
            self.first_runs.iter().for_each(|run| out.push_str(run));
            out.push_str("flaky: these failed, and passed when they were run once more\n");
            self.total.flaky.iter().for_each(|one| _ = writeln!(out, "flaky: {one}"));
        }
        let Verdict { passed, failed, skipped, .. } = &self.total;
        let _ = write!(out, "{passed} passed, {failed} failed, {skipped} skipped");
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passed(passed: u64) -> Verdict {
        Verdict { passed, ..Verdict::default() }
    }

    #[test]
    fn results_of_all_programs_are_added_up() {
        let mut summary = Summary::default();
        summary.add(Verdict { passed: 3, skipped: 1, ..Verdict::default() });
        summary.add(Verdict { passed: 4, failed: 2, failures: vec!["x: a::b".into()], ..Verdict::default() });
        assert_eq!(summary.report(), "failed: x: a::b\n7 passed, 2 failed, 1 skipped");
        assert!(!summary.is_good());
    }

    #[test]
    fn a_test_that_could_not_run_is_skipped_not_passed() {
        let mut summary = Summary::default();
        summary.add(passed(3));
        summary.skip(vec!["mount: no /dev/fuse".into()]);
        assert_eq!(summary.report(), "skipped: mount: no /dev/fuse\n2 passed, 0 failed, 1 skipped");
        assert!(summary.is_good());
    }

    #[test]
    fn no_test_at_all_is_a_failure() {
        let summary = Summary::default();
        assert_eq!(summary.report(), "no test ran\n0 passed, 0 failed, 0 skipped");
        assert!(!summary.is_good());
    }

    #[test]
    fn the_slowest_come_first_and_what_is_flaky_stands_above_the_last_line() {
        let mut summary = Summary::default();
        for seconds in 1..=12 {
            summary.took(&format!("p{seconds}"), Duration::from_secs(seconds));
        }
        summary.add(Verdict { passed: 1, flaky: vec!["x: a failed, then passed".into()], ..Verdict::default() });
        summary.kept("x", "one.txt".into(), "two.txt".into(), b"panicked\n");
        summary.left("x", vec!["mount of tmpfs at /m".into()]);
        let report = summary.report();
        let lines: Vec<&str> = report.lines().collect();
        assert_eq!((lines[0], lines[9]), ("slowest:    12.0 s p12", "slowest:     3.0 s p3"));
        assert_eq!(lines[10], "left behind by x: mount of tmpfs at /m");
        assert_eq!(lines[11], "the first run of x, all of it in one.txt; the second in two.txt");
        assert_eq!(lines[12], "  | panicked");
        assert_eq!(lines[14..], ["flaky: x: a failed, then passed", "1 passed, 0 failed, 0 skipped"]);
        assert!(summary.is_good(), "flaky is loud, not red");
    }
}
