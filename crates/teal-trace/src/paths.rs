//! Tracks the places of a trace's objects in the tree, event by event.

use super::event::{Action, EventOutcome, ObjectName, TraceItem};
use super::field::Text;
use std::collections::HashMap;

/// Limits the depth of a path.
const DEPTH_MAX: usize = 1000;

/// Holds names of objects, as far as a trace has told them. It grows with the number of objects.
#[derive(Debug, Default)]
pub struct PathTracker {
    /// Directory and name of each object: one of its names.
    name_by_object: HashMap<u64, (u64, Text)>,
    /// Object of each directory and name.
    object_by_name: HashMap<(u64, Text), u64>,
}

impl PathTracker {
    /// Notes the names that an item tells.
    pub fn follow_item(&mut self, item: &TraceItem) {
        let event = match item {
            TraceItem::Called(ObjectName {
                object,
                parent,
                name,
            }) => return self.insert_name(*object, *parent, name),
            TraceItem::Event(event) => event,
            _ => return,
        };
        // Only a success shows that the name is there, or gone.
        if !matches!(event.outcome, EventOutcome::Done(_)) {
            return;
        }
        let dir = event.object;
        match &event.action {
            Action::Lookup { name }
            | Action::Create { name }
            | Action::Mkdir { name }
            | Action::Mknod { name }
            | Action::Symlink { name, .. }
            | Action::Link { name, .. } => {
                if let Some(object) = event.named_object() {
                    self.insert_name(object, dir, name);
                }
            }
            // A removed object may still be open, but it has no path any more.
            Action::Unlink { name } | Action::Rmdir { name } => drop(self.remove_name(dir, name)),
            Action::Rename {
                name,
                to,
                new,
                exchange,
            } => {
                // Both names go before one comes back, because a rename may replace or exchange.
                let moved = self.remove_name(dir, name);
                let replaced = self.remove_name(*to, new);
                if let Some(object) = moved {
                    self.insert_name(object, *to, new);
                }
                if let Some(object) = replaced.filter(|_| *exchange) {
                    self.insert_name(object, dir, name);
                }
            }
            _ => {}
        }
    }

    /// Returns the object of a name.
    pub fn object_named(&self, dir: u64, name: &Text) -> Option<u64> {
        self.object_by_name.get(&(dir, name.clone())).copied()
    }

    /// Returns the path of an object from the root of the recording; `None` where a part of it is
    /// not known.
    pub fn path_of(&self, object: u64) -> Option<Vec<u8>> {
        // The way leads from the object up to the root.
        let (mut parts, mut at) = (Vec::new(), object);
        loop {
            let (dir, name) = self.name_by_object.get(&at)?;
            if *dir == 0 {
                break;
            }
            parts.push(name.as_bytes());
            at = *dir;
            // A damaged trace may have a cycle of directories.
            if parts.len() > DEPTH_MAX {
                return None;
            }
        }
        Some(
            parts
                .iter()
                .rev()
                .flat_map(|part| [&b"/"[..], part])
                .flatten()
                .copied()
                .collect(),
        )
    }

    fn insert_name(&mut self, object: u64, dir: u64, name: &Text) {
        // An object with several names is known by the newest.
        self.name_by_object.insert(object, (dir, name.clone()));
        self.object_by_name.insert((dir, name.clone()), object);
    }

    fn remove_name(&mut self, dir: u64, name: &Text) -> Option<u64> {
        let object = self.object_by_name.remove(&(dir, name.clone()))?;
        // The object may be known by another of its names, which stays.
        if self
            .name_by_object
            .get(&object)
            .is_some_and(|(d, n)| *d == dir && n == name)
        {
            self.name_by_object.remove(&object);
        }
        Some(object)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TextReader;

    #[test]
    fn objects_are_followed_through_renames() {
        let text = r#"teal-trace 1 file
            called 1 0 ""
            called 2 1 "old"
            1 0 2 create name="a" = 10
            2 0 2 create name="b" = 11
            3 0 2 lookup name="none" ! 2
            4 0 1 mkdir name="new" = 3
            5 0 2 rename name="a" to=3 new="c" exchange=no = 0
            6 0 3 link name="d" target=11 = 11
            7 0 2 unlink name="b" = 0
            8 0 1 rename name="old" to=3 new="sub" exchange=no = 0
            9 0 2 create name="e" = 12
            10 0 3 rename name="c" to=3 new="d" exchange=yes = 0
            11 0 2 mkdir name="failed" ! 28
            12 0 99 read offset=0 length=1"#;
        let mut paths = PathTracker::default();
        TextReader::new(text.as_bytes())
            .unwrap()
            .for_each(|item| paths.follow_item(&item.unwrap()));
        let path = |object| {
            paths
                .path_of(object)
                .map(|path| String::from_utf8(path).unwrap())
        };
        let all = [1, 2, 3, 10, 11, 12, 99].map(path);
        let want = [
            Some(""),
            Some("/new/sub"),
            Some("/new"),
            Some("/new/d"),
            Some("/new/c"),
            Some("/new/sub/e"),
            None,
        ];
        assert_eq!(all, want.map(|path| path.map(str::to_owned)));
        assert_eq!(paths.object_named(3, &Text::truncated(b"c")), Some(11));
        assert_eq!(paths.object_named(2, &Text::truncated(b"b")), None);
    }
}
