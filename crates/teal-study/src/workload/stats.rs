//! Counts figures of a run: each thread counts for itself, and the sums are made when they are
//! read.
//!
//! # Guarantees
//! 1. Counting takes no lock and no instruction that other processors wait for: one thread writes a
//!    tally, and a reader sees each number whole.
//! 2. A percentile is at most 1/16 above the latency it stands for, and never below it.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Latencies below this have a bucket each.
const LINEAR: u64 = 16;
/// Powers of two above that, with sixteen buckets each: up to eighteen minutes.
const OCTAVES: usize = 36;
const BUCKETS: usize = LINEAR as usize + OCTAVES * 16;

fn bucket_of(nanos: u64) -> usize {
    if nanos < LINEAR {
        return nanos as usize;
    }
    let octave = nanos.ilog2() as usize;
    // The four bits below the highest one choose the bucket within the octave.
    debug_assert!(
        octave >= 4,
        "latencies of lower octaves have buckets of their own"
    );
    let part = (nanos >> (octave - 4)) as usize & 15;
    (LINEAR as usize + (octave - 4) * 16 + part).min(BUCKETS - 1)
}

/// Returns the largest latency of a bucket.
fn bucket_upper(bucket: usize) -> u64 {
    debug_assert!(bucket < BUCKETS, "the histogram has this bucket");
    if bucket < LINEAR as usize {
        return bucket as u64;
    }
    let (octave, part) = (
        (bucket - LINEAR as usize) / 16 + 4,
        (bucket - LINEAR as usize) % 16,
    );
    ((16 + part as u64 + 1) << (octave - 4)) - 1
}

/// Returns the least latency of a bucket.
fn bucket_lower(bucket: usize) -> u64 {
    bucket
        .checked_sub(1)
        .map_or(0, |below| bucket_upper(below) + 1)
}

/// Counts the operations of one thread by one flowop.
#[derive(Debug)]
pub(super) struct FlowopTally {
    count: AtomicU64,
    bytes: AtomicU64,
    nanos: AtomicU64,
    min: AtomicU64,
    max: AtomicU64,
    /// Number of files that were opened because their slot was empty; not part of the count.
    opens: AtomicU64,
    /// Number of files that were passed over: they were to be deleted, and were open elsewhere or
    /// gone already.
    skips: AtomicU64,
    histogram: Box<[AtomicU64]>,
}

/// Adds to a counter that one thread alone writes: a load and a store do the work of an addition
/// that locks.
fn add_relaxed(to: &AtomicU64, n: u64) {
    to.store(to.load(Relaxed).wrapping_add(n), Relaxed);
}

impl FlowopTally {
    pub(super) fn new() -> Self {
        Self {
            count: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            nanos: AtomicU64::new(0),
            min: AtomicU64::new(u64::MAX),
            max: AtomicU64::new(0),
            opens: AtomicU64::new(0),
            skips: AtomicU64::new(0),
            histogram: (0..BUCKETS).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    pub(super) fn record(&self, nanos: u64, bytes: u64) {
        add_relaxed(&self.bytes, bytes);
        add_relaxed(&self.nanos, nanos);
        // Only this thread writes, so a plain comparison does for the extremes.
        if nanos < self.min.load(Relaxed) {
            self.min.store(nanos, Relaxed);
        }
        if nanos > self.max.load(Relaxed) {
            self.max.store(nanos, Relaxed);
        }
        add_relaxed(&self.histogram[bucket_of(nanos)], 1);
        add_relaxed(&self.count, 1);
    }

    pub(super) fn note_opened(&self) {
        add_relaxed(&self.opens, 1);
    }

    pub(super) fn note_skipped(&self) {
        add_relaxed(&self.skips, 1);
    }

    pub(super) fn count(&self) -> u64 {
        self.count.load(Relaxed)
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    pub(super) fn nanos(&self) -> u64 {
        self.nanos.load(Relaxed)
    }
}

/// Sums up the figures of a flowop over threads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LatencyFigures {
    /// Number of operations.
    pub count: u64,
    /// Bytes read, written or listed.
    pub bytes: u64,
    /// Sum of the latencies, in nanoseconds.
    pub nanos: u64,
    /// Least latency in nanoseconds; 0 if nothing was done.
    pub min: u64,
    /// Largest latency in nanoseconds.
    pub max: u64,
    /// Number of files opened because the slot was empty, which are not in the count.
    pub opens: u64,
    /// Number of files that were not deleted because they were open elsewhere or gone already.
    pub skips: u64,
    buckets: Vec<u64>,
}

impl Default for LatencyFigures {
    fn default() -> Self {
        Self {
            count: 0,
            bytes: 0,
            nanos: 0,
            min: 0,
            max: 0,
            opens: 0,
            skips: 0,
            buckets: vec![0; BUCKETS],
        }
    }
}

impl LatencyFigures {
    pub(super) fn add_tally(&mut self, tally: &FlowopTally) {
        // The reader may see a tally in the middle of an operation: a figure may lag by one.
        let count = tally.count();
        // A tally without operations has no extremes.
        if count > 0 {
            let min = tally.min.load(Relaxed);
            self.min = if self.count == 0 {
                min
            } else {
                self.min.min(min)
            };
            self.max = self.max.max(tally.max.load(Relaxed));
        }
        self.count += count;
        self.bytes += tally.bytes();
        self.nanos += tally.nanos.load(Relaxed);
        self.opens += tally.opens.load(Relaxed);
        self.skips += tally.skips.load(Relaxed);
        for (sum, n) in self.buckets.iter_mut().zip(&tally.histogram) {
            *sum += n.load(Relaxed);
        }
    }

    /// Adds other figures.
    pub fn merge(&mut self, other: &Self) {
        // Figures without operations have no extremes.
        if other.count > 0 {
            self.min = if self.count == 0 {
                other.min
            } else {
                self.min.min(other.min)
            };
            self.max = self.max.max(other.max);
        }
        self.count += other.count;
        self.bytes += other.bytes;
        self.nanos += other.nanos;
        self.opens += other.opens;
        self.skips += other.skips;
        self.buckets
            .iter_mut()
            .zip(&other.buckets)
            .for_each(|(sum, n)| *sum += n);
    }

    /// Returns the figures since `before`. Their extremes are those of their buckets, or of a
    /// single operation.
    pub fn since(&self, before: &Self) -> Self {
        // Counters only grow, so differences are exact; saturation covers a torn read.
        let buckets: Vec<u64> = self
            .buckets
            .iter()
            .zip(&before.buckets)
            .map(|(now, then)| now.saturating_sub(*then))
            .collect();
        let used = || {
            buckets
                .iter()
                .enumerate()
                .filter(|(_, n)| **n > 0)
                .map(|(at, _)| at)
        };
        let (count, nanos) = (
            self.count.saturating_sub(before.count),
            self.nanos.saturating_sub(before.nanos),
        );
        // The true extremes of the time are not kept, so the buckets' bounds stand for them.
        let extremes = match (count, used().next(), used().next_back()) {
            (1, ..) => (nanos, nanos),
            (_, Some(first), Some(last)) => (
                bucket_lower(first).max(self.min),
                bucket_upper(last).min(self.max),
            ),
            _ => (0, 0),
        };
        Self {
            count,
            bytes: self.bytes.saturating_sub(before.bytes),
            nanos,
            min: extremes.0,
            max: extremes.1,
            opens: self.opens.saturating_sub(before.opens),
            skips: self.skips.saturating_sub(before.skips),
            buckets,
        }
    }

    /// Returns the latency in nanoseconds that `share` (0 to 1) of the operations did not exceed; 0
    /// if there was none.
    pub fn percentile(&self, share: f64) -> u64 {
        debug_assert!((0.0..=1.0).contains(&share), "a share is between 0 and 1");
        let all: u64 = self.buckets.iter().sum();
        let wanted = ((all as f64 * share).ceil() as u64).clamp(1, all.max(1));
        let mut seen = 0;
        for (at, n) in self.buckets.iter().enumerate() {
            seen += n;
            if seen >= wanted {
                return bucket_upper(at).clamp(self.min, self.max);
            }
        }
        0
    }

    /// Returns the mean latency in nanoseconds; 0 if nothing was done.
    pub fn mean(&self) -> f64 {
        if self.count == 0 {
            0.0
        } else {
            self.nanos as f64 / self.count as f64
        }
    }

    /// Returns Filebench's histogram: the number of operations that took less than 2^i nanoseconds,
    /// and not less than the half.
    pub fn log2_histogram(&self) -> [u64; 64] {
        // Each bucket belongs to one power of two, as octaves do not overlap them.
        let mut powers = [0; 64];
        for (at, n) in self.buckets.iter().enumerate() {
            let power = bucket_upper(at)
                .checked_ilog2()
                .map_or(0, |power| power as usize + 1);
            powers[power.min(63)] += n;
        }
        powers
    }
}

/// Counts all operations of a thread, for limits and end rules that look at more than one flowop.
#[derive(Debug, Default)]
pub(super) struct ThreadTotals {
    operations: AtomicU64,
    transfers: AtomicU64,
    bytes: AtomicU64,
}

impl ThreadTotals {
    pub(super) fn record(&self, transfer: bool, bytes: u64) {
        add_relaxed(&self.operations, 1);
        if transfer {
            add_relaxed(&self.transfers, 1);
        }
        add_relaxed(&self.bytes, bytes);
    }

    pub(super) fn operations(&self) -> u64 {
        self.operations.load(Relaxed)
    }

    pub(super) fn transfers(&self) -> u64 {
        self.transfers.load(Relaxed)
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }
}

#[cfg(test)]
mod tests;
