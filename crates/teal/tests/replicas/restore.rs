//! A server that is restored from an older copy of it.
//!
//! # Guarantees
//! 1. What the server lost, and a machine has whole, is there again in the end; so is what was
//!    changed there and had not been sent.
//! 2. In the end all agree, as without that.

use crate::run::Run;
use crate::tags::{Tags, found_in};
use crate::tree::here;
use crate::world::Machine;
use std::collections::BTreeSet;
use teal_types::CommitSeq;

impl Run {
    /// Loses the server's disks and puts them back from the copy, if there is one. Content that no
    /// machine has any more is lost with them.
    pub(crate) fn restore(&mut self) {
        if !self.world.restore() {
            return;
        }
        self.counts.restored += 1;
        let head = self.head();
        self.world.trace.ledger.lock().forget_after(head);
        let held: Vec<_> = self
            .world
            .machines
            .iter()
            .map(|machine| tags_here(machine, &self.tags))
            .collect();
        self.tags.begin_again(&self.world.server(), head, &held);
        let mut order: Vec<usize> = (0..self.world.machines.len()).collect();
        order.rotate_left(self.rng.pick_index(self.world.machines.len()));
        for who in order {
            // Which of its batches came through is known to it after a while.
            (0..3).for_each(|_| drop(self.round(who, true)));
            let status = self.world.machines[who]
                .client
                .replica()
                .unwrap()
                .upstream_status()
                .unwrap();
            let offered = status
                .counts
                .iter()
                .find(|(name, _)| *name == "offered")
                .unwrap();
            self.counts.offered += offered.1;
            self.mend();
        }
        for _ in 0..20 {
            let who = self.rng.pick_index(self.world.machines.len());
            self.operate(who);
        }
    }

    fn head(&self) -> CommitSeq {
        let welcome = self
            .world
            .server()
            .welcome_enrolled(self.tags.peer())
            .unwrap();
        welcome.head
    }
}

/// Returns the tags that a machine could give back: those in files that are whole on it, and those
/// that no other machine has had.
fn tags_here(machine: &Machine, tags: &Tags) -> BTreeSet<u64> {
    machine.wire.cut(true);
    let files = here(&machine.client);
    machine.wire.cut(false);
    let of_file = |(is_whole, content): &(bool, Vec<u8>)| {
        let mut found = found_in(content);
        if !is_whole {
            tags.only_there(&mut found);
        }
        found
    };
    files.values().flat_map(of_file).collect()
}
