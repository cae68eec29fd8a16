//! How many bytes of content are here and not at the server.

use std::sync::atomic::{AtomicBool, AtomicU64};

/// What is counted of the backlog.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    /// At least what is only here.
    pub(crate) bytes: AtomicU64,
    /// It may be less by now.
    pub(crate) is_rough: AtomicBool,
}
