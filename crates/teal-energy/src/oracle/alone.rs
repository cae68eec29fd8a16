//! The best that one device can do with claims on reads: dynamic programming over its own points.
//!
//! # Guarantees
//! 1. A way is dropped only if another one is as good whatever follows.
//! 2. Where there are too many, two become one that is as good as both: what is found is no more than the best costs. Of a plan,
//!    which is to be done, the better of two is kept as it is: what is found is no less than the best costs.

use super::deeds::{Deeds, NONE};
use super::side::{Cost, Side, Spot, Tokens, Way};
use teal_types::Time;

/// What a device may do with a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Claim {
    /// It is served elsewhere.
    No,
    /// It earns so much for serving it.
    May(Cost),
    /// It has to serve it.
    Must,
}

/// What a device does at some time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Deed {
    /// Serves the read of this point.
    Read(usize),
    /// Writes everything.
    Write,
    /// Begins to go up to this state.
    Wake(u8),
    /// Begins to go down to this state.
    Rest(u8),
}

/// What a device is asked for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Task<'t> {
    /// By point.
    pub(super) claims: &'t [Claim],
    /// How its stops are limited.
    pub(super) tokens: Tokens<'t>,
    /// Whether what is found is to be done: changes are written within their age, not later by as much as a run was late.
    pub(super) is_plan: bool,
}

/// A device's best: its cost less what it earns, and what it does when, in order.
#[derive(Debug, Clone)]
pub(super) struct Best {
    pub(super) cost: Cost,
    pub(super) deeds: Vec<(Time, Deed)>,
}

impl Best {
    /// The points whose reads it serves.
    pub(super) fn taken(&self) -> impl Iterator<Item = usize> {
        self.deeds.iter().filter_map(|(_, deed)| {
            if let Deed::Read(point) = deed {
                Some(*point)
            } else {
                None
            }
        })
    }
}

#[derive(Debug, Clone, Copy)]
struct Reached {
    spot: Spot,
    cost: Cost,
    /// The last deed, in a list that shares its beginning with others.
    last: u32,
    /// Whether it did something at this point.
    is_new: bool,
}

/// Ways of one name that are kept apart. Of those, only ways that have written the same become one: what is written costs a start.
const WAYS: usize = 24;
/// Of a plan whose tokens are counted, which cannot be told from each other by less.
const SPARED: usize = 96;

/// The ways so far, room for those to come, and all their deeds.
struct Search<'s, 'a> {
    side: &'s Side<'a>,
    task: Task<'s>,
    front: Vec<Reached>,
    next: Vec<Reached>,
    deeds: Deeds<(Time, Deed)>,
}

/// The best that one device can do; `None` if it cannot keep the limits.
pub(super) fn alone(side: &Side<'_>, task: Task<'_>) -> Option<Best> {
    let front = vec![Reached {
        spot: side.start(),
        cost: 0,
        last: NONE,
        is_new: true,
    }];
    let mut search = Search {
        side,
        task,
        front,
        next: Vec::new(),
        deeds: Deeds::new(),
    };
    (0..side.own.len()).for_each(|own| search.step(own));
    let end = side.own.len() - 1;
    let whole = |reached: &Reached| reached.cost + side.rest(end, reached.spot);
    let best = *search.front.iter().min_by_key(|reached| whole(reached))?;
    Some(Best {
        cost: whole(&best),
        deeds: search.deeds.list(best.last),
    })
}

impl Search<'_, '_> {
    fn step(&mut self, own: usize) {
        let (side, task) = (self.side, self.task);
        // Otherwise it had better stopped before, unless there was no token, or a dearer one.
        let is_new = own.checked_sub(1).is_none_or(|before| match task.tokens {
            Tokens::Counted | Tokens::Spared(_) => true,
            Tokens::Priced(prices) => prices[before] > prices[own],
        });
        for reached in &mut self.front {
            let way = side.come(own, reached.spot);
            (reached.spot, reached.cost, reached.is_new) =
                (way.spot, reached.cost + way.cost, is_new);
        }
        let (at, point) = (side.at(own), side.own[own].point);
        let tokens = task.tokens;
        let gain = match task.claims[point] {
            Claim::No => None,
            Claim::Must => Some(0),
            Claim::May(price) => Some(price),
        };
        if let Some(gain) = gain.filter(|_| !side.own[own].reads.is_empty()) {
            self.expand(task.claims[point] != Claim::Must, |reached| {
                side.reads(own, reached.spot, tokens).map(|way| {
                    (
                        Way {
                            cost: way.cost - gain,
                            ..way
                        },
                        Some((at, Deed::Read(point))),
                    )
                })
            });
            self.prune(own);
        }
        self.expand(true, |reached| {
            side.writes(own, reached.spot, tokens)
                .map(|way| (way, Some((at, Deed::Write))))
        });
        self.expand(true, |reached| {
            let may = reached.is_new || reached.spot.free > at;
            let stops = may.then(|| side.stops(own, reached.spot, tokens));
            stops.into_iter().flatten().map(|way| (way, None))
        });
        self.front
            .retain(|reached| !side.is_late(own, reached.spot, task.is_plan));
        self.prune(own);
        self.deeds
            .tidy(self.front.iter_mut().map(|reached| &mut reached.last));
    }

    /// Adds ways on, or takes them in place of those that are there.
    fn expand<I: Iterator<Item = (Way, Option<(Time, Deed)>)>>(
        &mut self,
        keeps: bool,
        ways: impl Fn(&Reached) -> I,
    ) {
        self.next.clear();
        for reached in &self.front {
            for (way, deed) in ways(reached) {
                let mut last = reached.last;
                for deed in way.deed.into_iter().chain(deed) {
                    last = self.deeds.push(last, deed);
                }
                self.next.push(Reached {
                    spot: way.spot,
                    cost: reached.cost + way.cost,
                    last,
                    is_new: true,
                });
            }
        }
        if !keeps {
            self.front.clear();
        }
        self.front.append(&mut self.next);
    }

    /// Keeps what no other way is as good as.
    fn prune(&mut self, own: usize) {
        let (side, is_plan) = (self.side, self.task.is_plan);
        let ways = if matches!(self.task.tokens, Tokens::Spared(_)) {
            SPARED
        } else {
            WAYS
        };
        self.front.sort_unstable_by_key(|one| {
            (
                one.spot.state,
                one.cost,
                std::cmp::Reverse(one.spot.written),
                one.spot,
            )
        });
        self.next.clear();
        let (mut first, mut room) = (0, WAYS);
        for way in self.front.drain(..) {
            if self
                .next
                .get(first)
                .is_some_and(|one| one.spot.state != way.spot.state)
            {
                (first, room) = (self.next.len(), ways);
            }
            let is_as_good = |one: &Reached| {
                side.handicap(own, &one.spot, &way.spot)
                    .is_some_and(|more| one.cost + more <= way.cost)
            };
            if self.next[first..].iter().any(is_as_good) {
                continue;
            }
            self.next.push(way);
            if self.next.len() - first > room {
                let mut many = self.next.split_off(first);
                many.sort_unstable_by_key(|one| (one.spot.written, one.spot.free, one.cost));
                let mut many = many.into_iter().peekable();
                while let Some(one) = many.next() {
                    let other = many.next_if(|other| other.spot.written == one.spot.written);
                    self.next
                        .push(other.map_or(one, |other| both(side, own, is_plan, &one, &other)));
                }
                room = ways.max(2 * (self.next.len() - first));
            }
        }
        std::mem::swap(&mut self.front, &mut self.next);
    }
}

/// What is as good as two ways of one name whatever follows; of a plan's, the better one, as far as can be told.
fn both(side: &Side<'_>, own: usize, is_plan: bool, one: &Reached, other: &Reached) -> Reached {
    let spot = Side::both(&one.spot, &other.spot);
    let as_good = |one: &Reached| one.cost - side.handicap(own, &spot, &one.spot).unwrap_or(0);
    let cheaper = if as_good(one) <= as_good(other) {
        one
    } else {
        other
    };
    if is_plan {
        return *cheaper;
    }
    Reached {
        spot,
        cost: as_good(cheaper),
        last: cheaper.last,
        is_new: true,
    }
}
