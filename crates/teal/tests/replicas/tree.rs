//! The state of a client's tree, as a value that can be compared.

use crate::world::{CALLER, ROOT};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use teal_posix::{FileSystem, FsError};
use teal_types::{FileType, ObjectNo};

/// An object under one of its names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Node {
    pub(crate) no: ObjectNo,
    pub(crate) kind: FileType,
    /// Permissions, owner, group, number of names.
    pub(crate) of: (u16, u32, u32, u32),
    pub(crate) mtime: i64,
    pub(crate) content: Vec<u8>,
    pub(crate) target: Vec<u8>,
    pub(crate) xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Node {
    fn words(&self) -> String {
        let Self {
            no,
            kind,
            of,
            mtime,
            content,
            target,
            xattrs,
        } = self;
        let sum = content.iter().fold(7_u64, |sum, byte| {
            sum.wrapping_mul(31).wrapping_add(u64::from(*byte))
        });
        let (target, len) = (String::from_utf8_lossy(target), content.len());
        format!("{no} {kind:?} {of:?} at {mtime}: {len} bytes {sum:x}, {target:?}, {xattrs:?}")
    }
}

pub(crate) type Tree = BTreeMap<String, Node>;

/// The entries of a directory without dots, in the order of their names.
pub(crate) fn entries(
    client: &FileSystem,
    dir: ObjectNo,
) -> Result<Vec<(Vec<u8>, ObjectNo, FileType)>, FsError> {
    let mut found = Vec::new();
    client.readdir(dir, 0, &mut |entry| {
        if !matches!(&entry.name[..], b"." | b"..") {
            found.push((entry.name.to_vec(), entry.object, entry.kind));
        }
        ControlFlow::Continue(())
    })?;
    found.sort_by(|a: &(Vec<u8>, ObjectNo, FileType), b| a.0.cmp(&b.0));
    Ok(found)
}

/// Everything a client shows, read through it.
pub(crate) fn walk(client: &FileSystem) -> Result<Tree, FsError> {
    let mut tree = Tree::new();
    let mut dirs = vec![(String::new(), ROOT)];
    while let Some((path, dir)) = dirs.pop() {
        let names = entries(client, dir)?;
        // The number of directories in it is known when it is listed.
        tree.insert(format!("{path}/"), node(client, dir)?);
        for (name, no, kind) in names {
            let attr = client.lookup(dir, &name)?;
            client.release(attr.object, 1);
            assert_eq!(
                (attr.object, attr.kind),
                (no, kind),
                "what readdir and lookup say of {path}"
            );
            let path = format!("{path}/{}", String::from_utf8_lossy(&name));
            if kind.is_dir() {
                dirs.push((path, no));
            } else {
                tree.insert(path, node(client, no)?);
            }
        }
    }
    Ok(tree)
}

/// The files in the directories that are listed here, with what of their content is here, and
/// whether that is all. The server is out of reach.
pub(crate) fn here(client: &FileSystem) -> BTreeMap<String, (bool, Vec<u8>)> {
    let (mut files, store) = (BTreeMap::new(), client.store());
    let mut dirs = vec![(String::new(), ROOT)];
    while let Some((path, dir)) = dirs.pop() {
        for (name, no, kind) in entries(client, dir).unwrap_or_default() {
            let path = format!("{path}/{}", String::from_utf8_lossy(&name));
            match kind {
                FileType::Dir => dirs.push((path, no)),
                FileType::File => {
                    let size = store.attr(no).unwrap().size;
                    let is_whole = client.read(no, 0, size as usize).is_ok();
                    files.insert(path, (is_whole, store.read(no, 0, size as usize).unwrap()));
                }
                _ => {}
            }
        }
    }
    files
}

fn node(client: &FileSystem, no: ObjectNo) -> Result<Node, FsError> {
    let attr = client.getattr(no)?;
    let is = |kind| attr.kind == kind;
    let content = if is(FileType::File) {
        client.read(no, 0, attr.size as usize)?
    } else {
        Vec::new()
    };
    assert!(
        !is(FileType::File) || content.len() as u64 == attr.size,
        "{no} is read whole"
    );
    let mut xattrs = Vec::new();
    for name in client.listxattr(&CALLER, no)? {
        let value = client.getxattr(no, &name)?;
        xattrs.push((name, value));
    }
    xattrs.sort();
    let target = if is(FileType::Symlink) {
        client.readlink(no)?
    } else {
        Vec::new()
    };
    let of = (attr.perm, attr.uid, attr.gid, attr.nlink);
    Ok(Node {
        no,
        kind: attr.kind,
        of,
        mtime: attr.mtime.secs,
        content,
        target,
        xattrs,
    })
}

/// Returns what differs, a line each. `times`: of directories too. (One in which something came and
/// went between two flushes, of which the server never hears, keeps its own time.)
pub(crate) fn differences(one: &Tree, other: &Tree, times: bool) -> Vec<String> {
    let shown = |node: Option<&Node>| {
        node.map(|node| Node {
            mtime: if times || !node.kind.is_dir() {
                node.mtime
            } else {
                0
            },
            ..node.clone()
        })
    };
    let mut paths: Vec<&String> = one.keys().chain(other.keys()).collect();
    paths.sort();
    paths.dedup();
    let words = |node: Option<&Node>| node.map_or("nothing".into(), Node::words);
    paths
        .into_iter()
        .filter(|path| shown(one.get(*path)) != shown(other.get(*path)))
        .map(|path| {
            format!(
                "{path}:\n    {}\n    {}",
                words(one.get(path)),
                words(other.get(path))
            )
        })
        .collect()
}
