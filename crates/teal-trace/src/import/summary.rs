//! Counts what an import has read and written.

/// Counts the records of an import.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ImportSummary {
    /// Number of records read.
    pub records: u64,
    /// Number of events written.
    pub events: u64,
    /// Number of records that give no event: other actions, empty requests.
    pub skipped: u64,
}
