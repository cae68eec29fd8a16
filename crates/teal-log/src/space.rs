//! Space: which segments are in use, what is set aside, what is promised, and what an operation
//! costs.
//!
//! Others may use `segments` (the segment usage table), `ledger`
//! ([`SpaceLedger`](ledger::SpaceLedger): promises and what the open batch takes), `cost` (the one
//! place that computes what an operation takes), `reserves` (pure arithmetic over the geometry) and
//! `host` (the file system below a sparse store). No module here uses another but `segments`.

pub(crate) mod cost;
pub(crate) mod host;
pub(crate) mod ledger;
pub(crate) mod reserves;
pub(crate) mod segments;
