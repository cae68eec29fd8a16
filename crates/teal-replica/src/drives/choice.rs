//! What reading from a source costs, and in which order sources are asked: `w_t * latency + w_e *
//! energy` (BlueFS 4.3.2).
//!
//! # Guarantees
//! 1. A source nobody has measured yet comes first: it is measured by that.
//! 2. What a source has told of its way and its width counts before it has sent any content: names
//!    come in bulk, too.
//! 3. A flush under way is anticipated: what a source takes meanwhile is measured for itself.
//! 4. A source that is not used is tried now and then, so that a change of it is noticed; that
//!    costs a thirty-second part of all the time spent on reading at most, more only while hardly
//!    anything is known of it: a slow beginning is not believed for long.

use std::time::Duration;
use teal_energy::Profile;
use teal_energy::device::DeviceModel;
use teal_energy::estimate::{LOCAL, MeasurementWeight, MovingAverage, NETWORK};
use teal_energy::policy::choice::{CostWeights, PredictedRead, WeightedCost};
use teal_types::{BLOCK, Power, TimeSpan};

/// What the machine draws while somebody waits, where no figures are known.
const BASE: Power = Power::from_milliwatts(5_000);
/// Of the time spent on reading, this part is for trying sources that are not used.
const TRIED: u64 = 32;
/// ..., or this for each time it was measured, if that is a larger part.
const TRIED_AT_FIRST: u64 = 4;
/// What brings no more than this tells how long the way is.
const SHORT: u64 = 2 * BLOCK;

/// So many answers that are no content tell how wide the way is at least.
const TELLING: u8 = 8;

pub(crate) fn to_span(time: Duration) -> TimeSpan {
    TimeSpan::from_nanos(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}

/// A time that was measured so often.
#[derive(Debug, Clone, Copy, Default)]
struct MeasuredTime {
    average: MovingAverage,
    count: u32,
}

impl MeasuredTime {
    fn get(self) -> Option<TimeSpan> {
        self.average.get()
    }

    fn update(&mut self, weight: MeasurementWeight, time: TimeSpan) {
        self.count = self.count.saturating_add(1);
        self.average
            .add_measurement(weight.early_weight(self.count), time);
    }
}

/// What is known of a source's times.
#[derive(Debug, Clone)]
pub(crate) struct LatencyModel {
    weight: MeasurementWeight,
    power: Power,
    /// Until the first byte.
    first: MeasuredTime,
    /// For each block more.
    block: MeasuredTime,
    /// The most that can be, as answers show that are no content; until content has told.
    bound: Option<TimeSpan>,
    /// Answers that may still tell.
    telling: u8,
    /// What it tells was seen, not taken from a profile.
    is_measured: bool,
    /// Something came without content: the first byte is known apart from blocks.
    is_way_known: bool,
    /// Until the first byte, while it is written to as well.
    busy: MeasuredTime,
    /// It is written to now.
    pub(crate) is_busy: bool,
    /// Time spent on other sources since this one was last used.
    owed: TimeSpan,
}

impl LatencyModel {
    pub(crate) fn network() -> Self {
        Self {
            weight: NETWORK,
            power: Power::ZERO,
            first: MeasuredTime::default(),
            block: MeasuredTime::default(),
            bound: None,
            telling: TELLING,
            is_measured: false,
            is_way_known: false,
            busy: MeasuredTime::default(),
            is_busy: false,
            owed: TimeSpan::ZERO,
        }
    }

    /// A device of a profile, whose figures hold until something is measured.
    pub(crate) fn local(profile: Option<&Profile>) -> Self {
        let mut this = Self {
            weight: LOCAL,
            ..Self::network()
        };
        if let Some(device) = profile.and_then(|profile| DeviceModel::new(profile).ok()) {
            let power = &device.power;
            let serving = power.state_ids().filter(|state| power.serves(*state));
            if let Some(state) = serving.max_by_key(|state| power.state_power(*state)) {
                this.power = power.state_power(state);
                let time = |bytes, is_next| {
                    device
                        .read_job(state, bytes, is_next)
                        .map(|job| job.total_time())
                };
                time(BLOCK, false)
                    .into_iter()
                    .for_each(|time| this.first.update(LOCAL, time));
                time(BLOCK, true)
                    .into_iter()
                    .for_each(|time| this.block.update(LOCAL, time));
            }
        }
        this
    }

    /// So many bytes took so long.
    pub(crate) fn note_read(&mut self, bytes: u64, time: TimeSpan) {
        (self.owed, self.is_measured) = (TimeSpan::ZERO, true);
        let first = self.first.get();
        match first {
            Some(first) if bytes > SHORT && time > first => {
                self.block.update(
                    self.weight,
                    TimeSpan::from_nanos(time.saturating_sub(first).get() / bytes.div_ceil(BLOCK)),
                );
            }
            None if bytes > SHORT => {
                let each = TimeSpan::from_nanos(time.get() / (bytes.div_ceil(BLOCK) + 1));
                self.first.update(self.weight, each);
                self.block.update(self.weight, each);
            }
            Some(first) if bytes > 0 && self.is_way_known && self.block.count == 0 => {
                let each =
                    TimeSpan::from_nanos(time.saturating_sub(first).get() / bytes.div_ceil(BLOCK));
                self.block.update(
                    self.weight,
                    self.bound.map_or(each, |bound| bound.min(each)),
                );
            }
            _ => {
                self.is_way_known |= bytes == 0;
                self.first.update(self.weight, time);
            }
        }
    }

    /// An answer of so many bytes that is no content took so long, with the work on it: no block of
    /// content takes longer than one of it.
    pub(crate) fn note_bound(&mut self, bytes: u64, time: TimeSpan) {
        if bytes > SHORT {
            self.telling = self.telling.saturating_sub(1);
            let rest = time.saturating_sub(self.first.get().unwrap_or(TimeSpan::ZERO));
            let each = TimeSpan::from_nanos(rest.get() / bytes.div_ceil(BLOCK));
            self.bound = Some(self.bound.map_or(each, |bound| bound.min(each)));
        }
    }

    /// Returns whether [`bounded`](Self::bounded) is to be told.
    pub(crate) fn is_bound_wanted(&self) -> bool {
        self.telling > 0 && self.block.count == 0
    }

    /// Returns whether anybody knows how long a block takes.
    pub(crate) fn is_width_known(&self) -> bool {
        self.time_per_block().is_some()
    }

    fn time_per_block(&self) -> Option<TimeSpan> {
        self.block.get().or(self.bound)
    }

    /// The same, while it was written to as well: that tells nothing of how it is otherwise.
    pub(crate) fn note_busy_read(&mut self, bytes: u64, time: TimeSpan) {
        (self.owed, self.is_measured) = (TimeSpan::ZERO, true);
        let rest = self.time_per_block().unwrap_or(TimeSpan::ZERO) * bytes.div_ceil(BLOCK);
        self.busy.update(self.weight, time.saturating_sub(rest));
    }

    /// Another source took so long.
    pub(crate) fn note_other_time(&mut self, time: TimeSpan) {
        self.owed += time;
    }

    /// How long so many bytes will take; `None`: nobody knows.
    pub(crate) fn predict_time(&self, bytes: u64) -> Option<TimeSpan> {
        let first = self.first.get()?;
        // Nobody has seen it yet: behind something that it does first.
        let first = if self.is_busy {
            self.busy.get().unwrap_or(first * 2)
        } else {
            first
        };
        Some(first + self.time_per_block().unwrap_or(TimeSpan::ZERO) * bytes.div_ceil(BLOCK))
    }

    /// Returns what they cost in time and energy; `None`: nobody knows.
    pub(crate) fn predict_read(&self, bytes: u64) -> Option<PredictedRead> {
        let latency = self.predict_time(bytes)?;
        Some(PredictedRead {
            latency,
            energy: (self.power + BASE) * latency,
        })
    }

    /// Returns whether times were seen, and not taken from a profile.
    pub(crate) fn is_measured(&self) -> bool {
        self.is_measured
    }

    /// Returns what they cost.
    pub(crate) fn read_cost(&self, bytes: u64, weights: CostWeights) -> WeightedCost {
        weights.weighted_cost(self.predict_read(bytes).unwrap_or_default())
    }

    /// Returns whether it is its turn, though it costs more than the best.
    fn is_due(&self, bytes: u64, weights: CostWeights, best: WeightedCost) -> bool {
        let spent = weights.weighted_cost(PredictedRead {
            latency: self.owed,
            energy: BASE * self.owed,
        });
        let share = TRIED.min(TRIED_AT_FIRST * u64::from(self.first.count));
        let more = self.read_cost(bytes, weights).0.saturating_sub(best.0);
        self.first.get().is_some()
            && self.owed > TimeSpan::ZERO
            && spent.0 / u128::from(share) >= more
    }
}

/// The weights of a priority from 0 (joules) to 100 (speed); in between, a second and a joule count
/// in its proportion.
pub(crate) fn weights_of_priority(priority: u32) -> CostWeights {
    CostWeights {
        second: priority.min(100),
        joule: 100 - priority.min(100),
    }
}

/// The order in which sources are asked, by their places: the cheapest first, but for one whose
/// turn it is to be tried.
pub(crate) fn order_sources(
    meters: &[LatencyModel],
    bytes: u64,
    weights: CostWeights,
) -> Vec<usize> {
    let mut order: Vec<usize> = (0..meters.len()).collect();
    order.sort_by_key(|at| (meters[*at].read_cost(bytes, weights), *at));
    let best = order
        .first()
        .map(|at| meters[*at].read_cost(bytes, weights))
        .unwrap_or_default();
    if let Some(due) = order
        .iter()
        .skip(1)
        .position(|at| meters[*at].is_due(bytes, weights, best))
    {
        let tried = order.remove(due + 1);
        order.insert(0, tried);
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    fn both(local: u64, network: u64) -> [LatencyModel; 2] {
        let mut meters = [LatencyModel::local(None), LatencyModel::network()];
        meters[0].note_read(BLOCK, TimeSpan::from_millis(local));
        meters[1].note_read(BLOCK, TimeSpan::from_millis(network));
        meters
    }

    #[test]
    fn the_cheapest_is_asked_first_and_one_that_nobody_knows_before_it() {
        for priority in [0, 50, 100] {
            let meters = both(2, 60);
            assert_eq!(
                order_sources(&meters, BLOCK, weights_of_priority(priority)),
                [0, 1]
            );
            assert_eq!(
                order_sources(&both(60, 2), BLOCK, weights_of_priority(priority)),
                [1, 0]
            );
            assert_eq!(
                order_sources(
                    &[meters[0].clone(), LatencyModel::network()],
                    BLOCK,
                    weights_of_priority(priority)
                ),
                [1, 0]
            );
        }
    }

    #[test]
    fn joules_and_seconds_count_by_the_priority() {
        let disk = Profile::find_shipped("ibm-microdrive-1gb").unwrap();
        let mut meters = [LatencyModel::local(Some(&disk)), LatencyModel::network()];
        assert!(
            meters[0].predict_time(BLOCK).is_some(),
            "its figures are enough to begin with"
        );
        // A little slower than the disk, and without anything that turns.
        let time = meters[0].predict_time(BLOCK).unwrap();
        meters[1].note_read(BLOCK, TimeSpan::from_nanos(time.get() + time.get() / 100));
        assert_eq!(
            order_sources(&meters, BLOCK, weights_of_priority(100))[0],
            0
        );
        assert_eq!(order_sources(&meters, BLOCK, weights_of_priority(0))[0], 1);
    }

    #[test]
    fn after_a_jump_of_the_networks_delay_the_choice_follows_within_twenty_accesses() {
        let mut meters = both(20, 2);
        let mut accesses = 0;
        while order_sources(&meters, BLOCK, weights_of_priority(100))[0] == 1 {
            meters[1].note_read(BLOCK, TimeSpan::from_millis(62));
            accesses += 1;
        }
        assert!(accesses <= 20, "{accesses}");
    }

    #[test]
    fn a_narrow_line_is_known_by_its_names_and_by_its_first_block() {
        // 2 Mbit/s: 16 ms a block, and next to nothing until it begins.
        let drive = || both(2, 60)[0].clone();
        let told = |way: u64| {
            let mut server = LatencyModel::network();
            (0..5).for_each(|_| server.note_read(0, TimeSpan::from_millis(way)));
            server
        };
        let mut server = told(1);
        assert_eq!(
            order_sources(&[drive(), server.clone()], BLOCK, weights_of_priority(100))[0],
            1,
            "nobody knows better"
        );
        let mut by_names = server.clone();
        by_names.note_bound(16 * BLOCK, TimeSpan::from_millis(1 + 16 * 20));
        by_names.note_bound(16 * BLOCK, TimeSpan::from_millis(1 + 16 * 16));
        by_names.note_bound(BLOCK, TimeSpan::from_millis(2));
        assert!(by_names.is_width_known() && !server.is_width_known());
        assert_eq!(
            by_names.predict_time(4 * BLOCK),
            Some(TimeSpan::from_millis(65)),
            "the widest that was seen, a small answer does not count"
        );
        assert_eq!(
            order_sources(
                &[drive(), by_names.clone()],
                BLOCK,
                weights_of_priority(100)
            )[0],
            0
        );
        server.note_read(BLOCK, TimeSpan::from_millis(17));
        assert_eq!(
            server.predict_time(4 * BLOCK),
            Some(TimeSpan::from_millis(65))
        );
        assert_eq!(
            order_sources(&[drive(), server], BLOCK, weights_of_priority(100))[0],
            0
        );
        // Work on names is no width: content tells.
        by_names.note_read(16 * BLOCK, TimeSpan::from_millis(17));
        assert_eq!(
            by_names.predict_time(4 * BLOCK),
            Some(TimeSpan::from_millis(5))
        );
    }

    #[test]
    fn what_is_not_used_is_tried_for_a_small_part_of_the_time() {
        let mut meters = both(2, 60);
        (0..8).for_each(|_| meters[1].note_read(BLOCK, TimeSpan::from_millis(60)));
        let (mut spent, mut tried) = (TimeSpan::ZERO, TimeSpan::ZERO);
        for _ in 0..10_000 {
            let first = order_sources(&meters, BLOCK, weights_of_priority(100))[0];
            let time = [TimeSpan::from_millis(2), TimeSpan::from_millis(60)][first];
            meters[first].note_read(BLOCK, time);
            meters[1 - first].note_other_time(time);
            spent += time;
            tried += if first == 1 { time } else { TimeSpan::ZERO };
        }
        assert!(
            tried > TimeSpan::ZERO && tried.get() * (TRIED - 1) <= spent.get(),
            "{tried} of {spent}"
        );
    }

    #[test]
    fn a_slow_beginning_is_not_believed_for_long() {
        // The drive spun up, or somebody else used it; it takes a millisecond otherwise.
        let mut meters = both(50, 10);
        let mut elsewhere = TimeSpan::ZERO;
        while meters[0].predict_time(BLOCK) >= meters[1].predict_time(BLOCK) {
            let first = order_sources(&meters, BLOCK, weights_of_priority(100))[0];
            let time = [TimeSpan::from_millis(1), TimeSpan::from_millis(10)][first];
            meters[first].note_read(BLOCK, time);
            meters[1 - first].note_other_time(time);
            elsewhere += if first == 1 { time } else { TimeSpan::ZERO };
        }
        assert!(elsewhere <= TimeSpan::from_millis(500), "{elsewhere}");
    }
}
