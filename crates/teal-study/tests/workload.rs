//! Flowops on a real directory: what each does, what is counted, how runs end. Counts only: no time
//! is looked at.

#![allow(clippy::unwrap_used, reason = "a test whose ground gives way fails")]

use std::path::Path;
use std::sync::Mutex;
use teal_env::SystemClock;
use teal_study::wml::parse_script;
use teal_study::workload::{
    LatencyFigures, RunError, RunListener, RunOutcome, WorkloadOptions, execute_plan, plan_script,
};

#[path = "workload/data.rs"]
mod data;
#[path = "workload/ending.rs"]
mod ending;
#[path = "workload/meeting.rs"]
mod meeting;
#[path = "workload/names.rs"]
mod names;

#[derive(Default)]
struct Heard(Mutex<Vec<String>>);

impl RunListener for Heard {
    fn print_line(&self, line: &str) {
        self.0.lock().unwrap().push(line.to_owned());
    }
    fn report_progress(&self, _: &RunOutcome) {}
    fn is_interrupted(&self) -> bool {
        false
    }
}

fn options(dir: &Path, strict: bool) -> WorkloadOptions {
    WorkloadOptions {
        strict,
        ..WorkloadOptions::new(dir)
    }
}

fn try_run(dir: &Path, strict: bool, text: &str) -> Result<RunOutcome, RunError> {
    let script = parse_script("t.wml", text, &mut |_| Err("no".into())).unwrap();
    let plan = plan_script(&script, options(dir, strict)).unwrap_or_else(|error| panic!("{error}"));
    execute_plan(&plan, &SystemClock, &Heard::default()).map(|outcome| outcome.expect("it runs"))
}

/// Runs one thread with these flowops until `last` has been done so many times.
fn body(set: &str, flowops: &str, last: &str, times: u64) -> String {
    format!(
        "set mode quit firstdone\ndefine fileset name=ff,path=$dir,dirwidth=100,dirgamma=0,{set}\n\
         define process name=pp {{ thread name=tt {{\n{flowops}\n\
         flowop finishoncount name=end,value={times},target={last}\n}} }}\nrun"
    )
}

#[track_caller]
fn run(dir: &Path, text: &str) -> RunOutcome {
    try_run(dir, false, text).unwrap_or_else(|error| panic!("{error}"))
}

#[track_caller]
fn figures(outcome: &RunOutcome, name: &str) -> LatencyFigures {
    let line = outcome.lines.iter().find(|line| line.name == name);
    line.unwrap_or_else(|| {
        panic!(
            "no {name} in {:?}",
            outcome.lines.iter().map(|l| &l.name).collect::<Vec<_>>()
        )
    })
    .figures
    .clone()
}

#[track_caller]
fn count(outcome: &RunOutcome, name: &str) -> u64 {
    figures(outcome, name).count
}

/// Sizes of all files below, sorted.
fn sizes(dir: &Path) -> Vec<u64> {
    let (mut sizes, mut dirs) = (Vec::new(), vec![dir.to_owned()]);
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(dir).unwrap().map(Result::unwrap) {
            let meta = entry.metadata().unwrap();
            if meta.is_dir() {
                dirs.push(entry.path())
            } else {
                sizes.push(meta.len())
            }
        }
    }
    sizes.sort_unstable();
    sizes
}
