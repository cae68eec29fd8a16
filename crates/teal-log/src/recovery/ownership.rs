//! The treatment of a store that another machine has open, as its last record says.

/// The treatment of a store that another machine has open, as far as that can be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OwnedElsewhere {
    /// The store is not opened.
    #[default]
    Refuse,
    /// The store is opened: the caller knows that the other machine does not write to it any more.
    TakeOver,
}
