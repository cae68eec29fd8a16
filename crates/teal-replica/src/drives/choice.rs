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
use teal_types::{BLOCK, Power, Span};

/// What the machine draws while somebody waits, where no figures are known.
const BASE: Power = Power::milliwatts(5_000);
/// Of the time spent on reading, this part is for trying sources that are not used.
const TRIED: u64 = 32;
/// ..., or this for each time it was measured, if that is a larger part.
const TRIED_AT_FIRST: u64 = 4;
/// What brings no more than this tells how long the way is.
const SHORT: u64 = 2 * BLOCK;

/// So many answers that are no content tell how wide the way is at least.
const TELLING: u8 = 8;

pub(crate) fn span(time: Duration) -> Span {
    Span::nanos(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}

/// A time that was measured so often.
#[derive(Debug, Clone, Copy, Default)]
struct Known {
    average: MovingAverage,
    count: u32,
}

impl Known {
    fn get(self) -> Option<Span> {
        self.average.get()
    }

    fn update(&mut self, weight: MeasurementWeight, time: Span) {
        self.count = self.count.saturating_add(1);
        self.average
            .add_measurement(weight.early_weight(self.count), time);
    }
}

/// What is known of a source's times.
#[derive(Debug, Clone)]
pub(crate) struct Meter {
    weight: MeasurementWeight,
    power: Power,
    /// Until the first byte.
    first: Known,
    /// For each block more.
    block: Known,
    /// The most that can be, as answers show that are no content; until content has told.
    bound: Option<Span>,
    /// Answers that may still tell.
    telling: u8,
    /// What it tells was seen, not taken from a profile.
    is_measured: bool,
    /// Something came without content: the first byte is known apart from blocks.
    is_way_known: bool,
    /// Until the first byte, while it is written to as well.
    busy: Known,
    /// It is written to now.
    pub(crate) is_busy: bool,
    /// Time spent on other sources since this one was last used.
    owed: Span,
}

impl Meter {
    pub(crate) fn network() -> Self {
        Self {
            weight: NETWORK,
            power: Power::ZERO,
            first: Known::default(),
            block: Known::default(),
            bound: None,
            telling: TELLING,
            is_measured: false,
            is_way_known: false,
            busy: Known::default(),
            is_busy: false,
            owed: Span::ZERO,
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
    pub(crate) fn measured(&mut self, bytes: u64, time: Span) {
        (self.owed, self.is_measured) = (Span::ZERO, true);
        let first = self.first.get();
        match first {
            Some(first) if bytes > SHORT && time > first => {
                self.block.update(
                    self.weight,
                    Span::nanos(time.less(first).get() / bytes.div_ceil(BLOCK)),
                );
            }
            None if bytes > SHORT => {
                let each = Span::nanos(time.get() / (bytes.div_ceil(BLOCK) + 1));
                self.first.update(self.weight, each);
                self.block.update(self.weight, each);
            }
            Some(first) if bytes > 0 && self.is_way_known && self.block.count == 0 => {
                let each = Span::nanos(time.less(first).get() / bytes.div_ceil(BLOCK));
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
    pub(crate) fn bounded(&mut self, bytes: u64, time: Span) {
        if bytes > SHORT {
            self.telling = self.telling.saturating_sub(1);
            let rest = time.less(self.first.get().unwrap_or(Span::ZERO));
            let each = Span::nanos(rest.get() / bytes.div_ceil(BLOCK));
            self.bound = Some(self.bound.map_or(each, |bound| bound.min(each)));
        }
    }

    /// Returns whether [`bounded`](Self::bounded) is to be told.
    pub(crate) fn is_bound_wanted(&self) -> bool {
        self.telling > 0 && self.block.count == 0
    }

    /// Returns whether anybody knows how long a block takes.
    pub(crate) fn is_width_known(&self) -> bool {
        self.each().is_some()
    }

    fn each(&self) -> Option<Span> {
        self.block.get().or(self.bound)
    }

    /// The same, while it was written to as well: that tells nothing of how it is otherwise.
    pub(crate) fn measured_busy(&mut self, bytes: u64, time: Span) {
        (self.owed, self.is_measured) = (Span::ZERO, true);
        let rest = self.each().unwrap_or(Span::ZERO) * bytes.div_ceil(BLOCK);
        self.busy.update(self.weight, time.less(rest));
    }

    /// Another source took so long.
    pub(crate) fn waits(&mut self, time: Span) {
        self.owed += time;
    }

    /// How long so many bytes will take; `None`: nobody knows.
    pub(crate) fn predict(&self, bytes: u64) -> Option<Span> {
        let first = self.first.get()?;
        // Nobody has seen it yet: behind something that it does first.
        let first = if self.is_busy {
            self.busy.get().unwrap_or(first * 2)
        } else {
            first
        };
        Some(first + self.each().unwrap_or(Span::ZERO) * bytes.div_ceil(BLOCK))
    }

    /// Returns what they cost in time and energy; `None`: nobody knows.
    pub(crate) fn predicted(&self, bytes: u64) -> Option<PredictedRead> {
        let latency = self.predict(bytes)?;
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
    pub(crate) fn cost(&self, bytes: u64, weights: CostWeights) -> WeightedCost {
        weights.weighted_cost(self.predicted(bytes).unwrap_or_default())
    }

    /// Returns whether it is its turn, though it costs more than the best.
    fn is_due(&self, bytes: u64, weights: CostWeights, best: WeightedCost) -> bool {
        let spent = weights.weighted_cost(PredictedRead {
            latency: self.owed,
            energy: BASE * self.owed,
        });
        let share = TRIED.min(TRIED_AT_FIRST * u64::from(self.first.count));
        let more = self.cost(bytes, weights).0.saturating_sub(best.0);
        self.first.get().is_some() && self.owed > Span::ZERO && spent.0 / u128::from(share) >= more
    }
}

/// The weights of a priority from 0 (joules) to 100 (speed); in between, a second and a joule count
/// in its proportion.
pub(crate) fn weights(priority: u32) -> CostWeights {
    CostWeights {
        second: priority.min(100),
        joule: 100 - priority.min(100),
    }
}

/// The order in which sources are asked, by their places: the cheapest first, but for one whose
/// turn it is to be tried.
pub(crate) fn order(meters: &[Meter], bytes: u64, weights: CostWeights) -> Vec<usize> {
    let mut order: Vec<usize> = (0..meters.len()).collect();
    order.sort_by_key(|at| (meters[*at].cost(bytes, weights), *at));
    let best = order
        .first()
        .map(|at| meters[*at].cost(bytes, weights))
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

    fn both(local: u64, network: u64) -> [Meter; 2] {
        let mut meters = [Meter::local(None), Meter::network()];
        meters[0].measured(BLOCK, Span::millis(local));
        meters[1].measured(BLOCK, Span::millis(network));
        meters
    }

    #[test]
    fn the_cheapest_is_asked_first_and_one_that_nobody_knows_before_it() {
        for priority in [0, 50, 100] {
            let meters = both(2, 60);
            assert_eq!(order(&meters, BLOCK, weights(priority)), [0, 1]);
            assert_eq!(order(&both(60, 2), BLOCK, weights(priority)), [1, 0]);
            assert_eq!(
                order(
                    &[meters[0].clone(), Meter::network()],
                    BLOCK,
                    weights(priority)
                ),
                [1, 0]
            );
        }
    }

    #[test]
    fn joules_and_seconds_count_by_the_priority() {
        let disk = Profile::find_shipped("ibm-microdrive-1gb").unwrap();
        let mut meters = [Meter::local(Some(&disk)), Meter::network()];
        assert!(
            meters[0].predict(BLOCK).is_some(),
            "its figures are enough to begin with"
        );
        // A little slower than the disk, and without anything that turns.
        let time = meters[0].predict(BLOCK).unwrap();
        meters[1].measured(BLOCK, Span::nanos(time.get() + time.get() / 100));
        assert_eq!(order(&meters, BLOCK, weights(100))[0], 0);
        assert_eq!(order(&meters, BLOCK, weights(0))[0], 1);
    }

    #[test]
    fn after_a_jump_of_the_networks_delay_the_choice_follows_within_twenty_accesses() {
        let mut meters = both(20, 2);
        let mut accesses = 0;
        while order(&meters, BLOCK, weights(100))[0] == 1 {
            meters[1].measured(BLOCK, Span::millis(62));
            accesses += 1;
        }
        assert!(accesses <= 20, "{accesses}");
    }

    #[test]
    fn a_narrow_line_is_known_by_its_names_and_by_its_first_block() {
        // 2 Mbit/s: 16 ms a block, and next to nothing until it begins.
        let drive = || both(2, 60)[0].clone();
        let told = |way: u64| {
            let mut server = Meter::network();
            (0..5).for_each(|_| server.measured(0, Span::millis(way)));
            server
        };
        let mut server = told(1);
        assert_eq!(
            order(&[drive(), server.clone()], BLOCK, weights(100))[0],
            1,
            "nobody knows better"
        );
        let mut by_names = server.clone();
        by_names.bounded(16 * BLOCK, Span::millis(1 + 16 * 20));
        by_names.bounded(16 * BLOCK, Span::millis(1 + 16 * 16));
        by_names.bounded(BLOCK, Span::millis(2));
        assert!(by_names.is_width_known() && !server.is_width_known());
        assert_eq!(
            by_names.predict(4 * BLOCK),
            Some(Span::millis(65)),
            "the widest that was seen, a small answer does not count"
        );
        assert_eq!(
            order(&[drive(), by_names.clone()], BLOCK, weights(100))[0],
            0
        );
        server.measured(BLOCK, Span::millis(17));
        assert_eq!(server.predict(4 * BLOCK), Some(Span::millis(65)));
        assert_eq!(order(&[drive(), server], BLOCK, weights(100))[0], 0);
        // Work on names is no width: content tells.
        by_names.measured(16 * BLOCK, Span::millis(17));
        assert_eq!(by_names.predict(4 * BLOCK), Some(Span::millis(5)));
    }

    #[test]
    fn what_is_not_used_is_tried_for_a_small_part_of_the_time() {
        let mut meters = both(2, 60);
        (0..8).for_each(|_| meters[1].measured(BLOCK, Span::millis(60)));
        let (mut spent, mut tried) = (Span::ZERO, Span::ZERO);
        for _ in 0..10_000 {
            let first = order(&meters, BLOCK, weights(100))[0];
            let time = [Span::millis(2), Span::millis(60)][first];
            meters[first].measured(BLOCK, time);
            meters[1 - first].waits(time);
            spent += time;
            tried += if first == 1 { time } else { Span::ZERO };
        }
        assert!(
            tried > Span::ZERO && tried.get() * (TRIED - 1) <= spent.get(),
            "{tried} of {spent}"
        );
    }

    #[test]
    fn a_slow_beginning_is_not_believed_for_long() {
        // The drive spun up, or somebody else used it; it takes a millisecond otherwise.
        let mut meters = both(50, 10);
        let mut elsewhere = Span::ZERO;
        while meters[0].predict(BLOCK) >= meters[1].predict(BLOCK) {
            let first = order(&meters, BLOCK, weights(100))[0];
            let time = [Span::millis(1), Span::millis(10)][first];
            meters[first].measured(BLOCK, time);
            meters[1 - first].waits(time);
            elsewhere += if first == 1 { time } else { Span::ZERO };
        }
        assert!(elsewhere <= Span::millis(500), "{elsewhere}");
    }
}
