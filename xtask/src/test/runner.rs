//! Runs one test program after the other, once: each to its end or its deadline.
//!
//! # Guarantees
//! 1. A program has a deadline, all programs together have one, and nothing runs beyond them; what does not come to run has failed.
//! 2. Whatever happens to one program, the others run, and the results so far are told; also when somebody stops the run.
//! 3. The output of programs that did not pass is kept.
//! 4. Nothing runs a second time: a test that passes only then hides a defect.

use super::attempt::{self, Attempt, Course, Ending, Rooms};
use super::bounded::now;
use super::libtest;
use super::programs::Program;
use super::summary::Summary;
use super::times::{Spent, Stopwatch};
use super::verdict::{self, Verdict};
use anyhow::{Context as _, Result, bail};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How long a program may take to list its tests.
const LISTING: Duration = Duration::from_secs(60);

/// How long things may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Limits {
    /// One program.
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
    /// For every program: its environment, a part of the names of its tests if only some are to run, and other arguments.
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
    /// Runs a program. Whether others may be run after it: not if somebody wants an end.
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
            bail!(
                "not run, the {:?} for all programs are over",
                self.limits.total
            );
        }
        let expected = self.list(program);
        let watch = Stopwatch::start();
        let (attempt, reasons) = self.attempt(program, &expected)?;
        let spent: Spent = watch.stop();
        let verdict = Verdict::of(&program.name, &attempt, &expected);
        if !verdict::is_good(&attempt) {
            let file = self.keep(program, &attempt)?;
            summary.kept(&program.name, &file);
        }
        self.say(&format!(
            "{} took {:.1} s",
            program.name,
            spent.wall.as_secs_f64()
        ));
        summary.left(&program.name, attempt.left);
        summary.add(verdict);
        summary.skip(reasons);
        summary.took(&program.name, spent);
        Ok(())
    }

    /// The run, and why tests were skipped in it.
    fn attempt(
        &self,
        program: &Program,
        expected: &BTreeSet<String>,
    ) -> Result<(Attempt, Vec<String>)> {
        let skips = self.kept.join("skips");
        let _ = std::fs::remove_file(&skips);
        let mut told: Vec<&str> = self
            .args
            .iter()
            .chain(&self.filter)
            .map(String::as_str)
            .collect();
        // The long form runs one test after the other.
        told.extend(program.side_by_side().filter(|_| self.args.is_empty()));
        let mut command = program.command(if program.is_harness { &told } else { &[] });
        command
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .env("TEAL_SKIPS", &skips);
        let attempt = attempt::run(
            &program.name,
            command,
            expected,
            self.course(self.limits.program),
        )?;
        if attempt.ending == Ending::Stopped {
            bail!("stopped, what it left is taken away; what comes after it was not run");
        }
        for left in &attempt.left {
            self.say(&format!("left behind by {}: {left}", program.name));
        }
        let reasons = std::fs::read_to_string(&skips)
            .unwrap_or_default()
            .lines()
            .map(str::to_owned)
            .collect();
        Ok((attempt, reasons))
    }

    /// The tests that are to run; none if that is not known.
    fn list(&self, program: &Program) -> BTreeSet<String> {
        if !program.is_harness {
            return BTreeSet::new();
        }
        let args: Vec<&str> = ["--list", "--format", "terse"]
            .into_iter()
            .chain(self.filter.iter().map(String::as_str))
            .collect();
        let mut command = program.command(&args);
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        let course = Course {
            is_shown: false,
            ..self.course(LISTING)
        };
        let said = attempt::run(&program.name, command, &BTreeSet::new(), course);
        said.ok()
            .and_then(|said| libtest::listed(&String::from_utf8_lossy(&said.output)))
            .unwrap_or_default()
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

    /// Keeps the output of a run; where.
    fn keep(&self, program: &Program, attempt: &Attempt) -> Result<PathBuf> {
        let name: String = program
            .name
            .chars()
            .map(|c| {
                if c.is_alphanumeric() || c == '-' {
                    c
                } else {
                    '_'
                }
            })
            .collect();
        let file = self.kept.join(format!("{name}.txt"));
        std::fs::write(&file, &attempt.output).with_context(|| file.display().to_string())?;
        Ok(file)
    }

    fn say(&self, text: &str) {
        if self.is_shown {
            println!("{text}");
        }
    }
}

#[cfg(test)]
mod tests;
