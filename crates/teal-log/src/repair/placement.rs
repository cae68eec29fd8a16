//! Decides where each object goes in the new store: into the tree, into `lost+found`, or nowhere.

use crate::object::state::ObjectState;
use crate::repair::content::{LostContent, read_content};
use crate::repair::facts::{NameVerdict, ObjectFacts, ObjectName, SurveyedObjects};
use crate::repair::findings::{LossKind, RepairFindings, RepairLoss, RepairPhase, RepairProgress};
use crate::repair::lost_found::{LostAndFound, LostReason};
use crate::repair::plan::{ObjectSource, PlannedObject, RepairPlan, mark_name};
use crate::store::handle::Store;
use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use teal_types::{FileType, Name, ObjectNo};

/// The name of the report in `lost+found`.
const REPORT: &[u8] = b"report";
/// Directories above each other that a path in a message shows: what is damaged may be a circle.
const DEPTH_MAX: usize = 64;
/// Files between two reports of progress.
const STEP: u64 = 64;

/// The reason for which an object has no certain name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NameDoubt {
    DirectoryLost,
    Contradicted,
}

struct ObjectPlacer<'s> {
    store: &'s Store,
    objects: &'s SurveyedObjects,
    /// The children of each directory, by certain names.
    children: BTreeMap<ObjectNo, Vec<(Name, ObjectNo)>>,
    /// Objects without any certain name: one of those they say they have.
    doubts: BTreeMap<ObjectNo, (NameDoubt, ObjectName)>,
    lost: LostAndFound,
    directories: Vec<PlannedObject>,
    placed_directories: BTreeSet<ObjectNo>,
    /// The names of everything that is no directory, and whether all of them are in the tree.
    others: BTreeMap<ObjectNo, (Vec<ObjectName>, bool)>,
    /// The parts of all files that can be read.
    contents: BTreeMap<ObjectNo, LostContent>,
    paths: BTreeMap<ObjectNo, String>,
    findings: RepairFindings,
}

/// Decides where everything goes.
pub(super) fn place_objects(
    store: &Store,
    objects: &SurveyedObjects,
    progress: &mut dyn FnMut(RepairProgress),
) -> (RepairPlan, RepairFindings) {
    let mut placer = ObjectPlacer::new(store, objects);
    placer.judge_names();
    // The tree comes first: what it does not reach is lost, and maybe found.
    placer.walk_from(ObjectNo::ROOT, true);
    placer.place_doubtful();
    placer.place_circles();
    placer.place_uncertain();
    placer.note_losses();
    // Files that are not whole leave their places.
    placer.check_content(progress);
    placer.finish()
}

/// Returns whether the store belongs to a volume with a server.
fn has_notes(store: &Store) -> bool {
    !store.objects().notes.lock().is_empty()
}

impl<'s> ObjectPlacer<'s> {
    fn new(store: &'s Store, objects: &'s SurveyedObjects) -> Self {
        // New objects get numbers that no object of the damaged store may have.
        let known = objects.known.keys().chain(&objects.missing);
        let highest = known.max().map_or(0, |no| no.get());
        let next = store.next_number().max(highest + 1);
        let links = objects.known.values().flat_map(|facts| &facts.links);
        let in_root = links.filter(|(dir, _)| *dir == ObjectNo::ROOT);
        let taken: BTreeSet<&Name> = in_root.map(|(_, name)| name).collect();
        let is_taken = |name: &Name| taken.contains(name);
        // The log counts objects, those that cannot be read included.
        let expected = store.objects().numbers.object_count();
        let found = (objects.known.len() + objects.missing.len()) as u64;
        Self {
            store,
            objects,
            children: BTreeMap::new(),
            doubts: BTreeMap::new(),
            lost: LostAndFound::new(next, &is_taken),
            directories: Vec::new(),
            placed_directories: BTreeSet::from([ObjectNo::ROOT]),
            others: BTreeMap::new(),
            contents: BTreeMap::new(),
            paths: BTreeMap::from([(ObjectNo::ROOT, String::new())]),
            findings: RepairFindings {
                has_server: has_notes(store),
                unknown: expected.saturating_sub(found),
                ..RepairFindings::default()
            },
        }
    }

    /// Sorts the names of all known objects into those that are certain and those that are not.
    fn judge_names(&mut self) {
        // Each name is given once.
        let mut taken = BTreeSet::new();
        let mark = (ObjectNo::ROOT, mark_name());
        for (no, facts) in &self.objects.known {
            if *no == ObjectNo::ROOT {
                continue;
            }
            // An object with a certain name needs no other; without any, the reason counts.
            let mut doubt = None;
            let mut is_named = false;
            for link in &facts.links {
                // The damaged store may itself be an unfinished copy.
                if *link == mark {
                    continue;
                }
                let verdict = self.objects.judge_name(self.store, *no, link);
                match verdict {
                    // Two objects may claim a name on a page that is lost.
                    NameVerdict::Certain if taken.insert(link) => {
                        let (dir, name) = link;
                        let children = self.children.entry(*dir).or_default();
                        children.push((name.clone(), *no));
                        is_named = true;
                    }
                    NameVerdict::DirectoryLost if taken.insert(link) => {
                        doubt = Some((NameDoubt::DirectoryLost, link.clone()));
                    }
                    NameVerdict::Certain
                    | NameVerdict::DirectoryLost
                    | NameVerdict::Contradicted => {
                        doubt.get_or_insert((NameDoubt::Contradicted, link.clone()));
                    }
                }
            }
            if let Some(doubt) = doubt.filter(|_| !is_named) {
                self.doubts.insert(*no, doubt);
            }
        }
    }

    /// Places everything below a directory that is placed already.
    fn walk_from(&mut self, top: ObjectNo, is_in_tree: bool) {
        let mut waiting = vec![top];
        while let Some(dir) = waiting.pop() {
            for (name, child) in self.children.remove(&dir).unwrap_or_default() {
                let is_dir = self.objects.known[&child].kind.is_dir();
                // A file may have many names, a directory has one.
                if !is_dir {
                    self.add_other(child, (dir, name), is_in_tree);
                } else if self.placed_directories.insert(child) {
                    self.add_directory(child, (dir, name), is_in_tree);
                    waiting.push(child);
                }
            }
        }
    }

    /// Returns the path of a name in the damaged store, as far as anything says it.
    fn path_of(&self, name: &ObjectName) -> String {
        // Upwards, by whatever says where a directory is.
        let (start, name) = name;
        let mut dir = *start;
        let mut path = format!("/{name}");
        for _ in 0..DEPTH_MAX {
            if let Some(above) = self.paths.get(&dir) {
                return format!("{above}{path}");
            }
            let known = self.objects.known.get(&dir);
            let facts = known.or_else(|| self.objects.uncertain.get(&dir));
            let named = self.objects.names_of_missing.get(&dir);
            let own = facts.map(|facts| &facts.links);
            let Some((above, name)) = named.or(own).and_then(|names| names.first()) else {
                break;
            };
            path = format!("/{name}{path}");
            dir = *above;
        }
        format!("{dir}{path}")
    }

    fn add_directory(&mut self, no: ObjectNo, name: ObjectName, is_in_tree: bool) {
        debug_assert!(
            self.objects.known[&no].kind.is_dir(),
            "files have no paths here"
        );
        self.paths.insert(no, self.path_of(&name));
        self.findings.directories += u64::from(is_in_tree);
        self.directories.push(PlannedObject {
            no,
            source: ObjectSource::Found,
            names: vec![name],
            is_in_tree,
            content: LostContent::default(),
        });
    }

    fn add_other(&mut self, no: ObjectNo, name: ObjectName, is_in_tree: bool) {
        let (names, is_all_in_tree) = self.others.entry(no).or_insert((Vec::new(), true));
        *is_all_in_tree &= is_in_tree;
        names.push(name);
    }

    fn add_loss(&mut self, kind: LossKind, object: ObjectNo, path: String, what: &str) {
        self.add_kept_loss(kind, (object, path), what, None);
    }

    fn add_kept_loss(
        &mut self,
        kind: LossKind,
        (object, path): (ObjectNo, String),
        what: &str,
        kept_as: Option<String>,
    ) {
        self.findings.add_loss(RepairLoss {
            kind,
            object,
            path,
            what: what.to_owned(),
            kept_as,
        });
    }

    /// Places a known object that has no certain name, and all below it.
    fn place_in_lost(&mut self, no: ObjectNo, name: ObjectName) {
        if self.objects.known[&no].kind.is_dir() {
            let path = self.lost.path_of(&name);
            // Everything below it keeps its place in it.
            self.placed_directories.insert(no);
            self.add_directory(no, name, false);
            self.paths.insert(no, path);
            self.walk_from(no, false);
        } else {
            self.add_other(no, name, false);
        }
    }

    fn place_doubtful(&mut self) {
        for (no, (doubt, old)) in std::mem::take(&mut self.doubts) {
            let (dir, name) = &old;
            let path = self.path_of(&old);
            // With its directory lost, a name still says what else was there.
            let new = match doubt {
                NameDoubt::DirectoryLost => {
                    let uncertain = self.objects.uncertain.get(dir);
                    let called = uncertain.and_then(|facts| facts.links.first());
                    let named = self.objects.names_of_missing.get(dir);
                    let called = named.and_then(|names| names.first()).or(called);
                    let parent = self
                        .lost
                        .directory_of_lost(*dir, called.map(|(_, name)| name));
                    (parent, name.clone())
                }
                NameDoubt::Contradicted => {
                    self.lost.name_for(LostReason::Uncertain, no, Some(name))
                }
            };
            let (kind, what) = match doubt {
                NameDoubt::DirectoryLost => (LossKind::Detached, "has lost its directory"),
                NameDoubt::Contradicted => (
                    LossKind::Uncertain,
                    "may have been deleted or renamed: its directory does not have it",
                ),
            };
            let kept_as = Some(self.lost.path_of(&new));
            self.add_kept_loss(kind, (no, path), what, kept_as);
            self.place_in_lost(no, new);
        }
    }

    /// Places directories that lie in each other, and what is below them.
    fn place_circles(&mut self) {
        while let Some((dir, _)) = self.children.first_key_value() {
            let dir = *dir;
            let Some(facts) = self.objects.known.get(&dir) else {
                // Names are certain only in directories that are known.
                self.children.remove(&dir);
                continue;
            };
            if !self.placed_directories.contains(&dir) && !facts.links.is_empty() {
                let old = facts.links[0].clone();
                let new = self.lost.name_for(LostReason::Detached, dir, Some(&old.1));
                let kept_as = Some(self.lost.path_of(&new));
                let path = self.store.path_of(dir);
                self.add_kept_loss(LossKind::Detached, (dir, path), "lies in itself", kept_as);
                self.place_in_lost(dir, new);
            }
            // A directory that was deleted has nothing any more.
            self.children.remove(&dir);
        }
    }

    /// Places what was found by its records only.
    fn place_uncertain(&mut self) {
        for (no, facts) in &self.objects.uncertain {
            // Any user may have made up a record of a device.
            if !matches!(facts.kind, FileType::File | FileType::Symlink) {
                continue;
            }
            // The number tells it apart from older and newer objects of that name.
            let name = facts.links.first().map(|(_, name)| name);
            let new = self.lost.name_for(LostReason::Uncertain, *no, name);
            let path = self.path_of_missing(*no, Some(facts));
            let kept_as = Some(self.lost.path_of(&new));
            let what = "cannot be read; what was found may be older, or may have been deleted";
            self.add_kept_loss(LossKind::Uncertain, (*no, path), what, kept_as);
            self.add_other(*no, new, false);
        }
    }

    fn path_of_missing(&self, no: ObjectNo, facts: Option<&ObjectFacts>) -> String {
        let named = self.objects.names_of_missing.get(&no);
        let own = facts.map(|facts| &facts.links);
        let name = named.or(own).and_then(|names| names.first());
        name.map_or_else(|| no.to_string(), |name| self.path_of(name))
    }

    /// Notes what is lost without a trace but a name or a number.
    fn note_losses(&mut self) {
        for no in &self.objects.missing {
            // An object that was found was told of above.
            let facts = self.objects.uncertain.get(no);
            if self.others.contains_key(no) {
                continue;
            }
            if *no == ObjectNo::ROOT {
                let what = "cannot be read; it has the names that objects say they have in it";
                self.add_loss(LossKind::Names, *no, "/".to_owned(), what);
                continue;
            }
            let path = self.path_of_missing(*no, facts);
            self.add_loss(LossKind::Gone, *no, path, "cannot be read");
        }
        for (no, name) in &self.objects.stale_names {
            let known = self.objects.known.get(no);
            // Renamed objects are where they say they are.
            if known.is_none_or(|facts| facts.links.is_empty()) {
                let path = self.path_of(name);
                self.add_loss(LossKind::Gone, *no, path, "leads to nothing");
            }
        }
        for dir in &self.objects.torn_directories {
            let path = self.paths.get(dir).cloned().unwrap_or_default();
            // The directory's record counts its names.
            let named = self.children_of(*dir) + self.count_missing_in(*dir);
            let lost = self.objects.known[dir].size.saturating_sub(named);
            if lost > 0 {
                let what = format!("has lost {}", count_names(lost));
                self.add_loss(LossKind::Names, *dir, format!("{path}/"), &what);
            }
        }
    }

    /// Returns how many names in a directory are placed.
    fn children_of(&self, dir: ObjectNo) -> u64 {
        let directories = self.directories.iter().flat_map(|planned| &planned.names);
        let others = self.others.values().flat_map(|(names, _)| names);
        directories
            .chain(others)
            .filter(|(in_dir, _)| *in_dir == dir)
            .count() as u64
    }

    fn count_missing_in(&self, dir: ObjectNo) -> u64 {
        let names = self.objects.names_of_missing.values().flatten();
        names.filter(|(in_dir, _)| *in_dir == dir).count() as u64
    }

    /// Reads all content. Files that are not whole leave the tree.
    fn check_content(&mut self, progress: &mut dyn FnMut(RepairProgress)) {
        let files: Vec<ObjectNo> = self.others.keys().copied().collect();
        let total = files.len() as u64;
        for (done, no) in (0..).zip(files) {
            if done % STEP == 0 {
                progress(RepairProgress {
                    phase: RepairPhase::Content,
                    done,
                    total,
                });
            }
            // Nothing is kept of the content: it is read again when it is copied.
            let mut size = 0;
            let mut read = |state: &ObjectState| {
                size = state.core.size;
                let show = &mut |_: u64, _: &[u8]| Ok::<(), Infallible>(());
                match read_content(&self.store.objects().reader, no, state, show) {
                    Ok(lost) => lost,
                    Err(never) => match never {},
                }
            };
            let lost = self.objects.with_state(self.store, no, &mut read);
            let lost = lost.unwrap_or_default();
            self.findings.bytes += lost.read;
            self.contents.insert(no, lost);
            if !lost.is_whole() {
                self.move_damaged(no, size, lost);
            }
        }
    }

    fn move_damaged(&mut self, no: ObjectNo, size: u64, lost: LostContent) {
        let Some((names, _)) = self.others.remove(&no) else {
            return;
        };
        debug_assert!(!lost.is_whole(), "whole files stay where they are");
        let old = &names[0];
        let known = self.objects.known.contains_key(&no);
        let path = if known {
            self.path_of(old)
        } else {
            self.path_of_missing(no, self.objects.uncertain.get(&no))
        };
        if lost.read == 0 {
            self.add_loss(LossKind::Gone, no, path, "has lost all of its content");
            return;
        }
        let what = if lost.pages == 0 {
            format!("has lost {} of {size} bytes", lost.bytes)
        } else {
            format!("has lost all but {} of at most {size} bytes", lost.read)
        };
        // By the name it had, not by one that `lost+found` gave it.
        let link = self
            .objects
            .known
            .get(&no)
            .and_then(|facts| facts.links.first());
        let called = link.map_or(&old.1, |(_, name)| name).clone();
        let new = self.lost.name_for(LostReason::Damaged, no, Some(&called));
        let kept_as = Some(self.lost.path_of(&new));
        self.add_kept_loss(LossKind::Content, (no, path), &what, kept_as);
        self.others.insert(no, (vec![new], false));
    }

    fn finish(mut self) -> (RepairPlan, RepairFindings) {
        self.findings.sort_losses();
        // The content of all files has been read by now.
        let mut others = Vec::with_capacity(self.others.len());
        for (no, (names, is_in_tree)) in self.others {
            self.findings.files += u64::from(is_in_tree);
            others.push(PlannedObject {
                no,
                source: ObjectSource::Found,
                names,
                is_in_tree,
                content: self.contents.remove(&no).unwrap_or_default(),
            });
        }
        // The report is there whenever something is lost.
        if self.findings.total > 0 || self.lost.is_needed() {
            let top = self.lost.top();
            others.push(PlannedObject {
                no: self.lost.take_number(),
                source: ObjectSource::Report,
                names: vec![(top, Name::new(REPORT).expect("a valid name"))],
                is_in_tree: false,
                content: LostContent::default(),
            });
        }
        let mark = self.lost.take_number();
        // All of `lost+found` lies below directories that are made.
        let mut directories = self.lost.made;
        directories.extend(self.directories);
        let plan = RepairPlan {
            directories,
            others,
            mark,
        };
        plan.check();
        (plan, self.findings)
    }
}

fn count_names(count: u64) -> String {
    match count {
        1 => "a name".to_owned(),
        _ => format!("{count} names"),
    }
}
