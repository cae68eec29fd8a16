//! Computes joules from the readings of a meter.
//!
//! # Guarantees
//! 1. Between two readings watts go straight from one to the other (trapezoid rule), and so do the
//!    edges of the time that is asked for. A counter of joules may begin anew at its end.
//! 2. Nothing is told of a time with fewer than [`READINGS_MIN`] readings, or of one that reaches
//!    beyond the readings.

/// Least number of readings for a figure.
pub const READINGS_MIN: usize = 30;

/// Holds the readings of a meter.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PowerReadings {
    /// Seconds and watts.
    readings: Vec<(f64, f64)>,
}

impl PowerReadings {
    /// Takes the readings of a meter that tells watts, in their order.
    pub fn of_watts(readings: Vec<(f64, f64)>) -> Self {
        Self { readings }
    }

    /// Takes the readings of a counter of joules that begins anew after `range`. The watts between
    /// two readings stand at their middle.
    pub fn of_counter(readings: &[(f64, f64)], range: f64) -> Self {
        let watts = readings.windows(2).filter_map(|pair| {
            let [(from, before), (to, after)] = pair else {
                return None;
            };
            // A smaller count shows that the counter has begun anew in between, once.
            let joules = if after < before {
                after + range - before
            } else {
                after - before
            };
            (to > from).then(|| (f64::midpoint(*from, *to), joules / (to - from)))
        });
        Self {
            readings: watts.collect(),
        }
    }

    /// Returns seconds and watts.
    pub fn readings(&self) -> &[(f64, f64)] {
        &self.readings
    }

    /// Returns the sum of several meters that were read at the same times.
    pub fn sum_of_meters(all: &[Self]) -> Self {
        // The times of the first meter stand for all.
        let [first, more @ ..] = all else {
            return Self::default();
        };
        debug_assert!(
            more.iter()
                .all(|other| other.readings.len() == first.readings.len()),
            "the meters are read together"
        );
        let at = |n: usize, watts: f64| {
            watts
                + more
                    .iter()
                    .filter_map(|of| of.readings.get(n))
                    .map(|of| of.1)
                    .sum::<f64>()
        };
        Self {
            readings: first
                .readings
                .iter()
                .enumerate()
                .map(|(n, (time, watts))| (*time, at(n, *watts)))
                .collect(),
        }
    }

    /// Returns the number of readings in a time.
    pub fn count_between(&self, from: f64, to: f64) -> usize {
        self.readings
            .iter()
            .filter(|(time, _)| (from..=to).contains(time))
            .count()
    }

    /// Returns the joules of a time; `None` where the readings do not reach or are too few.
    pub fn joules_between(&self, from: f64, to: f64) -> Option<f64> {
        debug_assert!(from <= to, "a time ends after its beginning");
        if self.count_between(from, to) < READINGS_MIN {
            return None;
        }
        // The edges lie between readings, so their watts are interpolated.
        let (begin, end) = (self.watts_at(from)?, self.watts_at(to)?);
        let inner = self
            .readings
            .iter()
            .copied()
            .filter(|(time, _)| *time > from && *time < to);
        let points: Vec<(f64, f64)> = [(from, begin)]
            .into_iter()
            .chain(inner)
            .chain([(to, end)])
            .collect();
        Some(
            points
                .windows(2)
                .map(|pair| (pair[1].0 - pair[0].0) * f64::midpoint(pair[0].1, pair[1].1))
                .sum(),
        )
    }

    /// Returns the mean watts of a time.
    pub fn mean_watts(&self, from: f64, to: f64) -> Option<f64> {
        self.joules_between(from, to)
            .map(|joules| joules / (to - from))
    }

    /// Returns the watts at a time, between the readings before and after it. Up to one distance of
    /// readings beyond the first and the last, their watts hold.
    fn watts_at(&self, time: f64) -> Option<f64> {
        let after = self.readings.partition_point(|(at, _)| *at < time);
        match (
            after.checked_sub(1).and_then(|at| self.readings.get(at)),
            self.readings.get(after),
        ) {
            (Some((t0, w0)), Some((t1, w1))) => Some(w0 + (w1 - w0) * (time - t0) / (t1 - t0)),
            (None, Some((first, watts))) => {
                (first - time <= self.longest_distance()).then_some(*watts)
            }
            (Some((last, watts)), None) => {
                (time - last <= self.longest_distance()).then_some(*watts)
            }
            (None, None) => None,
        }
    }

    /// Returns the longest time between two readings.
    fn longest_distance(&self) -> f64 {
        self.readings
            .windows(2)
            .map(|pair| pair[1].0 - pair[0].0)
            .fold(0.0, f64::max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watts_are_added_up_by_trapezoids_with_edges_between_readings() {
        // A ramp: watts are ten times the seconds.
        let ramp = PowerReadings::of_watts(
            (0..=100)
                .map(|n| (f64::from(n) / 10.0, f64::from(n)))
                .collect(),
        );
        let joules = ramp.joules_between(1.23, 7.89).unwrap();
        assert!(
            (joules - 5.0 * (7.89 * 7.89 - 1.23 * 1.23)).abs() < 1e-9,
            "{joules}"
        );
        assert!((ramp.mean_watts(2.0, 6.0).unwrap() - 40.0).abs() < 1e-9);
        assert_eq!(
            (
                ramp.joules_between(1.0, 3.8),
                ramp.joules_between(5.0, 20.0)
            ),
            (None, None),
            "too few, and beyond what is known"
        );
    }

    #[test]
    fn a_counter_that_begins_anew_loses_nothing() {
        let joules = |n: u32| (f64::from(n) * 2.5) % 64.0;
        let counter: Vec<(f64, f64)> = (0..200).map(|n| (f64::from(n) * 0.5, joules(n))).collect();
        let power = PowerReadings::of_counter(&counter, 64.0);
        assert!((power.joules_between(10.0, 90.0).unwrap() - 5.0 * 80.0).abs() < 1e-9);
        let both = PowerReadings::sum_of_meters(&[power.clone(), power]);
        assert!((both.joules_between(10.0, 90.0).unwrap() - 10.0 * 80.0).abs() < 1e-9);
    }
}
