//! Traces of others: `blktrace`, and the formats of cache research.
//!
//! # Guarantees
//! 1. *Precise*: what is foreign, cut off or damaged is refused, with the record's number and its
//!    byte.
//! 2. *Bounded*: memory does not grow with the input.

mod blktrace;
mod oracle_general;
mod outcome;
mod records;
mod vscsi;
mod window;

pub use blktrace::{RequestStage, import_blktrace};
pub use oracle_general::import_oracle_general;
pub use outcome::{ImportError, ImportSummary, TraceOrigin};
pub use vscsi::import_vscsi;
