//! Running estimates of how long accesses take, as BlueFS keeps them (4.3.2).
//!
//! # Guarantees
//! 1. An estimate lies between the smallest and the largest measurement it was given.
//! 2. Weights are 0.1 for networks and 0.01 for local devices; first blocks and following blocks
//!    are apart, and so are power states.
//! 3. Fixed point with 16 bits below the nanosecond: no floating point, and a weight of 0.01 never
//!    gets stuck.

use crate::profile::StateId;
use std::collections::BTreeMap;
use teal_types::{BLOCK, TimeSpan};

/// Weight of a new measurement of a network device, in thousandths.
pub const NETWORK: MeasurementWeight = MeasurementWeight(100);
/// Weight of a new measurement of a local device, in thousandths.
pub const LOCAL: MeasurementWeight = MeasurementWeight(10);

/// Weight of a new measurement, in thousandths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MeasurementWeight(u16);

impl MeasurementWeight {
    /// Returns the weight of measurement number `n`, counted from 1. The first measurements count
    /// alike, until this weight is more than their share.
    pub fn early_weight(self, n: u32) -> Self {
        Self(self.0.max((1000 / n.max(1)) as u16))
    }
}

const FRACTION: u32 = 16;
/// Longest measurement, a day: with it nothing overflows.
const LONGEST: u64 = 86_400_000_000_000;

/// An exponentially weighted moving average: `new = a * measured + (1 - a) * old`. The first
/// measurement stands alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MovingAverage(Option<u64>);

impl MovingAverage {
    /// Adds a measurement.
    pub fn add_measurement(&mut self, weight: MeasurementWeight, measured: TimeSpan) {
        // Times longer than a day are clipped, so that the fixed point does not overflow.
        let new = measured.get().min(LONGEST) << FRACTION;
        // A weight above 1 would make the average jump beyond the measurement.
        let weight = u128::from(weight.0.min(1000));
        let mixed =
            |old: u64| (weight * u128::from(new) + (1000 - weight) * u128::from(old)) / 1000;
        self.0 = Some(
            self.0
                .map_or(new, |old| u64::try_from(mixed(old)).unwrap_or(u64::MAX)),
        );
    }

    /// Returns the estimate; `None` before the first measurement.
    pub fn get(self) -> Option<TimeSpan> {
        self.0
            .map(|scaled| TimeSpan::from_nanos(scaled >> FRACTION))
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct StateEstimates {
    first: MovingAverage,
    block: MovingAverage,
}

/// Estimates one device's access times from those that were measured.
#[derive(Debug, Clone)]
pub struct Estimator {
    weight: MeasurementWeight,
    states: BTreeMap<StateId, StateEstimates>,
}

fn block_count(bytes: u64) -> u64 {
    bytes.div_ceil(BLOCK).max(1)
}

impl Estimator {
    /// Makes an estimator without measurements.
    pub fn new(weight: MeasurementWeight) -> Self {
        Self {
            weight,
            states: BTreeMap::new(),
        }
    }

    /// Adds the measurement that `bytes` took `time` in `state`. A continued access follows the
    /// last one without a gap.
    pub fn add_measurement(
        &mut self,
        state: StateId,
        bytes: u64,
        is_continued: bool,
        time: TimeSpan,
    ) {
        let known = self.states.entry(state).or_default();
        let blocks = block_count(bytes);
        // A continued access has no first block: all of its time belongs to the blocks.
        if is_continued {
            known
                .block
                .add_measurement(self.weight, TimeSpan::from_nanos(time.get() / blocks));
        } else if blocks == 1 {
            // A single block measures the time of a first block alone.
            known.first.add_measurement(self.weight, time);
        } else {
            // The time of several blocks is split: the following ones take their known time, and
            // the rest of it belongs to the first.
            let rest = known
                .block
                .get()
                .unwrap_or(TimeSpan::from_nanos(time.get() / (blocks + 1)));
            known
                .first
                .add_measurement(self.weight, time.saturating_sub(rest * (blocks - 1)));
            // Until a continued access has been measured, this split is the only knowledge of a
            // block.
            if known.block.get().is_none() {
                known.block.add_measurement(self.weight, rest);
            }
        }
    }

    /// Predicts the time that `bytes` will take in `state`; `None` while nothing was measured
    /// there.
    pub fn predict_time(&self, state: StateId, bytes: u64, is_continued: bool) -> Option<TimeSpan> {
        let known = self.states.get(&state)?;
        let blocks = block_count(bytes);
        if is_continued {
            return known.block.get().map(|block| block * blocks);
        }
        let first = known.first.get()?;
        Some(first + known.block.get().unwrap_or(TimeSpan::ZERO) * (blocks - 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_network_follows_in_tens_of_measurements_and_a_disk_in_hundreds() {
        let after = |weight, n| {
            let mut average = MovingAverage::default();
            average.add_measurement(weight, TimeSpan::from_millis(10));
            (0..n).for_each(|_| average.add_measurement(weight, TimeSpan::from_millis(110)));
            average.get().unwrap().get() / 1_000_000
        };
        assert_eq!(
            [
                after(NETWORK, 1),
                after(NETWORK, 22),
                after(LOCAL, 1),
                after(LOCAL, 230)
            ],
            [20, 100, 11, 100]
        );
    }

    #[test]
    fn states_and_first_blocks_are_apart() {
        let mut estimator = Estimator::new(LOCAL);
        let (idle, standby) = (StateId(0), StateId(1));
        estimator.add_measurement(idle, 4096, false, TimeSpan::from_millis(20));
        estimator.add_measurement(idle, 8192, true, TimeSpan::from_millis(2));
        estimator.add_measurement(standby, 4096, false, TimeSpan::from_millis(820));
        assert_eq!(
            estimator.predict_time(idle, 3 * 4096, false),
            Some(TimeSpan::from_millis(22))
        );
        assert_eq!(
            estimator.predict_time(idle, 3 * 4096, true),
            Some(TimeSpan::from_millis(3))
        );
        assert_eq!(
            estimator.predict_time(standby, 1, false),
            Some(TimeSpan::from_millis(820))
        );
        assert_eq!(estimator.predict_time(StateId(2), 1, false), None);
    }

    proptest! {
        #[test]
        fn an_estimate_lies_between_its_measurements(spans in prop::collection::vec(0_u64..u64::MAX, 1..50), weight in 0_u16..1001) {
            let mut average = MovingAverage::default();
            spans.iter().for_each(|span| average.add_measurement(MeasurementWeight(weight), TimeSpan::from_nanos(*span)));
            let clipped = spans.iter().map(|span| (*span).min(LONGEST));
            let estimate = average.get().expect("measured").get();
            // The fraction is cut off below.
            prop_assert!(clipped.clone().min() <= Some(estimate + 1) && Some(estimate) <= clipped.max());
        }
    }
}
