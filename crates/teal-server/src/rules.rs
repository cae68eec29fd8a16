//! Rules that need no database: pure functions.

pub(crate) mod canvas;
pub(crate) mod changed;
pub(crate) mod valid;
