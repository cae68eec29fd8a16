//! A test's own world.

use super::{ProgramOutput, run_program};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// The laboratory's program, which is built for this test.
const TEAL_LAB: &str = env!("CARGO_BIN_EXE_teal-lab");

/// Returns the program teal, which starts the laboratory's beside it; a build of the whole
/// workspace makes both.
pub(crate) fn teal() -> PathBuf {
    let teal = Path::new(TEAL_LAB).with_file_name("teal");
    assert!(
        teal.exists(),
        "{} is missing: `cargo build -p teal` in this profile makes it",
        teal.display()
    );
    teal
}

/// A temporary directory with everything the program keeps outside of its stores.
#[derive(Debug)]
pub(crate) struct World {
    dir: TempDir,
}

impl World {
    /// A new world; `None`, on record as skipped, where nothing can be mounted.
    pub(crate) fn new(test: &str) -> Option<Self> {
        if !Path::new("/dev/fuse").exists() {
            teal_testkit::skip_test(test, "/dev/fuse is missing");
            return None;
        }
        if !rustix::process::geteuid().is_root() {
            teal_testkit::skip_test(test, "needs root");
            return None;
        }
        Some(Self::without_mounts())
    }

    /// A new world for tests that mount nothing.
    pub(crate) fn without_mounts() -> Self {
        let place = std::env::var_os("CARGO_TARGET_TMPDIR")
            .unwrap_or_else(|| env!("CARGO_TARGET_TMPDIR").into());
        Self::within(Path::new(&place))
    }

    fn within(place: &Path) -> Self {
        // Short, as pjdfstest binds sockets to long names in there. Without `cargo xtask test` the
        // place is not the test's alone.
        let prefix = if std::env::var_os("CARGO_TARGET_TMPDIR").is_some() {
            "w"
        } else {
            "teal-"
        };
        let dir = tempfile::Builder::new()
            .prefix(prefix)
            .tempdir_in(place)
            .unwrap();
        for sub in ["home", "data", "run", "state"] {
            std::fs::create_dir(dir.path().join(sub)).unwrap();
        }
        rustix::fs::chmod(dir.path(), rustix::fs::Mode::from_raw_mode(0o755)).unwrap();
        Self { dir }
    }

    /// A path in the temporary directory.
    pub(crate) fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Gives another program the test's environment.
    pub(crate) fn furnish<'c>(&self, command: &'c mut Command) -> &'c mut Command {
        command
            .env("HOME", self.path("home"))
            .env("XDG_DATA_HOME", self.path("data"))
            .env("XDG_RUNTIME_DIR", self.path("run"))
            .env("XDG_STATE_HOME", self.path("state"))
            .env_remove("RUST_LOG")
            .current_dir(self.dir.path())
    }

    /// The program with the test's environment, not started yet.
    pub(crate) fn command<S: AsRef<OsStr>>(&self, args: &[S]) -> Command {
        let mut command = Command::new(teal());
        self.furnish(&mut command).args(args);
        command
    }

    /// Runs the program to its end.
    pub(crate) fn teal<S: AsRef<OsStr>>(&self, args: &[S]) -> ProgramOutput {
        run_program(&mut self.command(args))
    }
}
