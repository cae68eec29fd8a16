//! Predicts the figure of an unmeasured candidate from the measured ones: a linear model of
//! logarithms.
//!
//! # The model
//! A candidate is a set of features (its file system, each of its options, its scheduler, ...). The
//! logarithm of its figure by the reference's of the same block is the sum of its features'
//! weights, plus a part of its own that no feature explains, plus noise. Weights are normal about
//! zero: no feature is believed to matter before a measurement shows it. All parts are normal, so
//! the posterior is too, in closed form (Bishop, Pattern Recognition and Machine Learning, 3.3.1).
//!
//! # Guarantees
//! 1. It depends on the measurements only, not on their order.
//! 2. A candidate that shares no feature with a measured one has the spread of the prior.

/// Standard deviation of a feature's weight, as a logarithm: the usual effect of an option on a
/// figure.
const WEIGHT: f64 = 0.3;
/// Standard deviation of a candidate's own part: the interaction of its options.
const OWN: f64 = 0.03;
/// Standard deviation of a run's noise if no candidate was run twice, and its least value.
const NOISE: f64 = 0.1;
const NOISE_MIN: f64 = 0.002;

/// Holds the measurements of a candidate.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct MeasuredCandidate<'a> {
    pub(super) features: &'a [u32],
    /// Logarithms of its figures by the reference's.
    pub(super) logs: Vec<f64>,
}

/// Holds the posterior of the weights.
#[derive(Debug, Clone)]
pub(super) struct Surrogate {
    /// Cholesky factor of the weights' precision: a lower triangle L with L L^T.
    root: Vec<Vec<f64>>,
    /// Means of the weights.
    mean: Vec<f64>,
}

impl Surrogate {
    /// Learns from measurements; features are numbers below `features`.
    pub(super) fn learn(seen: &[MeasuredCandidate<'_>], features: usize) -> Self {
        debug_assert!(
            seen.iter()
                .all(|one| one.features.iter().all(|n| (*n as usize) < features)),
            "a feature is out of range"
        );
        let noise = estimate_noise(seen);
        let mut precision = vec![vec![0.0; features]; features];
        // The prior: independent weights about zero.
        (0..features).for_each(|n| precision[n][n] = WEIGHT.powi(-2));
        let mut pull = vec![0.0; features];
        for of in seen.iter().filter(|of| !of.logs.is_empty()) {
            // The mean of several runs has less noise; the candidate's own part stays.
            let n = of.logs.len() as f64;
            let (mean, weight) = (
                of.logs.iter().sum::<f64>() / n,
                1.0 / (noise * noise / n + OWN * OWN),
            );
            for a in of.features {
                pull[*a as usize] += weight * mean;
                for b in of.features {
                    precision[*a as usize][*b as usize] += weight;
                }
            }
        }
        // The posterior's mean solves precision x = pull, by two triangular systems.
        let root = cholesky(precision);
        let mean = solve_upper(&root, solve_lower(&root, pull));
        Self { root, mean }
    }

    /// Returns the mean and the standard deviation of a candidate's logarithm.
    pub(super) fn predict(&self, features: &[u32]) -> (f64, f64) {
        let mut of = vec![0.0; self.mean.len()];
        features.iter().for_each(|n| of[*n as usize] += 1.0);
        let mean = of
            .iter()
            .zip(&self.mean)
            .map(|(x, weight)| x * weight)
            .sum();
        // With L y = x the variance x^T (L L^T)^-1 x is the square of y.
        let spread: f64 = solve_lower(&self.root, of).iter().map(|x| x * x).sum();
        debug_assert!(spread >= 0.0, "a variance is not negative");
        (mean, (spread + OWN * OWN).sqrt())
    }
}

/// Returns the standard deviation of a run about its candidate's mean.
fn estimate_noise(seen: &[MeasuredCandidate<'_>]) -> f64 {
    let (mut squares, mut free) = (0.0, 0);
    for of in seen.iter().filter(|of| of.logs.len() > 1) {
        let mean = of.logs.iter().sum::<f64>() / of.logs.len() as f64;
        squares += of.logs.iter().map(|log| (log - mean).powi(2)).sum::<f64>();
        free += of.logs.len() - 1;
    }
    if free == 0 {
        NOISE
    } else {
        (squares / free as f64).sqrt().max(NOISE_MIN)
    }
}

/// Returns the lower triangle L with L L^T equal to a symmetric positive matrix.
fn cholesky(mut of: Vec<Vec<f64>>) -> Vec<Vec<f64>> {
    for row in 0..of.len() {
        for column in 0..=row {
            let known: f64 = (0..column).map(|n| of[row][n] * of[column][n]).sum();
            let rest = of[row][column] - known;
            debug_assert!(row != column || rest > 0.0, "the matrix is not positive");
            of[row][column] = if row == column {
                rest.sqrt()
            } else {
                rest / of[column][column]
            };
        }
    }
    of
}

/// Solves L x = b.
fn solve_lower(root: &[Vec<f64>], mut of: Vec<f64>) -> Vec<f64> {
    for row in 0..of.len() {
        let known: f64 = (0..row).map(|n| root[row][n] * of[n]).sum();
        of[row] = (of[row] - known) / root[row][row];
    }
    of
}

/// Solves L^T x = b.
fn solve_upper(root: &[Vec<f64>], mut of: Vec<f64>) -> Vec<f64> {
    for row in (0..of.len()).rev() {
        let known: f64 = (row + 1..of.len()).map(|n| root[n][row] * of[n]).sum();
        of[row] = (of[row] - known) / root[row][row];
    }
    of
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn one_feature_measured_once_is_the_closed_form() {
        let seen = [MeasuredCandidate {
            features: &[0],
            logs: vec![0.5],
        }];
        let (mean, spread) = Surrogate::learn(&seen, 2).predict(&[0]);
        let (prior, likely) = (WEIGHT * WEIGHT, NOISE * NOISE + OWN * OWN);
        assert!((mean - 0.5 * prior / (prior + likely)).abs() < 1e-12);
        assert!((spread - (prior * likely / (prior + likely) + OWN * OWN).sqrt()).abs() < 1e-12);
        let (mean, spread) = Surrogate::learn(&seen, 2).predict(&[1]);
        assert!(
            mean == 0.0 && (spread - (WEIGHT * WEIGHT + OWN * OWN).sqrt()).abs() < 1e-12,
            "nothing is known of it"
        );
    }

    #[test]
    fn options_that_were_measured_alone_tell_what_they_do_together() {
        let seen = [
            MeasuredCandidate {
                features: &[0],
                logs: vec![0.0, 0.01],
            },
            MeasuredCandidate {
                features: &[0, 1],
                logs: vec![0.2, 0.19],
            },
            MeasuredCandidate {
                features: &[0, 2],
                logs: vec![0.1, 0.11],
            },
            MeasuredCandidate {
                features: &[0, 3],
                logs: vec![-0.3, -0.31],
            },
        ];
        let model = Surrogate::learn(&seen, 4);
        let both = model.predict(&[0, 1, 2]);
        assert!((both.0 - 0.3).abs() < 0.02 && both.1 < 0.1, "{both:?}");
        assert!(model.predict(&[0, 1, 3]).0 < both.0);
    }

    proptest! {
        #[test]
        fn more_measurements_never_make_it_less_sure_and_their_order_does_not_matter(
            logs in proptest::collection::vec(
                (proptest::collection::vec(0_u32..6, 1..4), -1.0_f64..1.0),
                1..20,
            ),
            asked in 0_u32..6
        ) {
            let seen = logs.iter().map(|(features, log)| MeasuredCandidate {
                features,
                logs: vec![*log],
            });
            let seen: Vec<MeasuredCandidate<'_>> = seen.collect();
            let all = Surrogate::learn(&seen, 6).predict(&[asked]);
            let some = Surrogate::learn(&seen[1..], 6).predict(&[asked]);
            prop_assert!(all.1 <= some.1 + 1e-9 && all.0.is_finite());
            let turned: Vec<MeasuredCandidate<'_>> = seen.iter().rev().cloned().collect();
            let other = Surrogate::learn(&turned, 6).predict(&[asked]);
            prop_assert!((all.0 - other.0).abs() < 1e-9 && (all.1 - other.1).abs() < 1e-9);
        }
    }
}
