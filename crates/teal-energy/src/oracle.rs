//! The clairvoyant bound: how little energy any policy could have spent on a trace, had it known all of it beforehand.
//!
//! # Guarantees
//! 1. *Bound*: no policy that the [simulator](crate::sim) runs at the open pace spends less (up to rounding, half a microjoule for
//!    each line of an account).
//! 2. *Exact* for the problem as it is put below: [`least`] is its optimum, found by dynamic programming.
//! 3. *Proven at any length*: [`bound`] is a valid bound for any prices; steps along a subgradient only make it tighter.
//!
//! # The problem
//! The same reads with the same copies, the same changes with the same greatest age, the same final writing of everything, the
//! same budget. Between two points of time at which something happens a device rests in one state, which it was told at
//! the first; it is awake just in time for what it does. What the simulator does not allow is allowed here, each time in favour
//! of the bound:
//! - work and transitions take no time from each other: nothing has to wait but for its own service;
//! - a device that is woken late costs the machine's power while somebody waits, or the state's power that is saved meanwhile,
//!   whichever is less;
//! - a change may be written later than its age by the longest that a wake-up and the work before it can take, and a burst
//!   may leave out what came during that time;
//! - reads of an object that follow each other in the trace cost no seek, whoever served those before;
//! - the budget of starts counts over the whole trace, not in each window of it.
//!
//! Since devices then touch each other only through which of them serves a read, the price of each read takes the problem
//! apart: see [`bound`].

mod joint;
mod prices;
mod problem;
mod side;
#[cfg(test)]
mod tests;

pub use joint::least;
pub use prices::{Tightened, bound};
pub use problem::{Problem, Unsolvable};
