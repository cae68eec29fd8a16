//! Entries against links, and what hangs in the tree.

use super::{CheckProgress, Checker, Facts, Phase};
use std::collections::HashSet;
use teal_types::{FileType, ObjectNo};

impl Checker<'_> {
    pub(super) fn names(&mut self, progress: &mut dyn FnMut(CheckProgress)) {
        let mut numbers: Vec<ObjectNo> = self.facts.keys().copied().collect();
        numbers.sort_unstable();
        let total = numbers.len() as u64;
        progress(CheckProgress {
            phase: Phase::Names,
            done: 0,
            total,
        });
        let mut hanging = HashSet::from([ObjectNo::ROOT]);
        for no in numbers {
            let facts = self.facts[&no];
            match facts.kind {
                Some(kind) => self.named(no, kind, facts, &mut hanging),
                None => self.unknown(no, facts),
            }
        }
        if !self.facts.contains_key(&ObjectNo::ROOT) {
            self.wrong(ObjectNo::ROOT, "there is no root directory");
        }
    }

    fn unknown(&mut self, no: ObjectNo, facts: Facts) {
        if facts.named > 0 {
            let dir = ObjectNo::new(facts.in_dir);
            self.wrong(
                dir,
                format!(
                    "{} entries, one of them here, name object {no}, which is not there",
                    facts.named
                ),
            );
        }
        if facts.orphan {
            self.wrong(no, "it is in the orphan set and not there");
        }
    }

    fn named(
        &mut self,
        no: ObjectNo,
        kind: FileType,
        facts: Facts,
        hanging: &mut HashSet<ObjectNo>,
    ) {
        if facts.links != facts.named || facts.fingerprint != 0 {
            let (links, named) = (facts.links, facts.named);
            self.wrong(
                no,
                format!("its own {links} names and the {named} entries for it differ"),
            );
        }
        if no == ObjectNo::ROOT {
            if facts.named > 0 || facts.orphan || kind != FileType::Dir {
                self.wrong(no, "the root has a name, is an orphan or no directory");
            }
            return;
        }
        match (facts.named, facts.orphan) {
            (0, false) => self.wrong(no, "it has no name and is not in the orphan set"),
            (0, true) => {}
            (_, true) => self.wrong(no, "it has a name and is in the orphan set"),
            (_, false) => self.hangs(no, hanging),
        }
    }

    /// Goes up from an object until something known to hang in the tree.
    fn hangs(&mut self, no: ObjectNo, hanging: &mut HashSet<ObjectNo>) {
        let mut way = Vec::new();
        let mut at = no;
        while !hanging.contains(&at) {
            let up = self.facts.get(&at).copied().unwrap_or_default();
            if way.contains(&at) || way.len() > 1 << 16 {
                self.wrong(no, "the way up from it runs in a circle");
                break;
            }
            if up.named == 0 {
                // An orphan directory is empty; whatever is below one is lost.
                self.wrong(
                    no,
                    format!("the way up from it ends at {at}, not at the root"),
                );
                break;
            }
            if at != no && up.kind.is_some_and(|kind| !kind.is_dir()) {
                self.wrong(no, format!("{at} is named as its directory and is none"));
                break;
            }
            way.push(at);
            at = ObjectNo::new(up.in_dir);
        }
        // Also after a complaint: one is enough for all that hang below.
        hanging.extend(way);
    }
}
