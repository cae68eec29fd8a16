//! A directory tree as it looks from outside, as a value that can be compared.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};
use teal_types::{BLOCK, FileType, Timestamp};

/// The content of a file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FileContent {
    /// Length in bytes.
    pub size: u64,
    /// Digests of the 4 KiB blocks that are not all zero; the last block counts as filled up with
    /// zeros.
    pub blocks: BTreeMap<u64, u64>,
}

impl FileContent {
    /// Adds block number `block`.
    pub fn add_block(&mut self, block: u64, bytes: &[u8]) {
        if bytes.iter().any(|&b| b != 0) {
            self.blocks.insert(block, block_digest(bytes));
        }
    }
}

/// Returns a digest of a block, zeros at its end not counted.
fn block_digest(bytes: &[u8]) -> u64 {
    // Zeros at the end are left out: a short last block and a filled one are alike.
    let len = bytes
        .iter()
        .rposition(|&b| b != 0)
        .map_or(0, |last| last + 1);
    let mix = |hash: u64, word: u64| {
        (hash ^ word)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(29)
    };
    bytes[..len].chunks(8).fold(len as u64, |hash, chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        mix(hash, u64::from_le_bytes(word))
    })
}

/// An object under one of its names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeNode {
    /// Its type.
    pub kind: FileType,
    /// Low 12 bits of the mode.
    pub perm: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Number of names; for a directory 2 plus its subdirectories.
    pub nlink: u32,
    /// The first of the object's names in the tree.
    pub same_as: PathBuf,
    /// The content of a file; otherwise empty.
    pub content: FileContent,
    /// The target of a symbolic link; otherwise empty.
    pub target: Vec<u8>,
    /// (major, minor) of a device; otherwise zero.
    pub rdev: (u32, u32),
    /// Extended attributes of the namespaces `user` and `trusted`.
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Time of the last change; `None` if unknown, and then equal to any.
    pub mtime: Option<Timestamp>,
}

/// A tree: the root has the empty path.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TreeSnapshot {
    /// Every object by each of its names.
    pub nodes: BTreeMap<PathBuf, TreeNode>,
    /// Files held open, by slot: number of names and content.
    pub open: BTreeMap<u8, (u32, FileContent)>,
}

impl TreeSnapshot {
    /// Returns what differs, a line each, `self` first; empty if the trees agree. An unknown time
    /// agrees with any.
    pub fn diff(&self, other: &Self) -> Vec<String> {
        let mut out = Vec::new();
        let paths = BTreeSet::from_iter(self.nodes.keys().chain(other.nodes.keys()));
        for path in paths {
            match (self.nodes.get(path), other.nodes.get(path)) {
                (Some(ours), Some(theirs)) => ours.diff_node(theirs, path, &mut out),
                (Some(ours), None) => {
                    out.push(format!("{}: {:?} | missing", path.display(), ours.kind))
                }
                (None, theirs) => out.push(format!(
                    "{}: missing | {:?}",
                    path.display(),
                    theirs.map(|n| n.kind)
                )),
            }
        }
        self.diff_open_files(other, &mut out);
        out
    }

    /// Compares open files as well: they may have lost their names.
    fn diff_open_files(&self, other: &Self, out: &mut Vec<String>) {
        let slots = BTreeSet::from_iter(self.open.keys().chain(other.open.keys()));
        for slot in slots {
            let path = PathBuf::from(format!("(open in slot {slot})"));
            let (ours, theirs) = (self.open.get(slot), other.open.get(slot));
            let size = |of: &(u32, FileContent)| (of.0, of.1.size);
            let sizes = (ours.map(size), theirs.map(size));
            diff_field(&path, "nlink and size", &sizes.0, &sizes.1, out);
            if let (Some((_, ours)), Some((_, theirs))) = (ours, theirs) {
                ours.diff_content(theirs, &path, out);
            }
        }
    }
}

impl FileContent {
    fn diff_content(&self, other: &Self, path: &Path, out: &mut Vec<String>) {
        diff_field(path, "size", &self.size, &other.size, out);
        let blocks = BTreeSet::from_iter(self.blocks.keys().chain(other.blocks.keys()));
        let mut differing = Vec::from_iter(blocks);
        differing.retain(|block| self.blocks.get(block) != other.blocks.get(block));
        if let Some(first) = differing.first() {
            let holes = (
                self.blocks.contains_key(first),
                other.blocks.contains_key(first),
            );
            let (count, at) = (differing.len(), *first * BLOCK);
            let line = format!(
                "{count} blocks differ, the first at byte {at} (has data: {} | {})",
                holes.0, holes.1
            );
            out.push(format!("{}: {line}", path.display()));
        }
    }
}

impl TreeNode {
    fn diff_node(&self, other: &Self, path: &Path, out: &mut Vec<String>) {
        diff_field(path, "type", &self.kind, &other.kind, out);
        diff_field(
            path,
            "mode",
            &format_args!("{:o}", self.perm),
            &format_args!("{:o}", other.perm),
            out,
        );
        diff_field(
            path,
            "owner",
            &(self.uid, self.gid),
            &(other.uid, other.gid),
            out,
        );
        diff_field(path, "nlink", &self.nlink, &other.nlink, out);
        diff_field(path, "same as", &self.same_as, &other.same_as, out);
        diff_field(
            path,
            "target",
            &self.target.escape_ascii(),
            &other.target.escape_ascii(),
            out,
        );
        diff_field(path, "rdev", &self.rdev, &other.rdev, out);
        if self.mtime.is_some() && other.mtime.is_some() {
            diff_field(path, "mtime", &self.mtime, &other.mtime, out);
        }
        self.content.diff_content(&other.content, path, out);
        let names = BTreeSet::from_iter(self.xattrs.keys().chain(other.xattrs.keys()));
        for name in names {
            let what = format!("xattr {}", name.escape_ascii());
            diff_field(
                path,
                &what,
                &self.xattrs.get(name),
                &other.xattrs.get(name),
                out,
            );
        }
    }
}

fn diff_field(
    path: &Path,
    what: &str,
    ours: &impl fmt::Debug,
    theirs: &impl fmt::Debug,
    out: &mut Vec<String>,
) {
    let (ours, theirs) = (format!("{ours:?}"), format!("{theirs:?}"));
    if ours != theirs {
        out.push(format!("{}: {what}: {ours} | {theirs}", path.display()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_does_not_depend_on_how_zeros_are_stored() {
        let (mut a, mut b) = (FileContent::default(), FileContent::default());
        a.add_block(3, &[1, 2, 0, 0]);
        a.add_block(4, &[0; 4096]);
        b.add_block(3, &[1, 2]);
        assert_eq!(a, b);
        b.add_block(3, &[1, 2, 3]);
        assert_ne!(a, b);
    }

    #[test]
    fn a_diff_says_what_and_where() {
        let node = TreeNode {
            kind: FileType::File,
            perm: 0o644,
            uid: 0,
            gid: 0,
            nlink: 1,
            same_as: "a".into(),
            content: FileContent::default(),
            target: vec![],
            rdev: (0, 0),
            xattrs: BTreeMap::new(),
            mtime: None,
        };
        let mut other = TreeNode {
            perm: 0o600,
            mtime: Some(Timestamp::new(1, 0)),
            ..node.clone()
        };
        other.content.add_block(2, b"x");
        let ours = TreeSnapshot {
            nodes: [("a".into(), node.clone()), ("b".into(), node)].into(),
            open: BTreeMap::new(),
        };
        let theirs = TreeSnapshot {
            nodes: [("a".into(), other)].into(),
            open: BTreeMap::new(),
        };
        assert_eq!(
            ours.diff(&theirs),
            [
                "a: mode: 644 | 600",
                "a: 1 blocks differ, the first at byte 8192 (has data: false | true)",
                "b: File | missing"
            ]
        );
        assert_eq!(ours.diff(&ours), [""; 0]);
    }
}
