//! The changes that a command makes on the way to a mount, and takes back if the mount does not
//! come about.
//!
//! # Guarantees
//! 1. The steps are undone in their reverse order, unless [`Rollback::keep_changes`] was called.
//! 2. A directory is removed only if it is empty; a whole tree only if this command made its top.

use crate::replica::{self, ReplicaSetting};
use anyhow::{Context as _, Result};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

/// A step that only its maker knows how to take back.
struct UndoFunction(Box<dyn FnOnce() -> Result<()>>);

impl std::fmt::Debug for UndoFunction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Undo")
    }
}

/// The way to take back one step.
#[derive(Debug)]
enum RollbackStep {
    RemoveFile(PathBuf),
    RemoveEmptyDir(PathBuf),
    RemoveTree(PathBuf),
    /// The setting beside a store becomes what it was.
    Setting(PathBuf, Option<ReplicaSetting>),
    /// Something else, for example mounting a store again as it was.
    Other(UndoFunction),
}

/// Says what was to be removed where that failed.
fn removed(path: &Path, done: std::io::Result<()>) -> Result<()> {
    done.with_context(|| format!("removing {}", path.display()))
}

impl RollbackStep {
    fn undo(self) -> Result<()> {
        match self {
            Self::RemoveFile(path) => removed(&path, std::fs::remove_file(&path)),
            Self::RemoveEmptyDir(path) => removed(&path, std::fs::remove_dir(&path)),
            Self::RemoveTree(path) => removed(&path, std::fs::remove_dir_all(&path)),
            Self::Setting(store, Some(setting)) => replica::save_setting(&store, &setting),
            Self::Setting(store, None) => replica::remove_setting(&store),
            Self::Other(undo) => (undo.0)(),
        }
    }
}

/// The steps that are taken back when this is dropped.
#[derive(Debug, Default)]
pub(crate) struct Rollback(Vec<RollbackStep>);

impl Rollback {
    /// Keeps everything: the command has succeeded.
    pub(crate) fn keep_changes(mut self) {
        self.0.clear();
    }

    /// Notes a file that this command has made.
    pub(crate) fn made_file(&mut self, path: &Path) {
        self.0.push(RollbackStep::RemoveFile(path.to_owned()));
    }

    /// Notes a directory that this command has made.
    pub(crate) fn made_dir(&mut self, path: &Path) {
        self.0.push(RollbackStep::RemoveEmptyDir(path.to_owned()));
    }

    /// Makes a directory and those above it that are missing.
    pub(crate) fn make_dirs(&mut self, dir: &Path) -> Result<()> {
        // Directories are made from the top down, and each one is noted by itself.
        let missing: Vec<&Path> = dir
            .ancestors()
            .take_while(|above| !above.exists())
            .collect();
        for dir in missing.into_iter().rev() {
            std::fs::create_dir(dir)
                .with_context(|| format!("cannot make the directory {}", dir.display()))?;
            self.0.push(RollbackStep::RemoveEmptyDir(dir.to_owned()));
        }
        Ok(())
    }

    /// Makes a directory that only its owner can look into, below which everything is this
    /// command's if it was not there before.
    pub(crate) fn make_private_tree(&mut self, dir: &Path) -> Result<()> {
        if dir.exists() {
            return Ok(());
        }
        self.make_dirs(dir.parent().unwrap_or(Path::new("/")))?;
        std::fs::DirBuilder::new()
            .mode(0o700)
            .create(dir)
            .with_context(|| format!("cannot make the directory {}", dir.display()))?;
        self.0.push(RollbackStep::RemoveTree(dir.to_owned()));
        Ok(())
    }

    /// Notes that the setting beside `store` is about to change from `before`.
    pub(crate) fn setting_changes(&mut self, store: &Path, before: Option<ReplicaSetting>) {
        self.0.push(RollbackStep::Setting(store.to_owned(), before));
    }

    /// Calls `undo` after all other steps have been taken back.
    pub(crate) fn undo_last(&mut self, undo: impl FnOnce() -> Result<()> + 'static) {
        self.0
            .insert(0, RollbackStep::Other(UndoFunction(Box::new(undo))));
    }
}

impl Drop for Rollback {
    fn drop(&mut self) {
        // The last step is taken back first, because it may depend on those before it.
        while let Some(step) = self.0.pop() {
            if let Err(error) = step.undo() {
                log::warn!("{error:#}");
            }
        }
    }
}
