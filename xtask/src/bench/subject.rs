//! One subject of the measurement: how it is mounted and made durable, and how its counters are
//! read.

use super::meter::SubjectCounts;
use super::programs::run_program;
use super::undo::{self, UndoStep};
use anyhow::{Context as _, Result, ensure};
use rustix::fs::{Mode, OFlags};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SubjectKind {
    Ext4,
    Mirror,
    Teal,
    Juicefs,
}

impl SubjectKind {
    pub(super) fn label(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::Mirror => "mirror",
            Self::Teal => "teal",
            Self::Juicefs => "juicefs",
        }
    }
}

pub(super) struct BenchSubject {
    pub(super) kind: SubjectKind,
    /// The run's directory.
    lab: PathBuf,
    loop_device: PathBuf,
    program: PathBuf,
    point: PathBuf,
    mirror: Option<Child>,
    pids: Vec<u32>,
}

/// The operation codes that a mirror sees, as `teal status` names them.
const OPCODES: &[(&str, &str)] = &[
    ("1", "lookup"),
    ("2", "forget"),
    ("3", "getattr"),
    ("4", "setattr"),
    ("5", "readlink"),
    ("6", "symlink"),
    ("8", "mknod"),
    ("9", "mkdir"),
    ("10", "unlink"),
    ("11", "rmdir"),
    ("12", "rename"),
    ("13", "link"),
    ("14", "open"),
    ("15", "read"),
    ("16", "write"),
    ("17", "statfs"),
    ("20", "fsync"),
    ("22", "getxattr"),
    ("25", "flush"),
    ("27", "opendir"),
    ("28", "readdir"),
    ("30", "fsyncdir"),
    ("35", "create"),
    ("42", "batch_forget"),
    ("44", "readdirplus"),
    ("45", "rename2"),
    ("46", "lseek"),
];

impl BenchSubject {
    pub(super) fn new(kind: SubjectKind, lab: &Path, loop_device: &Path, program: PathBuf) -> Self {
        let (lab, loop_device) = (lab.to_owned(), loop_device.to_owned());
        let point = lab.join(format!("mnt-{}", kind.label()));
        Self {
            kind,
            lab,
            loop_device,
            program,
            point,
            mirror: None,
            pids: Vec::new(),
        }
    }

    /// Returns the directory that rows work in.
    pub(super) fn work_dir(&self) -> PathBuf {
        if self.kind == SubjectKind::Ext4 {
            self.point.join("plain")
        } else {
            self.point.clone()
        }
    }

    fn ext4_point(&self) -> PathBuf {
        self.lab.join("mnt-ext4")
    }

    pub(super) fn mount(&mut self) -> Result<()> {
        std::fs::create_dir_all(&self.point)?;
        undo::note_undo(UndoStep::Mount(self.point.clone()));
        match self.kind {
            SubjectKind::Ext4 => {
                run_program(
                    Command::new("mount")
                        .args(["-t", "ext4"])
                        .arg(&self.loop_device)
                        .arg(&self.point),
                )?;
                // The mirror and juicefs work in directories of this ext4.
                for dir in ["plain", "mirrored", "juicefs"] {
                    std::fs::create_dir_all(self.point.join(dir))?;
                }
            }
            SubjectKind::Mirror => self.start_mirror()?,
            SubjectKind::Teal => {
                run_program(
                    Command::new(&self.program)
                        .arg("mount")
                        .arg(self.lab.join("store.teal"))
                        .arg(&self.point),
                )?;
                let pid = self.teal_status()?["pid"]
                    .as_u64()
                    .context("status without pid")?;
                self.pids = vec![u32::try_from(pid)?];
            }
            SubjectKind::Juicefs => self.start_juicefs()?,
        }
        Ok(())
    }

    fn start_mirror(&mut self) -> Result<()> {
        // In a session of its own, as TealFS's daemon is: the kernel shares out processors among
        // sessions.
        let mut child = Command::new("setsid")
            .arg(&self.program)
            .arg(self.ext4_point().join("mirrored"))
            .arg(&self.point)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("the mirror")?;
        let said = line_of(&mut child)?;
        ensure!(said == "ready", "the mirror said {said:?}");
        self.pids = vec![child.id()];
        self.mirror = Some(child);
        Ok(())
    }

    fn start_juicefs(&mut self) -> Result<()> {
        let home = self.ext4_point().join("juicefs");
        let meta = format!("sqlite3://{}", home.join("meta.db").display());
        if !home.join("meta.db").exists() {
            let bucket = format!("{}/", home.join("chunks").display());
            run_program(Command::new(&self.program).args([
                "format",
                "-q",
                &meta,
                "bench",
                "--storage",
                "file",
                "--bucket",
                &bucket,
            ]))?;
        }
        run_program(
            Command::new(&self.program)
                .args(["mount", "-d", "--no-usage-report", "--cache-dir"])
                .arg(home.join("cache"))
                .arg("--log")
                .arg(self.lab.join("juicefs.log"))
                .arg(&meta)
                .arg(&self.point),
        )?;
        let point = self.point.display().to_string();
        let processes = std::fs::read_dir("/proc")?.flatten();
        let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let ours = |pid: &u32| {
            std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| {
                let line = String::from_utf8_lossy(&line).into_owned();
                line.contains("juicefs") && line.contains(&point)
            })
        };
        // juicefs runs as two processes, both with the mount point in their arguments.
        self.pids = pids.filter(ours).collect();
        Ok(())
    }

    pub(super) fn unmount(&mut self) -> Result<()> {
        match self.kind {
            SubjectKind::Teal => drop(run_program(
                Command::new(&self.program).arg("down").arg(&self.point),
            )?),
            SubjectKind::Mirror => {
                if let Some(mut child) = self.mirror.take() {
                    run_program(Command::new("umount").arg(&self.point))?;
                    drop(child.stdin.take());
                    child.wait()?;
                }
            }
            SubjectKind::Ext4 => drop(run_program(Command::new("umount").arg(&self.point))?),
            SubjectKind::Juicefs => {
                drop(run_program(
                    Command::new(&self.program).arg("umount").arg(&self.point),
                )?);
                // The processes let go of their database, which lies on ext4, a little later.
                let begun = super::meter::monotonic_seconds();
                while super::meter::monotonic_seconds() - begun < 10.0
                    && self
                        .pids
                        .iter()
                        .any(|pid| Path::new(&format!("/proc/{pid}/exe")).exists())
                {
                    std::thread::yield_now();
                }
            }
        }
        Ok(())
    }

    /// Makes everything durable, in the way that reaches it: `syncfs` does not get through a FUSE
    /// mount. On TealFS an fsync of anything commits everything; the data of mirror and juicefs lie
    /// on ext4 by the time their writes return.
    pub(super) fn make_durable(&self) -> Result<()> {
        let dir = if self.kind == SubjectKind::Teal {
            self.work_dir()
        } else {
            self.ext4_point()
        };
        let open = rustix::fs::open(
            &dir,
            OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        if self.kind == SubjectKind::Teal {
            rustix::fs::fsync(&open)?
        } else {
            rustix::fs::syncfs(&open)?
        }
        Ok(())
    }

    pub(super) fn pids(&self) -> &[u32] {
        &self.pids
    }

    fn teal_status(&self) -> Result<Value> {
        let said = run_program(
            Command::new(&self.program)
                .args(["status", "--json"])
                .arg(&self.point),
        )?;
        let mut said: Value = serde_json::from_str(&said)?;
        Ok(said[0].take())
    }

    pub(super) fn read_counts(&mut self) -> Result<SubjectCounts> {
        if self.kind == SubjectKind::Teal {
            return from_status(&self.teal_status()?);
        }
        let name = self
            .loop_device
            .file_name()
            .context("loop device")?
            .to_string_lossy()
            .into_owned();
        let mut counts =
            from_block_stat(&std::fs::read_to_string(format!("/sys/block/{name}/stat"))?)?;
        if let Some(child) = &mut self.mirror {
            child
                .stdin
                .as_mut()
                .context("the mirror's input")?
                .write_all(b"?\n")?;
            counts.requests = from_mirror(&line_of(child)?);
        }
        Ok(counts)
    }
}

/// Reads one line of a child's output; nothing is read ahead, since the child only answers.
fn line_of(child: &mut Child) -> Result<String> {
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().context("no output")?).read_line(&mut line)?;
    Ok(line.trim().to_owned())
}

fn from_status(status: &Value) -> Result<SubjectCounts> {
    let pairs = |key: &str| -> Result<BTreeMap<String, u64>> {
        Ok(
            serde_json::from_value::<Vec<(String, u64)>>(status[key].clone())?
                .into_iter()
                .collect(),
        )
    };
    let counters = pairs("counters")?;
    let get = |name: &str| {
        counters
            .get(name)
            .copied()
            .with_context(|| format!("status without {name}"))
    };
    Ok(SubjectCounts {
        requests: pairs("requests")?,
        barriers: get("barriers")?,
        writes: get("writes")?,
        bytes_written: get("bytes_written")?,
        reads: get("reads")?,
        bytes_read: get("bytes_read")?,
    })
}

/// Reads the counters of `/sys/block/*/stat`: its sectors are of 512 bytes on every device.
fn from_block_stat(text: &str) -> Result<SubjectCounts> {
    let fields = text
        .split_whitespace()
        .map(str::parse)
        .collect::<Result<Vec<u64>, _>>()?;
    let get = |at: usize| fields.get(at).copied().context("a short stat");
    Ok(SubjectCounts {
        requests: BTreeMap::new(),
        barriers: get(15)?,
        writes: get(4)?,
        bytes_written: get(6)? * 512,
        reads: get(0)?,
        bytes_read: get(2)? * 512,
    })
}

fn from_mirror(line: &str) -> BTreeMap<String, u64> {
    let pairs = line
        .split_whitespace()
        .filter_map(|pair| pair.split_once('='));
    let named = |code: &str| {
        OPCODES
            .iter()
            .find(|(known, _)| *known == code)
            .map_or(code, |(_, name)| name)
            .to_owned()
    };
    pairs
        .filter_map(|(code, count)| Some((named(code), count.parse().ok()?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_source_of_counts_is_understood() {
        let json = r#"{"requests":[["lookup",3]],"counters":[["barriers",1],["writes",2],["bytes_written",4096],["reads",5],["bytes_read",6]]}"#;
        let status = from_status(&serde_json::from_str(json).unwrap()).unwrap();
        assert_eq!(
            (
                status.requests["lookup"],
                status.barriers,
                status.bytes_read
            ),
            (3, 1, 6)
        );
        let block = from_block_stat("1 0 8 0 2 0 16 0 0 0 0 0 0 0 0 7 0").unwrap();
        assert_eq!(
            (
                block.reads,
                block.bytes_read,
                block.bytes_written,
                block.barriers
            ),
            (1, 4096, 8192, 7)
        );
        assert!(from_block_stat("1 2 3").is_err());
        assert_eq!(
            from_mirror("1=4 99=2"),
            [("lookup".to_owned(), 4), ("99".to_owned(), 2)].into()
        );
    }
}
