//! Where the objects of a trace are in the tree, followed event by event.

use super::event::{Action, Called, Item, Outcome, Text};
use std::collections::HashMap;

/// Deepest path that is put together.
const DEPTH_MAX: usize = 1000;

/// Names of objects, as far as a trace has told them. Grows with the number of objects.
#[derive(Debug, Default)]
pub struct Paths {
    /// Object to (directory, name): one of its names.
    at: HashMap<u64, (u64, Text)>,
    /// (Directory, name) to object.
    of: HashMap<(u64, Text), u64>,
}

impl Paths {
    /// Takes note of what an item says of names.
    pub fn follow(&mut self, item: &Item) {
        let event = match item {
            Item::Called(Called {
                object,
                parent,
                name,
            }) => return self.put(*object, *parent, name),
            Item::Event(event) => event,
            _ => return,
        };
        if !matches!(event.outcome, Outcome::Done(_)) {
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
                if let Some(object) = event.names() {
                    self.put(object, dir, name);
                }
            }
            Action::Unlink { name } | Action::Rmdir { name } => drop(self.take(dir, name)),
            Action::Rename {
                name,
                to,
                new,
                exchange,
            } => {
                let moved = self.take(dir, name);
                let replaced = self.take(*to, new);
                if let Some(object) = moved {
                    self.put(object, *to, new);
                }
                if let Some(object) = replaced.filter(|_| *exchange) {
                    self.put(object, dir, name);
                }
            }
            _ => {}
        }
    }

    /// The object of a name.
    pub fn object(&self, dir: u64, name: &Text) -> Option<u64> {
        self.of.get(&(dir, name.clone())).copied()
    }

    /// The path of an object from the root of what was recorded; `None` where a part of it is not
    /// known.
    pub fn path(&self, object: u64) -> Option<Vec<u8>> {
        let (mut parts, mut at) = (Vec::new(), object);
        loop {
            let (dir, name) = self.at.get(&at)?;
            if *dir == 0 {
                break;
            }
            parts.push(name.as_bytes());
            at = *dir;
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

    fn put(&mut self, object: u64, dir: u64, name: &Text) {
        self.at.insert(object, (dir, name.clone()));
        self.of.insert((dir, name.clone()), object);
    }

    fn take(&mut self, dir: u64, name: &Text) -> Option<u64> {
        let object = self.of.remove(&(dir, name.clone()))?;
        if self
            .at
            .get(&object)
            .is_some_and(|(d, n)| *d == dir && n == name)
        {
            self.at.remove(&object);
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
        let mut paths = Paths::default();
        TextReader::new(text.as_bytes())
            .unwrap()
            .for_each(|item| paths.follow(&item.unwrap()));
        let path = |object| {
            paths
                .path(object)
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
        assert_eq!(paths.object(3, &Text::cut(b"c")), Some(11));
        assert_eq!(paths.object(2, &Text::cut(b"b")), None);
    }
}
