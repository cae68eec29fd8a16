//! A short day on every machine: ours stays near the bound, below the published policies, and within the budget of starts.

use super::*;

/// Neither a day for tuning nor one for scoring.
const SEED: u64 = 21;
/// Hours of the day.
const HOURS: u64 = 1;

#[test]
fn on_a_short_day_ours_is_near_the_bound_and_below_the_published_policies() {
    let sessions = sessions(&crate::root().join("crates/teal-lab/days")).unwrap();
    // Most that ours may spend of the bound, in thousandths.
    for (name, most) in [("handheld", 1200), ("laptop", 1100), ("desktop", 1020), ("home-server", 1500)] {
        let (_, memory) = habits(name);
        let scene = scene(name, &sessions, SEED, (HOURS, memory)).unwrap();
        let score = Score::of(&scene, 8).unwrap();
        let ours = score.ours();
        let of_least = score.of_least(ours);
        assert!((1000..=most).contains(&of_least), "{name}: {of_least}");
        assert!(score.feasible.total() >= score.least && score.gap() <= 150, "{name}: {}", score.gap());
        for published in ["always-on", "coda", "bluefs", "greenfs"] {
            let run = score.runs.iter().find(|run| run.policy.starts_with(published)).unwrap();
            assert!(ours.total() < run.report.total(), "{name}: {published} spends {}", run.report.total());
        }
        for run in score.runs.iter().map(|run| &run.report).chain([&score.feasible]) {
            for (part, device) in scene.machine.parts.iter().zip(&run.devices) {
                let Some(budget) = part.device.budget else { continue };
                let allowed = u64::from(budget.burst) + run.elapsed.get() / budget.each.get();
                assert!(device.cycles <= allowed, "{name}, {}: {} starts", part.label, device.cycles);
            }
        }
        println!("{name}: {of_least}, gap {}", score.gap());
    }
}
