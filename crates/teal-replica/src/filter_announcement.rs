//! How far the server knows what this replica keeps.

/// What the server has been told of what is kept here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum FilterAnnouncement {
    /// Nothing yet.
    #[default]
    Nothing,
    /// It is too much.
    TooMuch,
    /// All, under this number.
    All(u64),
}

impl FilterAnnouncement {
    /// The number for requests.
    pub(crate) const fn filter_number(self) -> u64 {
        match self {
            Self::All(filter) => filter,
            Self::Nothing | Self::TooMuch => 0,
        }
    }
}
