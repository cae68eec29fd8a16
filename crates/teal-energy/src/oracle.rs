//! The clairvoyant bound: how little energy any policy could have spent on a trace, had it known all of it beforehand.
//!
//! # Guarantees
//! 1. *Bound*: no policy that the [simulator](crate::sim) runs at the open pace spends less (up to rounding, half a microjoule for
//!    each line of an account). Not yet in all cases: `docs/energy.md` has two that are known.
//! 2. *Exact* for the problem as it is put below, with bursts that begin at a point of time, end at one, or end when there is a token:
//!    [`least`] is its optimum, found by dynamic programming. Bursts at other times can save a hundredth of it at most, and seldom do:
//!    they keep a read waiting until the next one comes.
//! 3. *Proven at any length*: [`bound`] is a valid bound for any prices; steps along a subgradient only make it tighter.
//!
//! # The problem
//! The same reads with the same copies, the same changes with the same greatest age, the same final writing of everything, the
//! same budget. A device works, moves and rests in turn, each taking its time; the machine draws its power while somebody waits.
//! What is read is on the devices that the trace says: nothing is fetched before somebody asked for it. What the simulator does
//! not allow is allowed here, each time in favour of the bound:
//! - a change may be written later than its age by as much as the runs that are compared wrote one ([`lateness`]): a limit
//!   orders a burst, and the device may be asleep or busy then. What is longer late is no run that the bound speaks of;
//! - reads of an object that follow each other in the trace cost no seek, whoever served those before;
//! - a token that is taken between two points counts from the first of them on;
//! - for long traces, neither reads nor the bytes of a burst take time from what comes later, as long as the device stays awake;
//! - a queue may grow beyond its size, and resting after the trace's end is free.
//!
//! Since devices then touch each other only through which of them serves a read, the price of each read takes the problem
//! apart: see [`bound`]. What a bound leaves open is closed by running its [`Plan`]: the optimum lies between.

mod alone;
mod bucket;
mod joint;
mod plan;
mod prices;
mod problem;
mod repair;
mod side;
mod terms;
#[cfg(test)]
mod tests;

pub use joint::least;
pub use plan::{Clairvoyant, Plan};
pub use prices::{Tightened, bound};
pub use problem::{Problem, Unsolvable, lateness};
