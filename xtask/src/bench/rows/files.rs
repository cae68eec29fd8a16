//! Ten thousand small files in a hundred directories: made durable, removed, and read for the first
//! time.

use super::random_bytes::random_bytes;
use crate::bench::stage::{RowStage, RowWork, ops_only};
use anyhow::{Result, ensure};
use std::path::Path;

pub(super) const SYNCED: &str = "10,000 small files + sync";
pub(super) const REMOVE: &str = "rm -rf of 10,000";
pub(super) const TRAVERSE: &str = "first traversal of 10,000, cold";

const DIRS: u64 = 100;
const EACH: u64 = 100;
const SIZE: u64 = 4096;

fn make_files(path: &Path) -> Result<()> {
    let data = random_bytes(SIZE as usize, 5);
    for d in 0..DIRS {
        let dir = path.join(format!("dir-{d:02}"));
        std::fs::create_dir(&dir)?;
        for f in 0..EACH {
            std::fs::write(dir.join(format!("file-{f:02}")), &data)?;
        }
    }
    Ok(())
}

/// Reads every file below a directory, and returns the number of bytes.
fn read_tree(path: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(path)? {
        let entry = entry?;
        bytes += if entry.file_type()?.is_dir() {
            read_tree(&entry.path())?
        } else {
            entry.metadata()?;
            std::fs::read(entry.path())?.len() as u64
        };
    }
    Ok(bytes)
}

pub(super) fn traverse_cold(stage: &mut RowStage<'_>) -> Result<()> {
    let path = stage.kept_dir("tree", make_files)?;
    stage.make_cold()?;
    stage.time_work(TRAVERSE, ops_only(DIRS * EACH), || {
        ensure!(read_tree(&path)? == DIRS * EACH * SIZE, "bytes are missing");
        Ok(())
    })
}

pub(super) fn make_and_remove(stage: &mut RowStage<'_>) -> Result<()> {
    let path = stage.new_dir("many")?;
    let (ops, user_bytes) = (DIRS * EACH, DIRS * EACH * SIZE);
    stage.time_durable(SYNCED, RowWork { ops, user_bytes }, || make_files(&path))?;
    stage.time_work(REMOVE, RowWork { ops, user_bytes: 0 }, || {
        Ok(std::fs::remove_dir_all(&path)?)
    })
}
