//! A world and a trace as the bound sees them: points of time, and each device's part in them.
//!
//! # Guarantees
//! 1. Points are in order; they hold the beginning, every event, the last moment of every change, and the end.

use super::side::Side;
use crate::device::DeviceId;
use crate::sim::{Trace, What, World};
use teal_types::{Power, Span, Time};

/// Why there is no bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unsolvable {
    /// The exact bound is for few devices.
    #[error("the exact bound is for few devices, not {0}")]
    Devices(usize),
    /// More ways to keep apart than memory allows.
    #[error("too many ways to tell apart: {0} at one point")]
    Large(usize),
    /// A change that a device cannot hold back that long, or a read that nobody can serve.
    #[error("no schedule keeps all limits")]
    Infeasible,
}

/// What happens at a point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Nothing,
    Read,
    Write,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Point {
    pub(super) at: Time,
    pub(super) kind: Kind,
    /// The event's place in the trace.
    pub(super) event: usize,
}

/// A world and a trace as the bound sees them.
#[derive(Debug, Clone)]
pub struct Problem<'a> {
    pub(super) points: Vec<Point>,
    pub(super) sides: Vec<Side<'a>>,
}

impl<'a> Problem<'a> {
    /// The problem of a world and a trace. The world's pace is taken as open.
    pub fn new(world: &'a World, trace: &Trace) -> Self {
        let mut points = vec![Point { at: Time::ZERO, kind: Kind::Nothing, event: 0 }];
        for (event, known) in trace.events().iter().enumerate() {
            let kind = match known.what {
                What::Read { copies, .. } if !copies.is_empty() => Kind::Read,
                What::Write { .. } => Kind::Write,
                _ => continue,
            };
            points.push(Point { at: known.at, kind, event });
        }
        for (at, device) in world.devices.iter().enumerate() {
            let (Some(limits), Some(id)) = (device.queue, DeviceId::new(at)) else { continue };
            let slack = slack(world, trace, id);
            let mine = trace.events().iter().filter(|event| takes(&event.what, id));
            let last = mine.map(|event| event.at + limits.age + slack).filter(|last| *last < trace.end());
            points.extend(last.map(|at| Point { at, kind: Kind::Nothing, event: 0 }));
        }
        points.sort_by_key(|point| point.at);
        points.dedup_by(|b, a| a.kind == Kind::Nothing && b.kind == Kind::Nothing && a.at == b.at);
        points.push(Point { at: trace.end(), kind: Kind::Nothing, event: 0 });
        let ids = (0..world.devices.len()).filter_map(DeviceId::new);
        let sides = ids.map(|id| Side::new(world, trace, &points, id, slack(world, trace, id))).collect();
        Self { points, sides }
    }

    /// From the point before to this one.
    pub(super) fn gap(&self, point: usize) -> Span {
        self.points[point].at.since(self.points[point.saturating_sub(1)].at)
    }
}

fn takes(what: &What, id: DeviceId) -> bool {
    matches!(what, What::Write { sinks, .. } if sinks.has(id))
}

/// The longest that a burst can take from being ordered to being begun: a stop under way, a start, and all work that can
/// have gathered before.
fn slack(world: &World, trace: &Trace, id: DeviceId) -> Span {
    let device = &world.devices[id.index()];
    let power = &device.power;
    let pairs = power.ids().flat_map(|from| power.ids().map(move |to| (from, to)));
    let longest = pairs.filter_map(|(from, to)| power.route(from, to)).map(|route| route.time).max();
    let slowest = |bytes: u64, is_read: bool| {
        let of = |state| if is_read { device.read(state, bytes, false) } else { device.flush(state, bytes, 1) };
        power.ids().filter_map(of).map(|job| job.time()).max().unwrap_or(Span::ZERO)
    };
    let (mut backlog, mut most, mut before) = (Span::ZERO, Span::ZERO, Time::ZERO);
    for event in trace.events() {
        let work = match event.what {
            What::Read { bytes, copies, .. } if copies.has(id) => slowest(bytes, true),
            What::Write { bytes, sinks, .. } if sinks.has(id) => slowest(bytes, false),
            _ => continue,
        };
        backlog = backlog.less(event.at.since(before)) + work;
        (most, before) = (most.max(backlog), event.at);
    }
    // A burst can hold changes from longer ago than the backlog counts.
    let all: u64 = trace
        .events()
        .iter()
        .map(|event| match event.what {
            What::Write { bytes, sinks, .. } if sinks.has(id) => bytes,
            _ => 0,
        })
        .sum();
    let bursts =
        if device.queue.is_some() { slowest(all.min(device.queue.map_or(0, |q| q.bytes)), false) } else { Span::ZERO };
    longest.unwrap_or(Span::ZERO) * 3 + most * 2 + bursts
}

/// What the machine saves in microwatts when a device rests instead of being awake and somebody waits for it.
pub(super) fn relief(most: Power, base: Power) -> Power {
    most.less(base)
}
