//! Scores policies: their energy on a day, beside the floor and the energy that foresight could
//! have reached.
//!
//! # Guarantees
//! 1. The bound is that of [`oracle`]: no policy spends less. A schedule with foresight, run by the
//!    simulator, spends `feasible`.

use crate::replay::{NamedPolicy, PolicyRun, PreparedReplay};
use teal_energy::oracle::{self, SchedulingProblem, Unsolvable};
use teal_energy::sim::{self, SimulationReport};
use teal_types::Energy;

/// Holds the score of a day on a machine.
#[derive(Debug)]
pub struct DayScore {
    /// Run of each policy; always-on is first, teal last.
    pub runs: Vec<PolicyRun>,
    /// Energy with everything in its lowest state.
    pub floor: Energy,
    /// Lower bound on the energy of any policy.
    pub least: Energy,
    /// Run of a schedule near the bound.
    pub feasible: SimulationReport,
}

/// Counts thousandths of a whole.
pub type Thousandths = u64;

/// Returns `part / whole` in thousandths; nothing of nothing is the whole.
pub fn ratio_in_thousandths(part: Energy, whole: Energy) -> Thousandths {
    if whole == Energy::ZERO {
        1000
    } else {
        part.get().saturating_mul(1000) / whole.get()
    }
}

impl DayScore {
    /// Runs every policy and computes the bound.
    ///
    /// # Errors
    /// [`Unsolvable`].
    pub fn for_replay(scene: &PreparedReplay, rounds: usize) -> Result<Self, Unsolvable> {
        let runs: Vec<PolicyRun> = NamedPolicy::ALL
            .iter()
            .map(|named| scene.run(named))
            .collect();
        // A schedule may be as late as ours: a later one would be no fair comparison.
        let late = oracle::longest_lateness(runs.last().map(|run| &run.report));
        let problem = SchedulingProblem::new(&scene.world, &scene.trace, &late);
        let found = oracle::lagrangian_bound(&problem, rounds)?;
        let feasible = sim::run(&scene.world, &scene.trace, &mut found.plan.into_policy());
        debug_assert!(runs.len() >= 2, "always-on and teal are among the policies");
        let floor = runs.first().map_or(Energy::ZERO, |run| run.report.floor);
        Ok(Self {
            runs,
            floor,
            least: found.energy,
            feasible,
        })
    }

    /// Returns the run of our policy.
    pub fn teal_report(&self) -> &SimulationReport {
        &self.runs[self.runs.len() - 1].report
    }

    /// Returns the run of always-on.
    pub fn always_on(&self) -> &SimulationReport {
        &self.runs[0].report
    }

    /// Returns the energy above the floor, by that of the bound (goal: 1350).
    pub fn above_floor(&self, report: &SimulationReport) -> Thousandths {
        ratio_in_thousandths(
            report.total_energy().saturating_sub(self.floor),
            self.least.saturating_sub(self.floor),
        )
    }

    /// Returns the energy by that of the bound (goal: 1150).
    pub fn of_least(&self, report: &SimulationReport) -> Thousandths {
        ratio_in_thousandths(report.total_energy(), self.least)
    }

    /// Returns the saved part of always-on's energy (goal: 600), and of the savings that foresight
    /// reaches (goal: 900).
    pub fn saved_energy(&self, report: &SimulationReport) -> (Thousandths, Thousandths) {
        let (all, least) = (self.always_on().total_energy(), self.least);
        (
            ratio_in_thousandths(all.saturating_sub(report.total_energy()), all),
            ratio_in_thousandths(
                all.saturating_sub(report.total_energy()),
                all.saturating_sub(least),
            ),
        )
    }

    /// Returns the part of the day in which programs waited longer than with everything awake
    /// (goal: 50).
    pub fn added_waiting(&self, report: &SimulationReport) -> Thousandths {
        let added = report.waiting.saturating_sub(self.always_on().waiting);
        added.get().saturating_mul(1000) / report.elapsed.get().max(1)
    }

    /// Returns the uncertainty of the bound: from it to the least energy of any run, with foresight
    /// or without (goal: 30).
    pub fn bound_gap(&self) -> Thousandths {
        let runs = self.runs.iter().map(|run| run.report.total_energy());
        let best = runs.fold(self.feasible.total_energy(), Energy::min);
        ratio_in_thousandths(best.saturating_sub(self.least), self.least)
    }
}
