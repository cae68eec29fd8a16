//! The list of what is stuck: changes that the server does not take, and states that cannot be
//! installed here.
//!
//! # Guarantees
//! 1. What is stuck is tried again at growing intervals, from [`PAUSE_MIN`] to [`BACKOFF_MAX`].
//! 2. While the cause of a refusal is searched for, each batch has half as many objects as the one
//!    before.

use super::SyncError;
use super::backoff::BACKOFF_MAX;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use teal_types::ObjectNo;

/// The most objects of one batch; more wait for the next.
pub(crate) const OBJECTS_MAX: usize = 100_000;

/// After this many objects in a row were refused by themselves, the server counts as taking
/// nothing.
const FAILURES_MAX: u32 = 8;

/// The first pause before something that was held back is tried again.
const PAUSE_MIN: Duration = Duration::from_secs(1);

/// The most objects that are listed for people, and the most that an error of a flush names.
const SHOWN_MAX: usize = 100;

const NAMED_MAX: usize = 5;

/// The direction in which a change is held back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum StuckDirection {
    /// From here to the server.
    Sending,
    /// From the server to here.
    Installing,
}

/// An object that is held back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StuckObject {
    /// The path of the object from the root of the volume.
    pub path: String,
    /// Which way it cannot go.
    pub direction: StuckDirection,
    /// Why.
    pub why: String,
}

/// The side that refuses an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RefusalOrigin {
    Local,
    Server,
}

#[derive(Debug)]
struct StuckEntry {
    path: String,
    why: String,
    origin: RefusalOrigin,
    /// Monotonic time from which on it is tried again.
    due: Duration,
    pause: Duration,
}

/// The objects that are held back, and the limit of the next batch.
#[derive(Debug)]
pub(crate) struct StuckList {
    entries: BTreeMap<(StuckDirection, ObjectNo), StuckEntry>,
    /// The most objects of the next batch; less than [`OBJECTS_MAX`] while it is looked for what
    /// the server refuses.
    pub(crate) limit: usize,
    /// Failures in a row that made no batch smaller.
    failures: u32,
    /// The batch on its way is something held back that is tried again.
    pub(crate) is_retry: bool,
}

impl Default for StuckList {
    fn default() -> Self {
        Self {
            entries: BTreeMap::new(),
            limit: OBJECTS_MAX,
            failures: 0,
            is_retry: false,
        }
    }
}

impl StuckList {
    pub(crate) fn hold_back(
        &mut self,
        (way, no): (StuckDirection, ObjectNo),
        path: String,
        (said, why): (RefusalOrigin, &str),
        now: Duration,
    ) {
        // Said once, when the object gets stuck.
        let entry = self.entries.entry((way, no)).or_insert_with(|| {
            log::warn!("{path} is stuck: {why}");
            StuckEntry {
                path: String::new(),
                why: String::new(),
                origin: said,
                due: now,
                pause: Duration::ZERO,
            }
        });
        debug_assert!(entry.pause <= BACKOFF_MAX);
        // The pause doubles with each failure.
        entry.pause = (entry.pause * 2).clamp(PAUSE_MIN, BACKOFF_MAX);
        entry.due = now + entry.pause;
        entry.path = path;
        entry.origin = said;
        entry.why = why.to_owned();
    }

    /// Returns the objects that are held back in one direction.
    pub(crate) fn objects_held(&self, way: StuckDirection) -> BTreeSet<ObjectNo> {
        let mut held = BTreeSet::new();
        for (of, no) in self.entries.keys() {
            if *of == way {
                held.insert(*no);
            }
        }
        held
    }

    /// Returns whether an object is held back in this way, and not to be tried yet.
    pub(crate) fn is_waiting(&self, way: StuckDirection, no: ObjectNo, now: Duration) -> bool {
        self.entries
            .get(&(way, no))
            .is_some_and(|entry| entry.due > now)
    }

    /// Returns how long it is until an object is tried again in this direction; `None` if none is
    /// held back.
    pub(crate) fn due_in(&self, way: StuckDirection, now: Duration) -> Option<Duration> {
        let of_it = self.entries.iter().filter(|((of, _), _)| *of == way);
        of_it.map(|(_, entry)| entry.due.saturating_sub(now)).min()
    }

    /// Has all objects tried again now.
    pub(crate) fn retry_all_now(&mut self) {
        for entry in self.entries.values_mut() {
            entry.due = Duration::ZERO;
        }
    }

    /// Releases all objects of this direction but those that `is_there` keeps.
    pub(crate) fn retain_objects(
        &mut self,
        way: StuckDirection,
        is_there: impl Fn(ObjectNo) -> bool,
    ) {
        self.entries
            .retain(|(of, no), _| *of != way || is_there(*no));
    }

    pub(crate) fn release(&mut self, way: StuckDirection, no: ObjectNo) {
        self.entries.remove(&(way, no));
    }

    /// Notes that a batch has arrived, and lets batches grow again.
    pub(crate) fn batch_arrived(&mut self, objects: &[ObjectNo]) {
        for no in objects.iter() {
            self.release(StuckDirection::Sending, *no);
        }
        debug_assert!((1..=OBJECTS_MAX).contains(&self.limit));
        self.failures = 0;
        // Success: batches grow again.
        self.limit = (self.limit * 2).clamp(1, OBJECTS_MAX);
    }

    /// Counts a failure; fails as it did if that is one too many in a row.
    pub(crate) fn count_failure(&mut self, e: SyncError) -> Result<(), SyncError> {
        // After some failures in a row the error is shown, and the thread pauses.
        self.failures = (self.failures + 1) % FAILURES_MAX;
        if self.failures == 0 { Err(e) } else { Ok(()) }
    }

    pub(crate) fn batch_limit(&self) -> usize {
        self.limit
    }

    /// Returns how many are held back, and the first of them.
    pub(crate) fn report(&self) -> (usize, Vec<StuckObject>) {
        let one = |((way, _), entry): (&(StuckDirection, ObjectNo), &StuckEntry)| StuckObject {
            path: entry.path.clone(),
            direction: *way,
            why: entry.why.clone(),
        };
        (
            self.entries.len(),
            self.entries.iter().take(SHOWN_MAX).map(one).collect(),
        )
    }

    /// Returns the reason why the server refuses something, if it does.
    pub(crate) fn server_refusal(&self) -> Option<String> {
        let refused = self
            .entries
            .values()
            .find(|entry| entry.origin == RefusalOrigin::Server);
        refused.map(|entry| entry.why.clone())
    }

    /// Returns what a flush fails with; `None`: nothing is held back.
    pub(crate) fn error_text(&self) -> Option<String> {
        let (count, shown) = self.report();
        let mut words: Vec<String> = shown
            .iter()
            .take(NAMED_MAX)
            .map(|stuck| format!("{}: {}", stuck.path, stuck.why))
            .collect();
        // The rest is in the status.
        if count > NAMED_MAX {
            words.push(format!(
                "and {} more (`teal status` lists them)",
                count - NAMED_MAX
            ));
        }
        (count > 0).then(|| format!("stuck: {}", words.join("; ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_back_is_tried_again_at_growing_intervals_and_named() {
        let (mut held, no, mut now) = (
            StuckList::default(),
            ObjectNo::new(17),
            Duration::from_secs(5),
        );
        let mut pauses = Vec::new();
        for _ in 0..8 {
            held.hold_back(
                (StuckDirection::Sending, no),
                "/a/b".into(),
                (RefusalOrigin::Server, "no space left"),
                now,
            );
            let pause = held.due_in(StuckDirection::Sending, now).unwrap();
            assert!(held.is_waiting(
                StuckDirection::Sending,
                no,
                now + pause - Duration::from_millis(1)
            ));
            pauses.push(pause.as_secs());
            now += pause;
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 30, 30, 30]);
        assert_eq!(held.error_text().unwrap(), "stuck: /a/b: no space left");
        assert_eq!(held.due_in(StuckDirection::Installing, now), None);
        held.retry_all_now();
        assert!(!held.is_waiting(StuckDirection::Sending, no, now));
        held.batch_arrived(&[no]);
        assert!(held.error_text().is_none());
    }
}
