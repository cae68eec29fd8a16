//! The measurements of one timed part: wall time, processor time on both sides, requests, and the
//! work of the disk.

use anyhow::{Context as _, Result};
use rustix::time::{ClockId, clock_gettime};
use std::collections::BTreeMap;

/// One timed part of one row on one subject in one round.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct RowSample {
    pub(super) row: &'static str,
    pub(super) subject: &'static str,
    pub(super) round: usize,
    /// Operations a program would count.
    pub(super) ops: u64,
    /// Bytes a program wrote.
    pub(super) user_bytes: u64,
    pub(super) wall: f64,
    /// Seconds of the workload and its children.
    pub(super) client_cpu: f64,
    /// Seconds of the serving process, in user space and in its system calls. Kernel threads are
    /// not counted.
    pub(super) server_cpu: f64,
    pub(super) counts: SubjectCounts,
}

impl RowSample {
    pub(super) fn total_cpu(&self) -> f64 {
        self.client_cpu + self.server_cpu
    }
}

/// Counters of a subject; they only grow.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct SubjectCounts {
    /// FUSE requests by name.
    pub(super) requests: BTreeMap<String, u64>,
    pub(super) barriers: u64,
    pub(super) writes: u64,
    pub(super) bytes_written: u64,
    pub(super) reads: u64,
    pub(super) bytes_read: u64,
}

impl SubjectCounts {
    pub(super) fn since(&self, before: &Self) -> Self {
        let requests = self
            .requests
            .iter()
            .map(|(name, n)| (name.clone(), n - before.requests.get(name).unwrap_or(&0)));
        Self {
            requests: requests.filter(|(_, n)| *n > 0).collect(),
            barriers: self.barriers - before.barriers,
            writes: self.writes - before.writes,
            bytes_written: self.bytes_written - before.bytes_written,
            reads: self.reads - before.reads,
            bytes_read: self.bytes_read - before.bytes_read,
        }
    }

    /// Returns the number of requests that a caller waits for. No caller waits for forgets.
    pub(super) fn waited_for(&self) -> u64 {
        self.requests
            .iter()
            .filter(|(name, _)| !name.contains("forget"))
            .map(|(_, n)| n)
            .sum()
    }
}

fn clock_seconds(clock: ClockId) -> f64 {
    let now = clock_gettime(clock);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

/// Returns the monotonic clock in seconds.
pub(super) fn monotonic_seconds() -> f64 {
    clock_seconds(ClockId::Monotonic)
}

/// Returns the seconds that this process and the children it waited for have run.
pub(super) fn client_cpu() -> Result<f64> {
    Ok(clock_seconds(ClockId::ProcessCPUTime) + children_cpu()?)
}

/// Returns the seconds that the children this process waited for have run.
pub(super) fn children_cpu() -> Result<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let fields: Vec<&str> = stat
        .rsplit_once(')')
        .context("/proc/self/stat")?
        .1
        .split_whitespace()
        .collect();
    let ticks = |at: usize| -> Result<f64> {
        Ok(fields.get(at).context("/proc/self/stat")?.parse::<f64>()?)
    };
    // cutime and cstime, the 16th and 17th field, in ticks of 10 ms.
    Ok((ticks(13)? + ticks(14)?) / 100.0)
}

/// Returns the seconds that the threads of `pids` have run.
pub(super) fn server_cpu(pids: &[u32]) -> f64 {
    let tasks = pids
        .iter()
        .filter_map(|pid| std::fs::read_dir(format!("/proc/{pid}/task")).ok())
        .flatten()
        .flatten();
    // The scheduler's own count is exact to the nanosecond; ticks are too coarse for short parts.
    let nanos = tasks.filter_map(|task| {
        let text = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        text.split(' ').next()?.parse::<f64>().ok()
    });
    nanos.sum::<f64>() / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_differences_and_forgets_are_not_waited_for() {
        let requests =
            |lookup, forget| [("lookup".to_owned(), lookup), ("forget".to_owned(), forget)].into();
        let before = SubjectCounts {
            requests: requests(3, 1),
            barriers: 2,
            ..SubjectCounts::default()
        };
        let after = SubjectCounts {
            requests: requests(7, 9),
            barriers: 3,
            ..SubjectCounts::default()
        };
        let since = after.since(&before);
        assert_eq!(
            (since.waited_for(), since.requests["forget"], since.barriers),
            (4, 8, 1)
        );
    }

    #[test]
    fn this_process_has_run_and_is_seen_by_both_clocks() {
        assert!(client_cpu().unwrap() > 0.0);
        assert!(server_cpu(&[std::process::id()]) > 0.0);
        assert_eq!(server_cpu(&[]), 0.0);
    }
}
