//! The operator of a machine, and the state it must see.
//!
//! # Guarantees
//! 1. What is read here, and has not been changed here, is what the server's history has at the
//!    commit up to which it is applied here.

use crate::ledger::Eyes;
use crate::logs::Kernel;
use crate::power::Power;
use crate::tags::Tags;
use crate::wire::Seat;
use std::sync::Arc;
use teal_posix::FileSystem;
use teal_types::{CommitSeq, ObjectNo};

/// Flags in the second byte of a note; see `teal_replica`.
pub(crate) const DIRTY: u8 = 1;
pub(crate) const IN_FLIGHT: u8 = 2;
const AGAIN: u8 = 16;

/// An operator and the expectations it is checked against.
#[derive(Clone)]
pub(crate) struct Operator {
    pub(crate) who: usize,
    pub(crate) name: String,
    /// The directory in the root in which no other operator changes anything; `None`: all work
    /// everywhere.
    pub(crate) home: Option<String>,
    pub(crate) power: Power,
    pub(crate) kernel: Kernel,
    pub(crate) tags: Tags,
    pub(crate) seat: Seat,
    pub(crate) is_printed: bool,
}

/// Returns the commit up to which history is applied.
pub(crate) fn seen(client: &FileSystem) -> CommitSeq {
    let replica = client.replica().unwrap();
    replica.upstream_status().unwrap().seen
}

impl Operator {
    /// Looks at what has come to the server, if it is there.
    pub(crate) fn look(&self) {
        if !self.seat.power.is_off() {
            let server = Arc::clone(&*self.seat.server.read());
            self.seat.power.spare(|| self.tags.look(&server));
        }
    }

    /// Checks that files which only the server changes are as they were at the commit up to which
    /// history is applied here.
    pub(crate) fn is_as_at_the_position(
        &self,
        client: &FileSystem,
        no: ObjectNo,
        from: u64,
        read: &[u8],
    ) {
        let Operator {
            seat, tags, name, ..
        } = self;
        let (seen, note) = (seen(client), client.store().note(no).unwrap());
        let is_theirs = note.is_none_or(|note| note[1] & (DIRTY | IN_FLIGHT | AGAIN) == 0);
        if !is_theirs || seen.get() == 0 || seat.power.is_off() || seat.is_restored() {
            return;
        }
        let server = Arc::clone(&*seat.server.read());
        let eyes = Eyes {
            server: &server,
            peer: tags.peer(),
        };
        let Some(there) = seat.power.spare(|| eyes.content(no, seen)) else {
            panic!("{name}: {no} is not there at {seen:?}")
        };
        let there = there.get(from as usize..).unwrap_or_default();
        assert!(
            *read == there[..there.len().min(70_000)],
            "{name} reads {no} from {from} as it is not at {seen:?}"
        );
    }
}
