//! What opening does with a store that another machine has open, as its last record says.

/// What is done with a store that another machine has open, as far as it can be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OwnedElsewhere {
    /// It is not opened.
    #[default]
    Refuse,
    /// It is opened: the caller knows that the other machine does not write to it any more.
    TakeOver,
}
