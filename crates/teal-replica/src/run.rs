//! When what happens between this replica and the server.
//!
//! # Guarantees
//! 1. A change is on its way to the server when it is [`crate::UpstreamOptions::flush_age`] old,
//!    [`crate::UpstreamOptions::live_age`] while another client is connected; whenever the first
//!    one goes, all go, but large content, which follows (`large`).
//! 2. While nothing changes there are no requests but one that waits for news, renewed every
//!    [`crate::UpstreamOptions::keep_alive`].
//! 3. A server out of reach is asked again at growing intervals, up to
//!    [`BACKOFF_MAX`](super::backoff::BACKOFF_MAX).

use super::backoff::Backoff;
use super::flush::FlushOutcome;
use super::prefetch::{AT_ONCE, run_ahead};
use super::stuck::StuckDirection;
use super::{Replica, SyncError};
use std::sync::Arc;
use std::time::Duration;
use teal_device::UpstreamError;
use teal_proto::{ClientRequest, RefusalCode};
use teal_volume::FsError;

/// The most times that a flush begins again with a new life. Copies of a store that are all at work
/// take each other's lives away.
const LIVES_MAX: u32 = 5;
/// The most times that a flush greets a server again that has restarted.
const GREETINGS_MAX: u32 = 3;
/// Unmounting waits no longer for the server.
const GOODBYE: Duration = Duration::from_millis(500);

impl Replica {
    /// Notes that something is dirty from now on.
    pub(crate) fn becomes_dirty(&self, now: Duration) {
        self.state().becomes_dirty(now);
    }

    /// Returns how long it is until a flush is due; `None` if nothing is dirty.
    fn due_in(&self, now: Duration) -> Option<Duration> {
        let (dirty_since, is_live) = self.state().dirty_since();
        // While another machine is connected, changes go soon.
        let age = if is_live {
            self.options().live_age
        } else {
            self.options().flush_age
        };
        let held = self.stuck().due_in(StuckDirection::Sending, now);
        let Some(since) = dirty_since else {
            return held;
        };
        // A filling backlog goes at once, before writers have to wait.
        if self.is_filling() {
            return Some(Duration::ZERO);
        }
        let due = (since + age).saturating_sub(now);
        Some(held.map_or(due, |held| held.min(due)))
    }

    /// Returns whether a flush is due.
    pub(crate) fn is_due(&self, now: Duration) -> bool {
        self.due_in(now).is_some_and(|wait| wait.is_zero())
    }

    /// Has the threads end.
    pub fn stop(&self) {
        self.state().stop();
        self.lookout().stop();
        self.stop_pinning();
    }
}

impl Replica {
    /// Carries out one round with the server: a greeting if that is due, a pull, a flush if one is
    /// due. Returns how long nothing will be due; `None` means until something changes here or at
    /// the server.
    ///
    /// # Errors
    /// What [lies with the server](FsError::into_words_of_server), or errors of the store.
    pub fn upstream_step(&self) -> Result<Option<Duration>, FsError> {
        // The steps of both threads, in the order in which they depend on each other.
        self.connect()?;
        self.resolve_in_flight()?;
        self.announce_filter()?;
        self.catch_up()?;
        self.retry_uninstalled()?;
        self.flush_due()?;
        self.fetch_due_ahead()?;
        // A failure is kept in the state of the pins.
        let _ = self.fetch_pinned();
        Ok(self.due_in(self.monotonic()))
    }

    fn flush_due(&self) -> Result<(), SyncError> {
        while self.is_due(self.monotonic()) {
            // Objects that do not fit into one batch, or are sent by themselves, go at once.
            while self.flush_once()? == FlushOutcome::Partial {}
            self.retry_uninstalled()?;
        }
        Ok(())
    }

    /// Sends everything that is dirty now, and tries again what is held back.
    ///
    /// # Errors
    /// What [lies with the server](FsError::into_words_of_server): [`FsError::Stuck`] when all else
    /// has gone, [`FsError::Unreachable`] and others when nothing has; or errors of the store.
    pub fn flush_upstream(&self) -> Result<(), FsError> {
        // The owner asks: objects that are held back are tried as well.
        self.stuck().retry_all_now();
        let mut lives = 0;
        let mut greetings = 0;
        loop {
            let flushed = self.connect().and_then(|()| self.flush_once());
            match flushed {
                // More to send.
                Ok(FlushOutcome::Partial) => {}
                Ok(_) => break,
                // A copy of this store has gone on meanwhile: it gets a new life, and sends again.
                Err(SyncError::Upstream(UpstreamError::Refused(refused)))
                    if refused.code == RefusalCode::Cloned && lives < LIVES_MAX =>
                {
                    lives += 1;
                }
                // The server has begun anew since it was greeted.
                Err(SyncError::Upstream(UpstreamError::Refused(refused)))
                    if refused.code == RefusalCode::Stopping && greetings < GREETINGS_MAX =>
                {
                    greetings += 1;
                }
                Err(e) => return Err(e.into()),
            }
        }
        self.retry_uninstalled()?;
        // Everything else was sent; objects that are stuck are named.
        let stuck = self.stuck().error_text();
        stuck.map_or(Ok(()), |words| Err(FsError::Stuck(words)))
    }

    /// Checks where that is wanted, waits until the server has everything that is durable here.
    ///
    /// # Errors
    /// [`FsError::OnlyHere`] when it cannot be asked, or does not take it in time; asking again
    /// tries again.
    pub fn sync_remote(&self) -> Result<(), FsError> {
        if !self.options().sync_remote {
            return Ok(());
        }
        self.flush_upstream().map_err(|e| {
            e.into_words_of_server()
                .map_or_else(|e| e, FsError::OnlyHere)
        })
    }

    /// Tells the server, if it can be asked, that others need not count on this replica any more.
    pub fn say_goodbye(&self) {
        if self.state().is_there()
            // An orderly end lets the server drop the connection at once. A failure costs nothing.
            && let Err(e) = self.call_server(&ClientRequest::Bye, GOODBYE)
        {
            log::debug!("no goodbye: {e}");
        }
    }

    /// Starts the threads that talk to the server.
    pub fn start(self: &Arc<Self>) -> std::io::Result<()> {
        self.set_has_threads();
        let start = |name: &str, run: fn(&Self)| {
            let replica = Arc::clone(self);
            std::thread::Builder::new()
                .name(name.into())
                .spawn(move || run(&replica))
        };
        // Changes from before the restart are dirty since then.
        let status = self.upstream_status();
        if status.is_ok_and(|status| status.only_here > 0 || status.announcing) {
            self.becomes_dirty(self.monotonic());
        }
        start("teal-flush", run_flush)?;
        start("teal-pull", run_pull)?;
        for _ in 0..AT_ONCE {
            start("teal-ahead", run_ahead)?;
        }
        start("teal-pin", super::pin::run)?;
        Ok(())
    }
}

fn run_flush(replica: &Replica) {
    let mut backoff = Backoff::default();
    let mut wait = Some(Duration::ZERO);
    // Woken by a signal that may be for another thread.
    while replica.state().wait(wait) {
        wait = replica.due_in(replica.monotonic());
        // Not due yet: sleeps on.
        if wait.is_none_or(|wait| !wait.is_zero()) {
            continue;
        }
        let flushed = replica.connect().and_then(|()| replica.flush_due());
        wait = match flushed {
            Ok(()) => {
                backoff = Backoff::default();
                replica.due_in(replica.monotonic())
            }
            Err(e) => {
                log::debug!("a flush: {e}");
                // The next attempt comes later each time.
                Some(backoff.next())
            }
        };
    }
}

fn run_pull(replica: &Replica) {
    let mut backoff = Backoff::default();
    let mut said = String::new();
    replica.state().begin_pulling();
    loop {
        // The fate of the last batch first: its position is between those of others.
        let polled = replica.connect().and_then(|()| replica.resolve_in_flight());
        // The filter is announced before the poll, so that news is filtered from the start.
        let polled = polled
            .and_then(|()| replica.announce_filter())
            .and_then(|()| replica.poll());
        // Objects that lost their place by the news are looked up at once.
        let polled = polled.and_then(|()| replica.retry_uninstalled());
        let wait = match polled {
            Ok(()) => {
                replica.check_drives_with_news();
                if !said.is_empty() {
                    log::info!("the server is there again");
                    said.clear();
                }
                backoff = Backoff::default();
                Duration::ZERO
            }
            Err(e) => {
                let words = e.to_string();
                // Said once for each reason.
                if words != said {
                    log::warn!("{words}");
                    said = words;
                }
                backoff.next()
            }
        };
        if replica.state().is_stopping() || (!wait.is_zero() && !replica.state().pause(wait)) {
            return;
        }
    }
}
