//! The objects that the last commits of a volume changed, and where they lie: enough to tell
//! without the database which clients a commit concerns.
//!
//! # Guarantees
//! 1. *Without gaps*: of the commits it covers it knows everything; a commit that does not follow
//!    the last one begins it anew.
//! 2. *Bounded*: it holds at most `ROWS_MAX` rows, those of the newest commits.

use crate::limits::ROWS_MAX;
use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use teal_types::{CommitSeq, ObjectNo};

/// An object that a commit changed, and a directory in which it lay before or lies after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ChangedRow {
    pub(crate) object: ObjectNo,
    pub(crate) dir: ObjectNo,
}

/// The objects that a commit changed, and so the clients that it concerns.
#[derive(Debug)]
pub(crate) struct CommitConcern {
    pub(crate) seq: CommitSeq,
    pub(crate) rows: Vec<ChangedRow>,
    /// The objects and directories of the rows that aren't quiet (see `filter`).
    pub(crate) notable: HashSet<ObjectNo>,
}

/// The last commits of a volume.
#[derive(Debug)]
pub(crate) struct RecentCommits {
    /// The commit before the oldest remembered one.
    first: CommitSeq,
    commits: VecDeque<Arc<CommitConcern>>,
    rows: usize,
}

impl RecentCommits {
    pub(crate) const fn new(first: CommitSeq) -> Self {
        Self {
            first,
            commits: VecDeque::new(),
            rows: 0,
        }
    }

    fn last_seq(&self) -> CommitSeq {
        self.commits.back().map_or(self.first, |commit| commit.seq)
    }

    pub(crate) fn push(&mut self, commit: Arc<CommitConcern>) {
        // A transaction that was undone leaves a gap or a repetition: the remembered commits are no
        // longer all of them.
        if commit.seq.get() != self.last_seq().get() + 1 {
            *self = Self::new(CommitSeq::new(commit.seq.get().saturating_sub(1)));
        }
        self.rows += commit.rows.len();
        self.commits.push_back(commit);
        while self.rows > ROWS_MAX
            && let Some(oldest) = self.commits.pop_front()
        {
            (self.first, self.rows) = (oldest.seq, self.rows - oldest.rows.len());
        }
        debug_assert!(self.rows <= ROWS_MAX, "the oldest commits have made room");
    }

    /// Returns the commits in `(since, to]`, or `None` if not all of them are known.
    pub(crate) fn between(
        &self,
        since: CommitSeq,
        to: CommitSeq,
    ) -> Option<Vec<Arc<CommitConcern>>> {
        if since < self.first || to > self.last_seq() {
            return None;
        }
        let from = since.get() - self.first.get();
        let until = to.get().max(since.get()) - self.first.get();
        let commits = self.commits.range(from as usize..until as usize);
        Some(commits.cloned().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commit(seq: u64, rows: usize) -> Arc<CommitConcern> {
        let row = ChangedRow {
            object: ObjectNo::new(seq),
            dir: ObjectNo::ROOT,
        };
        Arc::new(CommitConcern {
            seq: CommitSeq::new(seq),
            rows: vec![row; rows],
            notable: HashSet::new(),
        })
    }

    fn seqs(recent: &RecentCommits, since: u64, to: u64) -> Option<Vec<u64>> {
        let commits = recent.between(CommitSeq::new(since), CommitSeq::new(to))?;
        Some(commits.iter().map(|commit| commit.seq.get()).collect())
    }

    #[test]
    fn what_is_covered_is_known_without_gaps() {
        let mut recent = RecentCommits::new(CommitSeq::new(7));
        assert_eq!(
            (
                seqs(&recent, 7, 7),
                seqs(&recent, 6, 7),
                seqs(&recent, 7, 8)
            ),
            (Some(vec![]), None, None)
        );
        (8..12).for_each(|seq| recent.push(commit(seq, 1)));
        assert_eq!(
            (seqs(&recent, 8, 10), seqs(&recent, 11, 11)),
            (Some(vec![9, 10]), Some(vec![]))
        );
        recent.push(commit(13, 1));
        assert_eq!(
            (seqs(&recent, 11, 13), seqs(&recent, 12, 13)),
            (None, Some(vec![13]))
        );
        // The transaction of one was undone.
        recent.push(commit(13, 2));
        assert_eq!((seqs(&recent, 12, 13), recent.rows), (Some(vec![13]), 2));
    }

    #[test]
    fn the_newest_are_kept_within_bounds() {
        let mut recent = RecentCommits::new(CommitSeq::new(1));
        (2..6).for_each(|seq| recent.push(commit(seq, ROWS_MAX / 3)));
        assert_eq!(
            (seqs(&recent, 1, 5), seqs(&recent, 2, 5)),
            (None, Some(vec![3, 4, 5]))
        );
        recent.push(commit(6, ROWS_MAX + 1));
        assert_eq!(
            (seqs(&recent, 5, 6), seqs(&recent, 6, 6), recent.rows),
            (None, Some(vec![]), 0)
        );
    }
}
