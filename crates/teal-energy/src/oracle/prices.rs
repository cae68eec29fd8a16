//! The bound for long traces: every read has a price, and each device takes the reads that pay for it.
//!
//! # Guarantees
//! 1. *Valid for any prices*: the optimum serves each read once. Paid for by the prices, that is the sum of the prices and of
//!    what the devices spend less what they earn; and no device can do better than it does alone.
//! 2. The best bound over all rounds is kept; more rounds never make it worse.
//! 3. The plan serves every read once: the optimum lies between the bound and what its run costs.
//!
//! A read that only one device holds needs no price: that device has to serve it.

use super::alone::{Best, Claim, alone};
use super::joint::energy;
use super::plan::Plan;
use super::problem::{Kind, Problem, Unsolvable};
use super::repair::repair;
use super::side::Cost;
use super::terms::Terms;
use teal_types::Energy;

/// A bound and how it came about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tightened {
    /// No policy spends less.
    pub energy: Energy,
    /// A schedule that keeps all limits: the optimum is not above what it costs when the simulator runs it.
    pub plan: Plan,
    /// What it costs by the bound's own account, which is kinder than the simulator.
    pub planned: Energy,
    /// Reads that no device, or more than one, wanted at the last prices: zero if the bound is the optimum.
    pub unsettled: usize,
    /// Rounds of prices.
    pub rounds: usize,
}

/// Rounds without a better bound before steps get shorter.
const PATIENCE: usize = 4;
/// A schedule that costs one part of so many more than the bound is near enough.
const NEAR: Cost = 2000;
/// Rounds between two repairs.
const REPAIR_EACH: usize = 10;

/// One round: what the devices did at these prices.
pub(super) struct Round {
    pub(super) bests: Vec<Best>,
    /// By point: which devices took its read.
    pub(super) takers: Vec<Vec<u8>>,
}

/// The reads that several devices hold, and so have a price; by point who can serve it.
pub(super) fn servers(problem: &Problem<'_>) -> Vec<Vec<u8>> {
    let of = |point: usize| {
        let sides = (0_u8..).zip(&problem.sides);
        sides.filter(|(_, side)| side.serves(point).is_some()).map(|(at, _)| at).collect()
    };
    (0..problem.points.len()).map(of).collect()
}

fn round(problem: &Problem<'_>, servers: &[Vec<u8>], prices: &[Cost], terms: Terms) -> Option<Round> {
    let mut takers = vec![Vec::new(); problem.points.len()];
    let mut bests = Vec::new();
    for (at, side) in (0_u8..).zip(&problem.sides) {
        let claim = |point: usize| match servers[point].as_slice() {
            [only] if *only == at => Claim::Must,
            who if who.len() > 1 && who.contains(&at) => Claim::May(prices[point]),
            _ => Claim::No,
        };
        let claims: Vec<Claim> = (0..problem.points.len()).map(claim).collect();
        let best = alone(side, &claims, terms)?;
        best.taken.iter().for_each(|point| takers[*point].push(at));
        bests.push(best);
    }
    Some(Round { bests, takers })
}

/// A bound for a problem of any length, with so many rounds of prices. `spent` is what some policy did spend: it tells how
/// far to go in a round (Held and Karp), and does not change what is proven.
///
/// # Errors
/// [`Unsolvable::Infeasible`].
pub fn bound(problem: &Problem<'_>, spent: Energy, rounds: usize) -> Result<Tightened, Unsolvable> {
    let servers = servers(problem);
    let is_priced = |point: &usize| servers[*point].len() > 1;
    let priced: Vec<usize> = (0..problem.points.len()).filter(is_priced).collect();
    let cheapest = |point: usize| problem.sides.iter().filter_map(|side| side.serves(point)).min().unwrap_or(0);
    let mut prices: Vec<Cost> = (0..problem.points.len()).map(cheapest).collect();
    let orphan = (0..servers.len()).any(|point| problem.points[point].kind == Kind::Read && servers[point].is_empty());
    if orphan {
        return Err(Unsolvable::Infeasible);
    }
    let value = |now: &Round, prices: &[Cost]| {
        priced.iter().map(|point| prices[*point]).sum::<Cost>() + now.bests.iter().map(|best| best.cost).sum::<Cost>()
    };
    let (mut best, mut best_prices) = (Cost::MIN, prices.clone());
    let mut repaired: Option<(Cost, Plan)> = None;
    let mut target = Cost::from(spent.get()) * 1_000_000_000;
    let (mut part, mut patience, mut done) = (1024, PATIENCE, 0);
    loop {
        let now = round(problem, &servers, &prices, Terms::KIND.unlimited()).ok_or(Unsolvable::Infeasible)?;
        let value_now = value(&now, &prices);
        patience -= 1;
        if value_now > best {
            (best, patience) = (value_now, PATIENCE);
            best_prices.clone_from(&prices);
        }
        if patience == 0 {
            (part, patience) = (part.max(2) / 2, PATIENCE);
        }
        done += 1;
        let missing = |point: usize| 1 - now.takers[point].len() as Cost;
        let unsettled = priced.iter().filter(|point| missing(**point) != 0).count();
        let is_over = done >= rounds.max(1) || unsettled == 0;
        if is_over || done % REPAIR_EACH == 0 {
            let found = repair(problem, &servers, &now, best + best / NEAR);
            repaired = repaired.into_iter().chain(found).min_by_key(|(cost, _)| *cost);
            target = repaired.as_ref().map_or(target, |(cost, _)| target.min(*cost));
        }
        if is_over {
            // Only now the budget: counting tokens is slow, and seldom changes what a read is worth.
            let limited = round(problem, &servers, &best_prices, Terms::KIND).ok_or(Unsolvable::Infeasible)?;
            let (cost, plan) = repaired.unwrap_or((Cost::MAX, Plan::default()));
            let least = energy(best.max(value(&limited, &best_prices)));
            return Ok(Tightened { energy: least, plan, planned: energy(cost), unsettled, rounds: done });
        }
        let norm: Cost = priced.iter().map(|point| missing(*point).pow(2)).sum();
        let step = (target - value_now).max(0) * part / 1024 / norm.max(1);
        for point in &priced {
            prices[*point] += step * missing(*point);
        }
    }
}
