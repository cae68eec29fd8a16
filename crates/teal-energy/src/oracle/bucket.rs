//! The budget of starts as the bound keeps it: the moment at which the bucket will be full again says all about it.
//!
//! # Guarantees
//! 1. Exactly counted, it refuses and grants what [`Budget`](crate::policy::budget::Budget) does.
//! 2. Counted [kindly](Rounding::Kind) it grants no later, counted [strictly](Rounding::Strict) no earlier; and then the moments that there can
//!    be are few: multiples of a part of the time that a token takes.

use crate::device::BudgetLimits;
use teal_types::{Span, Time};

/// Parts of the time that a token takes, where moments are rounded.
const PARTS: u64 = 8;

/// How moments are rounded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rounding {
    /// Not at all.
    Exact,
    /// In favour of the device: for the bound.
    Kind,
    /// To its cost: for schedules that are to be run.
    Strict,
}

/// A bucket of tokens.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bucket {
    each: Span,
    /// How long before it is full again there is a token; `None`: never.
    room: Option<Span>,
    rounding: Rounding,
}

impl Bucket {
    pub(super) fn new(limits: BudgetLimits, rounding: Rounding) -> Self {
        let each = match rounding {
            Rounding::Exact => limits.each,
            Rounding::Kind => Span::nanos(limits.each.get() / PARTS * PARTS),
            Rounding::Strict => Span::nanos(limits.each.get().div_ceil(PARTS).saturating_mul(PARTS)),
        };
        let room = limits.burst.checked_sub(1).map(|more| each * u64::from(more));
        Self { each, room, rounding }
    }

    /// When there is a token, at `now` or later, of a bucket that will be full at `full`.
    pub(super) fn opens(&self, full: Time, now: Time) -> Option<Time> {
        Some(now.max(Time::after_start(full.since(Time::ZERO).less(self.room?))))
    }

    /// When it is full again after a token is taken at `now`.
    pub(super) fn take(&self, full: Time, now: Time) -> Time {
        let grain = (self.each.get() / PARTS).max(1);
        let now = now.since(Time::ZERO).get();
        let now = match self.rounding {
            Rounding::Exact => now,
            Rounding::Kind => now / grain * grain,
            Rounding::Strict => now.div_ceil(grain).saturating_mul(grain),
        };
        full.max(Time::after_start(Span::nanos(now))) + self.each
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
            let limits = BudgetLimits { burst, each: Span::nanos(each) };
            let mut budget = Budget::new(limits, Time::ZERO);
            let [exact, kind, strict] =
                [Rounding::Exact, Rounding::Kind, Rounding::Strict].map(|rounding| Bucket::new(limits, rounding));
            let (mut full, mut now) = ([Time::ZERO; 3], Time::ZERO);
            for gap in gaps {
                now = now + Span::nanos(gap);
                let grants = |bucket: &Bucket, full| bucket.opens(full, now) == Some(now);
                let is_there = budget.take(now);
                prop_assert_eq!(grants(&exact, full[0]), is_there);
                prop_assert!(grants(&kind, full[1]) || !is_there, "no later");
                prop_assert!(!grants(&strict, full[2]) || is_there, "no earlier");
                if is_there {
                    full = [exact.take(full[0], now), kind.take(full[1], now), strict.take(full[2], now)];
                    prop_assert!(full[1] <= full[0] && full[0] <= full[2]);
                }
            }
        }
    }
}
