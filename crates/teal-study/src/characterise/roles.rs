//! Groups threads that behave alike.
//!
//! # How
//! A thread's mix is the distribution of its calls over kinds of steps and sets of files. The
//! busiest threads are classified first. A thread joins the role with the nearest mix if more than
//! half of its calls would be the same there. Otherwise, if it has enough calls to tell, it founds
//! a new role.
//!
//! # Guarantees
//! 1. Each visit to a file in a set belongs to exactly one role.
//! 2. There are [`ROLES_MAX`] roles at most; where threads come and go, so that none lasts, there
//!    is one.

use super::VisitStep;
use super::sets::TraceFilesets;
use super::visits::ObservedTrace;
use std::collections::{BTreeMap, HashMap};

/// Limits the number of roles.
const ROLES_MAX: usize = 4;
/// Calls that a thread needs before it can found a role.
const TELLING: u64 = 32;
/// Threads are alike when their mixes differ in less than this part of their calls.
const ALIKE: f64 = 0.5;
/// A thread lasts if it was there for half of the time. Threads do not come and go if the lasting
/// ones make this part of all calls.
const LASTING_PART: f64 = 0.8;

/// A role.
#[derive(Debug, Default)]
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

/// Returns the part of the calls that differs: the total variation distance of two distributions.
fn total_variation(one: &CallMix, other: &CallMix) -> f64 {
    // An empty mix counts as one call, so that the division is defined.
    let (a, b) = (
        count_calls(one).max(1) as f64,
        count_calls(other).max(1) as f64,
    );
    let same = one
        .iter()
        .map(|(kind, n)| (*n as f64 / a).min(other.get(kind).map_or(0.0, |n| *n as f64 / b)));
    1.0 - same.sum::<f64>()
}

/// Returns visits and calls of each thread.
fn visits_by_thread(seen: &ObservedTrace, sets: &TraceFilesets) -> HashMap<u32, ThreadVisits> {
    let mut threads: HashMap<u32, ThreadVisits> = HashMap::new();
    for (at, visit) in seen.visits.iter().enumerate() {
        let Some(set) = sets.set_of(visit) else {
            continue;
        };
        let thread = threads.entry(visit.process).or_default();
        thread.visits.push(at);
        // A call counts by its kind and its set: the same step on another set is another behaviour.
        for (step, done) in &visit.steps {
            *thread.mix.entry((set, *step)).or_default() += done.times;
        }
    }
    threads
}

/// Sorts the roles, the one first that the others can follow at the least cost.
fn sort_roles(seen: &ObservedTrace, mut roles: Vec<ThreadRole>) -> Vec<ThreadRole> {
    // The first tells every thread of the others to go on after each of its rounds: that costs
    // least where it has few rounds, or they have few threads.
    let all: u64 = roles.iter().map(|role| role.threads).sum();
    debug_assert!(
        roles.len() <= ROLES_MAX,
        "a role is founded only below the limit"
    );
    roles.sort_by_key(|role| role.visits.len() as u64 * (all - role.threads));
    roles
        .iter_mut()
        .for_each(|role| role.visits.sort_unstable());
    // A single role stands for all threads, so it takes the mean concurrency.
    if let [one] = &mut roles[..] {
        one.threads = seen.threads;
    }
    roles
}

/// Returns the roles, the one first that the others can follow at the least cost.
pub(super) fn assign_roles(seen: &ObservedTrace, sets: &TraceFilesets) -> Vec<ThreadRole> {
    let threads = visits_by_thread(seen, sets);
    let come_and_go = do_threads_come_and_go(seen, &threads);
    // The busiest come first, because they make the most reliable founders of roles. The thread's
    // number breaks ties, so that the result is repeatable.
    let mut sorted: Vec<(u32, ThreadVisits)> = threads.into_iter().collect();
    sorted.sort_by_key(|(process, thread)| (std::cmp::Reverse(count_calls(&thread.mix)), *process));
    let mut roles: Vec<(CallMix, ThreadRole)> = Vec::new();
    for (process, thread) in sorted {
        let lasts = does_last(seen, process);
        let can_found =
            !come_and_go && lasts && count_calls(&thread.mix) >= TELLING && roles.len() < ROLES_MAX;
        let at = match nearest_role(&roles, &thread.mix) {
            Some((at, distance)) if distance < ALIKE || !can_found => at,
            _ => {
                roles.push(Default::default());
                roles.len() - 1
            }
        };
        let (mix, role) = &mut roles[at];
        // Short-lived threads add their calls to a role, but not to its number of threads.
        role.threads += u64::from(lasts);
        role.visits.extend(thread.visits);
        for (kind, n) in thread.mix {
            *mix.entry(kind).or_default() += n;
        }
    }
    let roles = roles.into_iter().map(|(_, role)| role).collect();
    sort_roles(seen, roles)
}

/// Returns whether a thread was there for half of the time.
fn does_last(seen: &ObservedTrace, process: u32) -> bool {
    match seen.lives.get(&process) {
        Some([from, to]) => (*to - *from) * 2 >= seen.length,
        None => false,
    }
}

/// Returns whether threads come and go: then no single one has calls enough to tell a role by.
fn do_threads_come_and_go(seen: &ObservedTrace, threads: &HashMap<u32, ThreadVisits>) -> bool {
    // Calls count, not threads: many short threads may do little.
    let (mut all, mut of_lasting) = (0, 0);
    for (process, thread) in threads {
        let calls = count_calls(&thread.mix);
        all += calls;
        if does_last(seen, *process) {
            of_lasting += calls;
        }
    }
    (of_lasting as f64) < all as f64 * LASTING_PART
}

/// Returns the place of the nearest role by total variation, and its distance.
fn nearest_role(roles: &[(CallMix, ThreadRole)], mix: &CallMix) -> Option<(usize, f64)> {
    // The first of equally near roles is the busier one.
    let mut nearest: Option<(usize, f64)> = None;
    for (at, (other, _)) in roles.iter().enumerate() {
        let distance = total_variation(mix, other);
        if nearest.is_none_or(|(_, least)| distance < least) {
            nearest = Some((at, distance));
        }
    }
    nearest
}
