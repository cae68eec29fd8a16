//! Scores: what policies spend on a day, beside the floor and what foresight could have reached.
//!
//! # Guarantees
//! 1. The bound is that of [`oracle`]: no policy spends less; a schedule with foresight, run by the
//!    simulator, spends `feasible`.

use crate::replay::{NamedPolicy, PolicyRun, PreparedReplay};
use teal_energy::oracle::{self, SchedulingProblem, Unsolvable};
use teal_energy::sim::{self, SimulationReport};
use teal_types::Energy;

/// A day on a machine, scored.
#[derive(Debug)]
pub struct DayScore {
    /// Each policy's run; always-on is first, ours last.
    pub runs: Vec<PolicyRun>,
    /// Everything in its lowest state.
    pub floor: Energy,
    /// No policy spends less.
    pub least: Energy,
    /// A schedule near the bound, run by the simulator.
    pub feasible: SimulationReport,
}

/// Parts of a whole, in thousandths.
pub type Thousandths = u64;

/// `part / whole` in thousandths; nothing of nothing is the whole.
pub fn ratio_in_thousandths(part: Energy, whole: Energy) -> Thousandths {
    if whole == Energy::ZERO {
        1000
    } else {
        part.get().saturating_mul(1000) / whole.get()
    }
}

impl DayScore {
    /// Runs every policy and the bound.
    ///
    /// # Errors
    /// [`Unsolvable`].
    pub fn for_replay(scene: &PreparedReplay, rounds: usize) -> Result<Self, Unsolvable> {
        let runs: Vec<PolicyRun> = NamedPolicy::ALL
            .iter()
            .map(|named| scene.run(named))
            .collect();
        // What is longer late than ours is no schedule to compare with.
        let late = oracle::longest_lateness(runs.last().map(|run| &run.report));
        let problem = SchedulingProblem::new(&scene.world, &scene.trace, &late);
        let found = oracle::lagrangian_bound(&problem, rounds)?;
        let feasible = sim::run(&scene.world, &scene.trace, &mut found.plan.into_policy());
        let floor = runs.first().map_or(Energy::ZERO, |run| run.report.floor);
        Ok(Self {
            runs,
            floor,
            least: found.energy,
            feasible,
        })
    }

    /// Ours.
    pub fn teal_report(&self) -> &SimulationReport {
        &self.runs[self.runs.len() - 1].report
    }

    /// Always-on.
    pub fn always_on(&self) -> &SimulationReport {
        &self.runs[0].report
    }

    /// Returns what is above the floor, of what is above it at the bound (goal: 1350).
    pub fn above_floor(&self, report: &SimulationReport) -> Thousandths {
        ratio_in_thousandths(
            report.total_energy().less(self.floor),
            self.least.less(self.floor),
        )
    }

    /// Of what the bound spends (goal: 1150).
    pub fn of_least(&self, report: &SimulationReport) -> Thousandths {
        ratio_in_thousandths(report.total_energy(), self.least)
    }

    /// Returns what is saved of what always-on spends (goal: 600), and of what foresight saves
    /// (goal: 900).
    pub fn saved_energy(&self, report: &SimulationReport) -> (Thousandths, Thousandths) {
        let (all, least) = (self.always_on().total_energy(), self.least);
        (
            ratio_in_thousandths(all.less(report.total_energy()), all),
            ratio_in_thousandths(all.less(report.total_energy()), all.less(least)),
        )
    }

    /// Time in which somebody waited, beyond what they wait with everything awake, of the day
    /// (goal: 50).
    pub fn added_waiting(&self, report: &SimulationReport) -> Thousandths {
        let added = report.waiting.less(self.always_on().waiting);
        added.get().saturating_mul(1000) / report.elapsed.get().max(1)
    }

    /// How far the bound may be too low: from it to the least that any run spent, with foresight or
    /// without (goal: 30).
    pub fn bound_gap(&self) -> Thousandths {
        let runs = self.runs.iter().map(|run| run.report.total_energy());
        let best = runs.fold(self.feasible.total_energy(), Energy::min);
        ratio_in_thousandths(best.less(self.least), self.least)
    }
}
