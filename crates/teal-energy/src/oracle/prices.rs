//! The bound for long traces: every read has a price, and so has every token; each device takes the reads that pay for it.
//!
//! # Guarantees
//! 1. *Valid for any prices*: the optimum serves each read once and takes, from the beginning to any time, no more tokens than there
//!    are by then. Paid for by the prices, that is the sum of the prices of reads, less those of the tokens that there are, and
//!    of what the devices spend less what they earn; and no device can do better than it does alone.
//! 2. The best bound over all rounds is kept; more rounds never make it worse.
//! 3. The plan serves every read once: the optimum lies between the bound and what its run costs.
//!
//! A read that only one device holds needs no price: that device has to serve it.

use super::alone::{Best, Claim, Deed, Task, alone};
use super::beam::beam;
use super::joint::energy;
use super::plan::Plan;
use super::problem::{Kind, Problem, Unsolvable};
use super::repair::repair;
use super::side::{Cost, Side, Tokens};
use teal_types::{Energy, Span, Time};

/// A bound and how it came about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tightened {
    /// No policy spends less.
    pub energy: Energy,
    /// A schedule that keeps all limits: the optimum is not above what it costs when the simulator runs it.
    pub plan: Plan,
}

/// The shortest first step of a read's price, and that of a token's, in femtojoules.
const LEAST: Cost = 100_000_000_000;
const TOKEN: Cost = 1_000_000_000_000_000;
/// A schedule that costs one part of so many more than the bound is near enough.
const NEAR: Cost = 2000;

/// Times until which tokens are counted, and have a price.
const WINDOWS: u64 = 16;

/// One round: what the devices did at these prices.
pub(super) struct Round {
    pub(super) bests: Vec<Best>,
    /// By point: which devices took its read.
    pub(super) takers: Vec<Vec<u8>>,
    /// By device and window: tokens taken.
    taken: Vec<Vec<Cost>>,
}

/// What everything costs at a round.
struct Prices {
    /// By point.
    reads: Vec<Cost>,
    /// By device and window: of a token that is taken until its end. Never less than nothing.
    tokens: Vec<Vec<Cost>>,
}

/// A device's tokens: the end of each window and how many there are by then. None where they are not counted.
struct Windows(Vec<(Time, Cost)>);

impl Windows {
    fn of(side: &Side<'_>, end: Time) -> Self {
        let until = |part: u64| {
            Time::after_start(Span::nanos(end.since(Time::ZERO).get() / WINDOWS * part))
        };
        let window = |part| Some((until(part), Cost::from(side.tokens(until(part))?)));
        Self((1..=WINDOWS).filter_map(window).collect())
    }

    /// By own point of the device what a token costs that is taken before the next one.
    fn prices(&self, side: &Side<'_>, prices: &[Cost]) -> Vec<Cost> {
        let of = |own: usize| {
            let mine = self
                .0
                .iter()
                .zip(prices)
                .filter(|((until, _), _)| *until >= side.next(own));
            mine.map(|(_, price)| *price).sum()
        };
        (0..side.own.len()).map(of).collect()
    }

    /// What was taken by the end of each.
    fn taken(&self, side: &Side<'_>, best: &Best) -> Vec<Cost> {
        let (mut state, mut times) = (side.start().state, Vec::new());
        for (at, deed) in &best.deeds {
            let (Deed::Wake(to) | Deed::Rest(to)) = *deed else {
                continue;
            };
            times.extend(side.takes(state, to).then_some(*at));
            state = to;
        }
        self.0
            .iter()
            .map(|(until, _)| times.iter().filter(|time| *time <= until).count() as Cost)
            .collect()
    }
}

/// The reads that several devices hold, and so have a price; by point who can serve it.
pub(super) fn servers(problem: &Problem<'_>) -> Vec<Vec<u8>> {
    let of = |point: usize| {
        let sides = (0_u8..).zip(&problem.sides);
        sides
            .filter(|(_, side)| side.serves(point).is_some())
            .map(|(at, _)| at)
            .collect()
    };
    (0..problem.points.len()).map(of).collect()
}

/// The search for prices.
struct Market<'p, 'a> {
    problem: &'p Problem<'a>,
    servers: Vec<Vec<u8>>,
    /// The points whose reads have a price.
    priced: Vec<usize>,
    windows: Vec<Windows>,
}

impl<'p, 'a> Market<'p, 'a> {
    fn new(problem: &'p Problem<'a>) -> Self {
        let servers = servers(problem);
        let priced = (0..problem.points.len())
            .filter(|point| servers[*point].len() > 1)
            .collect();
        let end = problem.points.last().map_or(Time::ZERO, |point| point.at);
        let windows = problem
            .sides
            .iter()
            .map(|side| Windows::of(side, end))
            .collect();
        Self {
            problem,
            servers,
            priced,
            windows,
        }
    }

    fn first_prices(&self) -> Prices {
        let sides = &self.problem.sides;
        let mut reads = vec![0; self.problem.points.len()];
        for point in &self.priced {
            reads[*point] = sides
                .iter()
                .filter_map(|side| side.serves(*point))
                .min()
                .unwrap_or(0);
        }
        Prices {
            reads,
            tokens: self
                .windows
                .iter()
                .map(|windows| vec![0; windows.0.len()])
                .collect(),
        }
    }

    fn stops(&self, prices: &Prices) -> Vec<Vec<Cost>> {
        let sides = self
            .problem
            .sides
            .iter()
            .zip(&self.windows)
            .zip(&prices.tokens);
        sides
            .map(|((side, windows), prices)| windows.prices(side, prices))
            .collect()
    }

    fn round(&self, prices: &Prices) -> Option<Round> {
        let mut takers = vec![Vec::new(); self.problem.points.len()];
        let (mut bests, mut taken) = (Vec::new(), Vec::new());
        for ((at, side), stops) in (0_u8..).zip(&self.problem.sides).zip(self.stops(prices)) {
            let claim = |point: usize| match self.servers[point].as_slice() {
                [only] if *only == at => Claim::Must,
                who if who.len() > 1 && who.contains(&at) => Claim::May(prices.reads[point]),
                _ => Claim::No,
            };
            let claims: Vec<Claim> = (0..self.problem.points.len()).map(claim).collect();
            let best = alone(
                side,
                Task {
                    claims: &claims,
                    tokens: Tokens::Priced(&stops),
                    is_plan: false,
                },
            )?;
            best.taken().for_each(|point| takers[point].push(at));
            taken.push(self.windows[usize::from(at)].taken(side, &best));
            bests.push(best);
        }
        Some(Round {
            bests,
            takers,
            taken,
        })
    }

    fn value(&self, now: &Round, prices: &Prices) -> Cost {
        let reads: Cost = self.priced.iter().map(|point| prices.reads[*point]).sum();
        let tokens = self
            .windows
            .iter()
            .zip(&prices.tokens)
            .flat_map(|(windows, prices)| windows.0.iter().zip(prices));
        let tokens: Cost = tokens.map(|((_, there), price)| there * price).sum();
        reads - tokens + now.bests.iter().map(|best| best.cost).sum::<Cost>()
    }

    /// How many more devices a read wants: one or none, or less than nothing.
    fn missing(now: &Round, point: usize) -> Cost {
        1 - now.takers[point].len() as Cost
    }
}

/// A price as it is looked for: its step is longer while it moves one way, and shorter where it turns (Riedmiller and Braun's Rprop), since
/// what a read is worth alone and among a thousand others differs by as much.
#[derive(Clone, Copy)]
struct Step {
    length: Cost,
    was_up: Option<bool>,
}

impl Step {
    /// Moves a price: up where too few want it.
    fn go(&mut self, price: &mut Cost, wanted: Cost) {
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

/// The steps of all prices.
struct Steps {
    reads: Vec<Step>,
    tokens: Vec<Vec<Step>>,
}

impl Steps {
    fn new(prices: &Prices) -> Self {
        let step = |length| Step {
            length,
            was_up: None,
        };
        let reads = prices
            .reads
            .iter()
            .map(|price| step(price / 4 + LEAST))
            .collect();
        let tokens = prices
            .tokens
            .iter()
            .map(|prices| vec![step(TOKEN); prices.len()])
            .collect();
        Self { reads, tokens }
    }

    fn go(&mut self, market: &Market<'_, '_>, prices: &mut Prices, now: &Round) {
        for point in &market.priced {
            self.reads[*point].go(&mut prices.reads[*point], Market::missing(now, *point));
        }
        for (device, windows) in market.windows.iter().enumerate() {
            let steps = self.tokens[device]
                .iter_mut()
                .zip(&mut prices.tokens[device]);
            for ((step, price), ((_, there), taken)) in
                steps.zip(windows.0.iter().zip(&now.taken[device]))
            {
                step.go(price, taken - there);
                *price = (*price).max(0);
            }
        }
    }
}

/// A bound for a problem of any length, with so many rounds of prices.
///
/// # Errors
/// [`Unsolvable::Infeasible`].
pub fn bound(problem: &Problem<'_>, rounds: usize) -> Result<Tightened, Unsolvable> {
    let market = Market::new(problem);
    let is_orphan =
        |point: usize| problem.points[point].kind == Kind::Read && market.servers[point].is_empty();
    if (0..problem.points.len()).any(is_orphan) {
        return Err(Unsolvable::Infeasible);
    }
    let mut prices = market.first_prices();
    let mut steps = Steps::new(&prices);
    let mut best: Option<(Cost, Round, Vec<Vec<Cost>>)> = None;
    for _ in 0..rounds.max(1) {
        let now = market.round(&prices).ok_or(Unsolvable::Infeasible)?;
        let (value, stops) = (market.value(&now, &prices), market.stops(&prices));
        steps.go(&market, &mut prices, &now);
        if best.as_ref().is_none_or(|(best, ..)| value > *best) {
            best = Some((value, now, stops));
        }
    }
    let (least, round, stops) = best.ok_or(Unsolvable::Infeasible)?;
    let plan = beam(problem, &stops).or_else(|| {
        repair(
            problem,
            &market.servers,
            &stops,
            &round,
            least + least / NEAR,
        )
    });
    Ok(Tightened {
        energy: energy(least),
        plan: plan.unwrap_or_default(),
    })
}
