//! The value of a device's being awake: the loss each time it is found asleep.
//!
//! # Guarantees
//! 1. The value is never more than a start costs with the wait for it: a request that others can
//!    serve for less is not worth a start.
//! 2. A device without any request yet is taken to be worth the way down and up.

use teal_types::{Energy, Time, TimeSpan};

/// The weight of a new visit is one part of so many; the first ones are averaged.
const PARTS: u64 = 6;

/// The loss by visits, had the device been asleep. A visit is a group of requests that lie closer
/// together than break-even.
#[derive(Debug, Clone, Copy, Default)]
pub struct AwakeValue {
    average: Energy,
    visits: u64,
    /// The loss in the visit that goes on.
    visit_sum: Energy,
    last_request: Option<Time>,
}

impl AwakeValue {
    /// Adds a request that others would have served for `more`; `most` is the most that it costs to
    /// find the device asleep.
    pub fn add_request(&mut self, now: Time, more: Energy, apart: TimeSpan, most: Energy) {
        if self
            .last_request
            .is_some_and(|last| now.since(last) > apart)
        {
            // A longer pause has ended the visit, and its loss goes into the average.
            let visits = self.visits + 1;
            let parts = visits.min(PARTS);
            self.average = Energy::from_microjoules(
                (self.average.get() * (parts - 1) + self.visit_sum.get()) / parts,
            );
            (self.visits, self.visit_sum) = (visits, Energy::ZERO);
        }
        self.last_request = Some(now);
        // A visit loses at most one start, however many requests it has.
        self.visit_sum = self.visit_sum.max((self.visit_sum + more).min(most));
    }

    /// Returns the average loss when the device is found asleep; the visit that goes on counts as
    /// one. `trip` is the energy of the way down and up alone.
    pub fn expected_loss(&self, trip: Energy, start: Energy) -> Energy {
        if self.last_request.is_none() {
            return trip;
        }
        let parts = (self.visits + 1).min(PARTS);
        Energy::from_microjoules((self.average.get() * (parts - 1) + self.visit_sum.get()) / parts)
            .min(start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_serve_as_well_is_worth_nothing_and_what_nobody_else_has_a_start() {
        let (apart, start) = (TimeSpan::from_secs(10), Energy::from_joules(50));
        let (mut worth, trip) = (AwakeValue::default(), Energy::from_joules(10));
        assert_eq!(worth.expected_loss(trip, start), trip, "nothing is known");
        let mut asked = |seconds, more| {
            worth.add_request(
                Time::after_start(TimeSpan::from_secs(seconds)),
                more,
                apart,
                start,
            );
            worth.expected_loss(trip, start)
        };
        assert_eq!(asked(1, Energy::ZERO), Energy::ZERO);
        assert_eq!(
            asked(2, Energy::from_joules(20)),
            Energy::from_joules(20),
            "one visit"
        );
        assert_eq!(
            asked(3, Energy::from_joules(90)),
            start,
            "no more than a start"
        );
        assert_eq!(
            asked(100, Energy::ZERO),
            Energy::from_joules(25),
            "two visits"
        );
        let later = (2..40).map(|n| asked(n * 100, start)).last().unwrap();
        assert!(
            later <= start && later.get() * 100 > start.get() * 99,
            "{later}"
        );
    }
}
