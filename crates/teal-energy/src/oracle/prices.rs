//! The bound for long traces: every read has a price, and each device takes the reads that pay for it.
//!
//! # Guarantees
//! 1. *Valid for any prices*: the optimum serves each read once. Paid for by the prices, that is the sum of the prices and of
//!    what the devices spend less what they earn; and no device can do better than it does alone.
//! 2. The best bound over all rounds is kept; more rounds never make it worse.

use super::joint::energy;
use super::problem::{Kind, Problem, Unsolvable};
use super::side::{Cost, Side, Spot};
use std::collections::BTreeMap;
use teal_types::{Energy, Span};

/// A bound and how it came about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tightened {
    /// No policy spends less.
    pub energy: Energy,
    /// Reads that no device, or more than one, wanted at the last prices: zero if the bound is the optimum.
    pub unsettled: usize,
    /// Rounds of prices.
    pub rounds: usize,
}

/// A bound for a problem of any length, with so many rounds of prices. `spent` is what some policy did spend: it tells how
/// far to go in a round (Held and Karp), and does not change what is proven.
///
/// # Errors
/// [`Unsolvable::Infeasible`].
pub fn bound(problem: &Problem<'_>, spent: Energy, rounds: usize) -> Result<Tightened, Unsolvable> {
    let is_read = |point: &usize| problem.points[*point].kind == Kind::Read;
    let reads: Vec<usize> = (0..problem.points.len()).filter(is_read).collect();
    let mut prices: BTreeMap<usize, Cost> = reads.iter().map(|point| (*point, first_price(problem, *point))).collect();
    let mut best: Option<Cost> = None;
    let (mut unsettled, mut done) = (reads.len(), 0);
    let spent = Cost::from(spent.get()) * 1_000_000_000;
    // The part of the way to what was spent, in 1024ths; halved when it leads nowhere.
    let (mut part, mut patience) = (1024, PATIENCE);
    for round in 0..rounds.max(1) {
        let mut value: Cost = prices.values().sum();
        let mut takers: BTreeMap<usize, i32> = reads.iter().map(|point| (*point, 0)).collect();
        for side in &problem.sides {
            let (cost, taken) = alone(problem, side, &prices).ok_or(Unsolvable::Infeasible)?;
            value += cost;
            for point in taken {
                *takers.entry(point).or_default() += 1;
            }
        }
        let is_better = best.is_none_or(|best| value > best);
        best = Some(best.map_or(value, |best| best.max(value)));
        patience = if is_better { PATIENCE } else { patience - 1 };
        if patience == 0 {
            (part, patience) = (part.max(2) / 2, PATIENCE);
        }
        unsettled = takers.values().filter(|count| **count != 1).count();
        done = round + 1;
        if unsettled == 0 {
            break;
        }
        let norm: Cost = takers.values().map(|count| Cost::from(1 - count).pow(2)).sum();
        let step = (spent - value).max(0) * part / 1024 / norm.max(1);
        for (point, count) in takers {
            let price = prices.entry(point).or_default();
            *price += step * Cost::from(1 - count);
        }
    }
    let energy = energy(best.ok_or(Unsolvable::Infeasible)?);
    Ok(Tightened { energy, unsettled, rounds: done })
}

/// Rounds without a better bound before steps get shorter.
const PATIENCE: usize = 4;

/// What a read costs where it costs least, the device being awake.
fn first_price(problem: &Problem<'_>, point: usize) -> Cost {
    let of = |side: &Side<'_>| side.reads(point, side.start()).map(|way| way.cost).min();
    problem.sides.iter().filter_map(of).min().unwrap_or(0)
}

/// A way of one device, and the reads it took, as a list that shares its beginning with others.
#[derive(Debug, Clone, Copy)]
struct Reached {
    cost: Cost,
    taken: Option<usize>,
}

/// The best that one device can do at these prices: its cost less what it earns, and the reads it takes.
fn alone(problem: &Problem<'_>, side: &Side<'_>, prices: &BTreeMap<usize, Cost>) -> Option<(Cost, Vec<usize>)> {
    let mut taken: Vec<(usize, Option<usize>)> = Vec::new();
    let mut front = BTreeMap::from([((side.start(), Span::ZERO), Reached { cost: 0, taken: None })]);
    for point in 0..problem.points.len() {
        let gap = problem.gap(point);
        front.iter_mut().for_each(|((spot, _), reached)| reached.cost += side.resting(*spot, gap));
        let mut next = BTreeMap::new();
        let put = |next: &mut BTreeMap<(Spot, Span), Reached>, key, reached: Reached| {
            let known = next.entry(key).or_insert(reached);
            if reached.cost < known.cost {
                *known = reached;
            }
        };
        for ((spot, _), reached) in &front {
            for way in side.writes(point, *spot, true) {
                let before = Reached { cost: reached.cost + way.cost, ..*reached };
                put(&mut next, (way.spot, Span::ZERO), before);
            }
        }
        let mut served = next.clone();
        if let Some(price) = prices.get(&point) {
            for ((spot, _), reached) in &next {
                for way in side.reads(point, *spot) {
                    taken.push((point, reached.taken));
                    let after = Reached { cost: reached.cost + way.cost - price, taken: Some(taken.len() - 1) };
                    put(&mut served, (way.spot, way.busy), after);
                }
            }
        }
        front = BTreeMap::new();
        for ((spot, busy), reached) in &served {
            for write in side.writes(point, *spot, false) {
                for way in side.rests(write.spot, *busy + write.busy) {
                    let rests = Reached { cost: reached.cost + write.cost + way.cost, ..*reached };
                    put(&mut front, (way.spot, Span::ZERO), rests);
                }
            }
        }
        front.retain(|(spot, _), _| !side.is_late(point, *spot));
        front = prune(front);
    }
    let reached = front.into_values().min_by_key(|reached| reached.cost)?;
    let mut reads = Vec::new();
    let mut last = reached.taken;
    while let Some(at) = last {
        reads.push(taken[at].0);
        last = taken[at].1;
    }
    Some((reached.cost, reads))
}

/// Drops what is no better than another way: no more written, no fewer stops, no cheaper.
fn prune(front: BTreeMap<(Spot, Span), Reached>) -> BTreeMap<(Spot, Span), Reached> {
    let mut ways: Vec<_> = front.into_iter().collect();
    ways.sort_by_key(|((spot, _), reached)| (spot.state, reached.cost, std::cmp::Reverse(spot.written), spot.stops));
    let mut kept: Vec<((Spot, Span), Reached)> = Vec::new();
    for (key, reached) in ways {
        let beats =
            |other: &Spot| other.state == key.0.state && other.written >= key.0.written && other.stops <= key.0.stops;
        if !kept.iter().any(|((other, _), _)| beats(other)) {
            kept.push((key, reached));
        }
    }
    kept.into_iter().collect()
}
