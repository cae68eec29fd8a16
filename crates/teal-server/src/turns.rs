//! Fairness between machines: of each machine's requests that cost the server much, one at a time
//! is carried out.
//!
//! All machines share the writer of the metadata and the processors. A machine that sends eight
//! requests over eight connections would have eight places in every queue; with turns it has one,
//! so that another machine's request waits for one of each machine at most.
//!
//! # Guarantees
//! 1. *One at a time*: of the requests of one machine and one [`TurnKind`], one is carried out at a
//!    time; the others wait.
//! 2. *Independence*: machines never wait for each other here, and neither do the two kinds of
//!    work.
//! 3. *Bounded*: a machine without requests in progress takes no memory. Waiting takes a thread for
//!    each request, of which the transport allows a machine few.

use crate::peer::Peer;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

/// The kinds of work in which a machine's requests take turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum TurnKind {
    /// Changing the volume, or preparing a change of it.
    Change,
    /// Gathering the changes that answer a pull; waiting for news is no part of it.
    Gather,
}

/// The right to have a request carried out, which is had by holding the lock.
type Turn = Arc<Mutex<()>>;

/// The turns of all machines that have requests in progress.
#[derive(Default)]
pub(crate) struct PeerTurns {
    /// Guards the table, for look-ups only. An entry's own lock is held while a request is carried
    /// out, I/O included: that is what it is for.
    entries: Mutex<HashMap<(Peer, TurnKind), Turn>>,
}

impl PeerTurns {
    /// Runs `request` when the machine's earlier ones of this kind have ended.
    pub(crate) fn run<T>(&self, peer: Peer, kind: TurnKind, request: impl FnOnce() -> T) -> T {
        let entry = self.entries.lock().entry((peer, kind)).or_default().clone();
        let user = EntryUser {
            turns: self,
            key: (peer, kind),
        };
        let turn = entry.lock();
        let answer = request();
        drop(turn);
        drop(entry);
        drop(user);
        answer
    }
}

/// Forgets an entry after its last user, also when the request has panicked.
struct EntryUser<'a> {
    turns: &'a PeerTurns,
    key: (Peer, TurnKind),
}

impl Drop for EntryUser<'_> {
    fn drop(&mut self) {
        let mut entries = self.turns.entries.lock();
        // Users take their copy of the entry under this lock, so the count cannot grow meanwhile.
        let is_unused = |entry: &Turn| Arc::strong_count(entry) == 1;
        if entries.get(&self.key).is_some_and(is_unused) {
            entries.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests;
