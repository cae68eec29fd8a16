//! Imports traces of others: `blktrace`, and the formats of cache research.
//!
//! # Guarantees
//! 1. *Precise*: an input that is foreign, cut off or damaged is refused, with the record's number
//!    and its byte.
//! 2. *Bounded*: memory does not grow with the input.

mod blktrace;
mod error;
mod oracle_general;
mod origin;
mod records;
mod summary;
mod vscsi;
mod window;

pub use blktrace::{RequestStage, import_blktrace};
pub use error::ImportError;
pub use oracle_general::import_oracle_general;
pub use origin::TraceOrigin;
pub use summary::ImportSummary;
pub use vscsi::import_vscsi;
