//! Flowops on a real directory: what each does, what is counted, how runs end. Counts only: no time
//! is looked at.

#![allow(clippy::unwrap_used, reason = "a test whose ground gives way fails")]

use std::path::Path;
use std::sync::Mutex;
use teal_env::SystemClock;
use teal_study::wml::parse;
use teal_study::workload::{Figures, Listener, Options, Outcome, RunError, execute, plan};

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

impl Listener for Heard {
    fn say(&self, line: &str) {
        self.0.lock().unwrap().push(line.to_owned());
    }
    fn progress(&self, _: &Outcome) {}
    fn interrupted(&self) -> bool {
        false
    }
}

fn options(dir: &Path, strict: bool) -> Options {
    Options {
        strict,
        ..Options::new(dir)
    }
}

fn try_run(dir: &Path, strict: bool, text: &str) -> Result<Outcome, RunError> {
    let script = parse("t.wml", text, &mut |_| Err("no".into())).unwrap();
    let plan = plan(&script, options(dir, strict)).unwrap_or_else(|error| panic!("{error}"));
    execute(&plan, &SystemClock, &Heard::default()).map(|outcome| outcome.expect("it runs"))
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
fn run(dir: &Path, text: &str) -> Outcome {
    try_run(dir, false, text).unwrap_or_else(|error| panic!("{error}"))
}

#[track_caller]
fn figures(outcome: &Outcome, name: &str) -> Figures {
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
fn count(outcome: &Outcome, name: &str) -> u64 {
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
