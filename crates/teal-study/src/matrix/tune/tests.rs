//! Tests the search on candidates with a known truth, and on the recorded study.

use super::*;
use crate::matrix::{CellRun, Matrix};
use proptest::prelude::*;

/// Searches among candidates of these rates and watts, with noise and drift from block to block.
fn among(
    truth: &[(f64, f64)],
    noise: f64,
    seed: u64,
    limits: SearchLimits,
) -> (SearchResult, Vec<(usize, u32)>) {
    let mut asked = Vec::new();
    let mut drawn = RandomStream::new(seed, 1);
    let mut measure = |at: usize, block: u32| -> Result<_, ()> {
        asked.push((at, block));
        let (rate, watts) = truth[at];
        let rate =
            rate * (1.0 + noise * (drawn.next_unit() - 0.5)) * (1.0 + 0.3 * f64::from(block));
        Ok(MeasureAnswer::Run(RunFigures {
            rate,
            per_joule: (watts > 0.0).then(|| rate / watts),
        }))
    };
    let found = search_best(
        &TuneCandidate::all_measured(truth.len()),
        0,
        TuneGoal::Both,
        limits,
        seed,
        &mut measure,
    )
    .unwrap();
    (found, asked)
}

const ENOUGH: SearchLimits = SearchLimits {
    blocks: 40,
    runs: 10_000,
};

#[test]
fn the_best_is_found_and_its_gain_over_the_reference_is_told() {
    let truth: Vec<(f64, f64)> = (0..60).map(|at| (100.0 + f64::from(at), 5.0)).collect();
    let (found, asked) = among(&truth, 0.01, 3, ENOUGH);
    assert_eq!(found.best, Some(59));
    assert!(
        found.runs == asked.len() && found.runs < 60 * 4,
        "{} runs",
        found.runs
    );
    let [rate, joule] = found.gain_over_reference();
    for gain in [rate.unwrap(), joule.unwrap()] {
        assert!(
            gain.low < 1.59 && gain.high > 1.59 && gain.high / gain.low < 1.05,
            "{gain:?}"
        );
        assert_eq!(
            gain.n as u32, found.blocks,
            "the reference is in every block"
        );
    }
    assert!(
        found.standings[0].gone.is_some(),
        "and yet it is out of the race"
    );
}

#[test]
fn who_is_frugal_and_who_is_fast_both_stay_and_the_rest_goes() {
    let truth = [(50.0, 5.0), (100.0, 10.0), (60.0, 2.0), (40.0, 8.0)];
    let (found, _) = among(
        &truth,
        0.01,
        1,
        SearchLimits {
            blocks: 6,
            runs: 10_000,
        },
    );
    let left: Vec<usize> = (0..4)
        .filter(|at| found.standings[*at].gone.is_none())
        .collect();
    assert!(
        left.contains(&1) && left.contains(&2) && !left.contains(&3) && !left.contains(&0),
        "{left:?}"
    );
    assert!(matches!(
        found.standings[3].gone,
        Some((_, DropReason::Beaten(_)))
    ));
    assert_eq!(
        found.best,
        Some(2),
        "60 a second at 2 W is more than 100 at 10 W, in the mean of both"
    );
}

#[test]
fn candidates_that_are_alike_are_told_as_ties_and_without_joules_the_rate_decides() {
    let (found, _) = among(
        &[(100.0, 0.0), (100.0, 0.0), (10.0, 0.0)],
        0.02,
        5,
        SearchLimits {
            blocks: 8,
            runs: 100,
        },
    );
    let best = found.best.unwrap();
    assert!(
        best < 2 && found.ties().iter().any(|(at, _)| *at == 1 - best),
        "{found:?}"
    );
    assert!(found.standings[2].gone.is_some() && found.gain_over_reference()[1].is_none());
}

#[test]
fn a_search_that_is_broken_off_tells_what_whole_blocks_say() {
    let mut left = 7;
    let mut measure = |at: usize, _: u32| -> Result<_, ()> {
        left -= 1;
        let run = MeasureAnswer::Run(RunFigures {
            rate: at as f64 + 1.0,
            per_joule: None,
        });
        Ok(if left >= 0 { run } else { MeasureAnswer::Stop })
    };
    let found = search_best(
        &TuneCandidate::all_measured(4),
        0,
        TuneGoal::Rate,
        ENOUGH,
        1,
        &mut measure,
    )
    .unwrap();
    assert_eq!((found.blocks, found.runs, found.best), (1, 7, Some(3)));
    let failed = search_best(
        &TuneCandidate::all_measured(2),
        0,
        TuneGoal::Rate,
        ENOUGH,
        1,
        &mut |_, _| Err("the disk is gone"),
    );
    assert_eq!(failed, Err("the disk is gone"));
}

/// Options of a file system, each of which does something, and all sets of up to three of them;
/// those of one or none are measured, the others may be.
fn sets(options: u32) -> Vec<TuneCandidate> {
    let sets = (0_u32..1 << options).filter(|set| set.count_ones() <= 3);
    sets.map(|set| TuneCandidate {
        features: std::iter::once(0)
            .chain((0..options).filter(|n| set >> n & 1 == 1).map(|n| n + 1))
            .collect(),
        is_proposal: set.count_ones() > 1,
    })
    .collect()
}

/// Searches among them. `does`: what each option does, as a logarithm; `cannot`: this candidate
/// cannot be had.
fn among_sets(
    candidates: &[TuneCandidate],
    does: &[f64],
    cannot: Option<usize>,
    noise: f64,
    seed: u64,
) -> SearchResult {
    let mut drawn = RandomStream::new(seed, 2);
    let mut measure = |at: usize, block: u32| -> Result<_, ()> {
        let sum: f64 = candidates[at].features[1..]
            .iter()
            .map(|n| does[*n as usize - 1])
            .sum();
        let rate = (sum + noise * (drawn.next_unit() - 0.5) + 0.1 * f64::from(block)).exp() * 100.0;
        Ok(if cannot == Some(at) {
            MeasureAnswer::Impossible
        } else {
            MeasureAnswer::Run(RunFigures {
                rate,
                per_joule: None,
            })
        })
    };
    search_best(
        candidates,
        0,
        TuneGoal::Rate,
        SearchLimits {
            blocks: 12,
            runs: 10_000,
        },
        seed,
        &mut measure,
    )
    .unwrap()
}

#[test]
fn options_that_help_alone_are_tried_together() {
    let candidates = sets(7);
    let mut found_it = 0;
    for seed in 0..100 {
        let mut drawn = RandomStream::new(seed, 3);
        let does: Vec<f64> = (0..7).map(|_| 0.4 * (drawn.next_unit() - 0.5)).collect();
        let found = among_sets(&candidates, &does, None, 0.04, seed);
        let worth = |at: usize| {
            candidates[at].features[1..]
                .iter()
                .map(|n| does[*n as usize - 1])
                .sum::<f64>()
        };
        let best = (0..candidates.len())
            .map(worth)
            .fold(f64::NEG_INFINITY, f64::max);
        let alone = (0..candidates.len())
            .filter(|at| !candidates[*at].is_proposal)
            .map(worth);
        assert!(alone.fold(f64::NEG_INFINITY, f64::max) <= best);
        found_it += u32::from(worth(found.best.unwrap()) > best - 0.03);
        let measured = found
            .standings
            .iter()
            .filter(|of| !of.runs.is_empty())
            .count();
        assert!(
            measured <= 8 + JOIN_MAX,
            "{measured} of {}",
            candidates.len()
        );
    }
    assert!(found_it >= 95, "{found_it} of 100");
}

#[test]
fn what_cannot_be_had_goes_and_what_promises_nothing_is_not_measured() {
    let candidates = sets(3);
    let both = candidates
        .iter()
        .position(|of| of.features == [0, 1, 2])
        .unwrap();
    let found = among_sets(&candidates, &[0.3, 0.2, -0.9], Some(both), 0.01, 5);
    assert!(
        matches!(
            found.standings[both].gone,
            Some((_, DropReason::Impossible))
        ) && found.standings[both].runs.is_empty()
    );
    assert_eq!(candidates[found.best.unwrap()].features, [0, 1]);
    let found = among_sets(&candidates, &[-0.3, -0.5, -0.6], None, 0.01, 5);
    let proposed = (0..candidates.len()).filter(|at| candidates[*at].is_proposal);
    assert!(
        found.best == Some(0)
            && proposed
                .into_iter()
                .all(|at| found.standings[at].runs.is_empty())
    );
}

#[test]
fn who_joins_later_is_compared_in_the_blocks_of_both() {
    let candidates = sets(2);
    let found = among_sets(&candidates, &[0.3, 0.2], None, 0.01, 1);
    let both = candidates
        .iter()
        .position(|of| of.features == [0, 1, 2])
        .unwrap();
    assert!(
        found.best == Some(both) && found.standings[both].from > 0,
        "{found:?}"
    );
    // A tenth more in every block: a comparison with the blocks of others would see that.
    let gain = found.gain_over_reference()[0].unwrap();
    assert!((gain.ratio.ln() - 0.5).abs() < 0.02, "{gain:?}");
}

proptest! {
    #[test]
    fn no_more_is_run_than_is_allowed_and_each_once_in_a_block(
        rates in proptest::collection::vec(1.0_f64..100.0, 2..40), noise in 0.0_f64..0.9, blocks in 1_u32..6, runs in 0_usize..150
    ) {
        let truth: Vec<(f64, f64)> = rates.iter().map(|rate| (*rate, 2.0)).collect();
        let (found, mut asked) = among(&truth, noise, 7, SearchLimits { blocks, runs });
        prop_assert!(asked.len() <= runs && found.blocks <= blocks);
        prop_assert_eq!(found.best.is_some(), runs >= truth.len());
        let all = asked.len();
        asked.sort_unstable();
        asked.dedup();
        prop_assert_eq!(asked.len(), all);
    }
}

/// The matrix of `docs/lab-study.md` and its runs.
fn study() -> (Matrix, Vec<CellRun>) {
    let matrix = Matrix::parse(include_str!("../../../../../docs/lab-study/matrix.toml")).unwrap();
    let runs = include_str!("../../../../../docs/lab-study/runs.jsonl").lines();
    (
        matrix,
        runs.map(|line| serde_json::from_str(line).unwrap())
            .collect(),
    )
}

#[test]
fn of_the_recorded_study_the_best_is_found_with_less_than_half_of_its_runs() {
    let (matrix, runs) = study();
    for (at, workload) in matrix.workloads.iter().enumerate() {
        let replay = RecordedWorkload::from_matrix(&matrix, &runs, at).unwrap();
        for aim in [TuneGoal::Rate, TuneGoal::Joule] {
            let trials: Vec<SearchTrial> = (0..100)
                .map(|seed| replay.run_trial(aim, seed, 0.45).unwrap())
                .collect();
            let good = trials
                .iter()
                .filter(|trial| trial.is_tie || trial.part >= 0.95)
                .count();
            let most = trials.iter().map(|trial| trial.runs).max().unwrap();
            assert!(good >= 95, "{}, {aim:?}: {good} of 100", workload.name);
            assert!(
                most * 100 <= replay.runs * 45,
                "{}, {aim:?}: {most} of {} runs",
                workload.name,
                replay.runs
            );
        }
    }
}
