//! A shelf in a local directory: files written whole under another name, synced, renamed, and the
//! directory synced.
//!
//! # Guarantees
//! 1. *Durable*: file and directory are synced before a put returns; files found at opening have
//!    been synced too, since a process killed between the rename and the sync of the directory
//!    leaves a file that a power cut can still take away.
//! 2. *One writer*: the directory is locked (`flock` on `DIR/lock`) for as long as it is open for
//!    writing.
//! 3. *Clean*: leftovers of interrupted puts are removed when it is opened for writing.

use super::objects::BlockingObjectStore;
use super::{Shelf, ShelfError, ShelfObject};
use crate::seeded::{ChunkBug, bug};
use object_store::local::LocalFileSystem;
use rustix::fs::{FlockOperation, Mode, OFlags};
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::runtime::Handle;

/// The file that a process locks while it writes here.
const LOCK: &str = "lock";

/// The purpose for which a store is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccessMode {
    /// Reading only: nothing is written, not even a lock.
    Read,
    /// Reading and writing.
    Write,
}

/// A local directory of objects.
#[derive(Debug)]
pub struct DirectoryShelf {
    objects: BlockingObjectStore,
    dir: PathBuf,
    /// Holds the lock until it is dropped.
    _lock: Option<OwnedFd>,
    leftovers: usize,
}

impl DirectoryShelf {
    /// Opens `dir`, which exists. Its file operations run on the blocking threads of `runtime`.
    ///
    /// # Errors
    /// [`ShelfError`], naming the obstacle: no such directory, not writable, in use.
    pub fn open(dir: &Path, access: AccessMode, runtime: Handle) -> Result<Self, ShelfError> {
        // Kept open until the sync below, which needs a descriptor of the file system.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let root = open_file(dir, flags).map_err(|error| refusal(dir, error))?;
        let (mut lock, mut leftovers) = (None, 0);
        if access == AccessMode::Write {
            lock = Some(lock_for_writing(dir)?);
            // Under the lock, so that no other process is writing any of them.
            if !bug(ChunkBug::LeftoversStay) {
                leftovers = remove_leftovers(&dir.join("packs"))?;
            }
            // All of the file system: contents and names, also those that other processes wrote.
            rustix::fs::syncfs(&root).map_err(|errno| refusal(dir, errno.into()))?;
        }
        let place = dir.display().to_string();
        let files = LocalFileSystem::new_with_prefix(dir)
            .map_err(|error| ShelfError::from_cause(place.clone(), Arc::new(error)))?
            .with_fsync(!bug(ChunkBug::NotSynced));
        Ok(Self {
            objects: BlockingObjectStore::new(Arc::new(files), runtime, place),
            dir: dir.to_owned(),
            _lock: lock,
            leftovers,
        })
    }

    /// Returns the number of leftovers of interrupted puts that opening has removed.
    pub fn removed_leftovers(&self) -> usize {
        self.leftovers
    }
}

/// Makes the shelf's error of an I/O error at a path.
fn refusal(path: &Path, error: io::Error) -> ShelfError {
    ShelfError::from_cause(path.display().to_string(), Arc::new(error))
}

/// Locks a directory, until the descriptor is closed.
fn lock_for_writing(dir: &Path) -> Result<OwnedFd, ShelfError> {
    // Asked before the lock file is made: its error would name that file.
    let may_write = rustix::fs::access(dir, rustix::fs::Access::WRITE_OK);
    may_write.map_err(|errno| refusal(dir, errno.into()))?;
    let path = dir.join(LOCK);
    let flags = OFlags::RDONLY | OFlags::CREATE;
    let file = open_file(&path, flags).map_err(|error| refusal(&path, error))?;
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::AGAIN) => Err(ShelfError::InUse {
            place: dir.display().to_string(),
        }),
        Err(errno) => Err(refusal(&path, errno.into())),
    }
}

fn open_file(path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
    Ok(rustix::fs::open(
        path,
        flags | OFlags::CLOEXEC,
        Mode::RUSR | Mode::WUSR,
    )?)
}

/// Removes the files that `object_store` was writing when it was interrupted: a name, `#`, a
/// number. Listing hides them.
fn remove_leftovers(packs: &Path) -> Result<usize, ShelfError> {
    let mut removed = 0;
    for dir in directory_entries(packs)? {
        // Packs lie in directories named by their first digits.
        if !dir.is_dir() {
            continue;
        }
        for path in directory_entries(&dir)? {
            if !is_leftover(&path) {
                continue;
            }
            std::fs::remove_file(&path).map_err(|error| refusal(&path, error))?;
            log::info!("{}: removed, a write of it was interrupted", path.display());
            removed += 1;
        }
    }
    Ok(removed)
}

fn is_leftover(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    let parts = name.and_then(|name| name.rsplit_once(".pack#"));
    // `object_store` writes to the name with `#` and a number behind it, and then renames.
    parts.is_some_and(|(_, number)| {
        !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
    })
}

/// Returns the paths in a directory; none if there is no such directory.
fn directory_entries(dir: &Path) -> Result<Vec<PathBuf>, ShelfError> {
    match read_paths(dir) {
        Ok(paths) => Ok(paths),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(refusal(dir, error)),
    }
}

fn read_paths(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        paths.push(entry?.path());
    }
    Ok(paths)
}

impl Shelf for DirectoryShelf {
    fn place(&self) -> String {
        self.objects.place()
    }
    fn put(&self, name: &str, bytes: Vec<u8>) -> Result<(), ShelfError> {
        self.objects.put(name, bytes)
    }
    fn read(&self, name: &str, range: Range<u64>) -> Result<Vec<u8>, ShelfError> {
        self.objects.read(name, range)
    }
    fn free_bytes(&self) -> Option<u64> {
        let host = rustix::fs::statvfs(&self.dir).ok()?;
        Some(host.f_bavail * host.f_frsize)
    }
    fn list_objects(&self) -> Result<Vec<ShelfObject>, ShelfError> {
        self.objects.list_objects()
    }
    fn remove(&self, name: &str) -> Result<(), ShelfError> {
        self.objects.remove(name)
    }
}
