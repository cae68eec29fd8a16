//! Finds a device's own points among those of the problem, and the changes that come to it.
//!
//! # Guarantees
//! 1. A point is the device's own if something is read there that it holds, changes come to it, or
//!    some of its changes are of age or must be written; so are the beginning and the end.

use super::{DevicePoint, DeviceSubproblem, QueuedChange, ServingChoice, WriteLoad};
use crate::device::DeviceId;
use crate::oracle::problem::{PointKind, TracePoint};
use crate::sim::{EventAction, MachineTrace};
use std::collections::{BTreeMap, BTreeSet};
use teal_types::{Time, TimeSpan};

impl DeviceSubproblem<'_> {
    pub(super) fn fill_points(
        &mut self,
        trace: &MachineTrace,
        points: &[TracePoint],
        id: DeviceId,
        late: TimeSpan,
    ) {
        let needed = self.queue_changes(trace, points, id, late);
        self.prepay_changes(&needed);
        let deadlines = self.change_deadlines();
        let (mut ends, mut arrived) = (BTreeSet::new(), 0);
        for (at, point) in points.iter().enumerate() {
            let before = arrived;
            let mut here = DevicePoint {
                point: at,
                at: point.at,
                is_end: at + 1 == points.len(),
                ..DevicePoint::default()
            };
            let event = trace.events().get(point.event).map(|event| event.action);
            match (point.kind, event) {
                (PointKind::Read, Some(read)) => here.reads = self.choices_at(read, id, &mut ends),
                (PointKind::Write, Some(EventAction::Write { sinks, .. }))
                    if self.takes_changes(id, sinks) =>
                {
                    arrived += 1
                }
                _ => {}
            }
            here.arrived = arrived;
            let is_due = point.kind == PointKind::Nothing && deadlines.contains(&point.at);
            // Other points are none of this device's business.
            if at == 0 || here.is_end || is_due || arrived > before || !here.reads.is_empty() {
                self.points.push(here);
            }
        }
        self.link_points();
    }

    /// Returns how the device may serve a read: not at all if it does not hold the data. A read
    /// that begins where an earlier one ended costs no seek, whichever device served that.
    fn choices_at(
        &self,
        read: EventAction,
        id: DeviceId,
        ends: &mut BTreeSet<(u64, u64)>,
    ) -> Vec<ServingChoice> {
        let EventAction::Read {
            object,
            offset,
            bytes,
            copies,
        } = read
        else {
            return Vec::new();
        };
        let follows = ends.contains(&(object, offset));
        ends.insert((object, offset.saturating_add(bytes)));
        if !copies.contains(id) {
            return Vec::new();
        }
        self.serving_choices(bytes, follows)
    }

    /// Returns the times at which changes are of age, or must be written.
    fn change_deadlines(&self) -> BTreeSet<Time> {
        let mut deadlines = BTreeSet::new();
        for change in &self.changes {
            deadlines.extend([change.due, change.latest]);
        }
        deadlines
    }

    /// Tells each point the time of the next one; the last has its own.
    fn link_points(&mut self) {
        for at in 0..self.points.len() {
            let next = (at + 1).min(self.points.len() - 1);
            self.points[at].next = self.points[next].at;
        }
    }

    fn takes_changes(&self, id: DeviceId, sinks: crate::device::DeviceSet) -> bool {
        self.device.queue.is_some() && sinks.contains(id)
    }

    /// Collects the changes in their order. Returns the bytes of each, and whether it must be
    /// written: it need not if another one replaces it in time.
    fn queue_changes(
        &mut self,
        trace: &MachineTrace,
        points: &[TracePoint],
        id: DeviceId,
        late: TimeSpan,
    ) -> Vec<(u64, bool)> {
        let mut newest: BTreeMap<u64, usize> = BTreeMap::new();
        let mut loads: Vec<(u64, bool)> = Vec::new();
        let Some(limits) = self.device.queue else {
            return loads;
        };
        for point in points.iter().filter(|point| point.kind == PointKind::Write) {
            let Some(EventAction::Write {
                object,
                bytes,
                sinks,
            }) = trace.events().get(point.event).map(|event| event.action)
            else {
                continue;
            };
            if !self.takes_changes(id, sinks) {
                continue;
            }
            let before = newest.insert(object, loads.len());
            // The earlier change could still wait when this one came: it need not be written.
            if let Some(before) = before.filter(|before| self.changes[*before].latest >= point.at) {
                loads[before].1 = false;
            }
            let due = point.at + limits.age;
            self.changes.push(QueuedChange {
                due,
                latest: due + late,
                prepaid: 0,
                needed: WriteLoad::default(),
            });
            loads.push((bytes, true));
        }
        loads
    }

    fn prepay_changes(&mut self, loads: &[(u64, bool)]) {
        let mut needed = WriteLoad::default();
        for (at, (bytes, is_needed)) in loads.iter().enumerate() {
            let pays = if *is_needed {
                self.least_write_cost(*bytes)
            } else {
                0
            };
            let change = &mut self.changes[at];
            (change.needed, change.prepaid) = (needed, pays);
            if *is_needed {
                needed = WriteLoad {
                    bytes: needed.bytes + bytes,
                    objects: needed.objects + 1,
                };
            }
        }
        self.total_load = needed;
    }
}
