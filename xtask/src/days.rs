//! `cargo xtask days`: runs the scripts of `crates/teal-study/days` at a real mount, and keeps the
//! recordings.
//!
//! # Guarantees
//! 1. Every session is recorded at a mount that was made afresh after its preparation: first reads
//!    reach the daemon.
//! 2. Everything that was mounted or made is taken away, however the run ends.

use crate::bench::undo::{self, UndoStep};
use anyhow::{Context, Result, bail, ensure};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// The kinds of sessions, by their scripts.
const KINDS: [&str; 6] = ["edit", "git", "build", "mail", "browser", "media"];
/// Sessions of each kind.
const SEEDS: u32 = 4;
/// The level at which the traces are compressed.
const LEVEL: i32 = 19;

/// Records the working days' sessions anew, at a real mount (root).
#[derive(Debug, clap::Args)]
pub(crate) struct DaysArguments {
    /// Only this kind
    #[arg(long, value_name = "KIND", value_parser = KINDS)]
    only: Option<String>,
}

/// Runs the command.
pub(crate) fn record_days(plan: &DaysArguments) -> Result<bool> {
    let target = crate::workspace::target_directory()?;
    ensure!(
        crate::workspace::cargo_command()
            .args(["build", "-q", "-p", "teal", "-p", "teal-lab"])
            .status()?
            .success(),
        "teal was not built"
    );
    let _guard = undo::undo_at_exit()?;
    let top = target.join(format!("days-{}", std::process::id()));
    undo::note_undo(UndoStep::Tree(top.clone()));
    let days = crate::workspace::workspace_root().join("crates/teal-study/days");
    for kind in KINDS
        .iter()
        .filter(|kind| plan.only.as_deref().is_none_or(|only| only == **kind))
    {
        for seed in 1..=SEEDS {
            let session = RecordingSession {
                teal: target.join("debug/teal"),
                dir: top.join(format!("{kind}-{seed}")),
                seed,
            };
            let trace = session.record_session(&days.join(format!("{kind}.sh")))?;
            // Recordings are kept in the repository: compression is slow and pays.
            let pressed = zstd::encode_all(&*std::fs::read(trace)?, LEVEL)?;
            let kept = days.join(format!("{kind}-{seed}.trace.zst"));
            println!("{}: {} bytes", kept.display(), pressed.len());
            std::fs::write(kept, pressed)?;
        }
    }
    Ok(true)
}

struct RecordingSession {
    teal: PathBuf,
    dir: PathBuf,
    seed: u32,
}

impl RecordingSession {
    fn teal_command(&self, args: &[&str], paths: &[&Path]) -> Command {
        let mut command = Command::new(&self.teal);
        command
            .args(args)
            .args(paths)
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        command
    }

    fn mount(&self) -> Result<()> {
        undo::note_undo(UndoStep::Mount(self.mount_point()));
        run_checked(
            &mut self.teal_command(&["mount"], &[&self.dir.join("store"), &self.mount_point()]),
        )
    }

    fn unmount(&self) -> Result<()> {
        run_checked(&mut self.teal_command(&["down"], &[&self.mount_point()]))
    }

    fn mount_point(&self) -> PathBuf {
        self.dir.join("mnt")
    }

    fn run_part(&self, script: &Path, part: &str) -> Result<()> {
        let mut command = Command::new("sh");
        command
            .arg(script)
            .arg(part)
            .arg(self.mount_point())
            .arg(self.seed.to_string());
        run_checked(
            command
                .env("TEAL", &self.teal)
                .env("REPOSITORY", crate::workspace::workspace_root())
                .stdin(Stdio::null()),
        )
    }

    /// Prepares, mounts again, and records the session.
    fn record_session(&self, script: &Path) -> Result<PathBuf> {
        std::fs::create_dir_all(self.mount_point())?;
        run_checked(&mut self.teal_command(&["mkfs", "--size", "1G"], &[&self.dir.join("store")]))?;
        self.mount()?;
        self.run_part(script, "prepare")?;
        // The mount is made afresh, so that first reads reach the daemon.
        self.unmount()?;
        self.mount()?;
        let trace = self.dir.join("trace");
        let out = trace.to_string_lossy();
        let recorder = self
            .teal_command(&["lab", "record", "--out", &out], &[&self.mount_point()])
            .spawn()?;
        self.wait_until_recording()?;
        // The recording is stopped even if the session failed.
        let done = self.run_part(script, "session");
        run_checked(&mut self.teal_command(&["lab", "record", "--stop"], &[&self.mount_point()]))?;
        done?;
        ensure!(
            recorder.wait_with_output()?.status.success(),
            "the recording failed"
        );
        self.unmount()?;
        Ok(trace)
    }

    /// Waits until marks are accepted: they are refused while nothing is recorded.
    fn wait_until_recording(&self) -> Result<()> {
        for _ in 0..200 {
            let mut mark = self.teal_command(
                &["lab", "record", "--mark", "begin"],
                &[&self.mount_point()],
            );
            if mark.stderr(Stdio::null()).status()?.success() {
                return Ok(());
            }
            std::thread::park_timeout(Duration::from_millis(50));
        }
        bail!("nothing is recorded at {}", self.mount_point().display())
    }
}

fn run_checked(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("{command:?}"))?;
    ensure!(status.success(), "{command:?}: {status}");
    Ok(())
}
