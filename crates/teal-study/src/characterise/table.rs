//! Turns samples into a value of the language: a number, or a table of a hundred slots.
//!
//! # Guarantees
//! 1. The mean of the drawn values is that of the samples, but for rounding.

/// Holds a value of an attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SampledValue {
    /// Always this.
    Fixed(u64),
    /// Percent, low, high.
    Table(Vec<[u64; 3]>),
}

/// Percentiles that bound the rows of a table of sizes. The largest samples have rows of their own,
/// as they hold most of the bytes.
const CUTS: [usize; 9] = [0, 10, 25, 50, 75, 90, 95, 99, 100];

/// Relative error of a probability that is accepted to save a second table.
const PART_ERROR: f64 = 0.01;

impl SampledValue {
    /// Returns the distribution of some sizes, each raised to at least `least`.
    pub(super) fn from_sizes(samples: &mut [u64], least: u64) -> Self {
        samples
            .iter_mut()
            .for_each(|sample| *sample = (*sample).max(least));
        samples.sort_unstable();
        let (Some(first), Some(last)) = (samples.first(), samples.last()) else {
            return Self::Fixed(least);
        };
        // Equal samples need no table.
        if first == last {
            return Self::Fixed(*first);
        }
        let count = samples.len();
        let rows = CUTS.windows(2).map(|cut| {
            let part = |percent: usize| (count * percent / 100).min(count - 1);
            // Few samples: a row that holds none repeats the one that is there.
            let row = &samples[part(cut[0])..(count * cut[1] / 100).clamp(part(cut[0]) + 1, count)];
            let mean = row.iter().sum::<u64>() / row.len() as u64;
            // A row is even about its mean, so that its mean is exact.
            let half = (mean - row[0]).min(row[row.len() - 1] - mean);
            [(cut[1] - cut[0]) as u64, mean - half, mean + half]
        });
        let rows: Vec<_> = rows.collect();
        debug_assert_eq!(
            rows.iter().map(|row| row[0]).sum::<u64>(),
            100,
            "the rows cover all samples"
        );
        Self::Table(scale_rows(
            rows,
            samples.iter().sum::<u64>() as f64 / count as f64,
            least,
        ))
    }

    /// Returns a whole number with this mean, drawn as the one below or above.
    pub(super) fn with_mean(mean: f64) -> Self {
        debug_assert!(mean >= 0.0, "a number of calls is not negative");
        let below = mean.floor();
        let percent = ((mean - below) * 100.0).round() as u64;
        let below = below as u64;
        match percent {
            0 => Self::Fixed(below),
            100 => Self::Fixed(below + 1),
            _ => Self::Table(vec![
                [100 - percent, below, below],
                [percent, below + 1, below + 1],
            ]),
        }
    }

    /// Returns two draws whose product has this probability: the second is made only if the first
    /// says so. A table alone tells whole percents only.
    pub(super) fn with_probability(mean: f64) -> [Self; 2] {
        debug_assert!(
            mean > 0.0 && mean <= 1.0,
            "a probability is above 0 and at most 1"
        );
        let other = |one: u64| ((mean * 10_000.0 / one as f64).round() as u64).clamp(1, 100);
        let error = |one: u64| ((one * other(one)) as f64 / 10_000.0 / mean - 1.0).abs();
        // One table where that is near enough.
        let near = |one: &u64| {
            if *one == 100 {
                error(100) - PART_ERROR
            } else {
                error(*one)
            }
        };
        // The best of a hundred splits of the probability into two factors of whole percents.
        let best = (1..=100)
            .min_by(|a, b| near(a).total_cmp(&near(b)))
            .expect("there are a hundred");
        [other(best), best].map(|percent| Self::with_mean(percent as f64 / 100.0))
    }

    /// Returns the mean of the drawn values.
    #[cfg(test)]
    pub(super) fn mean(&self) -> f64 {
        match self {
            Self::Fixed(value) => *value as f64,
            Self::Table(rows) => table_mean(rows),
        }
    }

    /// Returns the largest value that can be drawn.
    pub(super) fn largest(&self) -> u64 {
        match self {
            Self::Fixed(value) => *value,
            Self::Table(rows) => rows.iter().map(|row| row[2]).max().unwrap_or(0),
        }
    }
}

fn table_mean(rows: &[[u64; 3]]) -> f64 {
    rows.iter()
        .map(|[percent, low, high]| *percent as f64 * (low + high) as f64 / 200.0)
        .sum()
}

/// Corrects the mean of the rows, because rows that hold different numbers of samples miss it
/// slightly.
fn scale_rows(rows: Vec<[u64; 3]>, wanted: f64, least: u64) -> Vec<[u64; 3]> {
    let factor = wanted / table_mean(&rows).max(1e-9);
    let by = |value: u64| ((value as f64 * factor).round() as u64).max(least);
    rows.into_iter()
        .map(|[percent, low, high]| [percent, by(low), by(high)])
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_have_the_mean_of_their_samples() {
        assert_eq!(SampledValue::from_sizes(&mut [], 1), SampledValue::Fixed(1));
        assert_eq!(
            SampledValue::from_sizes(&mut [7; 30], 1),
            SampledValue::Fixed(7)
        );
        for samples in [&[1, 1000][..], &[5, 6, 7], &[4096, 4096, 1 << 30]] {
            let wanted = samples.iter().sum::<u64>() as f64 / samples.len() as f64;
            let got = SampledValue::from_sizes(&mut samples.to_vec(), 1).mean();
            assert!((got / wanted - 1.0).abs() < 0.05, "{got} {wanted}");
        }
        let mut skewed: Vec<u64> = (0..10_000).map(|n| 100 + n * n * n / 1_000_000).collect();
        let wanted = skewed.iter().sum::<u64>() as f64 / 10_000.0;
        let table = SampledValue::from_sizes(&mut skewed, 1);
        assert!(
            (table.mean() / wanted - 1.0).abs() < 0.001,
            "{} {wanted}",
            table.mean()
        );
        let SampledValue::Table(rows) = table else {
            panic!("it is a table")
        };
        assert_eq!(rows.iter().map(|row| row[0]).sum::<u64>(), 100);
        for mean in [0.0, 0.2, 1.0, 3.999, 17.37] {
            assert!(
                (SampledValue::with_mean(mean).mean() - mean).abs() < 0.006,
                "{mean}"
            );
        }
        for mean in [0.001, 0.0018, 0.0123, 0.1, 0.333, 0.777, 1.0] {
            let [first, second] = SampledValue::with_probability(mean);
            let got = first.mean() * second.mean();
            assert!((got / mean - 1.0).abs() < 0.02, "{mean}: {got}");
        }
        assert_eq!(
            SampledValue::with_probability(1.0),
            [1, 1].map(SampledValue::Fixed)
        );
        assert_eq!(
            SampledValue::with_probability(0.1)[1],
            SampledValue::Fixed(1),
            "one table is enough"
        );
    }
}
