//! The log store: objects, directories and extents in a log of batches, indexed by copy-on-write trees.
#![allow(dead_code, reason = "used by the store from the next commit on")]

mod error;
mod page;
mod tree;

pub use error::StoreError;
