//! How exactly the bound looks at a device.
//!
//! # Guarantees
//! 1. What is kinder never costs more: a bound that was found by it is one.

use super::bucket::Rounding;

/// How exactly a device is looked at.
#[derive(Debug, Clone, Copy)]
pub(super) struct Terms {
    /// How the budget is counted; `None`: not at all.
    pub(super) budget: Option<Rounding>,
    /// Ways that differ little are taken as one, at no greater cost: bytes are paid for when they must be written at some time,
    /// whenever that is; and times at which a device is done are rounded down.
    pub(super) is_blurred: bool,
    /// Changes are written within their age, not later by as much as a run was late.
    pub(super) is_punctual: bool,
    /// Bursts may also lie between points, and tokens are taken at the point before: whatever can be done at any time is one of the
    /// ways, or no cheaper than one. Without it a way is a schedule that begins its bursts at points.
    pub(super) is_between: bool,
}

impl Terms {
    /// As the problem is put.
    pub(super) const EXACT: Self =
        Self { budget: Some(Rounding::Exact), is_blurred: false, is_punctual: false, is_between: true };
    /// Kinder, and quicker to solve.
    pub(super) const KIND: Self =
        Self { budget: Some(Rounding::Kind), is_blurred: true, is_punctual: false, is_between: true };
    /// For schedules that are to be run.
    pub(super) const STRICT: Self =
        Self { budget: Some(Rounding::Strict), is_blurred: true, is_punctual: true, is_between: false };

    /// The same without a budget.
    pub(super) const fn unlimited(self) -> Self {
        Self { budget: None, ..self }
    }
}
