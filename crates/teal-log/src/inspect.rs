//! Looking at a whole store from outside of it: `check` says what is wrong, `dump` prints
//! structures for people. Neither changes anything.

pub(crate) mod check;
pub(crate) mod dump;
