//! A test's own world, and mounts in it.

use super::cable::NetworkNamespace;
use super::{PATIENCE, ProgramOutput, run_program, wait_until};
use rustix::mount::UnmountFlags;
use rustix::process::{Pid, Signal};
use serde_json::Value;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;
use tempfile::TempDir;

/// The program under test.
pub(crate) const TEAL: &str = env!("CARGO_BIN_EXE_teal");

/// No test takes longer, however slow the machine; in their long forms, none takes longer than the
/// second. Less than what `cargo xtask test` gives a whole program: the test that hangs fails by
/// its name, and the others of its program go on.
const LONGEST: [Duration; 2] = [Duration::from_secs(480), Duration::from_secs(4 * 3600)];

/// A temporary directory with everything the program keeps outside of its stores.
#[derive(Debug)]
pub(crate) struct World {
    dir: TempDir,
    /// The machine on which the program runs; `None`: that of the test.
    machine: Option<Arc<NetworkNamespace>>,
}

impl World {
    /// A new world; `None`, on record as skipped, where nothing can be mounted.
    pub(crate) fn new(test: &str) -> Option<Self> {
        if !Path::new("/dev/fuse").exists() {
            teal_testkit::skip_test(test, "/dev/fuse is missing");
            return None;
        }
        if !super::is_root() {
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

    /// A new world that every user can reach.
    pub(crate) fn open_to_all() -> Self {
        let place = std::env::var_os("TMPDIR").unwrap_or_else(|| "/var/tmp".into());
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
        Self { dir, machine: None }
    }

    /// Does the same on another machine.
    pub(crate) fn on(mut self, machine: Arc<NetworkNamespace>) -> Self {
        self.machine = Some(machine);
        self
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
        let mut command = self.machine.as_ref().map_or_else(
            || Command::new(TEAL),
            |machine| machine.command_inside(TEAL),
        );
        self.furnish(&mut command).args(args);
        command
    }

    /// Runs the program to its end.
    pub(crate) fn teal<S: AsRef<OsStr>>(&self, args: &[S]) -> ProgramOutput {
        run_program(&mut self.command(args))
    }

    /// Makes a store of `size` in the file `name`.
    pub(crate) fn store(&self, name: &str, size: &str) -> PathBuf {
        let path = self.path(name);
        self.teal(&["mkfs", path.to_str().unwrap(), "--size", size])
            .expect_success();
        path
    }
}

/// A store that is mounted as long as this lives, in a world of its own.
#[derive(Debug)]
pub(crate) struct Mounted {
    world: World,
    point: PathBuf,
    store: PathBuf,
    pid: Option<i32>,
    watchdog: Watchdog,
}

/// Kills a daemon that lives too long: what hangs fails instead.
#[derive(Debug)]
struct Watchdog {
    pid: Arc<AtomicI32>,
    _end: mpsc::Sender<()>,
}

impl Watchdog {
    fn new() -> Self {
        let (sender, end) = mpsc::channel::<()>();
        let pid = Arc::new(AtomicI32::new(0));
        let watched = Arc::clone(&pid);
        let longest = LONGEST[usize::from(super::is_long())];
        let watch = move || {
            if end.recv_timeout(longest) == Err(mpsc::RecvTimeoutError::Timeout) {
                eprintln!("the test takes more than {longest:?}: its daemon is killed");
                match watched.load(Ordering::Acquire) {
                    0 => {}
                    pid => kill(pid),
                }
            }
        };
        std::thread::Builder::new()
            .name("watchdog".into())
            .spawn(watch)
            .unwrap();
        Self { pid, _end: sender }
    }
}

impl Mounted {
    /// A fresh store of `size`, mounted; `None`, on record as skipped, where nothing can be
    /// mounted.
    pub(crate) fn new(test: &str, size: &str) -> Option<Self> {
        Some(Self::of(World::new(test)?, size))
    }

    /// As [`Mounted::new`], in a world made already.
    pub(crate) fn of(world: World, size: &str) -> Self {
        let (point, store) = (world.path("Teal"), world.path("store.teal"));
        let mut this = Self {
            world,
            point,
            store,
            pid: None,
            watchdog: Watchdog::new(),
        };
        let args = [
            "up",
            this.point_str(),
            "--store",
            this.store.to_str().unwrap(),
            "--size",
            size,
        ];
        this.world.teal(&args).expect_success();
        this.look();
        this
    }

    /// As [`Mounted::of`], with a store that is there already: a device, for one.
    pub(crate) fn on(world: World, store: PathBuf) -> Self {
        let point = world.path("Teal");
        let mut this = Self {
            world,
            point,
            store,
            pid: None,
            watchdog: Watchdog::new(),
        };
        this.up();
        this
    }

    /// A store that the program has mounted already, on the usual point.
    pub(crate) fn found(world: World, store: PathBuf) -> Self {
        let point = world.path("Teal");
        let mut this = Self {
            world,
            point,
            store,
            pid: None,
            watchdog: Watchdog::new(),
        };
        this.look();
        this
    }

    /// Returns where it is mounted.
    pub(crate) fn point(&self) -> &Path {
        &self.point
    }

    fn point_str(&self) -> &str {
        self.point.to_str().unwrap()
    }

    /// The store.
    pub(crate) fn store(&self) -> &Path {
        &self.store
    }

    /// Everything around it.
    pub(crate) fn world(&self) -> &World {
        &self.world
    }

    /// A path on the mount.
    pub(crate) fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.point.join(name)
    }

    /// The answer of `teal status --json`.
    pub(crate) fn status(&self) -> Value {
        let said = self
            .world
            .teal(&["status", self.point_str(), "--json"])
            .expect_success();
        let mut all: Value = serde_json::from_str(&said).unwrap();
        all[0].take()
    }

    /// Returns what has passed between replica and server (`counts`), or what the server here has
    /// done (`server_counts`), under this name.
    pub(crate) fn exchanged(&self, list: &str, name: &str) -> u64 {
        let upstream = &self.status()["upstream"];
        let found = upstream[list]
            .as_array()
            .unwrap()
            .iter()
            .find(|pair| pair[0] == name);
        found.unwrap_or_else(|| panic!("{upstream} without {name}"))[1]
            .as_u64()
            .unwrap()
    }

    /// Returns what the store has counted under this name.
    pub(crate) fn counter(&self, name: &str) -> u64 {
        let status = self.status();
        let found = status["counters"]
            .as_array()
            .unwrap()
            .iter()
            .find(|pair| pair[0] == name)
            .unwrap();
        found[1].as_u64().unwrap()
    }

    /// The daemon.
    pub(crate) fn pid(&self) -> i32 {
        self.pid.expect("it is mounted")
    }

    /// Learns which daemon serves the mount now.
    pub(crate) fn look(&mut self) {
        let pid = i32::try_from(self.status()["pid"].as_i64().unwrap()).unwrap();
        self.watchdog.pid.store(pid, Ordering::Release);
        self.pid = Some(pid);
    }

    /// Mounts it again; what the program said.
    #[track_caller]
    pub(crate) fn up(&mut self) -> String {
        let args = [
            "up",
            self.point_str(),
            "--store",
            self.store.to_str().unwrap(),
        ];
        let said = self.world.teal(&args).expect_success();
        self.look();
        said
    }

    /// Mounts it again with mount options.
    #[track_caller]
    pub(crate) fn mount(&mut self, options: &str) {
        self.world
            .teal(&[
                "mount",
                self.store.to_str().unwrap(),
                self.point_str(),
                "-o",
                options,
            ])
            .expect_success();
        self.look();
    }

    /// Returns what the daemons of this world have said to their logs.
    pub(crate) fn log(&self) -> String {
        let logs = std::fs::read_dir(self.world.path("state").join("teal")).unwrap();
        logs.map(|log| std::fs::read_to_string(log.unwrap().path()).unwrap())
            .collect()
    }

    /// Unmounts it. A program that another test begins just now has all of this one's files open
    /// for a moment.
    #[track_caller]
    pub(crate) fn down(&mut self) {
        let mut said = self.world.teal(&["down", self.point_str()]);
        let _ = wait_until(PATIENCE, || {
            let is_busy = said.code != 0 && said.stderr.contains(" is busy: ");
            if is_busy {
                said = self.world.teal(&["down", self.point_str()]);
            }
            !is_busy
        });
        said.expect_success();
        let pid = self.pid.take().expect("it was mounted");
        assert!(
            is_gone(pid),
            "`teal down` waits for the daemon's end: the store can be used again"
        );
    }

    /// Unmounts it and mounts it again.
    #[track_caller]
    pub(crate) fn remount(&mut self) {
        self.down();
        self.up();
    }

    /// Mounts it again where no `sync(2)` reaches it. Any program of the machine may call that at
    /// any time, and with it syncs every file system, so a test that counts commits, or tells what
    /// was not committed, must not be reached.
    #[track_caller]
    pub(crate) fn hide_from_sync(&mut self) {
        self.down();
        self.mount("nosyncfs");
    }

    /// Returns how often a sync of everything was requested, by this test or by a `sync(2)`.
    pub(crate) fn syncs(&self) -> u64 {
        let status = self.status();
        let found = status["requests"]
            .as_array()
            .unwrap()
            .iter()
            .find(|pair| pair[0] == "syncfs");
        found.map_or(0, |pair| pair[1].as_u64().unwrap())
    }

    /// Kills the daemon with SIGKILL and waits until it is dead; the dead mount stays.
    pub(crate) fn kill(&mut self) {
        kill(self.pid.take().expect("it was mounted"));
    }

    /// Waits for the end of a daemon when its mount was taken away by another process.
    #[track_caller]
    pub(crate) fn ended(&mut self) {
        let pid = self.pid.take().expect("it was mounted");
        assert!(
            wait_until(PATIENCE, || is_gone(pid)),
            "the daemon does not end"
        );
    }

    /// Changes a setting.
    #[track_caller]
    pub(crate) fn set(&self, key: &str, value: &str) {
        self.world
            .teal(&["config", "set", key, value, self.point_str()])
            .expect_success();
    }

    /// The rights and wrongs of the store, after an unmount.
    pub(crate) fn check(&self) {
        assert!(
            self.pid.is_none(),
            "only a store that is not mounted can be checked"
        );
        super::check(&self.world, &self.store);
    }

    /// Takes over a daemon that was started by other means than [`Mounted::up`].
    pub(crate) fn adopt(&mut self) {
        self.look();
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // Several mounts can be stacked when a test went wrong.
        while rustix::mount::unmount(&self.point, UnmountFlags::DETACH).is_ok() {}
        if let Some(pid) = self.pid {
            kill(pid);
        }
    }
}

/// Returns whether the process is a daemon of the program under test.
pub(crate) fn is_daemon(pid: i32) -> bool {
    std::fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe == Path::new(TEAL))
}

/// Returns whether the process is gone, or waits for nothing but to be asked how it ended; all its
/// threads with it.
pub(crate) fn is_gone(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count);
    threads <= 1
        && stat
            .rsplit_once(')')
            .is_none_or(|(_, rest)| rest.starts_with(" Z"))
}

fn kill(pid: i32) {
    if is_daemon(pid) {
        let _ = rustix::process::kill_process(
            Pid::from_raw(pid).expect("no process is 0"),
            Signal::KILL,
        );
        // A panic here while another unwinds would end the whole test binary.
        let _ = wait_until(PATIENCE, || is_gone(pid));
    }
}
