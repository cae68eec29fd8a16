//! Holds everything that is learnt from a trace: visits, and what is known of the files.

use crate::characterise::VisitStep;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

/// Counts the calls of one step of a visit.
#[derive(Debug, Clone, Default)]
pub(in crate::characterise) struct StepCalls {
    /// Number of calls.
    pub(in crate::characterise) times: u64,
    /// Bytes of each call; of whole files the bytes that the call asked for.
    pub(in crate::characterise) sizes: Vec<u64>,
}

/// Describes the calls of one thread on one file.
#[derive(Debug)]
pub(in crate::characterise) struct FileVisit {
    pub(in crate::characterise) object: u64,
    /// Number of the thread; 0 if it is not known.
    pub(in crate::characterise) process: u32,
    /// Is true when the visit begins with an opening and ends with a closing.
    pub(in crate::characterise) opens: bool,
    /// Steps in the order in which they began, each kind once.
    pub(in crate::characterise) steps: Vec<(VisitStep, StepCalls)>,
}

/// Holds everything that is learnt from a trace.
#[derive(Debug)]
pub(in crate::characterise) struct ObservedTrace {
    pub(in crate::characterise) visits: Vec<FileVisit>,
    /// Directory at the top of each object, as far as it is known.
    pub(in crate::characterise) places: HashMap<u64, Vec<u8>>,
    /// Directory of each file.
    pub(in crate::characterise) parents: HashMap<u64, u64>,
    /// Size of each object at the beginning, as far as the trace tells it.
    pub(in crate::characterise) sizes: HashMap<u64, u64>,
    /// Objects that were made during the recording.
    pub(in crate::characterise) made: HashSet<u64>,
    pub(in crate::characterise) dirs: HashSet<u64>,
    pub(in crate::characterise) lost: BTreeMap<&'static str, u64>,
    pub(in crate::characterise) threads: u64,
    /// First and last event of each thread.
    pub(in crate::characterise) lives: HashMap<u32, [Duration; 2]>,
    pub(in crate::characterise) length: Duration,
    pub(in crate::characterise) tells_openings: bool,
}

/// Returns the mean number of threads at a time, while there was one.
pub(super) fn mean_concurrency(mut lives: Vec<[Duration; 2]>) -> u64 {
    const LEAST: Duration = Duration::from_millis(1);
    lives.sort_unstable();
    let (mut all, mut any, mut until) = (Duration::ZERO, Duration::ZERO, Duration::ZERO);
    for [from, to] in lives {
        // A thread with one event lived for a moment at least.
        let to = to.max(from + LEAST);
        all += to - from;
        any += to.saturating_sub(from.max(until));
        until = until.max(to);
    }
    debug_assert!(
        any <= all,
        "the union of the lives is no longer than their sum"
    );
    ((all.as_secs_f64() / any.as_secs_f64().max(1e-9)).round() as u64).clamp(1, 4096)
}

impl VisitStep {
    /// Returns whether the step needs an open file.
    pub(in crate::characterise) fn needs_a_file_open(self) -> bool {
        !matches!(
            self,
            Self::Stat | Self::Delete | Self::List | Self::MakeDir | Self::RemoveDir
        )
    }
}
