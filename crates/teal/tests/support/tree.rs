//! Contents: seeded bytes, digests, and trees compared byte for byte.

use siphasher::sip128::{Hasher128 as _, SipHasher24};
use std::collections::BTreeMap;
use std::hash::Hasher as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use teal_testkit::Rng;

/// Bytes of a seed.
pub(crate) fn seeded(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    Rng::new(seed).fill(&mut bytes);
    bytes
}

/// A digest of a file's bytes.
#[track_caller]
pub(crate) fn digest(path: &Path) -> (u64, u128) {
    use std::io::Read as _;
    let mut file = std::fs::OpenOptions::new()
        .read(true)
        .open(path)
        .unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let mut hasher = SipHasher24::new();
    let mut buffer = vec![0; 1 << 20];
    let mut len = 0;
    loop {
        let n = file
            .read(&mut buffer)
            .unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        if n == 0 {
            break (len, hasher.finish128().as_u128());
        }
        len += n as u64;
        hasher.write(&buffer[..n]);
    }
}

/// Makes a tree of `files` files in directories of a dozen, of mixed sizes.
pub(crate) fn fill(root: &Path, seed: u64, files: usize) {
    let mut rng = Rng::new(seed);
    for n in 0..files {
        let dir = root.join(format!("d{}", n / 12));
        std::fs::create_dir_all(&dir).unwrap();
        let len = *rng.pick(&[0, 1, 100, 3000, 4096, 20_000, 300_000]);
        std::fs::write(dir.join(format!("f{n}")), seeded(rng.next_u64(), len)).unwrap();
    }
}

/// Extended attributes, by name.
fn xattrs(path: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut names = vec![0; 64 << 10];
    let len = rustix::fs::llistxattr(path, &mut names[..]).unwrap();
    let names = names[..len]
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty());
    let value = |name: &[u8]| {
        let mut value = vec![0; 64 << 10];
        let len = rustix::fs::lgetxattr(path, name, &mut value[..]).unwrap();
        value[..len].to_vec()
    };
    names
        .map(|name| (String::from_utf8_lossy(name).into_owned(), value(name)))
        .collect()
}

/// Which times are compared.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Times {
    /// All, in seconds.
    Seconds,
    /// Times of files, to the nanosecond: a directory in which something came and went between two
    /// flushes has a time of its own.
    OfFiles,
}

/// Returns what the comparison looks at.
fn describe(root: &Path, times: Times) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    let mut dirs = vec![root.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            let meta = std::fs::symlink_metadata(&path).unwrap();
            let kind = meta.file_type();
            let content = if kind.is_dir() {
                dirs.push(path.clone());
                "directory".to_owned()
            } else if kind.is_symlink() {
                format!("-> {:?}", std::fs::read_link(&path).unwrap())
            } else if kind.is_fifo()
                || kind.is_socket()
                || kind.is_char_device()
                || kind.is_block_device()
            {
                format!("special {}", meta.rdev())
            } else {
                format!("{:?} links {}", digest(&path), meta.nlink())
            };
            let has_time = !kind.is_symlink() && (kind.is_file() || times == Times::Seconds);
            let time = if has_time { meta.mtime() } else { 0 };
            let nanos = if times == Times::OfFiles && kind.is_file() {
                meta.mtime_nsec()
            } else {
                0
            };
            let xattrs = xattrs(&path);
            let line = format!(
                "{:o} {}:{} {time}.{nanos} {content} {xattrs:x?}",
                meta.mode(),
                meta.uid(),
                meta.gid()
            );
            found.insert(path.strip_prefix(root).unwrap().to_owned(), line);
        }
    }
    found
}

/// Two trees are the same: names, types, modes, owners, times in seconds, extended attributes,
/// bytes. How many entries there are.
#[track_caller]
pub(crate) fn compare_trees(one: &Path, other: &Path) -> usize {
    compare(one, other, Times::Seconds)
}

/// Does the same, with times of files only, to the nanosecond.
#[track_caller]
pub(crate) fn compare_replicas(one: &Path, other: &Path) -> usize {
    compare(one, other, Times::OfFiles)
}

/// Returns whether [`compare_replicas`] would find no difference.
pub(crate) fn are_alike(one: &Path, other: &Path) -> bool {
    describe(one, Times::OfFiles) == describe(other, Times::OfFiles)
}

#[track_caller]
fn compare(one: &Path, other: &Path, times: Times) -> usize {
    let (ours, theirs) = (describe(one, times), describe(other, times));
    for (path, line) in &ours {
        assert_eq!(Some(line), theirs.get(path), "{}", path.display());
    }
    assert_eq!(ours.len(), theirs.len(), "{} has more", other.display());
    ours.len()
}
