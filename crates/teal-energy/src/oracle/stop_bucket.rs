//! The budget of starts as the bound keeps it: one moment, at which the bucket will be full again,
//! is its whole state.
//!
//! # Guarantees
//! 1. It refuses and grants what [`Budget`](crate::policy::budget::Budget) does.

use crate::device::BudgetLimits;
use teal_types::{Time, TimeSpan};

/// A bucket of tokens.
#[derive(Debug, Clone, Copy)]
pub(super) struct StopBucket {
    each: TimeSpan,
    /// The time before it is full again at which there is a token; `None` if there is never one.
    room: Option<TimeSpan>,
}

impl StopBucket {
    pub(super) fn new(limits: BudgetLimits) -> Self {
        let room = limits
            .burst
            .checked_sub(1)
            .map(|more| limits.each * u64::from(more));
        Self {
            each: limits.each,
            room,
        }
    }

    /// Returns the time from which on there is a token in a bucket that will be full at `full`.
    pub(super) fn token_at(&self, full: Time) -> Option<Time> {
        Some(Time::after_start(
            full.since(Time::ZERO).saturating_sub(self.room?),
        ))
    }

    /// Returns the time at which it is full again after a token is taken at `now`.
    pub(super) fn take_token(&self, full: Time, now: Time) -> Time {
        full.max(now) + self.each
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::budget::Budget;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_counts_as_the_budget_does(
            burst in 0_u32..4, each in 1_u64..5_000, gaps in prop::collection::vec(0_u64..9_000, 1..60),
        ) {
            let limits = BudgetLimits { burst, each: TimeSpan::from_nanos(each) };
            let (mut budget, bucket) = (Budget::new(limits, Time::ZERO), StopBucket::new(limits));
            let (mut full, mut now) = (Time::ZERO, Time::ZERO);
            for gap in gaps {
                now = now + TimeSpan::from_nanos(gap);
                let is_there = budget.take_token(now);
                prop_assert_eq!(bucket.token_at(full).is_some_and(|opens| opens <= now), is_there);
                if is_there {
                    full = bucket.take_token(full, now);
                }
            }
        }
    }
}
