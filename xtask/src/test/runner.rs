//! Runs test programs, each once, to its end or its deadline: most of them side by side, because
//! they mostly wait.
//!
//! # Guarantees
//! 1. A program has a deadline, all programs together have one, and nothing runs beyond them; a
//!    program that does not come to run has failed.
//! 2. Whatever happens to one program, the others run, and the results so far are reported; also
//!    when the user stops the run.
//! 3. The output of programs that did not pass is kept.
//! 4. Nothing runs a second time: a test that passes only then hides a defect.
//! 5. Beside a program that must be alone nothing runs (`TestProgram::is_alone_because`).
//! 6. The output of one program is shown in one piece: as it comes if it runs alone, at its end if
//!    others run beside it.

use super::attempt::{self, RunEnding, RunTerms, TestRun};
use super::bounded::time_since_boot;
use super::directories::RunDirectories;
use super::libtest;
use super::programs::TestProgram;
use super::summary::TestSummary;
use super::times::{Stopwatch, TimeSpent};
use super::verdict::{self, TestVerdict};
use anyhow::{Context as _, Result, bail};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

/// The time that a program may take to list its tests.
const LISTING: Duration = Duration::from_secs(60);

/// The limits of a run's time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RunLimits {
    /// The time of one program.
    pub(super) program: Duration,
    /// The time of all programs.
    pub(super) total: Duration,
    /// The time for processes that a program started, after the program.
    pub(super) grace: Duration,
}

/// The places and terms of all programs.
#[derive(Debug)]
pub(super) struct ProgramRunner {
    pub(super) limits: RunLimits,
    /// The start of the run, since boot.
    pub(super) start: Duration,
    /// For every program: its environment, a part of the names of its tests if only some are to
    /// run, and other arguments.
    pub(super) env: Vec<(&'static str, OsString)>,
    pub(super) filter: Vec<String>,
    pub(super) args: Vec<String>,
    pub(super) directories: RunDirectories,
    /// The directory in which output and skips are kept.
    pub(super) kept: PathBuf,
    pub(super) is_shown: bool,
    /// The number of programs that run side by side.
    pub(super) lanes: usize,
    pub(super) stop: Arc<AtomicBool>,
    /// Held by each program that runs (see [`RunTerms`]).
    pub(super) running_lock: RwLock<()>,
}

/// When the output of a program is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OutputMode {
    AsItComes,
    AtTheEnd,
    Never,
}

/// The lines that are printed for one program.
#[derive(Debug)]
struct Transcript {
    shown: OutputMode,
    /// The text that is still to be shown.
    text: Vec<u8>,
}

impl Transcript {
    fn new(shown: OutputMode) -> Self {
        Self {
            shown,
            text: Vec::new(),
        }
    }

    fn add_line(&mut self, line: &str) {
        match self.shown {
            OutputMode::AsItComes => println!("{line}"),
            OutputMode::AtTheEnd => self.text.extend_from_slice(format!("{line}\n").as_bytes()),
            OutputMode::Never => {}
        }
    }

    /// Adds the output of the program, which was shown already if it is shown as it comes.
    fn add_output(&mut self, output: &[u8]) {
        if self.shown == OutputMode::AtTheEnd {
            self.text.extend_from_slice(output);
        }
    }
}

impl ProgramRunner {
    /// Runs all programs: first those that may have others beside them, then the rest.
    pub(super) fn run_all(&self, programs: &[TestProgram]) -> TestSummary {
        let watch = Stopwatch::start();
        let is_alone =
            |program: &&TestProgram| program.is_alone_because().is_some() || self.lanes < 2;
        // Programs that must be alone come last, when the lanes are empty.
        let (alone, beside): (Vec<&TestProgram>, Vec<&TestProgram>) =
            programs.iter().partition(is_alone);
        let summary = Mutex::new(TestSummary::default());
        let add = |one: TestSummary| {
            let mut summary = summary.lock().unwrap_or_else(PoisonError::into_inner);
            summary.merge(one);
        };
        // Each lane takes the next program that no lane has begun.
        let next = AtomicUsize::new(0);
        let lane = || {
            while let Some(program) = beside.get(next.fetch_add(1, Ordering::Relaxed)) {
                self.print_line(&format!("started {}", program.name));
                add(self.run_one(program, OutputMode::AtTheEnd));
                if self.stop.load(Ordering::Relaxed) {
                    break;
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..self.lanes {
                scope.spawn(lane);
            }
        });
        for program in alone {
            if self.stop.load(Ordering::Relaxed) {
                break;
            }
            add(self.run_one(program, OutputMode::AsItComes));
        }
        let mut summary = summary.into_inner().unwrap_or_else(PoisonError::into_inner);
        summary.set_total_time(watch);
        summary
    }

    /// Runs one program, and shows its output.
    fn run_one(&self, program: &TestProgram, shown: OutputMode) -> TestSummary {
        let shown = if self.is_shown {
            shown
        } else {
            OutputMode::Never
        };
        let mut transcript = Transcript::new(shown);
        let mut summary = TestSummary::default();
        if let Err(e) = self.run_and_judge(program, &mut summary, &mut transcript) {
            let why = format!("{}: {e:#}", program.name);
            transcript.add_line(&why);
            summary.add(TestVerdict::from_failure(why));
        }
        // The text is written in one call under the lock of the channel, so that it is not mixed
        // with that of other programs.
        let mut out = std::io::stdout().lock();
        let _ = out.write_all(&transcript.text).and_then(|()| out.flush());
        summary
    }

    fn run_and_judge(
        &self,
        program: &TestProgram,
        summary: &mut TestSummary,
        transcript: &mut Transcript,
    ) -> Result<()> {
        transcript.add_line(&format!("\n==> {}", program.name));
        if self.time_left().is_zero() {
            bail!(
                "not run, the {:?} for all programs are over",
                self.limits.total
            );
        }
        // The list is read before the run, so that a hung program's missing tests have names.
        let expected = self.list_tests(program);
        let watch = Stopwatch::start();
        let (attempt, reasons) = self.start_run(program, &expected, transcript)?;
        let spent: TimeSpent = watch.stop(attempt.processor);
        let verdict = TestVerdict::from_run(&program.name, &attempt, &expected);
        if !verdict::is_good(&attempt) {
            let file = self.keep_output(program, &attempt)?;
            summary.add_output_file(&program.name, &file);
        }
        transcript.add_line(&format!(
            "{} took {:.1} s",
            program.name,
            spent.wall.as_secs_f64()
        ));
        summary.add_leftovers(&program.name, attempt.leftovers);
        summary.add(verdict);
        summary.add_skipped(reasons);
        summary.add_time(&program.name, spent);
        Ok(())
    }

    /// Runs the program. Returns the result, and the reasons why tests were skipped.
    fn start_run(
        &self,
        program: &TestProgram,
        expected: &BTreeSet<String>,
        transcript: &mut Transcript,
    ) -> Result<(TestRun, Vec<String>)> {
        let skips = self.kept.join(format!("{}.skips", file_name(program)));
        // Reasons of an earlier run must not count.
        let _ = std::fs::remove_file(&skips);
        let mut told: Vec<&str> = self
            .args
            .iter()
            .chain(&self.filter)
            .map(String::as_str)
            .collect();
        // The long form runs one test after the other.
        told.extend(program.side_by_side().filter(|_| self.args.is_empty()));
        let mut command = program.to_command(if program.is_harness { &told } else { &[] });
        command
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .env("TEAL_SKIPS", &skips);
        let attempt = attempt::run_to_end(
            &program.name,
            command,
            expected,
            self.run_options(
                self.limits.program,
                transcript.shown == OutputMode::AsItComes,
            ),
        )?;
        transcript.add_output(&attempt.output);
        // The user stopped the run: nothing after this program is started.
        if attempt.ending == RunEnding::Stopped {
            bail!("stopped, what it left is taken away; what comes after it was not run");
        }
        for left in &attempt.leftovers {
            transcript.add_line(&format!("left behind by {}: {left}", program.name));
        }
        let reasons = std::fs::read_to_string(&skips)
            .unwrap_or_default()
            .lines()
            .map(str::to_owned)
            .collect();
        let _ = std::fs::remove_file(&skips);
        Ok((attempt, reasons))
    }

    /// Returns the tests that are to run; none if that is not known.
    fn list_tests(&self, program: &TestProgram) -> BTreeSet<String> {
        if !program.is_harness {
            return BTreeSet::new();
        }
        let args: Vec<&str> = ["--list", "--format", "terse"]
            .into_iter()
            .chain(self.filter.iter().map(String::as_str))
            .collect();
        let mut command = program.to_command(&args);
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        let course = self.run_options(LISTING, false);
        let said = attempt::run_to_end(&program.name, command, &BTreeSet::new(), course);
        said.ok()
            .and_then(|said| libtest::parse_list(&String::from_utf8_lossy(&said.output)))
            .unwrap_or_default()
    }

    fn run_options(&self, limit: Duration, is_shown: bool) -> RunTerms<'_> {
        RunTerms {
            limit: limit.min(self.time_left()),
            grace: self.limits.grace,
            directories: &self.directories,
            is_shown,
            stop: &self.stop,
            running_lock: &self.running_lock,
        }
    }

    fn time_left(&self) -> Duration {
        (self.start + self.limits.total).saturating_sub(time_since_boot())
    }

    /// Keeps the output of a run in a file, and returns its path.
    fn keep_output(&self, program: &TestProgram, attempt: &TestRun) -> Result<PathBuf> {
        let file = self.kept.join(format!("{}.txt", file_name(program)));
        std::fs::write(&file, &attempt.output).with_context(|| file.display().to_string())?;
        Ok(file)
    }

    fn print_line(&self, text: &str) {
        if self.is_shown {
            println!("{text}");
        }
    }
}

/// Returns the name of a program with nothing in it that a file's name cannot have.
fn file_name(program: &TestProgram) -> String {
    let is_fit = |c: char| c.is_alphanumeric() || c == '-';
    let letters = program.name.chars();
    letters.map(|c| if is_fit(c) { c } else { '_' }).collect()
}

#[cfg(test)]
mod tests;
