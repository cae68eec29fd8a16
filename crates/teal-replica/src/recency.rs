//! Which objects were used since the search for what can make way last came by.

use parking_lot::Mutex;
use std::collections::HashSet;
use teal_types::ObjectNo;

/// Where the search goes on, and what was used since.
#[derive(Debug, Default)]
pub(crate) struct Recency {
    pub(crate) hand: Mutex<u64>,
    pub(crate) used: Mutex<HashSet<ObjectNo>>,
}
