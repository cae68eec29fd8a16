//! The budget of starts: a token bucket filled by what the maker's rating gives over the wanted
//! life.
//!
//! # Guarantees
//! 1. In any time of length `t` at most `burst + t / each` tokens are taken.
//! 2. A token is taken when a device *stops*. The start that follows is paid for, so that it is
//!    never refused: data is not endangered to save wear, and wear is not risked to save energy.

use crate::device::BudgetLimits;
use teal_types::Time;

/// Tokens for stops and starts.
#[derive(Debug, Clone)]
pub struct Budget {
    limits: BudgetLimits,
    /// Nanoseconds of filling that have not been used.
    level: u128,
    filled: Time,
    taken: u64,
}

impl Budget {
    /// Makes a full bucket.
    pub fn new(limits: BudgetLimits, now: Time) -> Self {
        Self {
            limits,
            level: Self::full_level(limits),
            filled: now,
            taken: 0,
        }
    }

    fn full_level(limits: BudgetLimits) -> u128 {
        u128::from(limits.burst) * u128::from(limits.each.get())
    }

    fn fill_until(&mut self, now: Time) {
        self.level = (self.level + u128::from(now.since(self.filled).get()))
            .min(Self::full_level(self.limits));
        self.filled = self.filled.max(now);
    }

    /// Returns whether a token is there.
    pub fn has_token(&self, now: Time) -> bool {
        // The bucket is filled in a copy: asking changes nothing.
        let mut later = self.clone();
        later.fill_until(now);
        later.level >= u128::from(self.limits.each.get())
    }

    /// Takes a token if there is one, and returns whether there was.
    pub fn take_token(&mut self, now: Time) -> bool {
        self.fill_until(now);
        let price = u128::from(self.limits.each.get());
        // Without a burst there is never a token, although a price of zero would always be paid.
        let is_there = self.level >= price && self.limits.burst > 0;
        if is_there {
            debug_assert!(
                self.level <= Self::full_level(self.limits),
                "the bucket is never overfull"
            );
            self.level -= price;
            self.taken += 1;
        }
        is_there
    }

    /// Returns the number of whole tokens that there are.
    pub fn token_count(&self, now: Time) -> u64 {
        let mut later = self.clone();
        later.fill_until(now);
        u64::try_from(later.level / u128::from(self.limits.each.get().max(1))).unwrap_or(u64::MAX)
    }

    /// Returns the number of tokens taken so far.
    pub fn taken_count(&self) -> u64 {
        self.taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use teal_types::TimeSpan;

    proptest! {
        #[test]
        fn no_window_sees_more_than_its_share(
            burst in 0_u32..5, each in 1_u64..1000, gaps in prop::collection::vec(0_u64..800, 1..120),
        ) {
            let limits = BudgetLimits { burst, each: TimeSpan::from_nanos(each) };
            let mut budget = Budget::new(limits, Time::ZERO);
            let (mut now, mut takes) = (Time::ZERO, Vec::new());
            for gap in gaps {
                now = now + TimeSpan::from_nanos(gap);
                let has = budget.has_token(now) && burst > 0;
                prop_assert_eq!(budget.take_token(now), has);
                if has {
                    takes.push(now);
                }
            }
            for (i, first) in takes.iter().enumerate() {
                for (j, last) in takes.iter().enumerate().skip(i) {
                    let most = u64::from(burst) + last.since(*first).get() / each;
                    prop_assert!((j - i + 1) as u64 <= most);
                }
            }
            prop_assert_eq!(budget.taken_count(), takes.len() as u64);
        }
    }
}
