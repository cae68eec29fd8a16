//! Runs one test program after the other: each to its end or its deadline, and once more what did not pass.
//!
//! # Guarantees
//! 1. A program has a deadline, all programs together have one, and nothing runs beyond them; what does not come to run has failed.
//! 2. Whatever happens to one program, the others run, and the results so far are told; also when somebody stops the run.
//! 3. The output of programs that did not pass at once is kept, of both runs.

use super::attempt::{self, Attempt, Course, Ending, Rooms};
use super::bounded::now;
use super::flaky::{self, Again, Verdict};
use super::libtest;
use super::programs::Program;
use super::summary::Summary;
use anyhow::{Context as _, Result, bail};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How long a program may take to list its tests.
const LISTING: Duration = Duration::from_secs(60);

/// How long things may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Limits {
    /// One run of one program.
    pub(super) program: Duration,
    /// All programs.
    pub(super) total: Duration,
    /// What a program started, after the program.
    pub(super) grace: Duration,
}

/// Where and how programs run.
#[derive(Debug)]
pub(super) struct Runner {
    pub(super) limits: Limits,
    /// Since boot.
    pub(super) start: Duration,
    /// For every program: its environment, and what it is told when it runs all of its tests and when only some.
    pub(super) env: Vec<(&'static str, OsString)>,
    pub(super) filter: Vec<String>,
    pub(super) args: Vec<String>,
    pub(super) rooms: Rooms,
    /// Where output and skips are kept.
    pub(super) kept: PathBuf,
    pub(super) is_shown: bool,
    pub(super) stop: Arc<AtomicBool>,
}

impl Runner {
    /// Runs a program, and once more what did not pass. Whether others may be run after it: not if somebody wants an end.
    pub(super) fn run(&self, program: &Program, summary: &mut Summary) -> bool {
        if let Err(e) = self.judge(program, summary) {
            let why = format!("{}: {e:#}", program.name);
            self.say(&why);
            summary.add(Verdict::failure(why));
        }
        !self.stop.load(Ordering::Relaxed)
    }

    fn judge(&self, program: &Program, summary: &mut Summary) -> Result<()> {
        self.say(&format!("\n==> {}", program.name));
        if self.left().is_zero() {
            bail!("not run, the {:?} for all programs are over", self.limits.total);
        }
        let expected = self.list(program);
        let filter: Vec<&str> = self.filter.iter().map(String::as_str).collect();
        let (one, mut reasons) = self.attempt(program, &filter, &expected, 1)?;
        let again = flaky::again(&one, &expected);
        let mut took = one.took;
        let mut verdict = flaky::first(&one);
        if again != Again::Nothing {
            self.keep(program, 1, &one)?;
            self.say(&format!("\n==> {}, once more: {}", program.name, words(&again)));
            let args: Vec<&str> = match &again {
                Again::Only(names) => ["--exact"].into_iter().chain(names.iter().map(String::as_str)).collect(),
                _ => filter,
            };
            let (two, more) = self.attempt(program, &args, &expected, 2)?;
            self.keep(program, 2, &two)?;
            took += two.took;
            verdict = match &again {
                Again::Only(names) => {
                    reasons.extend(more);
                    flaky::second(&program.name, names, [&one, &two])
                }
                _ => {
                    reasons = more;
                    flaky::second_whole(&program.name, [&one, &two])
                }
            };
            if !verdict.flaky.is_empty() {
                summary.kept(&program.name, self.file(program, 1), self.file(program, 2), &one.output);
            }
            summary.left(&program.name, two.left);
        }
        summary.left(&program.name, one.left);
        self.say(&format!("{} took {:.1} s", program.name, took.as_secs_f64()));
        summary.add(verdict);
        summary.skip(reasons);
        summary.took(&program.name, took);
        Ok(())
    }

    /// One run, and why tests were skipped in it.
    fn attempt(
        &self,
        program: &Program,
        args: &[&str],
        expected: &BTreeSet<String>,
        number: u8,
    ) -> Result<(Attempt, Vec<String>)> {
        let skips = self.kept.join("skips");
        let _ = std::fs::remove_file(&skips);
        let told: Vec<&str> = self.args.iter().map(String::as_str).chain(args.iter().copied()).collect();
        let mut command = program.command(if program.is_harness { &told } else { &[] });
        command.envs(self.env.iter().map(|(name, value)| (name, value))).env("TEAL_SKIPS", &skips);
        let attempt = attempt::run(&program.name, command, expected, self.course(self.limits.program))?;
        if attempt.ending == Ending::Stopped {
            bail!("stopped in run {number}, what it left is taken away; what comes after it was not run");
        }
        for left in &attempt.left {
            self.say(&format!("left behind by {}: {left}", program.name));
        }
        let reasons = std::fs::read_to_string(&skips).unwrap_or_default().lines().map(str::to_owned).collect();
        Ok((attempt, reasons))
    }

    /// The tests that are to run; none if that is not known.
    fn list(&self, program: &Program) -> BTreeSet<String> {
        if !program.is_harness {
            return BTreeSet::new();
        }
        let args: Vec<&str> =
            ["--list", "--format", "terse"].into_iter().chain(self.filter.iter().map(String::as_str)).collect();
        let mut command = program.command(&args);
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        let course = Course { is_shown: false, ..self.course(LISTING) };
        let said = attempt::run(&program.name, command, &BTreeSet::new(), course);
        said.ok().and_then(|said| libtest::listed(&String::from_utf8_lossy(&said.output))).unwrap_or_default()
    }

    fn course(&self, limit: Duration) -> Course<'_> {
        Course {
            limit: limit.min(self.left()),
            grace: self.limits.grace,
            rooms: &self.rooms,
            is_shown: self.is_shown,
            stop: &self.stop,
        }
    }

    fn left(&self) -> Duration {
        (self.start + self.limits.total).saturating_sub(now())
    }

    fn keep(&self, program: &Program, number: u8, attempt: &Attempt) -> Result<()> {
        let file = self.file(program, number);
        std::fs::write(&file, &attempt.output).with_context(|| file.display().to_string())
    }

    /// Where the output of a run is kept.
    fn file(&self, program: &Program, number: u8) -> PathBuf {
        let name: String =
            program.name.chars().map(|c| if c.is_alphanumeric() || c == '-' { c } else { '_' }).collect();
        Path::new(&self.kept).join(format!("{name}-{number}.txt"))
    }

    fn say(&self, text: &str) {
        if self.is_shown {
            println!("{text}");
        }
    }
}

fn words(again: &Again) -> String {
    match again {
        Again::Only(names) => names.iter().map(String::as_str).collect::<Vec<_>>().join(" "),
        _ => "all of it".to_owned(),
    }
}

#[cfg(test)]
mod tests;
