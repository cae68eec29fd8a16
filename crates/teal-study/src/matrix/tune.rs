//! Searches for the best candidate with few runs: screening, then a race, block by block.
//!
//! A block measures every remaining candidate once, in an order of its own. After each block
//! - *screening* keeps the best third, while there are more than `MANY`, then the best two thirds,
//!   down to `FEW`;
//! - the *race* drops a candidate that another beats in every goal: in pairs of the same block, on
//!   a log scale, with 95 %.
//!
//! While few candidates are left, *proposals* join the race: candidates that have not been measured
//! yet. A model (`surrogate`) predicts from the effects of their options elsewhere that they may
//! well beat the best.
//!
//! One candidate is the *reference*. It is measured in every block, in the race or not, and the
//! gain of the best is told against it, in the blocks of both.
//!
//! # Guarantees
//! 1. Pure: runs come from the caller. The same answers and the same seed lead the same way, so
//!    that a search that was interrupted goes on where it was.
//! 2. A candidate dropped by the race is beaten in every goal, with 95 %.
//! 3. There are no more runs than are allowed: a block is begun only if all of it may be run. A
//!    block that the caller breaks off does not count.

mod replay;
mod surrogate;
#[cfg(test)]
mod tests;

use crate::statistics::PairedComparison;
use crate::workload::RandomStream;
pub use replay::{RecordedWorkload, SearchTrial};
use surrogate::{MeasuredCandidate, Surrogate};

/// Number of candidates above which one run is enough to drop one.
const MANY: usize = 24;
/// Number of candidates that screening leaves.
const FEW: usize = 4;
/// Number of proposals that join after a block.
const JOIN: usize = 3;
/// Number of proposals that join in all.
const JOIN_MAX: usize = 24;
/// Least predicted advantage of a proposal over the best, as a logarithm, by its mean and one
/// standard deviation.
const WORTH: f64 = 0.01;

/// Describes something that may be measured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TuneCandidate {
    /// Numbers of its features, which others may have too. Only proposals and the candidates they
    /// are judged by need them.
    pub features: Vec<u32>,
    /// Is true when it is measured only if it is likely to be the best.
    pub is_proposal: bool,
}

impl TuneCandidate {
    /// Returns candidates that are all measured.
    pub fn all_measured(many: usize) -> Vec<Self> {
        vec![
            Self {
                features: Vec::new(),
                is_proposal: false
            };
            many
        ]
    }
}

/// Holds the result of a measurement.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum MeasureAnswer {
    /// A run was measured.
    Run(RunFigures),
    /// The candidate cannot be had here.
    Impossible,
    /// The user breaks the search off.
    Stop,
}

/// Holds the figures of a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RunFigures {
    /// Operations a second.
    pub rate: f64,
    /// Operations for each joule, if they are known.
    pub per_joule: Option<f64>,
}

/// Names the goal of the search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TuneGoal {
    /// Operations a second.
    Rate,
    /// Operations for each joule.
    Joule,
    /// Both: the geometric mean of the two.
    Both,
}

impl TuneGoal {
    /// Returns the figure that is to be large; without joules it is the rate.
    fn figure_of(self, run: &RunFigures) -> f64 {
        match (self, run.per_joule) {
            (Self::Rate, _) | (_, None) => run.rate,
            (Self::Joule, Some(per_joule)) => per_joule,
            (Self::Both, Some(per_joule)) => (run.rate * per_joule).sqrt(),
        }
    }
}

/// Limits the length of a search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SearchLimits {
    /// Blocks at most.
    pub blocks: u32,
    /// Runs at most.
    pub runs: usize,
}

/// Says why a candidate is no longer measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DropReason {
    /// The candidate was not among the best of a block.
    Screened,
    /// This one beats it in every goal.
    Beaten(usize),
    /// The candidate is impossible here.
    Impossible,
}

/// Holds a candidate's runs and its fate.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct CandidateStanding {
    /// Block of the first run.
    pub from: u32,
    /// Runs by block from there on, of whole blocks only.
    pub runs: Vec<RunFigures>,
    /// Block after which it was dropped, and the reason.
    pub gone: Option<(u32, DropReason)>,
}

/// Holds the result of a search.
#[derive(Debug, Clone, PartialEq)]
pub struct SearchResult {
    /// Runs and fate of each candidate.
    pub standings: Vec<CandidateStanding>,
    /// The best remaining candidate; `None` if not even one block was whole.
    pub best: Option<usize>,
    /// Number of whole blocks.
    pub blocks: u32,
    /// Number of runs, those of an unfinished block included.
    pub runs: usize,
    /// Candidate that was measured in every block.
    pub reference: usize,
    goal: TuneGoal,
}

impl SearchResult {
    /// Compares two candidates in the blocks that both have, in the goal of the search.
    pub fn compare_candidates(&self, one: usize, other: usize) -> Option<PairedComparison> {
        compare_standings(&self.standings, one, other, &|run| {
            Some(self.goal.figure_of(run))
        })
    }

    /// Compares the best with the reference: operations a second, and operations for each joule.
    pub fn gain_over_reference(&self) -> [Option<PairedComparison>; 2] {
        let Some(best) = self.best else {
            return [None, None];
        };
        let by = |goal: GoalFigure| compare_standings(&self.standings, best, self.reference, goal);
        [by(&|run| Some(run.rate)), by(&|run| run.per_joule)]
    }

    /// Returns the remaining candidates that cannot be told from the best.
    pub fn ties(&self) -> Vec<(usize, PairedComparison)> {
        let Some(best) = self.best else {
            return Vec::new();
        };
        let left = (0..self.standings.len())
            .filter(|at| *at != best && self.standings[*at].gone.is_none());
        left.filter_map(|at| Some((at, self.compare_candidates(best, at)?)))
            .filter(|(_, by)| by.is_tie())
            .collect()
    }
}

type GoalFigure<'a> = &'a dyn Fn(&RunFigures) -> Option<f64>;

fn compare_standings(
    standings: &[CandidateStanding],
    one: usize,
    other: usize,
    goal: GoalFigure,
) -> Option<PairedComparison> {
    // Both have runs from the later of their first blocks on.
    let from = standings[one].from.max(standings[other].from);
    let since = |at: usize| {
        standings[at]
            .runs
            .iter()
            .skip((from - standings[at].from) as usize)
    };
    let pairs = since(one).zip(since(other));
    let pairs: Option<Vec<(f64, f64)>> = pairs.map(|(a, b)| Some((goal(a)?, goal(b)?))).collect();
    PairedComparison::from_pairs(&pairs?)
}

/// Searches for the best candidate. `measure` runs one in a block.
///
/// # Errors
/// Returns the first error of `measure`.
pub fn search_best<E>(
    candidates: &[TuneCandidate],
    reference: usize,
    aim: TuneGoal,
    limits: SearchLimits,
    seed: u64,
    measure: &mut dyn FnMut(usize, u32) -> Result<MeasureAnswer, E>,
) -> Result<SearchResult, E> {
    debug_assert!(
        reference < candidates.len(),
        "the reference is one of the candidates"
    );
    let mut found = SearchResult {
        standings: vec![CandidateStanding::default(); candidates.len()],
        best: None,
        blocks: 0,
        runs: 0,
        reference,
        goal: aim,
    };
    let mut race = CandidateRace::new(candidates);
    while found.blocks < limits.blocks {
        race.admit_proposals(candidates, &mut found);
        // One block is not enough to call a candidate that is left alone the best.
        if race.racing.len() < 2 && found.blocks > 1 {
            break;
        }
        let order = race.block_order(reference, seed, found.blocks);
        // A block is begun only if it can be finished.
        if found.runs + order.len() > limits.runs {
            break;
        }
        let Some(measured) = found.measure_block(order, measure)? else {
            return Ok(found.with_best());
        };
        debug_assert!(
            found.runs <= limits.runs,
            "there are no more runs than are allowed"
        );
        // Runs are counted only now: a block that was broken off must not favour its first
        // candidates.
        for (at, run) in measured {
            found.standings[at].runs.push(run);
        }
        found.blocks += 1;
        race.drop_gone(&found);
        // The race comes first, as screening may drop a candidate that it would need as evidence.
        found.drop_beaten(&race.racing);
        found.screen_out();
        race.drop_gone(&found);
    }
    Ok(found.with_best())
}

/// Holds the candidates that are still measured.
struct CandidateRace {
    racing: Vec<usize>,
    /// Proposals that have joined so far.
    joined: usize,
}

impl CandidateRace {
    fn new(candidates: &[TuneCandidate]) -> Self {
        let mut racing = Vec::new();
        for (at, candidate) in candidates.iter().enumerate() {
            if !candidate.is_proposal {
                racing.push(at);
            }
        }
        Self { racing, joined: 0 }
    }

    /// Lets proposals join. They do so only when few are left: before, the screening needs the
    /// runs. They are compared from this block on.
    fn admit_proposals(&mut self, candidates: &[TuneCandidate], found: &mut SearchResult) {
        if found.blocks == 0 || self.racing.len() > FEW {
            return;
        }
        // Proposals are limited: the options of a system can be combined without end.
        let most = JOIN.min(JOIN_MAX - self.joined);
        for at in found.propose_candidates(candidates, most) {
            found.standings[at].from = found.blocks;
            self.racing.push(at);
            self.joined += 1;
        }
    }

    /// Returns the order of a block. The reference is measured even when it has left the race.
    fn block_order(&self, reference: usize, seed: u64, block: u32) -> Vec<usize> {
        let mut order = self.racing.clone();
        if !order.contains(&reference) {
            order.push(reference);
        }
        shuffle_block(&mut order, seed, block);
        order
    }

    fn drop_gone(&mut self, found: &SearchResult) {
        self.racing.retain(|at| found.standings[*at].gone.is_none());
    }
}

/// Shuffles the order of a block. (Fisher and Yates)
fn shuffle_block(order: &mut [usize], seed: u64, block: u32) {
    let mut drawn = RandomStream::new(seed, 0x7475_6e65 + u64::from(block));
    for last in (1..order.len()).rev() {
        order.swap(last, drawn.next_below(last as u64 + 1) as usize);
    }
}

impl SearchResult {
    /// Measures a block; returns `None` if the caller breaks it off.
    fn measure_block<E>(
        &mut self,
        order: Vec<usize>,
        measure: &mut dyn FnMut(usize, u32) -> Result<MeasureAnswer, E>,
    ) -> Result<Option<Vec<(usize, RunFigures)>>, E> {
        // An impossible candidate takes its place in the block, but has no run.
        let mut measured = Vec::new();
        for at in order {
            match measure(at, self.blocks)? {
                MeasureAnswer::Run(run) => measured.push((at, run)),
                MeasureAnswer::Impossible => {
                    self.standings[at].gone = Some((self.blocks, DropReason::Impossible));
                }
                MeasureAnswer::Stop => return Ok(None),
            }
            self.runs += 1;
        }
        Ok(Some(measured))
    }

    /// Drops candidates that another one beats in every goal.
    fn drop_beaten(&mut self, left: &[usize]) {
        let beats = |one: usize, other: usize| {
            let in_goal = |goal: GoalFigure| {
                compare_standings(&self.standings, one, other, goal).map(|by| by.low > 1.0)
            };
            // Without joules the rate alone decides.
            in_goal(&|run| Some(run.rate)) == Some(true)
                && in_goal(&|run| run.per_joule) != Some(false)
        };
        let beaten = |other: usize| {
            left.iter()
                .copied()
                .find(|one| *one != other && beats(*one, other))
        };
        // All are judged by the same field, so that their order does not matter.
        let gone: Vec<(usize, usize)> = left
            .iter()
            .filter_map(|at| Some((*at, beaten(*at)?)))
            .collect();
        for (at, by) in gone {
            self.standings[at].gone = Some((self.blocks, DropReason::Beaten(by)));
        }
    }

    /// Keeps the best, while there are many.
    fn screen_out(&mut self) {
        let left = self.rank_left();
        let keep = match left.len() {
            many if many > MANY => many.div_ceil(3).max(MANY),
            some => (some * 2).div_ceil(3).max(FEW),
        };
        for at in left.into_iter().skip(keep) {
            self.standings[at].gone = Some((self.blocks, DropReason::Screened));
        }
    }

    /// Returns the figures of a candidate by the reference's of the same block, as logarithms.
    fn log_ratios(&self, at: usize) -> impl Iterator<Item = f64> {
        let CandidateStanding { from, runs, .. } = &self.standings[at];
        let beside = self.standings[self.reference]
            .runs
            .iter()
            .skip(*from as usize);
        runs.iter()
            .zip(beside)
            .map(|(run, beside)| (self.goal.figure_of(run) / self.goal.figure_of(beside)).ln())
    }

    /// Returns the remaining candidates, the best first.
    fn rank_left(&self) -> Vec<usize> {
        let left = (0..self.standings.len()).filter(|at| self.standings[*at].gone.is_none());
        let mut left: Vec<(usize, f64)> = left
            .filter_map(|at| Some((at, mean(self.log_ratios(at))?)))
            .collect();
        left.sort_by(|a, b| b.1.total_cmp(&a.1));
        left.into_iter().map(|(at, _)| at).collect()
    }

    /// Returns the most promising unmeasured candidates that may well beat the best, at most this
    /// number.
    fn propose_candidates(&self, candidates: &[TuneCandidate], most: usize) -> Vec<usize> {
        let is_new = |at: &usize| {
            let CandidateStanding { runs, gone, .. } = &self.standings[*at];
            candidates[*at].is_proposal && runs.is_empty() && gone.is_none()
        };
        let features = candidates
            .iter()
            .flat_map(|of| &of.features)
            .max()
            .map_or(0, |most| *most as usize + 1);
        // The model learns from all measured candidates, dropped ones too.
        let seen = (0..candidates.len()).filter(|at| !self.standings[*at].runs.is_empty());
        let seen: Vec<MeasuredCandidate<'_>> = seen
            .map(|at| MeasuredCandidate {
                features: &candidates[at].features,
                logs: self.log_ratios(at).collect(),
            })
            .collect();
        let Some(best) = self
            .rank_left()
            .first()
            .and_then(|at| mean(self.log_ratios(*at)))
        else {
            return Vec::new();
        };
        let model = Surrogate::learn(&seen, features);
        // Mean plus one deviation: an optimistic estimate, so that uncertain candidates get a
        // chance.
        let hoped = |at: usize| {
            let (mean, spread) = model.predict(&candidates[at].features);
            mean + spread
        };
        let mut new: Vec<(usize, f64)> = (0..candidates.len())
            .filter(is_new)
            .map(|at| (at, hoped(at)))
            .collect();
        new.retain(|(_, hoped)| *hoped > best + WORTH);
        new.sort_by(|a, b| b.1.total_cmp(&a.1));
        new.into_iter().take(most).map(|(at, _)| at).collect()
    }

    fn with_best(mut self) -> Self {
        self.best = self.rank_left().first().copied();
        self
    }
}

fn mean(of: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, n) = of.fold((0.0, 0_u32), |(sum, n), log| (sum + log, n + 1));
    (n > 0).then(|| sum / f64::from(n))
}
