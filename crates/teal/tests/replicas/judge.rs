//! The properties that must hold at the end of a life.
//!
//! # Guarantees
//! 1. All replicas have the same tree, a new one too; their stores are whole.
//! 2. All replicas are told the same conflicts, and each conflict is at the places it names, on
//!    every replica. No author conflicts with itself.
//! 3. What is pinned is here (`pins`), and drives have what history has (`drives`, `ails`).
//! 4. No write is lost (`tags`), and nothing that was acknowledged is missing in history
//!    (`ledger`).

use crate::ledger::Eyes;
use crate::run::{Run, Stage};
use crate::tree::{Tree, differences, walk};
use teal_posix::FileSystem;
use teal_proto::ConflictNote;

/// The first walk lists what the number of names is known from.
fn whole(client: &FileSystem) -> Tree {
    walk(client).unwrap();
    walk(client).unwrap()
}

/// Returns the conflicts as the server has them: where a removed file lay last is worked out by each
/// machine from the directories it knows.
fn conflicts_at_server(client: &FileSystem) -> Vec<ConflictNote> {
    let conflicts = client.replica().unwrap().unresolved_conflicts().unwrap();
    let notes = conflicts.into_iter().map(|conflict| {
        let mut note = conflict.note;
        if conflict.is_removed {
            note.path.clear();
        }
        if conflict.is_copy_removed {
            note.copy_path.clear();
        }
        note
    });
    notes.collect()
}

impl Run {
    pub(crate) fn judge(&mut self) {
        self.judge_drives();
        self.judge_pins();
        let problems = self.world.problems();
        assert!(problems.is_empty(), "{}", problems.join("\n"));
        let mut rng = self.rng.fork();
        self.world.join("fresh", &mut rng);
        let fresh = self.world.machines.len() - 1;
        self.world.machines[fresh]
            .client
            .replica()
            .unwrap()
            .upstream_step()
            .unwrap();
        let there = whole(&self.world.machines[fresh].client);
        let conflicts = conflicts_at_server(&self.world.machines[fresh].client);
        self.counts.conflicts = conflicts.len() as u64;
        let meets_nobody = matches!(self.stage, Stage::Turns | Stage::Apart);
        assert!(
            !meets_nobody || conflicts.is_empty(),
            "conflicts with nobody: {conflicts:#?}"
        );
        for machine in &self.world.machines {
            let name = &machine.name;
            assert_eq!(
                conflicts_at_server(&machine.client),
                conflicts,
                "{name} is told other conflicts than a fresh one"
            );
            let here = whole(&machine.client);
            let wrong = differences(&here, &there, self.stage == Stage::Turns);
            assert!(
                wrong.is_empty(),
                "{name} (first) and a fresh one (second) differ:\n{}",
                wrong.join("\n")
            );
            let unseen: Vec<_> = conflicts
                .iter()
                .filter(|note| !is_there(note, &here))
                .collect();
            assert!(
                unseen.is_empty(),
                "conflicts that {name} does not have where they say: {unseen:#?}"
            );
        }
        let lost = self.tags.lost(&there);
        assert!(lost.is_empty(), "lost: {}", lost.join("\n"));
        self.is_in_history();
        self.counts.messages = self.world.trace.messages();
    }

    fn is_in_history(&mut self) {
        let server = self.world.server();
        let eyes = Eyes {
            server: &server,
            peer: self.tags.peer(),
        };
        let ledger = self.world.trace.ledger.lock();
        let missing = ledger.missing(&eyes);
        assert!(
            missing.is_empty(),
            "acknowledged, and not in history:\n{}",
            missing.join("\n")
        );
        self.counts.batches = ledger.batches();
        if self.stage < Stage::Copies {
            let own = ledger.with_oneself(&eyes);
            assert!(own.is_empty(), "conflicts with oneself: {own:#?}");
        }
    }
}

/// Returns whether a conflict's paths lead to what it is about.
fn is_there(note: &ConflictNote, tree: &Tree) -> bool {
    let leads = |path: &str, no| {
        let path = format!("/{}", path.trim_start_matches('/'));
        let node = tree
            .get(&path)
            .or_else(|| tree.get(&format!("{}/", path.trim_end_matches('/'))));
        path == "/" || node.is_some_and(|node| node.no == no)
    };
    leads(&note.path, note.object) && note.copy.is_none_or(|copy| leads(&note.copy_path, copy))
}
