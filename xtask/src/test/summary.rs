//! Adds up what the test programs say.

use super::times::{Spent, Stopwatch, table};
use super::verdict::Verdict;
use std::fmt::Write as _;
use std::path::Path;

/// The results of a run.
#[derive(Debug, Default)]
pub(super) struct Summary {
    total: Verdict,
    reasons: Vec<String>,
    left: Vec<String>,
    times: Vec<(Spent, String)>,
    /// What all programs took together.
    whole: Spent,
    /// Where the output of what did not pass is.
    outputs: Vec<String>,
}

impl Summary {
    /// Adds what came of one program.
    pub(super) fn add(&mut self, verdict: Verdict) {
        self.total.passed += verdict.passed;
        self.total.failed += verdict.failed;
        self.total.skipped += verdict.skipped;
        self.total.failures.extend(verdict.failures);
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
        self.left
            .extend(what.iter().map(|one| format!("{program}: {one}")));
    }

    /// What a program took.
    pub(super) fn took(&mut self, program: &str, spent: Spent) {
        self.times.push((spent, program.to_owned()));
    }

    /// What all programs took together, from the start of the first to the end of the last.
    pub(super) fn took_together(&mut self, watch: Stopwatch) {
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

    /// Where the output of a program that did not pass is kept.
    pub(super) fn kept(&mut self, program: &str, file: &Path) {
        self.outputs
            .push(format!("what {program} said is in {}", file.display()));
    }

    pub(super) fn is_good(&self) -> bool {
        self.total.failed == 0 && self.total.passed > 0
    }

    /// Returns what each program took, what was left behind, skipped and failed; the last line is
    /// the count.
    pub(super) fn report(&self) -> String {
        let mut out = table(&self.times, &self.whole);
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
        let Verdict {
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

    fn passed(passed: u64) -> Verdict {
        Verdict {
            passed,
            ..Verdict::default()
        }
    }

    #[test]
    fn results_of_all_programs_are_added_up() {
        let mut summary = Summary::default();
        summary.add(Verdict {
            passed: 3,
            skipped: 1,
            ..Verdict::default()
        });
        summary.add(Verdict {
            passed: 4,
            failed: 2,
            failures: vec!["x: a::b".into()],
            ..Verdict::default()
        });
        assert_eq!(
            summary.report(),
            "failed: x: a::b\n7 passed, 2 failed, 1 skipped"
        );
        assert!(!summary.is_good());
    }

    #[test]
    fn a_test_that_could_not_run_is_skipped_not_passed() {
        let mut summary = Summary::default();
        summary.add(passed(3));
        summary.skip(vec!["mount: no /dev/fuse".into()]);
        assert_eq!(
            summary.report(),
            "skipped: mount: no /dev/fuse\n2 passed, 0 failed, 1 skipped"
        );
        assert!(summary.is_good());
    }

    #[test]
    fn no_test_at_all_is_a_failure() {
        let summary = Summary::default();
        assert_eq!(
            summary.report(),
            "no test ran\n0 passed, 0 failed, 0 skipped"
        );
        assert!(!summary.is_good());
    }

    #[test]
    fn what_programs_took_stands_first_and_what_failed_above_the_last_line() {
        let mut summary = Summary::default();
        let spent = |wall| Spent {
            wall: Duration::from_secs(wall),
            ..Spent::default()
        };
        summary.took("quick", spent(1));
        summary.took("slow", spent(12));
        summary.add(Verdict {
            failed: 1,
            failures: vec!["x: a".into()],
            ..passed(1)
        });
        summary.kept("x", Path::new("x.txt"));
        summary.left("x", vec!["mount of tmpfs at /m".into()]);
        let report = summary.report();
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
