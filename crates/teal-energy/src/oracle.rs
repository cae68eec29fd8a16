//! The clairvoyant bound: the least energy that any policy could have spent on a trace, had it
//! known all of it beforehand.
//!
//! # Guarantees
//! 1. *Bound*: no policy that the [simulator](crate::sim) runs at the open pace spends less (up to
//!    rounding, half a microjoule for each line of an account), and no schedule with foresight
//!    does.
//! 2. *Exact* for the problem as it is put below: [`exact_optimum`] is its optimum, found by
//!    dynamic programming.
//! 3. *Proven at any length*: [`lagrangian_bound`] is below that optimum at any prices, since both
//!    put the same problem to each device.
//!
//! # The problem
//! The problem has the simulator's reads with their copies, its changes with their greatest age,
//! its final writing of everything, and its budget. A device works, moves and rests in turn, and
//! each takes its time; the machine draws its power while a program waits. The trace says which
//! devices hold the data of a read: nothing is fetched before a program asked for it. Some things
//! that the simulator forbids are allowed here, each time in favour of the bound:
//! - a change may be written later than its age by as much as the runs that are compared wrote one
//!   ([`longest_lateness`]): a limit orders a burst, and the device may be asleep or busy then. The
//!   bound does not hold for a run that is later than that;
//! - reads of an object that follow each other in the trace cost no seek, even if other devices
//!   served the reads before;
//! - no read waits for a burst, and a change is not written if another change of the object
//!   replaces it in time;
//! - a stop between two points may take a token that comes until the second, and counts from the
//!   first on;
//! - a state that serves is charged no more rest than a slower one makes others wait for
//!   (`subproblem::rest`): a radio that listens for 1.4 W on a machine of 1.19 W is charged 1.05 W;
//! - a queue may grow beyond its size, and resting after the trace's end is free.
//!
//! # The method
//! Devices then touch each other only through two kinds of constraints: each read is served by
//! exactly one device, and a device takes no more start tokens than there are. [`lagrangian_bound`]
//! is the *Lagrangian relaxation* of these (Geoffrion, 1974; Fisher, 1981): each constraint is
//! replaced by a *dual price*, after which every device has a *subproblem* of its own, solved by
//! dynamic programming. The value at any prices is a lower bound. The prices climb along a
//! *subgradient*, which says how many more devices want a read than may serve it (Held, Wolfe and
//! Crowder, 1974), in steps of the length that Rprop gives (Riedmiller and Braun, 1993). The
//! [`ClairvoyantPlan`] of a bound is a schedule that keeps all constraints: the optimum lies
//! between the bound and its cost.

mod action_history;
mod beam;
mod device_search;
mod dual_prices;
mod joint;
mod plan;
mod problem;
mod repair;
mod stop_bucket;
mod subproblem;
#[cfg(test)]
mod tests;

pub use dual_prices::{DualBound, lagrangian_bound};
pub use joint::exact_optimum;
pub use plan::{Clairvoyant, ClairvoyantPlan};
pub use problem::{SchedulingProblem, Unsolvable, longest_lateness};
