//! Adds up the results of the test programs.

use super::times::{Stopwatch, TimeSpent, format_times};
use super::verdict::TestVerdict;
use std::fmt::Write as _;
use std::path::Path;

/// The results of a run.
#[derive(Debug, Default)]
pub(super) struct TestSummary {
    total: TestVerdict,
    reasons: Vec<String>,
    left: Vec<String>,
    times: Vec<(TimeSpent, String)>,
    /// The time of all programs together.
    whole: TimeSpent,
    /// The files with the output of programs that did not pass.
    outputs: Vec<String>,
}

impl TestSummary {
    /// Adds the verdict on one program.
    pub(super) fn add(&mut self, verdict: TestVerdict) {
        self.total.passed += verdict.passed;
        self.total.failed += verdict.failed;
        self.total.skipped += verdict.skipped;
        self.total.failures.extend(verdict.failures);
    }

    /// Counts tests that said they could not run as skipped instead of passed.
    pub(super) fn add_skipped(&mut self, reasons: Vec<String>) {
        // A skipped test returns normally, and was counted as passed by its harness.
        let skips = (reasons.len() as u64).min(self.total.passed);
        debug_assert!(
            skips <= self.total.passed,
            "only passed tests can have been skipped"
        );
        self.total.passed -= skips;
        self.total.skipped += skips;
        self.reasons.extend(reasons);
    }

    /// Adds the things that a program left behind.
    pub(super) fn add_leftovers(&mut self, program: &str, what: Vec<String>) {
        self.left
            .extend(what.iter().map(|one| format!("{program}: {one}")));
    }

    /// Adds the time of a program.
    pub(super) fn add_time(&mut self, program: &str, spent: TimeSpent) {
        self.times.push((spent, program.to_owned()));
    }

    /// Sets the time of all programs together, from the start of the first to the end of the last.
    pub(super) fn set_total_time(&mut self, watch: Stopwatch) {
        let processor = self.times.iter().map(|(spent, _)| spent.processor).sum();
        self.whole = watch.stop(processor);
    }

    /// Adds the results of other programs.
    pub(super) fn merge(&mut self, other: Self) {
        self.add(other.total);
        self.reasons.extend(other.reasons);
        self.left.extend(other.left);
        self.times.extend(other.times);
        self.outputs.extend(other.outputs);
    }

    /// Adds the file with the output of a program that did not pass.
    pub(super) fn add_output_file(&mut self, program: &str, file: &Path) {
        self.outputs
            .push(format!("what {program} said is in {}", file.display()));
    }

    pub(super) fn is_good(&self) -> bool {
        self.total.failed == 0 && self.total.passed > 0
    }

    /// Returns the times, the things left behind, the skipped and the failed tests; the last line
    /// has the counts.
    pub(super) fn to_report(&self) -> String {
        let mut out = format_times(&self.times, &self.whole);
        self.left
            .iter()
            .for_each(|one| _ = writeln!(out, "left behind by {one}"));
        let mut say = |what: &str, of: &[String]| {
            of.iter().for_each(|one| _ = writeln!(out, "{what}: {one}"))
        };
        say("skipped", &self.reasons);
        say("failed", &self.total.failures);
        self.outputs
            .iter()
            .for_each(|one| _ = writeln!(out, "{one}"));
        if self.total.passed + self.total.failed == 0 {
            out.push_str("no test ran\n");
        }
        let TestVerdict {
            passed,
            failed,
            skipped,
            ..
        } = &self.total;
        let _ = write!(out, "{passed} passed, {failed} failed, {skipped} skipped");
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn passed(passed: u64) -> TestVerdict {
        TestVerdict {
            passed,
            ..TestVerdict::default()
        }
    }

    #[test]
    fn results_of_all_programs_are_added_up() {
        let mut summary = TestSummary::default();
        summary.add(TestVerdict {
            passed: 3,
            skipped: 1,
            ..TestVerdict::default()
        });
        summary.add(TestVerdict {
            passed: 4,
            failed: 2,
            failures: vec!["x: a::b".into()],
            ..TestVerdict::default()
        });
        assert_eq!(
            summary.to_report(),
            "failed: x: a::b\n7 passed, 2 failed, 1 skipped"
        );
        assert!(!summary.is_good());
    }

    #[test]
    fn a_test_that_could_not_run_is_skipped_not_passed() {
        let mut summary = TestSummary::default();
        summary.add(passed(3));
        summary.add_skipped(vec!["mount: no /dev/fuse".into()]);
        assert_eq!(
            summary.to_report(),
            "skipped: mount: no /dev/fuse\n2 passed, 0 failed, 1 skipped"
        );
        assert!(summary.is_good());
    }

    #[test]
    fn no_test_at_all_is_a_failure() {
        let summary = TestSummary::default();
        assert_eq!(
            summary.to_report(),
            "no test ran\n0 passed, 0 failed, 0 skipped"
        );
        assert!(!summary.is_good());
    }

    #[test]
    fn what_programs_took_stands_first_and_what_failed_above_the_last_line() {
        let mut summary = TestSummary::default();
        let spent = |wall| TimeSpent {
            wall: Duration::from_secs(wall),
            ..TimeSpent::default()
        };
        summary.add_time("quick", spent(1));
        summary.add_time("slow", spent(12));
        summary.add(TestVerdict {
            failed: 1,
            failures: vec!["x: a".into()],
            ..passed(1)
        });
        summary.add_output_file("x", Path::new("x.txt"));
        summary.add_leftovers("x", vec!["mount of tmpfs at /m".into()]);
        let report = summary.to_report();
        let lines: Vec<&str> = report.lines().collect();
        assert!(
            lines[1].ends_with(" slow") && lines[2].ends_with(" quick"),
            "{report}"
        );
        let rest = [
            "left behind by x: mount of tmpfs at /m",
            "failed: x: a",
            "what x said is in x.txt",
        ];
        assert_eq!(
            (&lines[4..7], lines[7]),
            (&rest[..], "1 passed, 1 failed, 0 skipped"),
            "{report}"
        );
        assert!(!summary.is_good(), "what fails has failed");
    }
}
