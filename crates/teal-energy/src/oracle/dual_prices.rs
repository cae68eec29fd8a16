//! The bound for long traces: the Lagrangian dual of the problem, its prices found by subgradient
//! ascent.
//!
//! # Guarantees
//! 1. *Valid for any prices*: the optimum serves each read once and takes, from the beginning to
//!    any time, no more tokens than there are by then. Paid for by the prices, that is the sum of
//!    the prices of reads, less those of the tokens that there are, and of what the devices spend
//!    less what they earn; and no device can do better than it does alone.
//! 2. The best bound over all rounds is kept; more rounds never make it worse.
//! 3. The plan serves every read once: the optimum lies between the bound and what its run costs.
//!
//! A read that only one device holds needs no price: that device has to serve it.

use super::beam::beam_search;
use super::device_search::{
    DeviceSchedule, ReadDemand, ScheduledAction, SubproblemTask, solve_subproblem,
};
use super::joint::rounded_down;
use super::plan::ClairvoyantPlan;
use super::problem::{PointKind, SchedulingProblem, Unsolvable};
use super::repair::repair_schedules;
use super::subproblem::{Cost, DeviceSubproblem, StopLimit};
use teal_types::{Energy, Span, Time};

/// A bound, and the plan that its prices led to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DualBound {
    /// The bound: no policy spends less.
    pub energy: Energy,
    /// A schedule that keeps all limits: the optimum is not above what it costs when the simulator
    /// runs it.
    pub plan: ClairvoyantPlan,
}

/// The shortest first step of a read's price, and that of a token's, in femtojoules.
const SHORTEST_STEP: Cost = 100_000_000_000;
const TOKEN_STEP: Cost = 1_000_000_000_000_000;
/// A schedule that costs one part of so many more than the bound is near enough.
const GAP_PARTS: Cost = 2000;

/// Times until which tokens are counted, and have a price.
const TOKEN_WINDOWS: u64 = 16;

/// One iterate of the ascent: the schedules of all devices at the prices of the time.
pub(super) struct DualIterate {
    pub(super) schedules: Vec<DeviceSchedule>,
    /// By point: which devices took its read.
    pub(super) takers: Vec<Vec<u8>>,
    /// By device and window: tokens taken.
    tokens_taken: Vec<Vec<Cost>>,
}

/// The dual prices of one iterate.
struct DualPrices {
    /// By point.
    reads: Vec<Cost>,
    /// By device and window: of a token that is taken until its end. Never less than nothing.
    tokens: Vec<Vec<Cost>>,
}

/// A device's tokens: the end of each window and how many there are by then. None where they are
/// not counted.
struct TokenWindows(Vec<(Time, Cost)>);

impl TokenWindows {
    fn divide_trace(side: &DeviceSubproblem<'_>, end: Time) -> Self {
        let until = |part: u64| {
            Time::after_start(Span::nanos(
                end.since(Time::ZERO).get() / TOKEN_WINDOWS * part,
            ))
        };
        let window = |part| Some((until(part), Cost::from(side.tokens_until(until(part))?)));
        Self((1..=TOKEN_WINDOWS).filter_map(window).collect())
    }

    /// By own point of the device what a token costs that is taken before the next one.
    fn prices_by_point(&self, side: &DeviceSubproblem<'_>, prices: &[Cost]) -> Vec<Cost> {
        let of = |own: usize| {
            let mine = self
                .0
                .iter()
                .zip(prices)
                .filter(|((until, _), _)| *until >= side.next_time(own));
            mine.map(|(_, price)| *price).sum()
        };
        (0..side.points.len()).map(of).collect()
    }

    /// Returns what was taken by the end of each.
    fn count_taken(&self, side: &DeviceSubproblem<'_>, best: &DeviceSchedule) -> Vec<Cost> {
        let (mut state, mut times) = (side.start_state().power_state, Vec::new());
        for (at, deed) in &best.actions {
            let (ScheduledAction::Wake(to) | ScheduledAction::Rest(to)) = *deed else {
                continue;
            };
            times.extend(side.takes_token(state, to).then_some(*at));
            state = to;
        }
        self.0
            .iter()
            .map(|(until, _)| times.iter().filter(|time| *time <= until).count() as Cost)
            .collect()
    }
}

/// The reads that several devices hold, and so have a price; by point who can serve it.
pub(super) fn find_servers(problem: &SchedulingProblem<'_>) -> Vec<Vec<u8>> {
    let of = |point: usize| {
        let sides = (0_u8..).zip(&problem.subproblems);
        sides
            .filter(|(_, side)| side.least_read_cost(point).is_some())
            .map(|(at, _)| at)
            .collect()
    };
    (0..problem.points.len()).map(of).collect()
}

/// The Lagrangian dual: a subproblem for each device, and the constraints that have a price.
struct DualProblem<'p, 'a> {
    problem: &'p SchedulingProblem<'a>,
    servers: Vec<Vec<u8>>,
    /// The points whose reads have a price.
    priced: Vec<usize>,
    windows: Vec<TokenWindows>,
}

impl<'p, 'a> DualProblem<'p, 'a> {
    fn new(problem: &'p SchedulingProblem<'a>) -> Self {
        let servers = find_servers(problem);
        let priced = (0..problem.points.len())
            .filter(|point| servers[*point].len() > 1)
            .collect();
        let end = problem.points.last().map_or(Time::ZERO, |point| point.at);
        let windows = problem
            .subproblems
            .iter()
            .map(|side| TokenWindows::divide_trace(side, end))
            .collect();
        Self {
            problem,
            servers,
            priced,
            windows,
        }
    }

    fn first_prices(&self) -> DualPrices {
        let sides = &self.problem.subproblems;
        let mut reads = vec![0; self.problem.points.len()];
        for point in &self.priced {
            reads[*point] = sides
                .iter()
                .filter_map(|side| side.least_read_cost(*point))
                .min()
                .unwrap_or(0);
        }
        DualPrices {
            reads,
            tokens: self
                .windows
                .iter()
                .map(|windows| vec![0; windows.0.len()])
                .collect(),
        }
    }

    fn stop_prices(&self, prices: &DualPrices) -> Vec<Vec<Cost>> {
        let sides = self
            .problem
            .subproblems
            .iter()
            .zip(&self.windows)
            .zip(&prices.tokens);
        sides
            .map(|((side, windows), prices)| windows.prices_by_point(side, prices))
            .collect()
    }

    fn solve_round(&self, prices: &DualPrices) -> Option<DualIterate> {
        let mut takers = vec![Vec::new(); self.problem.points.len()];
        let (mut bests, mut taken) = (Vec::new(), Vec::new());
        for ((at, side), stops) in (0_u8..)
            .zip(&self.problem.subproblems)
            .zip(self.stop_prices(prices))
        {
            let claim = |point: usize| match self.servers[point].as_slice() {
                [only] if *only == at => ReadDemand::Must,
                who if who.len() > 1 && who.contains(&at) => ReadDemand::May(prices.reads[point]),
                _ => ReadDemand::No,
            };
            let claims: Vec<ReadDemand> = (0..self.problem.points.len()).map(claim).collect();
            let best = solve_subproblem(
                side,
                SubproblemTask {
                    demands: &claims,
                    stop_limit: StopLimit::Priced(&stops),
                    is_plan: false,
                },
            )?;
            best.served_points()
                .for_each(|point| takers[point].push(at));
            taken.push(self.windows[usize::from(at)].count_taken(side, &best));
            bests.push(best);
        }
        Some(DualIterate {
            schedules: bests,
            takers,
            tokens_taken: taken,
        })
    }

    fn dual_value(&self, now: &DualIterate, prices: &DualPrices) -> Cost {
        let reads: Cost = self.priced.iter().map(|point| prices.reads[*point]).sum();
        let tokens = self
            .windows
            .iter()
            .zip(&prices.tokens)
            .flat_map(|(windows, prices)| windows.0.iter().zip(prices));
        let tokens: Cost = tokens.map(|((_, there), price)| there * price).sum();
        reads - tokens + now.schedules.iter().map(|best| best.cost).sum::<Cost>()
    }

    /// Returns the subgradient at a read's price: one device less those that took the read.
    fn read_subgradient(now: &DualIterate, point: usize) -> Cost {
        1 - now.takers[point].len() as Cost
    }
}

/// A price as it is looked for: its step is longer while it moves one way, and shorter where it
/// turns (Riedmiller and Braun's Rprop), since what a read is worth alone and among a thousand
/// others differs by as much.
#[derive(Clone, Copy)]
struct PriceStep {
    length: Cost,
    was_up: Option<bool>,
}

impl PriceStep {
    /// Moves a price along its subgradient `wanted`: up where too few devices want the read.
    fn move_price(&mut self, price: &mut Cost, wanted: Cost) {
        let is_up = match wanted {
            0 => return,
            wanted => wanted > 0,
        };
        self.length = match self.was_up {
            Some(was_up) if was_up == is_up => self.length * 3 / 2,
            Some(_) => self.length / 2,
            None => self.length,
        };
        self.was_up = Some(is_up);
        *price += if is_up { self.length } else { -self.length };
    }
}

/// The step of each price.
struct PriceSteps {
    reads: Vec<PriceStep>,
    tokens: Vec<Vec<PriceStep>>,
}

impl PriceSteps {
    fn new(prices: &DualPrices) -> Self {
        let step = |length| PriceStep {
            length,
            was_up: None,
        };
        let reads = prices
            .reads
            .iter()
            .map(|price| step(price / 4 + SHORTEST_STEP))
            .collect();
        let tokens = prices
            .tokens
            .iter()
            .map(|prices| vec![step(TOKEN_STEP); prices.len()])
            .collect();
        Self { reads, tokens }
    }

    fn move_prices(
        &mut self,
        market: &DualProblem<'_, '_>,
        prices: &mut DualPrices,
        now: &DualIterate,
    ) {
        for point in &market.priced {
            self.reads[*point].move_price(
                &mut prices.reads[*point],
                DualProblem::read_subgradient(now, *point),
            );
        }
        for (device, windows) in market.windows.iter().enumerate() {
            let steps = self.tokens[device]
                .iter_mut()
                .zip(&mut prices.tokens[device]);
            for ((step, price), ((_, there), taken)) in
                steps.zip(windows.0.iter().zip(&now.tokens_taken[device]))
            {
                step.move_price(price, taken - there);
                *price = (*price).max(0);
            }
        }
    }
}

/// Returns a bound for a problem of any length, after `rounds` iterates of the price ascent.
///
/// # Errors
/// [`Unsolvable::Infeasible`].
pub fn lagrangian_bound(
    problem: &SchedulingProblem<'_>,
    rounds: usize,
) -> Result<DualBound, Unsolvable> {
    let market = DualProblem::new(problem);
    let is_orphan = |point: usize| {
        problem.points[point].kind == PointKind::Read && market.servers[point].is_empty()
    };
    if (0..problem.points.len()).any(is_orphan) {
        return Err(Unsolvable::Infeasible);
    }
    let mut prices = market.first_prices();
    let mut steps = PriceSteps::new(&prices);
    let mut best: Option<(Cost, DualIterate, Vec<Vec<Cost>>)> = None;
    for _ in 0..rounds.max(1) {
        let now = market.solve_round(&prices).ok_or(Unsolvable::Infeasible)?;
        let (value, stops) = (
            market.dual_value(&now, &prices),
            market.stop_prices(&prices),
        );
        steps.move_prices(&market, &mut prices, &now);
        if best.as_ref().is_none_or(|(best, ..)| value > *best) {
            best = Some((value, now, stops));
        }
    }
    let (least, round, stops) = best.ok_or(Unsolvable::Infeasible)?;
    let plan = beam_search(problem, &stops).or_else(|| {
        repair_schedules(
            problem,
            &market.servers,
            &stops,
            &round,
            least + least / GAP_PARTS,
        )
    });
    Ok(DualBound {
        energy: rounded_down(least),
        plan: plan.unwrap_or_default(),
    })
}
