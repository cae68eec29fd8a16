//! From where on the server is asked for news, and what it has been told of what is kept here.
//!
//! # Invariants
//! 1. What is beyond the position and does not concern this replica is not asked for again, as long
//!    as the position stays.
//! 2. An answer to another filter than that of the question means that the server does not know
//!    what is kept here.

use super::filter_announcement::FilterAnnouncement;
use super::identity::ReplicaIdentity;
use parking_lot::Mutex;
use teal_types::CommitSeq;

/// From where on the server is asked for news.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Since {
    pub(crate) at: CommitSeq,
    pub(crate) digest: [u8; 32],
    /// What the server has been told of what is kept here.
    pub(crate) filter: u64,
}

/// Up to where nothing concerns this replica.
#[derive(Debug, Clone, Copy)]
struct Quiet {
    /// The position at which that was found out.
    from: CommitSeq,
    to: CommitSeq,
    digest: [u8; 32],
}

/// See the module. Both locks are leaves.
#[derive(Debug, Default)]
pub(crate) struct NewsPosition {
    /// Changes while the position is held.
    told: Mutex<FilterAnnouncement>,
    quiet: Mutex<Option<Quiet>>,
}

impl NewsPosition {
    /// Returns from where on this replica asks: beyond its position, if nothing behind that
    /// concerns it.
    pub(crate) fn since(&self, identity: &ReplicaIdentity) -> Since {
        let quiet = self
            .quiet
            .lock()
            .filter(|quiet| quiet.from == identity.seen);
        let (at, digest) = match quiet {
            Some(Quiet { to, digest, .. }) => (to, digest),
            None => (identity.seen, identity.digest),
        };
        Since {
            at,
            digest,
            filter: self.told.lock().filter_number(),
        }
    }

    /// Notes that nothing from the position up to a commit concerns this replica.
    pub(crate) fn set_quiet(&self, from: CommitSeq, to: CommitSeq, digest: [u8; 32]) {
        *self.quiet.lock() = Some(Quiet { from, to, digest });
    }

    /// Returns whether the server is still to be told what is kept here.
    pub(crate) fn is_untold(&self) -> bool {
        *self.told.lock() == FilterAnnouncement::Nothing
    }

    /// Notes what the server has been told.
    pub(crate) fn set_told(&self, told: FilterAnnouncement) {
        *self.told.lock() = told;
    }

    /// Notes with which filter the server has answered a question.
    pub(crate) fn heard_with(&self, since: &Since, filter: u64) {
        if since.filter != filter {
            self.set_told(FilterAnnouncement::Nothing);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seq: u64) -> ReplicaIdentity {
        let mut identity = ReplicaIdentity::default();
        identity.set_position(CommitSeq::new(seq), [seq as u8; 32]);
        identity
    }

    #[test]
    fn what_does_not_concern_a_replica_is_asked_for_once_while_its_position_stays() {
        let news = NewsPosition::default();
        assert_eq!(news.since(&at(3)).at, CommitSeq::new(3));
        news.set_quiet(CommitSeq::new(3), CommitSeq::new(9), [9; 32]);
        let since = news.since(&at(3));
        assert_eq!((since.at, since.digest), (CommitSeq::new(9), [9; 32]));
        // The position goes back when the server was restored.
        assert_eq!(news.since(&at(2)).at, CommitSeq::new(2));
        assert_eq!(news.since(&at(5)).digest, [5; 32]);
    }

    #[test]
    fn an_answer_to_another_filter_has_the_server_told_again() {
        let news = NewsPosition::default();
        assert!(news.is_untold());
        news.set_told(FilterAnnouncement::All(4));
        let since = news.since(&at(1));
        news.heard_with(&since, 4);
        assert!(!news.is_untold() && since.filter == 4);
        news.heard_with(&since, 0);
        assert!(news.is_untold());
    }
}
