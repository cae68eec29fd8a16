//! Threads that do alike.
//!
//! # How
//! A thread's mix is how its calls are spread over kinds of steps and sets of files. Threads are
//! looked at with the busiest first: one is of the role whose mix is nearest, if more than half of
//! its calls would be the same there; else, if it has enough calls to tell, it is the first of a
//! new role.
//!
//! # Guarantees
//! 1. Every visit whose file is in a set is of one role.
//! 2. There are [`ROLES_MAX`] roles at most; where threads come and go, so that none lasts, there
//!    is one.

use super::VisitStep;
use super::sets::TraceFilesets;
use super::visits::ObservedTrace;
use std::collections::{BTreeMap, HashMap};

/// Roles at most.
const ROLES_MAX: usize = 4;
/// Calls of a thread that is not like the others.
const TELLING: u64 = 32;
/// A thread whose mix differs in less than this part of its calls is like another.
const ALIKE: f64 = 0.5;
/// Threads that were there for half of the time last. Of calls, so much is theirs where threads do
/// not come and go.
const LASTING_PART: f64 = 0.8;

/// A role.
#[derive(Debug)]
pub(super) struct ThreadRole {
    /// Threads that have it.
    pub(super) threads: u64,
    /// Their visits, by place.
    pub(super) visits: Vec<usize>,
}

type CallMix = BTreeMap<(usize, VisitStep), u64>;

#[derive(Debug, Default)]
struct ThreadVisits {
    mix: CallMix,
    visits: Vec<usize>,
}

fn count_calls(mix: &CallMix) -> u64 {
    mix.values().sum()
}

/// Returns which part of the calls differs (total variation).
fn total_variation(one: &CallMix, other: &CallMix) -> f64 {
    let (a, b) = (
        count_calls(one).max(1) as f64,
        count_calls(other).max(1) as f64,
    );
    let same = one
        .iter()
        .map(|(kind, n)| (*n as f64 / a).min(other.get(kind).map_or(0.0, |n| *n as f64 / b)));
    1.0 - same.sum::<f64>()
}

/// The roles; that is first which the others can follow at the least cost.
pub(super) fn assign_roles(seen: &ObservedTrace, sets: &TraceFilesets) -> Vec<ThreadRole> {
    let mut threads: HashMap<u32, ThreadVisits> = HashMap::new();
    for (at, visit) in seen.visits.iter().enumerate() {
        let Some(set) = sets.set_of(visit) else {
            continue;
        };
        let thread = threads.entry(visit.process).or_default();
        thread.visits.push(at);
        for (step, done) in &visit.steps {
            *thread.mix.entry((set, *step)).or_default() += done.times;
        }
    }
    let lasts = |process: &u32| {
        seen.lives
            .get(process)
            .is_some_and(|[from, to]| (*to - *from) * 2 >= seen.length)
    };
    let of = |wanted: &dyn Fn(&u32) -> bool| -> u64 {
        threads
            .iter()
            .filter(|(process, _)| wanted(process))
            .map(|(_, thread)| count_calls(&thread.mix))
            .sum()
    };
    let all_alike = (of(&lasts) as f64) < of(&|_| true) as f64 * LASTING_PART;
    let mut sorted: Vec<(u32, ThreadVisits)> = threads.into_iter().collect();
    sorted.sort_by_key(|(process, thread)| (std::cmp::Reverse(count_calls(&thread.mix)), *process));
    let mut roles: Vec<(CallMix, ThreadRole)> = Vec::new();
    for (process, thread) in sorted {
        let near = roles
            .iter()
            .enumerate()
            .map(|(at, (mix, _))| (at, total_variation(&thread.mix, mix)));
        let near = near.min_by(|a, b| a.1.total_cmp(&b.1));
        let tells = !all_alike
            && lasts(&process)
            && count_calls(&thread.mix) >= TELLING
            && roles.len() < ROLES_MAX;
        let at = match near {
            Some((at, distance)) if distance < ALIKE || !tells => at,
            _ => {
                roles.push((
                    CallMix::new(),
                    ThreadRole {
                        threads: 0,
                        visits: Vec::new(),
                    },
                ));
                roles.len() - 1
            }
        };
        let (mix, role) = &mut roles[at];
        role.threads += u64::from(lasts(&process));
        role.visits.extend(thread.visits);
        thread
            .mix
            .into_iter()
            .for_each(|(kind, n)| *mix.entry(kind).or_default() += n);
    }
    let mut roles: Vec<ThreadRole> = roles.into_iter().map(|(_, role)| role).collect();
    // The first tells every thread of the others to go on after each of its rounds: that costs
    // least where it has few rounds, or they have few threads.
    let all: u64 = roles.iter().map(|role| role.threads).sum();
    roles.sort_by_key(|role| role.visits.len() as u64 * (all - role.threads));
    roles
        .iter_mut()
        .for_each(|role| role.visits.sort_unstable());
    if let [one] = &mut roles[..] {
        one.threads = seen.threads;
    }
    roles
}
