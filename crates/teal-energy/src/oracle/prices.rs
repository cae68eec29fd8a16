//! The bound for long traces: every read has a price, and each device takes the reads that pay for it.
//!
//! # Guarantees
//! 1. *Valid for any prices*: the optimum serves each read once. Paid for by the prices, that is the sum of the prices and of
//!    what the devices spend less what they earn; and no device can do better than it does alone.
//! 2. The best bound over all rounds is kept; more rounds never make it worse.
//! 3. The repaired schedule serves every read once: the optimum lies between the bound and what it costs.

use super::joint::energy;
use super::problem::{Kind, Problem, Unsolvable};
use super::side::{Cost, Side, Spot};
use std::collections::{BTreeMap, BTreeSet};
use teal_types::{Energy, Span};

/// A bound and how it came about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tightened {
    /// No policy spends less.
    pub energy: Energy,
    /// What a schedule costs in which each read is served by one of the devices that wanted it: the optimum of the problem
    /// is not above this.
    pub repaired: Energy,
    /// Reads that no device, or more than one, wanted at the last prices: zero if the bound is the optimum.
    pub unsettled: usize,
    /// Rounds of prices.
    pub rounds: usize,
}

/// Rounds without a better bound before steps get shorter.
const PATIENCE: usize = 4;
/// Reads that a repair tries on every device.
const TRIED: usize = 64;

/// What a device is offered.
enum Offer<'a> {
    /// Any reads it likes, at these prices.
    Priced(&'a BTreeMap<usize, Cost>),
    /// Exactly these reads, for nothing.
    Assigned(&'a BTreeSet<usize>),
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
    let (mut best, mut repaired) = (Cost::MIN, Cost::MAX);
    let (mut unsettled, mut done) = (reads.len(), 0);
    let spent = Cost::from(spent.get()) * 1_000_000_000;
    // The part of the way to what was spent, in 1024ths; halved when it leads nowhere.
    let (mut part, mut patience) = (1024, PATIENCE);
    let rounds = rounds.max(1);
    while done < rounds && unsettled > 0 || done == 0 {
        let mut value: Cost = prices.values().sum();
        let mut takers: BTreeMap<usize, Vec<usize>> = reads.iter().map(|point| (*point, Vec::new())).collect();
        for (at, side) in problem.sides.iter().enumerate() {
            let (cost, taken) = alone(problem, side, &Offer::Priced(&prices)).ok_or(Unsolvable::Infeasible)?;
            value += cost;
            taken.into_iter().for_each(|point| takers.entry(point).or_default().push(at));
        }
        patience = if value > best { PATIENCE } else { patience - 1 };
        if patience == 0 {
            (part, patience) = (part.max(2) / 2, PATIENCE);
        }
        best = best.max(value);
        unsettled = takers.values().filter(|who| who.len() != 1).count();
        done += 1;
        if done == rounds || unsettled == 0 {
            repaired = repair(problem, &takers).unwrap_or(Cost::MAX);
        }
        let missing = |who: &Vec<usize>| 1 - Cost::try_from(who.len()).unwrap_or(Cost::MAX);
        let norm: Cost = takers.values().map(|who| missing(who).pow(2)).sum();
        let step = (spent - value).max(0) * part / 1024 / norm.max(1);
        for (point, who) in &takers {
            *prices.entry(*point).or_default() += step * missing(who);
        }
    }
    Ok(Tightened { energy: energy(best), repaired: energy(repaired), unsettled, rounds: done })
}

/// What a read costs a device where it costs least, the device being as at the beginning.
fn price(side: &Side<'_>, point: usize) -> Option<Cost> {
    side.reads(point, side.start()).map(|way| way.cost).min()
}

fn first_price(problem: &Problem<'_>, point: usize) -> Cost {
    problem.sides.iter().filter_map(|side| price(side, point)).min().unwrap_or(0)
}

/// Every read to one device: of those that wanted it the first, or where it costs least; then each does its best, and reads
/// that none or several wanted are tried elsewhere.
fn repair(problem: &Problem<'_>, takers: &BTreeMap<usize, Vec<usize>>) -> Option<Cost> {
    let mut shares = vec![BTreeSet::new(); problem.sides.len()];
    let mut unsettled = Vec::new();
    for (point, who) in takers {
        let cheapest = || {
            let costs = problem.sides.iter().enumerate().filter_map(|(at, side)| Some((price(side, *point)?, at)));
            costs.min().map(|(_, at)| at)
        };
        let owner = who.first().copied().or_else(cheapest)?;
        shares[owner].insert(*point);
        if who.len() != 1 {
            unsettled.push((*point, owner));
        }
    }
    let cost = |at: usize, share: &BTreeSet<usize>| {
        alone(problem, &problem.sides[at], &Offer::Assigned(share)).map(|(cost, _)| cost)
    };
    let mut costs: Vec<Cost> = (0..shares.len()).map(|at| cost(at, &shares[at])).collect::<Option<_>>()?;
    for (point, mut owner) in unsettled.into_iter().take(TRIED) {
        for other in 0..shares.len() {
            if other == owner || price(&problem.sides[other], point).is_none() {
                continue;
            }
            let (mut less, mut more) = (shares[owner].clone(), shares[other].clone());
            less.remove(&point);
            more.insert(point);
            let (Some(saved), Some(added)) = (cost(owner, &less), cost(other, &more)) else { continue };
            if saved + added < costs[owner] + costs[other] {
                (costs[owner], costs[other]) = (saved, added);
                (shares[owner], shares[other]) = (less, more);
                owner = other;
            }
        }
    }
    Some(costs.into_iter().sum())
}

/// A way of one device, and the reads it took, as a list that shares its beginning with others.
#[derive(Debug, Clone, Copy)]
struct Reached {
    cost: Cost,
    taken: Option<usize>,
}

type Front = BTreeMap<(Spot, Span), Reached>;

fn put(front: &mut Front, key: (Spot, Span), reached: Reached) {
    let known = front.entry(key).or_insert(reached);
    if reached.cost < known.cost {
        *known = reached;
    }
}

/// The best that one device can do with an offer: its cost less what it earns, and the reads it takes.
fn alone(problem: &Problem<'_>, side: &Side<'_>, offer: &Offer<'_>) -> Option<(Cost, Vec<usize>)> {
    let mut taken: Vec<(usize, Option<usize>)> = Vec::new();
    let mut front = Front::from([((side.start(), Span::ZERO), Reached { cost: 0, taken: None })]);
    for point in 0..problem.points.len() {
        let gap = problem.gap(point);
        let mut written = Front::new();
        for ((spot, _), reached) in &front {
            let rested = reached.cost + side.resting(*spot, gap);
            for way in side.writes(point, *spot, true) {
                put(&mut written, (way.spot, Span::ZERO), Reached { cost: rested + way.cost, ..*reached });
            }
        }
        let (earned, must) = match offer {
            Offer::Priced(prices) => (prices.get(&point).copied(), false),
            Offer::Assigned(mine) => (mine.contains(&point).then_some(0), mine.contains(&point)),
        };
        let mut served = if must { Front::new() } else { written.clone() };
        for (((spot, _), reached), earned) in written.iter().flat_map(|way| earned.map(|earned| (way, earned))) {
            for way in side.reads(point, *spot) {
                taken.push((point, reached.taken));
                let after = Reached { cost: reached.cost + way.cost - earned, taken: Some(taken.len() - 1) };
                put(&mut served, (way.spot, way.busy), after);
            }
        }
        front.clear();
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
fn prune(front: Front) -> Front {
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
