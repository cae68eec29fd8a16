//! The actions of many candidates: lists that share their beginnings.
//!
//! # Guarantees
//! 1. Memory is some multiple of the actions of the candidates that are left, however many were
//!    tried.

/// The end of a list: there was no action before.
pub(super) const NO_ACTION: u32 = u32::MAX;
/// The number of actions after which the first tidying is due.
const TIDY_FROM: usize = 1 << 20;

/// Each action with the place of the one before it.
#[derive(Debug)]
pub(super) struct ActionHistory<T> {
    actions: Vec<(u32, T)>,
    /// The number of actions from which on unused ones are looked for.
    tidy_at: usize,
}

impl<T: Copy> ActionHistory<T> {
    pub(super) fn new() -> Self {
        Self {
            actions: Vec::new(),
            tidy_at: TIDY_FROM,
        }
    }

    /// Extends a list by `deed`, and returns its new end.
    pub(super) fn push(&mut self, before: u32, deed: T) -> u32 {
        self.actions.push((before, deed));
        self.actions.len() as u32 - 1
    }

    /// Returns the actions of a list, the first one first.
    pub(super) fn actions_until(&self, mut last: u32) -> Vec<T> {
        let mut list = Vec::new();
        while let Some((before, deed)) = self.actions.get(last as usize) {
            list.push(*deed);
            last = *before;
        }
        list.reverse();
        list
    }

    /// Forgets the actions that are in none of the lists that end in `lasts`, if there are many.
    pub(super) fn forget_unused<'w>(&mut self, lasts: impl Iterator<Item = &'w mut u32>) {
        if self.actions.len() < self.tidy_at {
            return;
        }
        let mut lasts: Vec<&mut u32> = lasts.collect();
        // First whether it is of use, then where it is: what was before has come before.
        let mut places = vec![NO_ACTION; self.actions.len()];
        for last in &lasts {
            let mut at = **last;
            while at != NO_ACTION && places[at as usize] == NO_ACTION {
                places[at as usize] = 0;
                at = self.actions[at as usize].0;
            }
        }
        let mut kept = Vec::new();
        for (at, (before, deed)) in self.actions.iter().enumerate() {
            if places[at] != NO_ACTION {
                places[at] = kept.len() as u32;
                kept.push((
                    places.get(*before as usize).copied().unwrap_or(NO_ACTION),
                    *deed,
                ));
            }
        }
        lasts
            .iter_mut()
            .for_each(|last| **last = places.get(**last as usize).copied().unwrap_or(NO_ACTION));
        self.tidy_at = TIDY_FROM.max(2 * kept.len());
        self.actions = kept;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_stay_what_they_are_when_others_are_forgotten() {
        let mut deeds = ActionHistory::new();
        let mut lasts = [NO_ACTION, NO_ACTION];
        for deed in 0..3 * TIDY_FROM {
            deeds.push(lasts[0], usize::MAX);
            if deed % 1000 == 0 {
                let way = deed / 1000 % 2;
                lasts[way] = deeds.push(lasts[way], deed);
                deeds.forget_unused(lasts.iter_mut());
            }
        }
        assert!(
            deeds.actions.len() <= TIDY_FROM + 1000,
            "{}",
            deeds.actions.len()
        );
        for (way, last) in lasts.into_iter().enumerate() {
            let own: Vec<usize> = (0..3 * TIDY_FROM)
                .filter(|deed| deed % 1000 == 0 && deed / 1000 % 2 == way)
                .collect();
            assert_eq!(deeds.actions_until(last), own);
        }
    }
}
