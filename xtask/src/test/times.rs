//! The times of test programs: wall time, processor time, and the load of the machine meanwhile.
//!
//! # Guarantees
//! 1. A table of every program, the longest first, ends with the time of the whole command without
//!    building: from the start of the first program to the end of the last one. Programs run beside
//!    each other, so this is less than the sum of the lines above.
//!
//! The processor time of a program is that of its own process and of the children it waited for, as
//! the kernel adds it up. Daemons are not among them: their time shows in the column of the
//! machine, as does that of other programs beside it.

use super::bounded::time_since_boot;
use std::fmt::Write as _;
use std::time::Duration;

/// The unit in which the kernel counts processor time on every architecture: a hundredth of a
/// second.
const TICK: Duration = Duration::from_millis(10);

/// The time that one program took.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct TimeSpent {
    /// From its start until nothing of it was left.
    pub(super) wall: Duration,
    /// Processor time of it and of its children that were waited for.
    pub(super) processor: Duration,
    /// Processor time of everything that ran meanwhile.
    pub(super) machine: Duration,
}

/// A start time, and the processor time of the machine by then.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stopwatch {
    begin: Duration,
    machine: Duration,
}

impl Stopwatch {
    pub(super) fn start() -> Self {
        Self {
            begin: time_since_boot(),
            machine: machine_time(),
        }
    }

    /// Returns the time since the start, of which a program took `processor`.
    pub(super) fn stop(self, processor: Duration) -> TimeSpent {
        TimeSpent {
            wall: time_since_boot().saturating_sub(self.begin),
            processor,
            machine: machine_time().saturating_sub(self.machine),
        }
    }
}

/// Returns the processor time of a process and of its children that were waited for, as long as it
/// has not been waited for itself.
pub(super) fn of_process(pid: i32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    of_stat(&stat).unwrap_or_default()
}

fn machine_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    of_machine(&stat).unwrap_or_default()
}

fn ticks_to_time(count: u64) -> Duration {
    TICK * u32::try_from(count).unwrap_or(u32::MAX)
}

/// Adds the fields `utime`, `stime`, `cutime` and `cstime` of `/proc/PID/stat`.
fn of_stat(stat: &str) -> Option<Duration> {
    let (_, fields) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let field = |number: usize| fields.get(number)?.parse::<u64>().ok();
    // Fields are counted behind the name, from the state on.
    Some(ticks_to_time(
        field(11)? + field(12)? + field(13)? + field(14)?,
    ))
}

/// The first line of `/proc/stat` without what was idle or waiting: `cpu user nice system idle
/// iowait irq softirq …`.
fn of_machine(stat: &str) -> Option<Duration> {
    let fields: Vec<&str> = stat
        .lines()
        .next()?
        .strip_prefix("cpu ")?
        .split_whitespace()
        .collect();
    let field = |number: usize| fields.get(number)?.parse::<u64>().ok();
    Some(ticks_to_time(
        field(0)? + field(1)? + field(2)? + field(5)? + field(6)?,
    ))
}

/// Returns a line for each program and one for the `whole`; nothing if there is none.
pub(super) fn format_times(times: &[(TimeSpent, String)], whole: &TimeSpent) -> String {
    let mut out = String::new();
    if times.is_empty() {
        return out;
    }
    let mut sorted: Vec<&(TimeSpent, String)> = times.iter().collect();
    // The longest first.
    sorted.sort_by(|a, b| b.cmp(a));
    out.push_str("  wall s     cpu s  machine cpu s  program\n");
    let mut line = |spent: &TimeSpent, name: &str| {
        let [wall, processor, machine] =
            [spent.wall, spent.processor, spent.machine].map(|time| time.as_secs_f64());
        let _ = writeln!(out, "{wall:8.1}  {processor:8.1}  {machine:13.1}  {name}");
    };
    sorted.iter().for_each(|(spent, name)| line(spent, name));
    line(whole, &format!("all {} programs", times.len()));
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;

    #[test]
    fn the_longest_stands_first_and_the_whole_last() {
        let spent = |wall, processor, machine| {
            let [wall, processor, machine] = [wall, processor, machine].map(Duration::from_secs);
            TimeSpent {
                wall,
                processor,
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
    12.5       5.0           10.0  all 2 programs\n";
        let whole = TimeSpent {
            wall: Duration::from_millis(12_500),
            ..spent(0, 5, 10)
        };
        assert_eq!(format_times(&times, &whole), expected);
        assert_eq!(format_times(&[], &TimeSpent::default()), "");
    }

    #[test]
    fn the_kernels_counts_are_read() {
        let stat = "7 (a) b (c) S 1 5 5 0 -1 4194560 1 0 0 0 9 8 150 50 20 0 2 0 4711 0 0";
        assert_eq!(of_stat(stat), Some(Duration::from_millis(2_170)));
        assert_eq!(of_stat("7 (a"), None);
        let stat = "cpu  100 50 30 9999 9999 10 10 0 0 0\ncpu0 1 1 1 1 1 1 1 0 0 0\n";
        assert_eq!(of_machine(stat), Some(Duration::from_secs(2)));
        assert_eq!(of_machine("intr 5"), None);
    }

    #[test]
    fn a_child_that_worked_is_counted() {
        let watch = Stopwatch::start();
        let work = "n=0; while [ $n -lt 500000 ]; do n=$((n + 1)); done; echo done; read -r end";
        let mut child = std::process::Command::new("sh")
            .args(["-c", work])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = [0; 5];
        child.stdout.take().unwrap().read_exact(&mut said).unwrap();
        let spent = watch.stop(of_process(i32::try_from(child.id()).unwrap()));
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(
            spent.processor >= TICK && spent.machine >= TICK && spent.wall >= TICK,
            "{spent:?}"
        );
    }
}
