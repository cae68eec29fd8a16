//! What the points of a problem are to one device.
//!
//! # Guarantees
//! 1. A point is the device's own if something is read there that it holds, changes come to it, or some of its changes are of age or must
//!    be written; so are the beginning and the end.

use super::{Change, Here, Moment, Side, Step};
use crate::device::DeviceId;
use crate::oracle::problem::{Kind, Point};
use crate::sim::{Trace, What};
use std::collections::{BTreeMap, BTreeSet};
use teal_types::{Span, Time};

/// Points that lie no further apart are taken as one.
const CLOSE: Span = Span::millis(50);

impl Side<'_> {
    pub(super) fn fill(&mut self, trace: &Trace, points: &[Point], id: DeviceId, late: Span) {
        let mut ends = BTreeSet::new();
        let mut newest: BTreeMap<u64, (u32, u64)> = BTreeMap::new();
        for point in points {
            let mut here = Here::default();
            match (point.kind, trace.events().get(point.event).map(|event| event.what)) {
                (Kind::Read, Some(What::Read { object, offset, bytes, copies })) => {
                    let follows = ends.contains(&(object, offset));
                    ends.insert((object, offset.saturating_add(bytes)));
                    if copies.has(id) {
                        here.reads = self.serve(bytes, follows);
                    }
                }
                (Kind::Write, Some(What::Write { object, bytes, sinks })) => {
                    if let Some(limits) = self.device.queue.filter(|_| sinks.has(id)) {
                        let before = newest.insert(object, (self.changes.len() as u32, bytes));
                        if let Some(change) = before.and_then(|(at, _)| self.changes.get_mut(at as usize))
                            && change.last >= point.at
                        {
                            (change.least, change.is_needed) = (0, false);
                        }
                        let due = point.at + limits.age;
                        let least = self.least(bytes);
                        self.changes.push(Change {
                            bytes,
                            due,
                            last: due + late,
                            before,
                            least,
                            is_needed: true,
                            before_bytes: 0,
                        });
                    }
                }
                _ => {}
            }
            here.moment = Moment {
                at: point.at,
                until: point.at,
                since: Time::ZERO,
                next: point.at,
                arrived: self.changes.len() as u32,
                is_end: self.points.len() + 1 == points.len(),
            };
            self.points.push(here);
        }
        self.choose(points);
        self.gather();
    }

    /// The points at which the device has something to do or to be told.
    fn choose(&mut self, points: &[Point]) {
        for change in &mut self.changes {
            change.before_bytes = self.all_bytes;
            self.all_bytes += if change.is_needed { change.bytes } else { 0 };
        }
        let deadlines: BTreeSet<Time> = self.changes.iter().flat_map(|change| [change.due, change.last]).collect();
        let is_mine = |at: usize| {
            let here = &self.points[at];
            let is_told =
                at.checked_sub(1).is_none_or(|before| self.points[before].moment.arrived < here.moment.arrived);
            let is_due = points[at].kind == Kind::Nothing && deadlines.contains(&here.moment.at);
            is_told || is_due || points[at].kind == Kind::Look || !here.reads.is_empty() || at + 1 == points.len()
        };
        self.mine = (0..points.len()).filter(|at| is_mine(*at)).collect();
        for pair in self.mine.windows(2) {
            self.points[pair[1]].moment.since = points[pair[0]].at;
            self.points[pair[0]].moment.next = points[pair[1]].at;
        }
    }

    /// Takes together what lies close together.
    fn gather(&mut self) {
        for &at in &self.mine {
            let here = &self.points[at];
            let is_close = |step: &&mut Step| here.moment.at.since(step.moment.at) <= CLOSE && !here.moment.is_end;
            let reads = (!here.reads.is_empty()).then(|| (at, here.reads.clone()));
            match self.steps.last_mut().filter(is_close) {
                Some(step) => {
                    step.moment = Moment { at: step.moment.at, since: step.moment.since, ..here.moment };
                    step.reads.extend(reads);
                }
                None => self.steps.push(Step { moment: here.moment, reads: reads.into_iter().collect() }),
            }
        }
    }
}
