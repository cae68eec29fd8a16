//! The activity: recorded on a mount, and replayed on another.
//!
//! # Guarantees
//! 1. The steps are those of a recording, in its order: nothing is made up but the bytes that are
//!    written.

use super::super::andrew::pair::BenchReplica;
use super::super::meter::monotonic_seconds;
use super::super::programs::run_program;
use anyhow::{Context as _, Result, ensure};
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// The recorded activity: a search in all files, changes of some, and packing all of them. Most
/// reads are served from the kernel's cache.
const SCRIPT: &str = "grep -rc TODO . > /dev/null || true
for name in $(find . -name '*.rs' | sort | awk 'NR % 20 == 0'); do sed -i 's/ the / the  /' \"$name\"; done
find . -type f | sort | xargs wc -l > /dev/null
tar cf - . | wc -c > /dev/null";
/// The seconds within which a recording must have begun.
const PATIENCE: f64 = 20.0;

/// One step with a file, by its path in the tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ReplayStep {
    /// The whole file is read.
    Read(String),
    /// The whole file is written, so many bytes.
    Write(String, u64),
    /// The file takes the place of another.
    Rename(String, String),
}

/// Lays out this project's sources as they are committed.
pub(super) fn lay_out(dir: &Path) -> Result<()> {
    std::fs::create_dir(dir)?;
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .context("a workspace")?;
    let mut git = Command::new("git")
        .arg("-C")
        .arg(root)
        .args(["archive", "HEAD", "crates", "docs", "xtask"])
        .stdout(Stdio::piped())
        .spawn()?;
    let packed = git.stdout.take().context("a pipe")?;
    let status = Command::new("tar")
        .arg("-x")
        .arg("-C")
        .arg(dir)
        .stdin(packed)
        .status()?;
    ensure!(
        git.wait()?.success() && status.success(),
        "the sources cannot be laid out"
    );
    Ok(())
}

/// Returns the number of files below a directory, and of their bytes. All names and attributes are
/// looked at, but no content.
pub(super) fn count_tree(dir: &Path) -> Result<(u64, u64)> {
    let (mut files, mut bytes) = (0, 0);
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        let meta = entry.metadata()?;
        if meta.is_dir() {
            let below = count_tree(&entry.path())?;
            (files, bytes) = (files + below.0, bytes + below.1);
        } else {
            (files, bytes) = (files + 1, bytes + meta.len());
        }
    }
    Ok((files, bytes))
}

/// Records the activity in `dir`, a directory at the top of the mount.
pub(super) fn record_steps(nas: &BenchReplica, dir: &Path, log: &Path) -> Result<Vec<ReplayStep>> {
    let mut paths = BTreeMap::new();
    paths_by_number(dir, "", &mut paths)?;
    let mut recording = nas.command();
    recording
        .args(["lab", "record"])
        .arg(nas.mount_point())
        .arg("--out")
        .arg(log)
        .stdout(Stdio::null());
    let mut recording = recording.spawn()?;
    let until = monotonic_seconds() + PATIENCE;
    while nas.status()?["recording"].is_null() {
        ensure!(
            monotonic_seconds() < until && recording.try_wait()?.is_none(),
            "no recording has begun"
        );
        std::thread::yield_now();
    }
    run_program(Command::new("sh").arg("-c").arg(SCRIPT).current_dir(dir))?;
    run_program(
        nas.command()
            .args(["lab", "record", "--stop"])
            .arg(nas.mount_point()),
    )?;
    recording.wait()?;
    let shown = run_program(
        nas.command()
            .args(["lab", "trace", "show", "--paths"])
            .arg(log),
    )?;
    Ok(parse_steps(&shown, paths))
}

/// Collects the paths below a directory by their inode numbers, which recordings contain.
fn paths_by_number(dir: &Path, above: &str, found: &mut BTreeMap<u64, String>) -> Result<()> {
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        let path = format!("{above}{}", entry.file_name().to_string_lossy());
        if entry.file_type()?.is_dir() {
            paths_by_number(&entry.path(), &format!("{path}/"), found)?;
        }
        found.insert(entry.metadata()?.ino(), path);
    }
    Ok(())
}

/// Returns the value of `key=` among words.
fn field_value<'a>(words: &[&'a str], key: &str) -> Option<&'a str> {
    words
        .iter()
        .find_map(|word| word.strip_prefix(key)?.strip_prefix('='))
        .map(|value| value.trim_matches('"'))
}

/// Returns the steps of a trace in words; `paths` has the paths of files at its beginning by their
/// numbers. Several reads of a file in a row become one, and so do several writes.
fn parse_steps(shown: &str, mut paths: BTreeMap<u64, String>) -> Vec<ReplayStep> {
    let mut steps: Vec<ReplayStep> = Vec::new();
    let mut read = BTreeSet::new();
    for line in shown.lines() {
        let words: Vec<&str> = line
            .split(" # ")
            .next()
            .unwrap_or_default()
            .split(' ')
            .collect();
        let (Some(object), Some(action)) = (
            words.get(2).and_then(|no| no.parse::<u64>().ok()),
            words.get(3),
        ) else {
            continue;
        };
        let number = |key| field_value(&words, key).and_then(|value| value.parse::<u64>().ok());
        // The result of a call stands behind `=`; calls that failed have no number there.
        let done = words
            .iter()
            .position(|word| *word == "=")
            .and_then(|at| words.get(at + 1)?.parse::<u64>().ok());
        let at = |dir: u64, name: Option<&str>| {
            let above = paths
                .get(&dir)
                .map_or(String::new(), |path| format!("{path}/"));
            name.map(|name| format!("{above}{name}"))
        };
        match (*action, paths.get(&object)) {
            ("create", _) => {
                if let (Some(new), Some(path)) = (done, at(object, field_value(&words, "name"))) {
                    paths.insert(new, path);
                }
            }
            ("rename", _) => {
                let ends = (
                    at(object, field_value(&words, "name")),
                    at(number("to").unwrap_or(0), field_value(&words, "new")),
                );
                if let ((Some(old), Some(new)), Some(_)) = (ends, done) {
                    // The name is taken over from the file that had it.
                    paths.retain(|_, path| *path != new);
                    paths
                        .values_mut()
                        .filter(|path| **path == old)
                        .for_each(|path| path.clone_from(&new));
                    steps.push(ReplayStep::Rename(old, new));
                }
            }
            ("read", Some(path)) if read.insert(object) => {
                steps.push(ReplayStep::Read(path.clone()))
            }
            ("write", Some(path)) => {
                let end = number("offset").unwrap_or(0) + number("length").unwrap_or(0);
                match steps.last_mut() {
                    Some(ReplayStep::Write(last, size)) if last == path => *size = (*size).max(end),
                    _ => steps.push(ReplayStep::Write(path.clone(), end)),
                }
            }
            _ => {}
        }
    }
    steps
}

/// Repeats the steps in the tree in `dir`.
pub(super) fn replay_steps(steps: &[ReplayStep], dir: &Path) -> Result<()> {
    for step in steps {
        match step {
            ReplayStep::Read(path) => {
                drop(std::fs::read(dir.join(path)).with_context(|| path.clone())?)
            }
            ReplayStep::Write(path, size) => {
                std::fs::write(dir.join(path), vec![b'x'; *size as usize])?
            }
            ReplayStep::Rename(old, new) => std::fs::rename(dir.join(old), dir.join(new))?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_recording_says_becomes_steps_in_its_order() {
        let shown = "teal-trace 1 file\nprocess 1 1 1 \"sed\"\n\
                     0.1 1 17 read offset=0 length=4096 = 6 in 0.1\n0.2 1 17 read offset=4096 length=10 = 10 in 0.1\n\
                     0.3 1 16 create name=\"tmp\" = 18 in 0.1 # /d\n0.4 1 18 write offset=0 \
                         length=6 = 6 in 0.1 # /d/tmp\n\
                     0.5 1 18 write offset=6 length=6 = 6 in 0.1\n\
                     0.6 1 16 rename name=\"tmp\" to=16 new=\"a.rs\" exchange=no = 0 in 0.1\n0.7 \
                         1 18 read offset=0 length=9 = 9 in 0.1";
        let paths = BTreeMap::from([(16, "d".to_owned()), (17, "d/a.rs".to_owned())]);
        let path = |name: &str| format!("d/{name}");
        let all = [
            ReplayStep::Read(path("a.rs")),
            ReplayStep::Write(path("tmp"), 12),
            ReplayStep::Rename(path("tmp"), path("a.rs")),
            ReplayStep::Read(path("a.rs")),
        ];
        assert_eq!(parse_steps(shown, paths), all);
    }
}
