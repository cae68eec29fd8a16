//! Small files that are written as a whole: settings, keys, lists that lie beside a store.
//!
//! # Guarantees
//! 1. *Whole*: whatever happens meanwhile, the name leads to the old content or to the new one,
//!    never to a part.
//! 2. *Durable*: when writing returns, content and name are on the disk: the file is synced before
//!    it gets its name, and the directory afterwards.
//! 3. *Private*: the file is readable by its owner only, from its first byte on.
//! 4. Nothing is left behind by a failure. A crash may leave a file named `.new-` and 32 digits
//!    beside it.

use crate::entropy::{Entropy as _, SystemEntropy};
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// Says whether a file that has the name already is replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExistingFile {
    /// The file stays, and writing fails with [`io::ErrorKind::AlreadyExists`].
    Keep,
    /// The file is replaced.
    Replace,
}

/// Writes `bytes` as the whole content of the file `path`.
///
/// # Errors
/// Returns the file system's error. The file at `path` is then as before, unless the directory
/// alone could not be synced.
pub fn replace_file(path: &Path, bytes: &[u8], existing: ExistingFile) -> io::Result<()> {
    let parent = path.parent().filter(|dir| !dir.as_os_str().is_empty());
    let dir = parent.unwrap_or(Path::new("."));
    let id = u128::from_ne_bytes(SystemEntropy.random_id());
    let temporary = dir.join(format!(".new-{id:032x}"));

    // Written beside its place, so that the rename stays within one file system and is atomic.
    let written = write_new(&temporary, bytes).and_then(|()| match existing {
        ExistingFile::Replace => fs::rename(&temporary, path),
        // A link, unlike a rename, fails if the name is taken.
        ExistingFile::Keep => fs::hard_link(&temporary, path),
    });
    if written.is_err() || existing == ExistingFile::Keep {
        // After a failure the file may be gone already; the error above is the one that matters.
        let _ = fs::remove_file(&temporary);
    }
    written?;
    // The name is durable only with the directory.
    let opened = OpenOptions::new().read(true).open(dir)?;
    opened.sync_all()
}

/// Makes a file that only its owner can read, writes it, and syncs it.
fn write_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt as _;

    fn names(dir: &Path) -> Vec<String> {
        let entries = fs::read_dir(dir).unwrap();
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_is_replaced_as_a_whole_and_private() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("setting");
        replace_file(&path, b"one", ExistingFile::Replace).unwrap();
        replace_file(&path, b"two", ExistingFile::Replace).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(names(dir.path()), ["setting"]);
    }

    #[test]
    fn what_is_to_stay_stays() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        replace_file(&path, b"one", ExistingFile::Keep).unwrap();
        let refused = replace_file(&path, b"two", ExistingFile::Keep).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read(&path).unwrap(), b"one");
        assert_eq!(names(dir.path()), ["key"]);
    }

    #[test]
    fn a_failure_leaves_nothing_behind() {
        let dir = tempfile::tempdir().unwrap();
        let taken = dir.path().join("taken");
        fs::create_dir(&taken).unwrap();
        replace_file(&taken, b"one", ExistingFile::Replace).unwrap_err();
        let missing = dir.path().join("missing/file");
        let refused = replace_file(&missing, b"one", ExistingFile::Replace).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::NotFound);
        assert_eq!(names(dir.path()), ["taken"]);
    }
}
