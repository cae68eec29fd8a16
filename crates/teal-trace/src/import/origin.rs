//! Holds what the header of an imported trace says of its origin.

use crate::field::Text;

/// Holds the texts of the trace's header.
#[derive(Debug, Clone, Default)]
pub struct TraceOrigin {
    /// Name of the machine, if the user gives one.
    pub machine: Text,
    /// Origin of the trace.
    pub source: Text,
}
