//! The bound for long traces: the Lagrangian dual of the problem, its prices found by subgradient
//! ascent.
//!
//! # Guarantees
//! 1. *Valid for any prices*: the optimum serves each read once and takes, from the beginning to
//!    any time, no more tokens than there are by then. At given prices its cost is therefore at
//!    least the sum of the prices of reads, less the prices of the tokens that there are, plus each
//!    device's cost less its earnings; and no device can do better than in its own subproblem.
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
use teal_types::{Energy, Time, TimeSpan};

/// A bound, and the plan that its prices led to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DualBound {
    /// The bound: no policy spends less.
    pub energy: Energy,
    /// A schedule that keeps all limits: the optimum is not above what it costs when the simulator
    /// runs it.
    pub plan: ClairvoyantPlan,
}

/// The shortest first step of a read's price, in femtojoules.
const SHORTEST_STEP: Cost = 100_000_000_000;
const TOKEN_STEP: Cost = 1_000_000_000_000_000;
/// A schedule is near enough to the bound if the gap is less than one part of so many.
const GAP_PARTS: Cost = 2000;

/// Times until which tokens are counted, and have a price.
const TOKEN_WINDOWS: u64 = 16;

/// One iterate of the ascent: the schedules of all devices at the prices of the time.
pub(super) struct DualIterate {
    pub(super) schedules: Vec<DeviceSchedule>,
    /// By point: the devices that took its read.
    pub(super) takers: Vec<Vec<u8>>,
    /// By device and window: tokens taken.
    tokens_taken: Vec<Vec<Cost>>,
}

/// The dual prices of one iterate.
struct DualPrices {
    /// By point.
    reads: Vec<Cost>,
    /// By device and window: the price of a token that is taken until the window's end. It is never
    /// negative.
    tokens: Vec<Vec<Cost>>,
}

/// A device's tokens: the end of each window and how many there are by then. None where they are
/// not counted.
struct TokenWindows(Vec<(Time, Cost)>);

impl TokenWindows {
    fn divide_trace(subproblem: &DeviceSubproblem<'_>, end: Time) -> Self {
        let until = |part: u64| {
            Time::after_start(TimeSpan::from_nanos(
                end.since(Time::ZERO).get() / TOKEN_WINDOWS * part,
            ))
        };
        let window = |part| {
            Some((
                until(part),
                Cost::from(subproblem.tokens_until(until(part))?),
            ))
        };
        Self((1..=TOKEN_WINDOWS).filter_map(window).collect())
    }

    /// Returns the price of a token by the device's own points, if it is taken before the next
    /// point.
    fn prices_by_point(&self, subproblem: &DeviceSubproblem<'_>, prices: &[Cost]) -> Vec<Cost> {
        let of = |own_point: usize| {
            let mine = self
                .0
                .iter()
                .zip(prices)
                .filter(|((until, _), _)| *until >= subproblem.next_time(own_point));
            mine.map(|(_, price)| *price).sum()
        };
        (0..subproblem.points.len()).map(of).collect()
    }

    /// Returns how many tokens a schedule took by the end of each window.
    fn count_taken(&self, subproblem: &DeviceSubproblem<'_>, best: &DeviceSchedule) -> Vec<Cost> {
        let (mut state, mut times) = (subproblem.start_state().power_state, Vec::new());
        for (at, action) in &best.actions {
            let (ScheduledAction::Wake(to) | ScheduledAction::Rest(to)) = *action else {
                continue;
            };
            times.extend(subproblem.takes_token(state, to).then_some(*at));
            state = to;
        }
        self.0
            .iter()
            .map(|(until, _)| times.iter().filter(|time| *time <= until).count() as Cost)
            .collect()
    }
}

/// Returns for each point the devices that can serve its read. A read that several devices hold has
/// a price.
pub(super) fn find_servers(problem: &SchedulingProblem<'_>) -> Vec<Vec<u8>> {
    let of = |point: usize| {
        let subproblems = (0_u8..).zip(&problem.subproblems);
        subproblems
            .filter(|(_, subproblem)| subproblem.least_read_cost(point).is_some())
            .map(|(at, _)| at)
            .collect()
    };
    (0..problem.points.len()).map(of).collect()
}

/// The Lagrangian dual: a subproblem for each device, and the constraints that have a price.
struct DualProblem<'p, 'a> {
    problem: &'p SchedulingProblem<'a>,
    servers: Vec<Vec<u8>>,
    /// The points at which a read has a price.
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
            .map(|subproblem| TokenWindows::divide_trace(subproblem, end))
            .collect();
        Self {
            problem,
            servers,
            priced,
            windows,
        }
    }

    fn first_prices(&self) -> DualPrices {
        let subproblems = &self.problem.subproblems;
        // Prices begin at the cheapest device's cost: below it no device would take the read.
        let mut reads = vec![0; self.problem.points.len()];
        for point in &self.priced {
            reads[*point] = subproblems
                .iter()
                .filter_map(|subproblem| subproblem.least_read_cost(*point))
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
        let subproblems = self
            .problem
            .subproblems
            .iter()
            .zip(&self.windows)
            .zip(&prices.tokens);
        subproblems
            .map(|((subproblem, windows), prices)| windows.prices_by_point(subproblem, prices))
            .collect()
    }

    fn solve_round(&self, prices: &DualPrices) -> Option<DualIterate> {
        let mut takers = vec![Vec::new(); self.problem.points.len()];
        let (mut schedules, mut taken) = (Vec::new(), Vec::new());
        for ((at, subproblem), stops) in (0_u8..)
            .zip(&self.problem.subproblems)
            .zip(self.stop_prices(prices))
        {
            // A read that only one device holds needs no price.
            let demand = |point: usize| match self.servers[point].as_slice() {
                [only] if *only == at => ReadDemand::Must,
                holders if holders.len() > 1 && holders.contains(&at) => {
                    ReadDemand::May(prices.reads[point])
                }
                _ => ReadDemand::No,
            };
            let demands: Vec<ReadDemand> = (0..self.problem.points.len()).map(demand).collect();
            // With the prices fixed, devices do not influence each other: each solves its part
            // alone.
            let best = solve_subproblem(
                subproblem,
                SubproblemTask {
                    demands: &demands,
                    stop_limit: StopLimit::Priced(&stops),
                    is_plan: false,
                },
            )?;
            best.served_points()
                .for_each(|point| takers[point].push(at));
            taken.push(self.windows[usize::from(at)].count_taken(subproblem, &best));
            schedules.push(best);
        }
        Some(DualIterate {
            schedules: schedules,
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
        // The value of the Lagrangian: the prices of the constraints, and each device's cost less
        // its earnings.
        reads - tokens + now.schedules.iter().map(|best| best.cost).sum::<Cost>()
    }

    /// Returns the subgradient at a read's price: one device less those that took the read.
    fn read_subgradient(now: &DualIterate, point: usize) -> Cost {
        // Positive if no device took the read: its price must rise.
        1 - now.takers[point].len() as Cost
    }
}

/// The step of one price: it grows while the price moves one way, and shrinks where it turns
/// (Riedmiller and Braun's Rprop), since the worth of a read alone and among a thousand others
/// differs by a factor of a thousand.
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
        // Rprop: the same direction lengthens the step, a turn halves it.
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
        dual: &DualProblem<'_, '_>,
        prices: &mut DualPrices,
        now: &DualIterate,
    ) {
        for point in &dual.priced {
            self.reads[*point].move_price(
                &mut prices.reads[*point],
                DualProblem::read_subgradient(now, *point),
            );
        }
        for (device, windows) in dual.windows.iter().enumerate() {
            let steps = self.tokens[device]
                .iter_mut()
                .zip(&mut prices.tokens[device]);
            for ((step, price), ((_, there), taken)) in
                steps.zip(windows.0.iter().zip(&now.tokens_taken[device]))
            {
                step.move_price(price, taken - there);
                // A token is an inequality: its price must not be negative.
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
    let dual = DualProblem::new(problem);
    let is_orphan = |point: usize| {
        problem.points[point].kind == PointKind::Read && dual.servers[point].is_empty()
    };
    // A read that no device holds makes the problem infeasible at any price.
    if (0..problem.points.len()).any(is_orphan) {
        return Err(Unsolvable::Infeasible);
    }
    let mut prices = dual.first_prices();
    let mut steps = PriceSteps::new(&prices);
    let mut best: Option<(Cost, DualIterate, Vec<Vec<Cost>>)> = None;
    for _ in 0..rounds.max(1) {
        let now = dual.solve_round(&prices).ok_or(Unsolvable::Infeasible)?;
        let (value, stops) = (dual.dual_value(&now, &prices), dual.stop_prices(&prices));
        steps.move_prices(&dual, &mut prices, &now);
        // Subgradient steps may make the value worse; the best bound of all rounds counts.
        if best.as_ref().is_none_or(|(best, ..)| value > *best) {
            best = Some((value, now, stops));
        }
    }
    let (least, round, stops) = best.ok_or(Unsolvable::Infeasible)?;
    // The relaxed schedules break constraints. A schedule that keeps them comes from a beam search
    // or, for more devices, from repairing the best iterate.
    let plan = beam_search(problem, &stops).or_else(|| {
        repair_schedules(
            problem,
            &dual.servers,
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
