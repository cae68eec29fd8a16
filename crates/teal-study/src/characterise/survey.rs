//! Looks at the files below a directory before a workload is recorded: their number, their sizes,
//! and the number of their directories.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Limits the files that are looked at; further ones are not counted.
const FILES_MAX: usize = 1 << 22;

/// Describes the files of a tree.
#[derive(Debug, Default)]
pub struct TreeSurvey {
    /// Size and directory at the top, by number of the file.
    pub(super) files: HashMap<u64, (u64, Vec<u8>)>,
    /// Number of directories that hold files, by directory at the top.
    pub(super) holders: BTreeMap<Vec<u8>, u64>,
}

impl TreeSurvey {
    /// Looks at everything below a directory, on its file system.
    ///
    /// # Errors
    /// The directory itself cannot be read. What goes away meanwhile is no error.
    pub fn scan_tree(dir: &Path) -> io::Result<Self> {
        let mut survey = Self::default();
        let device = std::fs::symlink_metadata(dir)?.dev();
        // An explicit stack: a deep tree must not exhaust the thread's own.
        let mut todo: Vec<(PathBuf, Option<Vec<u8>>)> = vec![(dir.to_owned(), None)];
        // Only the top directory must be readable: others may vanish while they are looked at.
        while let Some((place, top)) = todo.pop() {
            let entries = match std::fs::read_dir(&place) {
                Ok(entries) => entries,
                Err(e) if top.is_none() => return Err(e),
                Err(_) => continue,
            };
            let mut holds = false;
            for entry in entries.flatten() {
                let Ok(meta) = entry.metadata() else { continue };
                let name = || entry.file_name().as_encoded_bytes().to_vec();
                // Other file systems below are not part of what is recorded.
                if meta.is_dir() && meta.dev() == device {
                    todo.push((entry.path(), Some(top.clone().unwrap_or_else(name))));
                } else if meta.is_file() && survey.files.len() < FILES_MAX {
                    holds = true;
                    survey
                        .files
                        .insert(meta.ino(), (meta.len(), top.clone().unwrap_or_default()));
                }
            }
            // Directories without files do not shape the set.
            if holds {
                *survey.holders.entry(top.unwrap_or_default()).or_default() += 1;
            }
        }
        Ok(survey)
    }
}

/// Returns the directory at the top of a path, which begins with `/`. It is empty for a file at the
/// top itself.
pub(super) fn top_directory(path: &[u8]) -> Vec<u8> {
    let mut parts = path
        .strip_prefix(b"/")
        .unwrap_or(path)
        .split(|byte| *byte == b'/');
    match (parts.next(), parts.next()) {
        (Some(first), Some(_)) => first.to_vec(),
        _ => Vec::new(),
    }
}
