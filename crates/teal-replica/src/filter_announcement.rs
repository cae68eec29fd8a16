//! The server's knowledge of the objects that this replica keeps.

/// The filter that was announced to the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum FilterAnnouncement {
    /// Nothing yet.
    #[default]
    Nothing,
    /// The replica keeps too many objects for a filter.
    TooMuch,
    /// All, under this number.
    All(u64),
}

impl FilterAnnouncement {
    /// Returns the number of the filter for requests; 0 without one.
    pub(crate) const fn filter_number(self) -> u64 {
        match self {
            Self::All(filter) => filter,
            Self::Nothing | Self::TooMuch => 0,
        }
    }
}
