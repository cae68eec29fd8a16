//! A server that is restored from an older copy of it.
//!
//! # Guarantees
//! 1. Whoever has seen more than the copy has is told so, at once and for good, in the words of the documents; what is on his machine stays as
//!    it is, and goes on.
//! 2. Everybody else goes on with the restored server as before.

use crate::run::Run;
use crate::tags::found_in;
use crate::tree::here;
use crate::world::Machine;
use std::collections::BTreeSet;
use teal_client::FsError;
use teal_types::CommitSeq;

/// What becomes of replicas that have seen more than a restored server has.
enum Outcome {
    /// They refuse it.
    Refused,
}

const OUTCOME: Outcome = Outcome::Refused;

impl Run {
    /// The server's disks are lost and put back from the copy, if there is one. What nobody has any more is lost with them.
    pub(crate) fn restore(&mut self) {
        if !self.world.restore() {
            return;
        }
        self.counts.restored += 1;
        let head = self.head();
        self.world.trace.ledger.lock().forget_after(head);
        self.tags.begin_again();
        let mut left = self.tags.look(&self.world.server());
        let machines = &self.world.machines;
        machines.iter().for_each(|machine| machine.wire.cut(true));
        left.extend(machines.iter().flat_map(tags_here));
        machines.iter().for_each(|machine| machine.wire.cut(false));
        self.tags.only(&left);
        let mut order: Vec<usize> = (0..self.world.machines.len()).collect();
        order.rotate_left(self.rng.index(self.world.machines.len()));
        for who in order {
            let has_more = self.seen(who) > head;
            match OUTCOME {
                Outcome::Refused if has_more => self.is_refused(who),
                // Which of its batches came through is known to it after a while.
                Outcome::Refused => (0..3).for_each(|_| drop(self.round(who, true))),
            }
            self.mend();
        }
        for _ in 0..20 {
            let who = self.rng.index(self.world.machines.len());
            self.operate(who);
        }
    }

    fn seen(&self, who: usize) -> CommitSeq {
        self.world.machines[who].client.upstream_status().unwrap().unwrap().seen
    }

    fn head(&self) -> CommitSeq {
        let welcome = self.world.server().welcome(self.tags.peer()).unwrap();
        welcome.head
    }

    /// It says so, whatever it is asked, and nothing here changes by that.
    fn is_refused(&mut self, who: usize) {
        let before = (here(&self.world.machines[who].client), self.world.machines[who].notes());
        let mut words = String::new();
        for _ in 0..3 {
            match self.round(who, true) {
                Err(FsError::Unreachable(said)) => words = said,
                other => panic!("{who} has seen more than the server has: {other:?}"),
            }
        }
        assert!(
            words.contains("the server was restored from an older copy: it has commits up to"),
            "{who} says: {words}"
        );
        let after = (here(&self.world.machines[who].client), self.world.machines[who].notes());
        assert!(before == after, "what is on {who} stays as it is");
        self.refused.push(who);
        self.counts.refused += 1;
    }
}

/// The tags in what is on a machine.
pub(crate) fn tags_here(machine: &Machine) -> BTreeSet<u64> {
    here(&machine.client).values().flat_map(|content| found_in(content)).collect()
}
