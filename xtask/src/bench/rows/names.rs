//! Names: listing, making, renaming, removing ten thousand in one directory, and what git does with
//! them.

use super::random_bytes::random_bytes;
use crate::bench::programs::run_program;
use crate::bench::stage::{RowStage, RowWork, ops_only};
use anyhow::{Result, ensure};
use rustix::fs::{AtFlags, Dir, Mode, OFlags};
use std::ffi::CString;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::Command;

pub(super) const READDIR: &str = "readdir of 10,000, warm";
pub(super) const LS: &str = "ls -l of 10,000, warm";
pub(super) const GIT: &str = "git status of 1,500 files, warm";
pub(super) const CREATE: &str = "create + write 4 KiB + close, 10,000";
pub(super) const RENAME: &str = "rename, 10,000";
pub(super) const UNLINK: &str = "unlink, 10,000";

const FILES: u64 = 10_000;

fn open_dir(path: &Path) -> Result<OwnedFd> {
    Ok(rustix::fs::open(
        path,
        OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )?)
}

/// Lists a directory anew, with or without the attributes of everything in it, and returns the
/// number of names.
fn list_dir(path: &Path, with_attributes: bool) -> Result<u64> {
    let dir = open_dir(path)?;
    let mut count = 0;
    for entry in Dir::read_from(&dir)? {
        let entry = entry?;
        if with_attributes {
            rustix::fs::statat(&dir, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW)?;
        }
        count += 1;
    }
    // The kernel lists `.` and `..` as well.
    Ok(count - 2)
}

pub(super) fn time_listings(stage: &mut RowStage<'_>) -> Result<()> {
    let path = stage.kept_dir("flat", |path| {
        let data = random_bytes(64, 3);
        (0..FILES).try_for_each(|i| Ok(std::fs::write(path.join(format!("entry-{i:05}")), &data)?))
    })?;
    let mut pass = |row, with_attributes, passes: u64| {
        list_dir(&path, with_attributes)?;
        list_dir(&path, with_attributes)?;
        stage.time_work(row, ops_only(FILES * passes), || {
            for _ in 0..passes {
                ensure!(
                    list_dir(&path, with_attributes)? == FILES,
                    "names are missing"
                );
            }
            Ok(())
        })
    };
    pass(READDIR, false, 20)?;
    pass(LS, true, 10)
}

pub(super) fn git_status(stage: &mut RowStage<'_>) -> Result<()> {
    let path = stage.kept_dir("repository", |path| {
        for i in 0..1500 {
            let dir = path.join(format!("part-{}/sub-{}", i % 10, i / 10 % 10));
            std::fs::create_dir_all(&dir)?;
            std::fs::write(
                dir.join(format!("source-{i}.rs")),
                random_bytes(2000 + i * 5, i as u64),
            )?;
        }
        for args in [
            &["init", "-q"][..],
            &["add", "."],
            &["commit", "-q", "-m", "all"],
        ] {
            run_git(path, args)?;
        }
        Ok(())
    })?;
    // The first refreshes the index, later ones find nothing to write.
    run_git(&path, &["status", "--porcelain"])?;
    run_git(&path, &["status", "--porcelain"])?;
    stage.time_work(GIT, ops_only(10), || {
        (0..10).try_for_each(|_| {
            ensure!(
                run_git(&path, &["status", "--porcelain"])?.is_empty(),
                "git sees changes"
            );
            Ok(())
        })
    })
}

fn run_git(dir: &Path, args: &[&str]) -> Result<String> {
    let mut command = Command::new("git");
    command
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CEILING_DIRECTORIES", dir);
    command.args([
        "-c",
        "user.name=bench",
        "-c",
        "user.email=bench@invalid",
        "-c",
        "gc.auto=0",
    ]);
    run_program(command.arg("-C").arg(dir).args(args))
}

pub(super) fn create_rename_unlink(stage: &mut RowStage<'_>) -> Result<()> {
    let path = stage.new_dir("life")?;
    let dir = open_dir(&path)?;
    let data = random_bytes(4096, 4);
    let named = |prefix: &str| {
        (0..FILES)
            .map(|i| CString::new(format!("{prefix}{i:05}")))
            .collect::<Result<Vec<_>, _>>()
    };
    let (first, second) = (named("made-")?, named("renamed-")?);
    stage.time_work(
        CREATE,
        RowWork {
            ops: FILES,
            user_bytes: FILES * 4096,
        },
        || {
            for name in &first {
                let how = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
                let file = rustix::fs::openat(&dir, name, how, Mode::from_raw_mode(0o644))?;
                rustix::io::write(&file, &data)?;
            }
            Ok(())
        },
    )?;
    stage.commit()?;
    stage.time_work(RENAME, ops_only(FILES), || {
        Ok(first
            .iter()
            .zip(&second)
            .try_for_each(|(from, to)| rustix::fs::renameat(&dir, from, &dir, to))?)
    })?;
    stage.commit()?;
    stage.time_work(UNLINK, ops_only(FILES), || {
        Ok(second
            .iter()
            .try_for_each(|name| rustix::fs::unlinkat(&dir, name, AtFlags::empty()))?)
    })?;
    drop(dir);
    stage.remove_dir(&path)
}
