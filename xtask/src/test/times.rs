//! What test programs take: time, processors, and how busy the machine is meanwhile.
//!
//! # Guarantees
//! 1. A table of every program, the longest first, ends with their sum: what the whole command takes, but for building.
//!
//! The processor time of a program is that of its own processes and of those somebody waited for, as the kernel adds it up for us.
//! Daemons are nobody's children: what they take shows in the column of the machine, as does what other programs do.

use super::bounded::now;
use std::fmt::Write as _;
use std::iter::Sum;
use std::time::Duration;

/// What the kernel counts processor time in, on every architecture: a hundredth of a second.
const TICK: Duration = Duration::from_millis(10);

/// What one program took.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Spent {
    /// From its start until nothing of it was left.
    pub(super) wall: Duration,
    /// Processor time of it and of its children that were waited for.
    pub(super) children: Duration,
    /// Processor time of everything that ran meanwhile.
    pub(super) machine: Duration,
}

impl Sum for Spent {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, one| Self {
            wall: sum.wall + one.wall,
            children: sum.children + one.children,
            machine: sum.machine + one.machine,
        })
    }
}

/// What the kernel has counted so far.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stopwatch(Spent);

impl Stopwatch {
    pub(super) fn start() -> Self {
        Self(Self::count())
    }

    pub(super) fn stop(self) -> Spent {
        let now = Self::count();
        Spent {
            wall: now.wall.saturating_sub(self.0.wall),
            children: now.children.saturating_sub(self.0.children),
            machine: now.machine.saturating_sub(self.0.machine),
        }
    }

    fn count() -> Spent {
        let read = |file: &str| std::fs::read_to_string(file).unwrap_or_default();
        Spent {
            wall: now(),
            children: of_children(&read("/proc/self/stat")).unwrap_or_default(),
            machine: of_machine(&read("/proc/stat")).unwrap_or_default(),
        }
    }
}

fn ticks(count: u64) -> Duration {
    TICK * u32::try_from(count).unwrap_or(u32::MAX)
}

/// The fields `cutime` and `cstime` of `/proc/PID/stat`.
fn of_children(stat: &str) -> Option<Duration> {
    let (_, fields) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let field = |number: usize| fields.get(number)?.parse::<u64>().ok();
    Some(ticks(field(13)? + field(14)?))
}

/// The first line of `/proc/stat` without what was idle or waiting: `cpu user nice system idle iowait irq softirq …`.
fn of_machine(stat: &str) -> Option<Duration> {
    let fields: Vec<&str> = stat
        .lines()
        .next()?
        .strip_prefix("cpu ")?
        .split_whitespace()
        .collect();
    let field = |number: usize| fields.get(number)?.parse::<u64>().ok();
    Some(ticks(
        field(0)? + field(1)? + field(2)? + field(5)? + field(6)?,
    ))
}

/// A line for each program and one for all; nothing if there is none.
pub(super) fn table(times: &[(Spent, String)]) -> String {
    let mut out = String::new();
    if times.is_empty() {
        return out;
    }
    let mut sorted: Vec<&(Spent, String)> = times.iter().collect();
    sorted.sort_by(|a, b| b.cmp(a));
    out.push_str("  wall s     cpu s  machine cpu s  program\n");
    let mut line = |spent: &Spent, name: &str| {
        let [wall, children, machine] =
            [spent.wall, spent.children, spent.machine].map(|time| time.as_secs_f64());
        let _ = writeln!(out, "{wall:8.1}  {children:8.1}  {machine:13.1}  {name}");
    };
    sorted.iter().for_each(|(spent, name)| line(spent, name));
    let sum: Spent = times.iter().map(|(spent, _)| *spent).sum();
    line(&sum, &format!("all {} programs", times.len()));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_stands_first_and_the_sum_last() {
        let spent = |wall, children, machine| {
            let [wall, children, machine] = [wall, children, machine].map(Duration::from_secs);
            Spent {
                wall,
                children,
                machine,
            }
        };
        let times = [
            (spent(1, 2, 2), "quick".to_owned()),
            (spent(12, 3, 9), "slow".to_owned()),
        ];
        let expected = "  wall s     cpu s  machine cpu s  program
    12.0       3.0            9.0  slow
     1.0       2.0            2.0  quick
    13.0       5.0           11.0  all 2 programs\n";
        assert_eq!(table(&times), expected);
        assert_eq!(table(&[]), "");
    }

    #[test]
    fn the_kernels_counts_are_read() {
        let stat = "7 (a) b (c) S 1 5 5 0 -1 4194560 1 0 0 0 9 8 150 50 20 0 2 0 4711 0 0";
        assert_eq!(of_children(stat), Some(Duration::from_secs(2)));
        assert_eq!(of_children("7 (a"), None);
        let stat = "cpu  100 50 30 9999 9999 10 10 0 0 0\ncpu0 1 1 1 1 1 1 1 0 0 0\n";
        assert_eq!(of_machine(stat), Some(Duration::from_secs(2)));
        assert_eq!(of_machine("intr 5"), None);
    }

    #[test]
    fn a_child_that_worked_is_counted() {
        let watch = Stopwatch::start();
        let work = "n=0; while [ $n -lt 500000 ]; do n=$((n + 1)); done";
        assert!(
            std::process::Command::new("sh")
                .args(["-c", work])
                .status()
                .unwrap()
                .success()
        );
        let spent = watch.stop();
        assert!(
            spent.children >= TICK && spent.machine >= TICK && spent.wall >= TICK,
            "{spent:?}"
        );
    }
}
