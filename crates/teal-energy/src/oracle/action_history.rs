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
    pub(super) fn push(&mut self, before: u32, action: T) -> u32 {
        self.actions.push((before, action));
        self.actions.len() as u32 - 1
    }

    /// Returns the actions of a list, the first one first.
    pub(super) fn actions_until(&self, mut last: u32) -> Vec<T> {
        let mut list = Vec::new();
        while let Some((before, action)) = self.actions.get(last as usize) {
            list.push(*action);
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
        // The first pass marks the actions that are of use, the second gives them new places. An
        // action lies behind the ones before it, so that one pass each suffices.
        // Marking follows each list back until it meets a part that is marked already.
        let mut places = vec![NO_ACTION; self.actions.len()];
        for last in &lasts {
            let mut at = **last;
            while at != NO_ACTION && places[at as usize] == NO_ACTION {
                places[at as usize] = 0;
                at = self.actions[at as usize].0;
            }
        }
        let mut kept = Vec::new();
        for (at, (before, action)) in self.actions.iter().enumerate() {
            if places[at] != NO_ACTION {
                places[at] = kept.len() as u32;
                kept.push((
                    places.get(*before as usize).copied().unwrap_or(NO_ACTION),
                    *action,
                ));
            }
        }
        lasts
            .iter_mut()
            .for_each(|last| **last = places.get(**last as usize).copied().unwrap_or(NO_ACTION));
        // The next tidying is due when the list has doubled: its cost stays proportional.
        self.tidy_at = TIDY_FROM.max(2 * kept.len());
        self.actions = kept;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_stay_what_they_are_when_others_are_forgotten() {
        let mut history = ActionHistory::new();
        let mut lasts = [NO_ACTION, NO_ACTION];
        for action in 0..3 * TIDY_FROM {
            history.push(lasts[0], usize::MAX);
            if action % 1000 == 0 {
                let way = action / 1000 % 2;
                lasts[way] = history.push(lasts[way], action);
                history.forget_unused(lasts.iter_mut());
            }
        }
        assert!(
            history.actions.len() <= TIDY_FROM + 1000,
            "{}",
            history.actions.len()
        );
        for (way, last) in lasts.into_iter().enumerate() {
            let own: Vec<usize> = (0..3 * TIDY_FROM)
                .filter(|action| action % 1000 == 0 && action / 1000 % 2 == way)
                .collect();
            assert_eq!(history.actions_until(last), own);
        }
    }
}
