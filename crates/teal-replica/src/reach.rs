//! Whether the server can be asked, as far as the last answers tell.
//!
//! # Invariants
//! 1. A server that refuses this client ([`Reach::Denied`]) is not asked again by itself; one that
//!    is out of reach is, after a moment.
//! 2. A replica is welcome ([`ServerReach::is_connected`]) only until the server cannot be reached,
//!    or says that it has begun anew.

use std::time::Duration;
use teal_device::UpstreamError;
use teal_proto::RefusalCode;

/// A server that did not answer is not asked again within this time.
const GRACE: Duration = Duration::from_secs(5);
/// A server that does not answer makes others wait if it took longer than this to tell.
const SLOW: Duration = Duration::from_secs(1);

/// How the last request to the server ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum Reach {
    /// The server answered, or has not been asked.
    #[default]
    Up,
    /// It could not be reached.
    Down {
        /// Why, for people.
        why: String,
        /// Monotonic time at which that was found out.
        since: Duration,
        /// Finding that out took long: other threads don't wait for it again.
        is_slow: bool,
    },
    /// This client is not welcome any more: asking again is of no use.
    Denied {
        /// What the server said.
        why: String,
    },
}

/// What a thread that needs the server does now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Attempt {
    /// It asks the server.
    Ask,
    /// It gives up, for this reason.
    GiveUp(String),
    /// It gives up, and the thread that waits for news asks in its place.
    LeaveToPuller(String),
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct ServerReach {
    last: Reach,
    /// The server has said welcome since it could not be reached.
    is_connected: bool,
    /// A thread asks the server for news, and so finds out when it is there again.
    has_puller: bool,
}

impl ServerReach {
    /// Returns how the last request ended.
    pub(crate) fn last(&self) -> &Reach {
        &self.last
    }

    /// Returns whether the server can be asked, as far as is known.
    pub(crate) fn is_up(&self) -> bool {
        self.last == Reach::Up
    }

    /// Returns whether the server has said welcome and nothing has happened since.
    pub(crate) fn is_connected(&self) -> bool {
        self.is_connected
    }

    /// Notes that the server has said welcome, and has been told what it asked for.
    pub(crate) fn set_connected(&mut self) {
        self.is_connected = true;
    }

    /// Notes that the server must be greeted again.
    pub(crate) fn set_disconnected(&mut self) {
        self.is_connected = false;
    }

    /// Notes that a thread asks for news from now on.
    pub(crate) fn set_has_puller(&mut self) {
        self.has_puller = true;
    }

    /// Notes that the server does not take this client any more.
    pub(crate) fn deny(&mut self, why: String) {
        self.last = Reach::Denied { why };
    }

    /// Notes how a request ended that took so long.
    pub(crate) fn record<T>(
        &mut self,
        answer: &Result<T, UpstreamError>,
        now: Duration,
        took: Duration,
    ) {
        match answer {
            Ok(_) => self.last = Reach::Up,
            // Shut out while it waited for the answer.
            Err(UpstreamError::Refused(refused)) if refused.code == RefusalCode::Denied => {
                self.deny(refused.words.clone());
            }
            Err(UpstreamError::Refused(refused)) => {
                self.last = Reach::Up;
                self.is_connected &= !matches!(
                    refused.code,
                    RefusalCode::Cloned | RefusalCode::Stopping | RefusalCode::BadRequest
                );
            }
            Err(UpstreamError::Denied(words)) => self.deny(words.clone()),
            Err(e) => {
                self.is_connected = false;
                self.last = Reach::Down {
                    why: e.to_string(),
                    since: now,
                    is_slow: took > SLOW,
                };
            }
        }
    }

    /// Decides whether a thread that needs the server asks it now. Nothing is asked of a server
    /// that did not answer a moment ago; where that took long, only the thread that asks for news
    /// waits for it again.
    pub(crate) fn attempt(&self, now: Duration) -> Attempt {
        match &self.last {
            Reach::Up => Attempt::Ask,
            Reach::Denied { why } => Attempt::GiveUp(why.clone()),
            Reach::Down { why, since, .. } if now.saturating_sub(*since) < GRACE => {
                Attempt::GiveUp(why.clone())
            }
            Reach::Down {
                why, is_slow: true, ..
            } if self.has_puller => Attempt::LeaveToPuller(why.clone()),
            Reach::Down { .. } => Attempt::Ask,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use teal_proto::RefusalReply;

    fn at(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    fn unreachable() -> Result<(), UpstreamError> {
        Err(UpstreamError::Unreachable("no route".into()))
    }

    fn refused(code: RefusalCode) -> Result<(), UpstreamError> {
        let words = "no".into();
        Err(UpstreamError::Refused(RefusalReply { code, words }))
    }

    #[test]
    fn a_server_that_did_not_answer_is_asked_again_after_a_moment() {
        let mut reach = ServerReach::default();
        assert_eq!(reach.attempt(at(0)), Attempt::Ask);
        reach.record(&unreachable(), at(10), Duration::ZERO);
        assert!(matches!(reach.attempt(at(14)), Attempt::GiveUp(_)));
        assert_eq!(reach.attempt(at(15)), Attempt::Ask);
        reach.record(&Ok(()), at(15), Duration::ZERO);
        assert!(reach.is_up());
    }

    #[test]
    fn only_the_thread_that_asks_for_news_waits_for_a_slow_server_again() {
        let mut reach = ServerReach::default();
        reach.record(&unreachable(), at(10), at(5));
        assert_eq!(
            reach.attempt(at(20)),
            Attempt::Ask,
            "no thread asks for news"
        );
        reach.set_has_puller();
        assert!(matches!(reach.attempt(at(20)), Attempt::LeaveToPuller(_)));
        reach.record(&unreachable(), at(20), Duration::ZERO);
        assert_eq!(reach.attempt(at(30)), Attempt::Ask, "it told at once");
    }

    #[test]
    fn a_client_that_is_not_welcome_does_not_ask_again() {
        let mut reach = ServerReach::default();
        reach.set_connected();
        reach.record(&refused(RefusalCode::Denied), at(1), Duration::ZERO);
        assert!(matches!(reach.attempt(at(1_000)), Attempt::GiveUp(_)));
        // What the thread for news asks all the same may be answered.
        reach.record(&Ok(()), at(1_001), Duration::ZERO);
        assert_eq!(reach.attempt(at(1_001)), Attempt::Ask);
        assert!(reach.is_connected());
    }

    #[test]
    fn a_server_that_has_begun_anew_is_greeted_again() {
        for code in [
            RefusalCode::Cloned,
            RefusalCode::Stopping,
            RefusalCode::BadRequest,
        ] {
            let mut reach = ServerReach::default();
            reach.set_connected();
            reach.record(&refused(code), at(1), Duration::ZERO);
            assert!(reach.is_up() && !reach.is_connected(), "{code:?}");
        }
        let mut reach = ServerReach::default();
        reach.set_connected();
        reach.record(&refused(RefusalCode::Busy), at(1), Duration::ZERO);
        assert!(reach.is_connected(), "a refusal for now changes nothing");
        reach.record(&unreachable(), at(2), Duration::ZERO);
        assert!(!reach.is_connected());
    }
}
