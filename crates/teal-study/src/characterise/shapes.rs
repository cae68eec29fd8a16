//! Groups visits that do the same kinds of things to files of the same set.

use super::VisitStep;
use super::sets::TraceFilesets;
use super::table::SampledValue;
use super::visits::ObservedTrace;
use std::collections::BTreeMap;

/// Limits the shapes of a script.
const SHAPES_MAX: usize = 60;
/// A shape is left out if it has less than one in this number of visits, and of calls.
const RARE: u64 = 1000;
/// Limits the sizes of calls that are kept for a distribution.
const SIZES_MAX: usize = 20_000;

/// Describes one kind of call in a shape.
#[derive(Debug)]
pub(super) struct ShapeStep {
    pub(super) step: VisitStep,
    /// Number of calls in a visit.
    pub(super) times: SampledValue,
    /// Bytes of each call.
    pub(super) sizes: SampledValue,
}

/// A shape.
#[derive(Debug)]
pub(super) struct VisitShape {
    pub(super) set: usize,
    pub(super) opens: bool,
    pub(super) parts: Vec<ShapeStep>,
    /// Number of visits.
    pub(super) count: u64,
    /// Probability of the shape in a round, and of a second draw after it. The commonest shape is
    /// done once, so that rounds are short and shapes are mixed from the beginning.
    pub(super) times: [SampledValue; 2],
}

#[derive(Debug, Default)]
struct ShapeSum {
    count: u64,
    /// Place of the first visit of this shape.
    first: usize,
    /// Number of calls and their sizes, by step.
    parts: Vec<(u64, Vec<u64>)>,
}

impl ShapeSum {
    fn count_calls(&self) -> u64 {
        self.parts.iter().map(|(times, _)| times).sum()
    }
}

/// Identifies a shape: its set, whether its visits open the file, and their steps.
type ShapeKey = (usize, bool, Vec<VisitStep>);

/// Sums up the visits of each shape.
fn sum_by_shape(
    seen: &ObservedTrace,
    sets: &TraceFilesets,
    visits: &[usize],
) -> BTreeMap<ShapeKey, ShapeSum> {
    let mut sums: BTreeMap<ShapeKey, ShapeSum> = BTreeMap::new();
    for (at, visit) in visits.iter().map(|at| (*at, &seen.visits[*at])) {
        let Some(set) = sets.set_of(visit) else {
            continue;
        };
        let steps: Vec<VisitStep> = visit.steps.iter().map(|(step, _)| *step).collect();
        let sum = sums
            .entry((set, visit.opens, steps))
            .or_insert_with(|| ShapeSum {
                first: at,
                ..ShapeSum::default()
            });
        sum.count += 1;
        // All visits of a shape have the same steps, so the lists have the same length.
        sum.parts.resize_with(visit.steps.len(), Default::default);
        for ((times, sizes), (_, done)) in sum.parts.iter_mut().zip(&visit.steps) {
            *times += done.times;
            if sizes.len() < SIZES_MAX {
                sizes.extend(&done.sizes);
            }
        }
    }
    sums
}

/// Makes a shape of the sum of its visits; `most` is the count of the commonest shape.
fn make_shape((set, opens, steps): ShapeKey, sum: ShapeSum, most: f64) -> VisitShape {
    let count = sum.count;
    let parts = steps.into_iter().zip(sum.parts);
    VisitShape {
        set,
        opens,
        parts: parts
            .map(|(step, (times, sizes))| make_step(step, times as f64 / count as f64, sizes))
            .collect(),
        count,
        times: SampledValue::with_probability(count as f64 / most),
    }
}

/// Makes a step with its mean number of calls and their sizes.
fn make_step(step: VisitStep, mean: f64, mut sizes: Vec<u64>) -> ShapeStep {
    ShapeStep {
        step,
        times: SampledValue::with_mean(mean),
        sizes: match step {
            // A whole file is asked for with one size, and a random place must have room for one.
            VisitStep::ReadWhole => {
                SampledValue::Fixed(sizes.iter().copied().max().unwrap_or(1).max(1))
            }
            VisitStep::ReadRandom | VisitStep::WriteRandom => {
                let mean = sizes.iter().sum::<u64>() / sizes.len().max(1) as u64;
                SampledValue::Fixed(mean.max(1))
            }
            _ => SampledValue::from_sizes(&mut sizes, 1),
        },
    }
}

/// Returns the shapes of some visits, in the order in which they were first met.
pub(super) fn find_shapes(
    seen: &ObservedTrace,
    sets: &TraceFilesets,
    visits: &[usize],
) -> Vec<VisitShape> {
    let sums = sum_by_shape(seen, sets, visits);
    let all: u64 = sums.values().map(|sum| sum.count).sum();
    let calls: u64 = sums.values().map(ShapeSum::count_calls).sum();
    // A shape with few visits can still have most of the calls.
    let is_rare = |sum: &ShapeSum| sum.count * RARE < all && sum.count_calls() * RARE < calls;
    let mut sums: Vec<_> = sums.into_iter().filter(|(_, sum)| !is_rare(sum)).collect();
    sums.sort_by_key(|(_, sum)| std::cmp::Reverse(sum.count));
    sums.truncate(SHAPES_MAX);
    let most = sums.first().map_or(1, |(_, sum)| sum.count) as f64;
    sums.sort_by_key(|(_, sum)| sum.first);
    debug_assert!(
        most >= 1.0 || sums.is_empty(),
        "a shape has at least one visit"
    );
    let shapes = sums.into_iter();
    shapes
        .map(|(key, sum)| make_shape(key, sum, most))
        .collect()
}
