//! Rules that need no database: pure functions.

pub(crate) mod changed_ranges;
pub(crate) mod overlay;
pub(crate) mod valid;
