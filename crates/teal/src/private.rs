//! Modes of files that belong to the owner of a store alone: the directory beside it, the server's
//! data, and the store file itself.
//!
//! # Guarantees
//! 1. Opening makes each directory 0700 and each file 0600 before anything in them is used, and
//!    fails if it cannot.
//! 2. A directory that holds things of others is refused, and nothing of it is changed.
//! 3. A store file loses the rights of others; those of its group stay, because they were given on
//!    purpose.

use anyhow::{Context, Result, bail};
use rustix::fs::{Mode, chmod};
use std::fs::Metadata;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use teal_command::path_context::PathContext as _;

/// The bits that a private file or directory does not have.
const OTHERS: u32 = 0o077;
/// The mode bits of users that are neither the owner nor in the group.
const STRANGERS: u32 = 0o007;
/// The files of a server's data, beside `lost+found`, which is there if the data has a file system
/// of its own.
const OF_A_SERVER: &[&str] = &[
    "meta.db",
    "meta.db-wal",
    "meta.db-shm",
    "meta.db-journal",
    "chunks",
    "identity",
];

/// Makes new files readable by their owner only, until it is dropped.
#[derive(Debug)]
pub(crate) struct PrivateFiles(Mode);

impl PrivateFiles {
    /// Changes the process's umask. Meant for a moment in which no other thread makes files, or for
    /// the rest of the process.
    pub(crate) fn begin() -> Self {
        Self(rustix::process::umask(Mode::from_raw_mode(OTHERS)))
    }

    /// Keeps it so for the rest of the process.
    pub(crate) fn keep_for_process(self) {
        std::mem::forget(self);
    }
}

impl Drop for PrivateFiles {
    fn drop(&mut self) {
        rustix::process::umask(self.0);
    }
}

/// Makes the data of a server private.
pub(crate) fn enforce_server_data(data: &Path) -> Result<()> {
    let meta = std::fs::metadata(data).with_path(data)?;
    // A directory that only its owner can read was made private before: it holds nothing of others.
    if is_open(&meta) {
        for entry in std::fs::read_dir(data).with_path(data)? {
            let name = entry.with_path(data)?.file_name();
            // `lost+found` belongs to the file system itself.
            let is_known = name
                .to_str()
                .is_some_and(|name| name == "lost+found" || OF_A_SERVER.contains(&name));
            if !is_known {
                bail!(
                    "{} can be read by others and holds {}, which is not the server's: \
                     name a directory of its own with \
                     --data",
                    data.display(),
                    Path::new(&name).display()
                );
            }
        }
    }
    enforce_below(data)
}

/// Makes a directory and everything in it private. What symbolic links lead to is not touched.
pub(crate) fn enforce_below(dir: &Path) -> Result<()> {
    // A list instead of recursion, because the tree may be deep.
    let mut todo = vec![dir.to_owned()];
    while let Some(dir) = todo.pop() {
        let meta = std::fs::metadata(&dir).with_path(&dir)?;
        narrow_mode(&dir, &meta, OTHERS)?;
        for entry in std::fs::read_dir(&dir).with_path(&dir)? {
            let path = entry.with_path(&dir)?.path();
            let meta = match std::fs::symlink_metadata(&path) {
                // SQLite removes its own files at any time.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                meta => meta.with_path(&path)?,
            };
            if meta.is_dir() {
                todo.push(path);
            } else if meta.is_file() {
                narrow_mode(&path, &meta, OTHERS)?;
            }
        }
    }
    Ok(())
}

/// Takes the rights of others from a store file; a device has its rights from elsewhere.
pub(crate) fn enforce_store(store: &Path) -> Result<()> {
    let meta = std::fs::metadata(store).with_path(store)?;
    if meta.is_file() {
        narrow_mode(store, &meta, STRANGERS)
    } else {
        Ok(())
    }
}

fn is_open(meta: &Metadata) -> bool {
    meta.permissions().mode() & OTHERS != 0
}

fn narrow_mode(path: &Path, meta: &Metadata, bits: u32) -> Result<()> {
    let mode = meta.permissions().mode() & 0o7777;
    // An unchanged mode is not written, so that a read-only place is no error.
    if mode & bits == 0 {
        return Ok(());
    }
    let narrowed = mode & !bits;
    debug_assert_eq!(narrowed & bits, 0, "no right of the others is left");
    chmod(path, Mode::from_raw_mode(narrowed)).with_context(|| {
        format!(
            "{} can be read by others (mode {mode:o}) and that cannot be changed: \
             `chmod {narrowed:o}` it",
            path.display()
        )
    })?;
    log::warn!(
        "{}: mode {mode:o} let others in; it is {narrowed:o} now",
        path.display()
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().permissions().mode() & 0o7777
    }

    fn set(path: &Path, mode: u32) {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn everything_below_becomes_private_and_what_is_of_others_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        std::fs::create_dir_all(data.join("chunks/packs/00")).unwrap();
        let files =
            ["meta.db", "meta.db-wal", "chunks/packs/00/a.pack"].map(|name| data.join(name));
        for file in &files {
            std::fs::write(file, "x").unwrap();
            set(file, 0o644);
        }
        set(&data, 0o755);
        enforce_server_data(&data).unwrap();
        assert_eq!(files.map(|file| mode(&file)), [0o600; 3]);
        assert_eq!(
            [&data, &data.join("chunks"), &data.join("chunks/packs/00")].map(|dir| mode(dir)),
            [0o700; 3]
        );
        std::fs::write(data.join("report.txt"), "x").unwrap();
        set(&data, 0o755);
        let said = enforce_server_data(&data).unwrap_err().to_string();
        assert!(
            said.contains("report.txt") && said.contains("--data"),
            "{said}"
        );
        assert_eq!(mode(&data), 0o755, "nothing of it is changed");
    }

    #[test]
    fn a_store_file_loses_the_rights_of_others_and_keeps_its_group() {
        let dir = tempfile::tempdir().unwrap();
        let store = dir.path().join("a.teal");
        std::fs::write(&store, "x").unwrap();
        set(&store, 0o664);
        enforce_store(&store).unwrap();
        assert_eq!(mode(&store), 0o660);
    }
}
