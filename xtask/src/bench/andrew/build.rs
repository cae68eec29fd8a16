//! The tree that is built: its download, the phases of its build, and reading all of it.

use super::super::meter::monotonic_seconds;
use super::super::programs::run_program;
use anyhow::{Context as _, Result, anyhow, ensure};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The packages that OpenSSH is built with.
const PACKAGES: &[&str] = &["gcc", "libc6-dev", "libssl-dev", "make", "zlib1g-dev"];

/// The limit of phases that have none: a day, in seconds.
pub(super) const UNLIMITED: f64 = 86_400.0;

/// A part of the build that is timed for itself.
#[derive(Debug, Clone, Copy)]
pub(super) enum BuildPhase {
    Untar,
    Configure,
    Make,
    Clean,
}

pub(super) const PHASES: [BuildPhase; 4] = [
    BuildPhase::Untar,
    BuildPhase::Configure,
    BuildPhase::Make,
    BuildPhase::Clean,
];

impl BuildPhase {
    pub(super) fn label(self) -> &'static str {
        match self {
            Self::Untar => "untar",
            Self::Configure => "configure",
            Self::Make => "make",
            Self::Clean => "clean",
        }
    }

    /// Runs the phase in `dir` for at most `limit` seconds, its output going to `said`. Returns
    /// whether it came to its end.
    pub(super) fn run_phase(
        self,
        archive: &Path,
        dir: &Path,
        said: &Path,
        jobs: usize,
        limit: f64,
    ) -> Result<bool> {
        // `timeout` kills the whole phase, also the compilers that make started.
        let mut command = Command::new("timeout");
        command.args(["-k", "10", &format!("{:.1}", limit.max(0.1))]);
        match self {
            Self::Untar => command
                .args(["tar", "--strip-components=1", "-xf"])
                .arg(archive),
            Self::Configure => command.arg("./configure"),
            Self::Make | Self::Clean => command.arg("make"),
        };
        match self {
            Self::Make => drop(command.arg(format!("-j{jobs}"))),
            Self::Clean => drop(command.arg("clean")),
            Self::Untar | Self::Configure => {}
        }
        let out = std::fs::OpenOptions::new()
            .create(true)
            .write(true)
            .truncate(true)
            .open(said)?;
        command
            .current_dir(dir)
            .stdin(Stdio::null())
            .stdout(out.try_clone()?)
            .stderr(out);
        let status = command.status().with_context(|| self.label())?;
        let last = || {
            std::fs::read_to_string(said)
                .unwrap_or_default()
                .lines()
                .last()
                .unwrap_or_default()
                .to_owned()
        };
        // `timeout` returns 124 when it had to end the phase, and 137 when it had to kill it.
        if matches!(status.code(), Some(124 | 137)) {
            return Ok(false);
        }
        ensure!(status.success(), "{} failed: {}", self.label(), last());
        Ok(true)
    }
}

/// The files and bytes that were read of a tree.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct TreeRead {
    pub(super) files: u64,
    pub(super) bytes: u64,
    /// Is true if the time was up before all of it had been read.
    pub(super) is_capped: bool,
}

/// Reads every file below `dir`, one after the other as they are listed; begins none after `end`
/// (monotonic seconds).
pub(super) fn read_all(dir: &Path, end: f64) -> Result<TreeRead> {
    let (mut all, mut buffer) = (TreeRead::default(), vec![0; 128 << 10]);
    for entry in std::fs::read_dir(dir)? {
        // The time is checked before each entry, not within a file.
        if all.is_capped || monotonic_seconds() > end {
            return Ok(TreeRead {
                is_capped: true,
                ..all
            });
        }
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() {
            let below = read_all(&entry.path(), end)?;
            all.files += below.files;
            all.bytes += below.bytes;
            all.is_capped = below.is_capped;
        } else if kind.is_file() {
            let mut file = std::fs::OpenOptions::new().read(true).open(entry.path())?;
            all.files += 1;
            loop {
                match file.read(&mut buffer)? {
                    0 => break,
                    read => all.bytes += read as u64,
                }
            }
        }
    }
    Ok(all)
}

/// Returns the archive of OpenSSH as its authors packed it, from Debian's source package. It is
/// downloaded into `home` once and kept.
pub(super) fn fetch_source(home: &Path) -> Result<PathBuf> {
    crate::test::needs::install_missing(PACKAGES)
        .map_err(|list| anyhow!("as root: apt-get install {list}"))?;
    if let Some(archive) = archive_in(home) {
        return Ok(archive);
    }
    eprintln!("downloading the source package of openssh");
    for dir in ["lists/partial", "parts"] {
        std::fs::create_dir_all(home.join(dir))?;
    }
    let listed = std::fs::read_dir("/etc/apt/sources.list.d")
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path());
    for list in listed.chain([PathBuf::from("/etc/apt/sources.list")]) {
        let is_list = list
            .extension()
            .is_some_and(|extension| extension == "sources" || extension == "list");
        if is_list
            && let (Ok(text), Some(name)) = (std::fs::read_to_string(&list), list.file_name())
        {
            std::fs::write(home.join("parts").join(name), sources_only(&text))?;
        }
    }
    // apt gets lists of its own, so that the machine's own lists stay as they are.
    let apt = |args: &[&str]| {
        let mut command = Command::new("apt-get");
        command
            .current_dir(home)
            .args(["-q", "-o", "Dir::Etc::SourceList=/dev/null"]);
        for (option, at) in [
            ("Dir::Etc::SourceParts", "parts"),
            ("Dir::State::Lists", "lists"),
        ] {
            command.args(["-o", &format!("{option}={}", home.join(at).display())]);
        }
        command
            .args([
                "-o",
                "Dir::Cache::srcpkgcache=",
                "-o",
                "Dir::Cache::pkgcache=",
            ])
            .args(args);
        run_program(&mut command)
    };
    // The update fails if one list has no sources; the next command shows whether another had them.
    let updated = apt(&["update"]);
    apt(&["source", "--download-only", "openssh"]).with_context(|| {
        format!(
            "no source package of openssh ({updated:?}); put openssh_*.orig.tar.gz into {}",
            home.display()
        )
    })?;
    archive_in(home).context("the source package has no openssh_*.orig.tar.gz")
}

fn archive_in(home: &Path) -> Option<PathBuf> {
    let names = std::fs::read_dir(home)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path());
    let mut archives: Vec<PathBuf> = names
        .filter(|path| path.to_string_lossy().ends_with(".orig.tar.gz"))
        .collect();
    archives.sort();
    archives.pop()
}

/// Returns a list of package sources with source packages only.
fn sources_only(list: &str) -> String {
    let line = |line: &str| match line.strip_prefix("deb ") {
        Some(rest) => format!("deb-src {rest}\n"),
        None if line.starts_with("Types:") => "Types: deb-src\n".to_owned(),
        None => format!("{line}\n"),
    };
    list.lines().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_of_lists_become_lists_of_sources() {
        assert_eq!(
            sources_only("deb http://m/ a main\n# deb x"),
            "deb-src http://m/ a main\n# deb x\n"
        );
        assert_eq!(
            sources_only("Types: deb deb-src\nSuites: a\n"),
            "Types: deb-src\nSuites: a\n"
        );
    }

    #[test]
    fn all_files_below_are_read() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("below")).unwrap();
        std::fs::write(dir.path().join("a"), [1; 5]).unwrap();
        std::fs::write(dir.path().join("below/b"), [1; 300_000]).unwrap();
        let all = read_all(dir.path(), f64::INFINITY).unwrap();
        assert_eq!(
            all,
            TreeRead {
                files: 2,
                bytes: 300_005,
                is_capped: false
            }
        );
        assert!(
            read_all(dir.path(), monotonic_seconds() - 1.0)
                .unwrap()
                .is_capped
        );
    }
}
