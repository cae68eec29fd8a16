//! The directory `lost+found` of the new store, and what is in it.

use crate::repair::content::LostContent;
use crate::repair::facts::ObjectName;
use crate::repair::plan::{ObjectSource, PlannedObject};
use std::collections::BTreeMap;
use teal_types::{NAME_MAX, Name, ObjectNo};

/// Why something is in `lost+found`: each reason has a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum LostReason {
    /// A part of its content is lost.
    Damaged,
    /// The directory it was in is lost.
    Detached,
    /// The object may have been deleted or superseded.
    Uncertain,
}

impl LostReason {
    fn directory(self) -> &'static str {
        match self {
            Self::Damaged => "damaged",
            Self::Detached => "detached",
            Self::Uncertain => "uncertain",
        }
    }
}

/// The directories below `lost+found` that are needed so far.
#[derive(Debug)]
pub(super) struct LostAndFound {
    /// Numbers from here on are of no object of the damaged store.
    next: u64,
    top: Option<ObjectNo>,
    by_reason: BTreeMap<LostReason, ObjectNo>,
    /// Directories that stand for lost ones.
    of_lost: BTreeMap<ObjectNo, ObjectNo>,
    paths: BTreeMap<ObjectNo, String>,
    /// The directories, each behind the one it is in.
    pub(super) made: Vec<PlannedObject>,
    /// A name of the root directory that is not taken.
    top_name: Name,
}

fn valid_name(text: &[u8]) -> Name {
    // A long name loses its end.
    let shortest = text.len().min(NAME_MAX);
    Name::new(&text[..shortest]).expect("a number sign and a name are a name")
}

impl LostAndFound {
    /// Numbers from `next` on are free; `is_taken` tells names of the root directory.
    pub(super) fn new(next: u64, is_taken: &dyn Fn(&Name) -> bool) -> Self {
        let names = (1_u64..).map(|turn| match turn {
            1 => valid_name(b"lost+found"),
            _ => valid_name(format!("lost+found.{turn}").as_bytes()),
        });
        // An earlier repair may have left one.
        let mut free = names.filter(|name| !is_taken(name));
        Self {
            next,
            top: None,
            by_reason: BTreeMap::new(),
            of_lost: BTreeMap::new(),
            paths: BTreeMap::new(),
            made: Vec::new(),
            top_name: free
                .next()
                .expect("a directory has fewer names than there are"),
        }
    }

    fn make_dir(&mut self, parent: ObjectNo, name: Name) -> ObjectNo {
        // Only root can enter it: its content may come from any user.
        let no = self.take_number();
        let above = self.paths.get(&parent).cloned().unwrap_or_default();
        self.paths.insert(no, format!("{above}/{name}"));
        self.made.push(PlannedObject {
            no,
            source: ObjectSource::MadeDirectory,
            names: vec![(parent, name)],
            is_in_tree: false,
            content: LostContent::default(),
        });
        no
    }

    /// Returns a number that no object has.
    pub(super) fn take_number(&mut self) -> ObjectNo {
        let no = ObjectNo::new(self.next);
        assert!(no < ObjectNo::LIMIT, "2^63 objects are never reached");
        self.next += 1;
        no
    }

    /// Returns `lost+found` itself, which is made now if it was not yet.
    pub(super) fn top(&mut self) -> ObjectNo {
        match self.top {
            Some(top) => top,
            None => {
                let top = self.make_dir(ObjectNo::ROOT, self.top_name.clone());
                self.top = Some(top);
                top
            }
        }
    }

    pub(super) fn is_needed(&self) -> bool {
        self.top.is_some()
    }

    fn directory_of(&mut self, reason: LostReason) -> ObjectNo {
        if let Some(dir) = self.by_reason.get(&reason) {
            return *dir;
        }
        let top = self.top();
        let dir = self.make_dir(top, valid_name(reason.directory().as_bytes()));
        self.by_reason.insert(reason, dir);
        dir
    }

    /// Returns the directory that stands for a lost one. `names`: what it may have been called.
    pub(super) fn directory_of_lost(&mut self, lost: ObjectNo, name: Option<&Name>) -> ObjectNo {
        if let Some(dir) = self.of_lost.get(&lost) {
            return *dir;
        }
        let detached = self.directory_of(LostReason::Detached);
        let dir = self.make_dir(detached, numbered_name(lost, name));
        self.of_lost.insert(lost, dir);
        dir
    }

    /// Returns a name for an object, in the directory of the reason.
    pub(super) fn name_for(
        &mut self,
        reason: LostReason,
        no: ObjectNo,
        name: Option<&Name>,
    ) -> ObjectName {
        (self.directory_of(reason), numbered_name(no, name))
    }

    /// Returns the path of a name in one of these directories.
    pub(super) fn path_of(&self, (dir, name): &ObjectName) -> String {
        let above = self.paths.get(dir).cloned().unwrap_or_default();
        format!("{above}/{name}")
    }
}

/// Returns a name that tells objects apart and shows what the object was called.
fn numbered_name(no: ObjectNo, name: Option<&Name>) -> Name {
    let mut text = no.to_string().into_bytes();
    if let Some(name) = name {
        text.push(b' ');
        text.extend_from_slice(name.as_bytes());
    }
    valid_name(&text)
}
