//! Computes statistics of repeated runs: intervals, paired comparisons, the point at which a run
//! becomes steady, correlations.
//!
//! # Guarantees
//! 1. A sample is a run, never a second of one.
//! 2. No figure comes from fewer samples than its method needs: the functions give `None`.
//! 3. Rates are compared on a log scale and in pairs of the same block, so that drift of the
//!    machine from block to block is in both.

#[cfg(test)]
mod tests;

/// Two-sided 95 % quantiles of Student's t for 1 to 30 degrees of freedom.
const T95: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
    2.052, 2.048, 2.045, 2.042,
];
/// Quantiles for 40, 60 and 120 degrees of freedom.
const T95_MORE: [(f64, f64); 3] = [(40.0, 2.021), (60.0, 2.000), (120.0, 1.980)];
const T95_MANY: f64 = 1.960;
/// Number of pairs below which a signed-rank test can never reach 5 %.
const SIGNED_RANK_LEAST: usize = 6;
/// Number of pairs up to which its distribution is counted exactly.
const SIGNED_RANK_EXACT: usize = 25;
/// Largest slope of a steady series, as a part of its mean.
const SLOPE_MAX: f64 = 0.1;
/// Seconds of a batch of [`steady_from`].
const BATCH: usize = 5;

/// Holds a mean and its uncertainty.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ConfidenceInterval {
    /// Number of samples.
    pub n: usize,
    /// Mean of the samples.
    pub mean: f64,
    /// Half of the 95 % interval of the mean.
    pub half_width: f64,
}

impl ConfidenceInterval {
    /// Computes the interval of at least two samples.
    pub fn from_samples(samples: &[f64]) -> Option<Self> {
        let n = samples.len();
        if n < 2 {
            return None;
        }
        debug_assert!(
            samples.iter().all(|sample| sample.is_finite()),
            "a sample is a number"
        );
        let mean = samples.iter().sum::<f64>() / n as f64;
        // Bessel's correction: one degree of freedom goes to the mean.
        let variance = samples.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (n - 1) as f64;
        Some(Self {
            n,
            mean,
            half_width: student_t95(n - 1) * (variance / n as f64).sqrt(),
        })
    }

    /// Returns half of the interval as a part of the mean.
    pub fn relative_half_width(&self) -> f64 {
        if self.half_width == 0.0 {
            0.0
        } else {
            self.half_width / self.mean.abs()
        }
    }
}

/// Returns the two-sided 95 % quantile of Student's t with this number of degrees of freedom (at
/// least one). Between the table's points it is linear in 1/degrees.
fn student_t95(degrees: usize) -> f64 {
    debug_assert!(
        degrees >= 1,
        "Student's t has one degree of freedom at least"
    );
    if let Some(t) = degrees.checked_sub(1).and_then(|at| T95.get(at)) {
        return *t;
    }
    // The table ends here: larger numbers are interpolated up to the normal distribution.
    let wanted = 1.0 / degrees as f64;
    let (mut below, mut from) = (30.0, T95[29]);
    for (at, t) in T95_MORE.into_iter().chain([(f64::INFINITY, T95_MANY)]) {
        let (near, far) = (1.0 / below, 1.0 / at);
        if wanted >= far {
            return t + (from - t) * (wanted - far) / (near - far);
        }
        (below, from) = (at, t);
    }
    T95_MANY
}

/// Compares one thing with another that was measured in the same blocks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PairedComparison {
    /// Number of pairs.
    pub n: usize,
    /// Geometric mean of the ratios of the first to the second.
    pub ratio: f64,
    /// Lower end of its 95 % interval, by Student's t on the logarithms.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
    /// Ratio by Hodges and Lehmann: the median of the pairwise means, which an outlier does not
    /// move.
    pub middle: f64,
    /// p of Wilcoxon's signed-rank test, two-sided; `None` with fewer than six pairs that differ.
    pub p: Option<f64>,
}

impl PairedComparison {
    /// Compares figures above zero, one pair for each block, at least two pairs.
    pub fn from_pairs(pairs: &[(f64, f64)]) -> Option<Self> {
        // Ratios are compared on a log scale, on which zero has no place.
        if pairs.iter().any(|(a, b)| !(*a > 0.0 && *b > 0.0)) {
            return None;
        }
        let logs: Vec<f64> = pairs.iter().map(|(a, b)| (a / b).ln()).collect();
        let ConfidenceInterval {
            n,
            mean,
            half_width: half,
        } = ConfidenceInterval::from_samples(&logs)?;
        debug_assert!(half >= 0.0, "an interval has a width");
        let (low, high) = ((mean - half).exp(), (mean + half).exp());
        Some(Self {
            n,
            ratio: mean.exp(),
            low,
            high,
            middle: hodges_lehmann(&logs).exp(),
            p: signed_rank(&logs),
        })
    }

    /// Returns whether 1 lies in the interval, so that it is open which is larger.
    pub fn is_tie(&self) -> bool {
        self.low <= 1.0 && self.high >= 1.0
    }
}

/// Describes a straight line through figures that follow each other.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LinearTrend {
    /// Number of figures.
    pub n: usize,
    /// Value of the line at the last figure by that at the first.
    pub ratio: f64,
    /// Lower end of its 95 % interval, by Student's t on the logarithms.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
}

/// Holds the means of times and logarithms, and the sums of squares and products around them.
struct LogMoments {
    mean_x: f64,
    mean_y: f64,
    /// Sum of the squares of the times.
    spread: f64,
    /// Sum of the products of times and logarithms.
    covariance: f64,
}

impl LogMoments {
    fn of_points(points: &[(f64, f64)]) -> Self {
        let n = points.len() as f64;
        let (mut sum_x, mut sum_y) = (0.0, 0.0);
        for (x, y) in points {
            sum_x += x;
            sum_y += y.ln();
        }
        let mut moments = Self {
            mean_x: sum_x / n,
            mean_y: sum_y / n,
            spread: 0.0,
            covariance: 0.0,
        };
        for point in points {
            let (x, y) = moments.beside_means(point);
            moments.spread += x * x;
            moments.covariance += x * y;
        }
        moments
    }

    fn beside_means(&self, (x, y): &(f64, f64)) -> (f64, f64) {
        (x - self.mean_x, y.ln() - self.mean_y)
    }

    /// Returns the sum of squares that a line with this slope leaves.
    fn squares_beside(&self, points: &[(f64, f64)], rise: f64) -> f64 {
        let mut squares = 0.0;
        for point in points {
            let (x, y) = self.beside_means(point);
            squares += (y - rise * x).powi(2);
        }
        squares
    }
}

impl LinearTrend {
    /// Fits a line by least squares through the logarithms of figures above zero. It takes at least
    /// three points at different times.
    pub fn fit_points(points: &[(f64, f64)]) -> Option<Self> {
        let n = points.len();
        if n < 3 || points.iter().any(|(_, y)| *y <= 0.0) {
            return None;
        }
        let moments = LogMoments::of_points(points);
        // Without different times no line is defined.
        if moments.spread <= 0.0 {
            return None;
        }
        // The slope of least squares, and the sum of squares that it leaves.
        let rise = moments.covariance / moments.spread;
        let rest = moments.squares_beside(points, rise) / (n - 2) as f64;
        let spread = moments.spread;
        let (mut first, mut last) = (f64::INFINITY, f64::NEG_INFINITY);
        for (x, _) in points {
            first = first.min(*x);
            last = last.max(*x);
        }
        let (middle, half) = (
            rise * (last - first),
            student_t95(n - 2) * (rest / spread).sqrt() * (last - first),
        );
        Some(Self {
            n,
            ratio: middle.exp(),
            low: (middle - half).exp(),
            high: (middle + half).exp(),
        })
    }

    /// Returns whether 1 lies in the interval, so that no trend is shown.
    pub fn is_inconclusive(&self) -> bool {
        self.low <= 1.0 && self.high >= 1.0
    }
}

/// Returns the median of all means of two samples, each with itself too: the estimator of Hodges
/// and Lehmann.
fn hodges_lehmann(samples: &[f64]) -> f64 {
    let mut means = Vec::with_capacity(samples.len() * (samples.len() + 1) / 2);
    for (at, a) in samples.iter().enumerate() {
        means.extend(samples[at..].iter().map(|b| f64::midpoint(*a, *b)));
    }
    median(&mut means)
}

pub(crate) fn median(of: &mut [f64]) -> f64 {
    debug_assert!(!of.is_empty(), "the median of nothing is not defined");
    of.sort_by(f64::total_cmp);
    let half = of.len() / 2;
    if of.len() % 2 == 1 {
        of[half]
    } else {
        f64::midpoint(of[half - 1], of[half])
    }
}

/// Returns the two-sided p of Wilcoxon's signed-rank test. Differences of zero are left out, and
/// ties share their rank.
fn signed_rank(differences: &[f64]) -> Option<f64> {
    let mut sorted = differences.to_vec();
    sorted.retain(|d| *d != 0.0);
    if sorted.len() < SIGNED_RANK_LEAST {
        return None;
    }
    sorted.sort_by(|a, b| a.abs().total_cmp(&b.abs()));
    // Both signs are ranked together, by size alone.
    let ranks = doubled_ranks(&sorted);
    let all: usize = ranks.iter().sum();
    // The rank sum of the positive differences; the smaller side is the statistic.
    let mut above = 0;
    for (rank, difference) in ranks.iter().zip(&sorted) {
        if *difference > 0.0 {
            above += rank;
        }
    }
    let least = above.min(all - above);
    let one_sided = if ranks.len() <= SIGNED_RANK_EXACT {
        exact_rank_sum_part(&ranks, least)
    } else {
        normal_rank_sum_part(&ranks, least)
    };
    Some((2.0 * one_sided).min(1.0))
}

/// Returns the ranks of sorted differences by their size. They are doubled, because those of ties
/// are halves.
fn doubled_ranks(sorted: &[f64]) -> Vec<usize> {
    let mut ranks = vec![0; sorted.len()];
    let mut at = 0;
    while at < sorted.len() {
        // Ties stand together after sorting, and share the mean of their ranks.
        let mut end = at + 1;
        while end < sorted.len() && sorted[end].abs() == sorted[at].abs() {
            end += 1;
        }
        ranks[at..end].fill(at + 1 + end);
        at = end;
    }
    ranks
}

/// Returns the part of all combinations of signs that have at most this rank sum: counts them for
/// each rank sum, by dynamic programming.
fn exact_rank_sum_part(ranks: &[usize], least: usize) -> f64 {
    let all: usize = ranks.iter().sum();
    debug_assert!(all >= least, "a part is larger than the whole");
    let mut ways = vec![0.0_f64; all + 1];
    ways[0] = 1.0;
    for rank in ranks {
        for sum in (*rank..=all).rev() {
            ways[sum] += ways[sum - rank];
        }
    }
    // All combinations of signs are equally likely if there is no difference.
    let few: f64 = ways[..=least].iter().sum();
    few / 2_f64.powi(ranks.len() as i32)
}

/// Returns this part by the normal approximation, with a correction for continuity.
fn normal_rank_sum_part(ranks: &[usize], least: usize) -> f64 {
    let all: usize = ranks.iter().sum();
    let mean = all as f64 / 2.0;
    let mut squares = 0.0;
    for rank in ranks {
        squares += (*rank as f64).powi(2);
    }
    let deviation = squares.sqrt() / 2.0;
    // Ranks are doubled here too, so half a rank is one.
    let z = (mean - least as f64 - 1.0).max(0.0) / deviation;
    upper_normal(z)
}

/// Returns the part of a normal distribution above `z` deviations (Abramowitz and Stegun 26.2.17:
/// within 7.5e-8).
fn upper_normal(z: f64) -> f64 {
    let t = 1.0 / (1.0 + 0.231_641_9 * z);
    let powers = [
        0.319_381_530,
        -0.356_563_782,
        1.781_477_937,
        -1.821_255_978,
        1.330_274_429,
    ];
    let sum = powers.iter().rev().fold(0.0, |sum, b| (sum + b) * t);
    (-z * z / 2.0).exp() / std::f64::consts::TAU.sqrt() * sum
}

/// Returns the number of warm-up seconds of a run by MSER-5: the cut after which the mean of the
/// rest is best known. `None` means that the run does not become steady: the best cut is in its
/// second half, a straight line through the rest rises or falls by more than a tenth of its mean
/// (SNIA's rule for steady state), or the run is too short.
pub fn steady_from(rates: &[f64]) -> Option<usize> {
    let means: Vec<f64> = rates
        .chunks_exact(BATCH)
        .map(|batch| batch.iter().sum::<f64>() / BATCH as f64)
        .collect();
    if means.len() < 4 {
        return None;
    }
    // A cut near the end leaves too few batches to be judged by.
    let cuts = 0..means.len() - 2;
    // The squared standard error of the mean of the rest, which MSER minimises.
    let error = |cut: &usize| {
        let rest = &means[*cut..];
        let mean = rest.iter().sum::<f64>() / rest.len() as f64;
        rest.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (rest.len() as f64).powi(2)
    };
    let best = cuts.min_by(|a, b| error(a).total_cmp(&error(b)))?;
    (best <= means.len() / 2 && relative_slope(&means[best..]) <= SLOPE_MAX).then_some(best * BATCH)
}

/// Returns the rise or fall of a straight line through a series, as a part of its mean.
fn relative_slope(series: &[f64]) -> f64 {
    let n = series.len() as f64;
    let (mean_x, mean_y) = ((n - 1.0) / 2.0, series.iter().sum::<f64>() / n);
    let of = |what: &dyn Fn(f64, f64) -> f64| -> f64 {
        series
            .iter()
            .enumerate()
            .map(|(x, y)| what(x as f64 - mean_x, y - mean_y))
            .sum()
    };
    let rise = of(&|x, y| x * y) / of(&|x, _| x * x).max(f64::MIN_POSITIVE);
    if mean_y == 0.0 {
        0.0
    } else {
        (rise * (n - 1.0) / mean_y).abs()
    }
}

/// Returns Pearson's r of at least three points; `None` if one of the figures is the same
/// everywhere.
pub fn pearson_correlation(points: &[(f64, f64)]) -> Option<f64> {
    let n = points.len() as f64;
    if points.len() < 3 {
        return None;
    }
    let (sum_x, sum_y) = points
        .iter()
        .fold((0.0, 0.0), |(a, b), (x, y)| (a + x, b + y));
    let (mean_x, mean_y) = (sum_x / n, sum_y / n);
    let sum = |of: &dyn Fn(f64, f64) -> f64| {
        points
            .iter()
            .map(|(x, y)| of(x - mean_x, y - mean_y))
            .sum::<f64>()
    };
    let (xy, xx, yy) = (sum(&|x, y| x * y), sum(&|x, _| x * x), sum(&|_, y| y * y));
    (xx > 0.0 && yy > 0.0).then(|| xy / (xx * yy).sqrt())
}
