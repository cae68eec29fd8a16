//! Entries against links, and what hangs in the tree.

use super::{CheckPhase, CheckProgress, ObjectFacts, StoreChecker};
use std::collections::HashSet;
use teal_types::{FileType, ObjectNo};

impl StoreChecker<'_> {
    pub(super) fn check_names(&mut self, progress: &mut dyn FnMut(CheckProgress)) {
        let mut numbers: Vec<ObjectNo> = self.facts.keys().copied().collect();
        numbers.sort_unstable();
        let total = numbers.len() as u64;
        progress(CheckProgress {
            phase: CheckPhase::Names,
            done: 0,
            total,
        });
        let mut hanging = HashSet::from([ObjectNo::ROOT]);
        for no in numbers {
            let facts = self.facts[&no];
            match facts.kind {
                Some(kind) => self.check_named(no, kind, facts, &mut hanging),
                None => self.check_unknown(no, facts),
            }
        }
        if !self.facts.contains_key(&ObjectNo::ROOT) {
            self.add_contradiction(ObjectNo::ROOT, "there is no root directory");
        }
    }

    fn check_unknown(&mut self, no: ObjectNo, facts: ObjectFacts) {
        if facts.named > 0 {
            let dir = ObjectNo::new(facts.in_dir);
            self.add_contradiction(
                dir,
                format!(
                    "{} entries, one of them here, name object {no}, which is not there",
                    facts.named
                ),
            );
        }
        if facts.orphan {
            self.add_contradiction(no, "it is in the orphan set and not there");
        }
    }

    fn check_named(
        &mut self,
        no: ObjectNo,
        kind: FileType,
        facts: ObjectFacts,
        hanging: &mut HashSet<ObjectNo>,
    ) {
        if facts.links != facts.named || facts.fingerprint != 0 {
            let (links, named) = (facts.links, facts.named);
            self.add_contradiction(
                no,
                format!("its own {links} names and the {named} entries for it differ"),
            );
        }
        if no == ObjectNo::ROOT {
            if facts.named > 0 || facts.orphan || kind != FileType::Dir {
                self.add_contradiction(no, "the root has a name, is an orphan or no directory");
            }
            return;
        }
        match (facts.named, facts.orphan) {
            (0, false) => self.add_contradiction(no, "it has no name and is not in the orphan set"),
            (0, true) => {}
            (_, true) => self.add_contradiction(no, "it has a name and is in the orphan set"),
            (_, false) => self.check_reachable(no, hanging),
        }
    }

    /// Goes up from an object until something known to hang in the tree.
    fn check_reachable(&mut self, no: ObjectNo, hanging: &mut HashSet<ObjectNo>) {
        let mut way = Vec::new();
        let mut at = no;
        while !hanging.contains(&at) {
            let up = self.facts.get(&at).copied().unwrap_or_default();
            if way.contains(&at) || way.len() > 1 << 16 {
                self.add_contradiction(no, "the way up from it runs in a circle");
                break;
            }
            if up.named == 0 {
                // An orphan directory is empty; whatever is below one is lost.
                self.add_contradiction(
                    no,
                    format!("the way up from it ends at {at}, not at the root"),
                );
                break;
            }
            if at != no && up.kind.is_some_and(|kind| !kind.is_dir()) {
                self.add_contradiction(no, format!("{at} is named as its directory and is none"));
                break;
            }
            way.push(at);
            at = ObjectNo::new(up.in_dir);
        }
        // Also after a complaint: one is enough for all that hang below.
        hanging.extend(way);
    }
}
