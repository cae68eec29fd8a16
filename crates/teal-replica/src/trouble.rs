//! Why the server cannot be asked, and what that means for those who need it.

use std::time::Duration;

/// A server that does not answer makes others wait if it took longer than this to tell.
const SLOW: Duration = Duration::from_secs(1);

/// Why the server cannot be asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Trouble {
    pub(crate) kind: TroubleKind,
    /// The reason, for people.
    pub(crate) why: String,
    /// Monotonic time at which it was last met.
    pub(crate) since: Duration,
}

/// What a trouble with the server means for those who need it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TroubleKind {
    /// The server did not answer, which was known soon.
    Away,
    /// The server did not answer, and finding that out took long: nobody is made to wait for it
    /// again.
    Silent,
    /// The server does not accept this replica any more: asking again does not help.
    Denied,
}

impl Trouble {
    /// Returns the trouble with a server that was asked at `begun` and had not answered at `now`.
    pub(crate) fn unreachable(why: String, (begun, now): (Duration, Duration)) -> Self {
        let kind = if now.saturating_sub(begun) > SLOW {
            TroubleKind::Silent
        } else {
            TroubleKind::Away
        };
        Self {
            kind,
            why,
            since: now,
        }
    }

    /// Returns the trouble with a server that does not accept this replica.
    pub(crate) fn denied(why: &str, now: Duration) -> Self {
        Self {
            kind: TroubleKind::Denied,
            why: why.to_owned(),
            since: now,
        }
    }
}
