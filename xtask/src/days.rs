//! `cargo xtask days`: runs the scripts of `crates/teal-study/days` at a real mount and keeps what
//! was recorded.
//!
//! # Guarantees
//! 1. Every session is recorded at a mount that was made afresh after its preparation: first reads
//!    reach the daemon.
//! 2. What was mounted or made is taken away however it ends.

use crate::bench::undo::{self, Undo};
use anyhow::{Context, Result, bail, ensure};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// What somebody does, by its script.
const KINDS: [&str; 6] = ["edit", "git", "build", "mail", "browser", "media"];
/// Sessions of each kind.
const SEEDS: u32 = 4;
/// How hard the traces are pressed.
const LEVEL: i32 = 19;

/// Records the working days' sessions anew, at a real mount (root).
#[derive(Debug, clap::Args)]
pub(crate) struct Plan {
    /// No other kind than this
    #[arg(long, value_name = "KIND", value_parser = KINDS)]
    only: Option<String>,
}

/// Runs the command.
pub(crate) fn record(plan: &Plan) -> Result<bool> {
    let target = crate::test::target_directory()?;
    ensure!(
        crate::cargo()
            .args(["build", "-q", "-p", "teal", "-p", "teal-lab"])
            .status()?
            .success(),
        "teal was not built"
    );
    let _guard = undo::guard()?;
    let top = target.join(format!("days-{}", std::process::id()));
    undo::note(Undo::Tree(top.clone()));
    let days = crate::root().join("crates/teal-study/days");
    for kind in KINDS
        .iter()
        .filter(|kind| plan.only.as_deref().is_none_or(|only| only == **kind))
    {
        for seed in 1..=SEEDS {
            let session = Session {
                teal: target.join("debug/teal"),
                dir: top.join(format!("{kind}-{seed}")),
                seed,
            };
            let trace = session.record(&days.join(format!("{kind}.sh")))?;
            let pressed = zstd::encode_all(&*std::fs::read(trace)?, LEVEL)?;
            let kept = days.join(format!("{kind}-{seed}.trace.zst"));
            println!("{}: {} bytes", kept.display(), pressed.len());
            std::fs::write(kept, pressed)?;
        }
    }
    Ok(true)
}

struct Session {
    teal: PathBuf,
    dir: PathBuf,
    seed: u32,
}

impl Session {
    fn teal(&self, args: &[&str], paths: &[&Path]) -> Command {
        let mut command = Command::new(&self.teal);
        command
            .args(args)
            .args(paths)
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        command
    }

    fn mount(&self) -> Result<()> {
        undo::note(Undo::Mount(self.point()));
        good(&mut self.teal(&["mount"], &[&self.dir.join("store"), &self.point()]))
    }

    fn unmount(&self) -> Result<()> {
        good(&mut self.teal(&["down"], &[&self.point()]))
    }

    fn point(&self) -> PathBuf {
        self.dir.join("mnt")
    }

    fn part(&self, script: &Path, part: &str) -> Result<()> {
        let mut command = Command::new("sh");
        command
            .arg(script)
            .arg(part)
            .arg(self.point())
            .arg(self.seed.to_string());
        good(
            command
                .env("TEAL", &self.teal)
                .env("REPOSITORY", crate::root())
                .stdin(Stdio::null()),
        )
    }

    /// Prepares, mounts again, and records the session.
    fn record(&self, script: &Path) -> Result<PathBuf> {
        std::fs::create_dir_all(self.point())?;
        good(&mut self.teal(&["mkfs", "--size", "1G"], &[&self.dir.join("store")]))?;
        self.mount()?;
        self.part(script, "prepare")?;
        self.unmount()?;
        self.mount()?;
        let trace = self.dir.join("trace");
        let out = trace.to_string_lossy();
        let recorder = self
            .teal(&["lab", "record", "--out", &out], &[&self.point()])
            .spawn()?;
        self.wait_until_recording()?;
        let done = self.part(script, "session");
        good(&mut self.teal(&["lab", "record", "--stop"], &[&self.point()]))?;
        done?;
        ensure!(
            recorder.wait_with_output()?.status.success(),
            "the recording failed"
        );
        self.unmount()?;
        Ok(trace)
    }

    /// A mark is refused while nothing is recorded.
    fn wait_until_recording(&self) -> Result<()> {
        for _ in 0..200 {
            let mut mark = self.teal(&["lab", "record", "--mark", "begin"], &[&self.point()]);
            if mark.stderr(Stdio::null()).status()?.success() {
                return Ok(());
            }
            std::thread::park_timeout(Duration::from_millis(50));
        }
        bail!("nothing is recorded at {}", self.point().display())
    }
}

fn good(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("{command:?}"))?;
    ensure!(status.success(), "{command:?}: {status}");
    Ok(())
}
