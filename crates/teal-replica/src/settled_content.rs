//! Content of this replica that is at the server, in a commit that the position has not reached.
//!
//! A pull that brings the commit of an own batch settles one object after the other, and can fail
//! in the middle: the network goes, and the position stays where it was. What is written to a
//! settled file then is based on that commit, although the position is an older one. With the
//! position as its base, the server would find the replica's own commit in between, and make a
//! conflict copy of a change that no other replica has met.
//!
//! # Guarantees
//! 1. A commit is remembered only for content that is here exactly as the commit has it.
//! 2. What the position has passed is forgotten: at most the files of one batch are remembered.
//! 3. After a restart nothing is remembered: a conflict copy too many is the worst that follows.

use parking_lot::Mutex;
use std::collections::HashMap;
use teal_types::{CommitSeq, ObjectNo};

/// The commits of settled content, by file.
#[derive(Debug, Default)]
pub(crate) struct SettledContent {
    commits: Mutex<HashMap<ObjectNo, CommitSeq>>,
}

impl SettledContent {
    /// Remembers that the content of a file is here as `commit` has it.
    pub(crate) fn remember(&self, file: ObjectNo, commit: CommitSeq) {
        self.commits.lock().insert(file, commit);
    }

    /// Returns the commit that a change of clean content is based on.
    pub(crate) fn base(&self, file: ObjectNo, position: CommitSeq) -> CommitSeq {
        let settled = self.commits.lock().get(&file).copied();
        settled.map_or(position, |commit| commit.max(position))
    }

    /// Forgets all commits: the server has lost that part of history.
    pub(crate) fn forget(&self) {
        self.commits.lock().clear();
    }

    /// Forgets the commits that the position has reached.
    pub(crate) fn position_moved(&self, position: CommitSeq) {
        let mut commits = self.commits.lock();
        commits.retain(|_, commit| *commit > position);
        if commits.is_empty() {
            // The memory of a large batch is given back.
            *commits = HashMap::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_settled_commit_is_the_base_until_the_position_has_passed_it() {
        let settled = SettledContent::default();
        let [file, other] = [20, 21].map(ObjectNo::new);
        let [old, own, new] = [7, 8, 9].map(CommitSeq::new);
        settled.remember(file, own);
        assert_eq!(settled.base(file, old), own);
        assert_eq!(settled.base(other, old), old);
        assert_eq!(settled.base(file, new), new);
        settled.position_moved(old);
        assert_eq!(settled.base(file, old), own);
        settled.position_moved(own);
        assert_eq!(settled.base(file, old), old);
    }
}
