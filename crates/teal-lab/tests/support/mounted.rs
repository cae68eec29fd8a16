//! Mounts in a test's world.

use super::world::teal;
use super::{PATIENCE, World, wait_until};
use rustix::mount::UnmountFlags;
use rustix::process::{Pid, Signal};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

/// No test takes longer, however slow the machine. Less than what `cargo xtask test` gives a whole
/// program: the test that hangs fails by its name, and the others of its program go on.
const LONGEST: Duration = Duration::from_secs(480);

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
        let watch = move || {
            if end.recv_timeout(LONGEST) == Err(mpsc::RecvTimeoutError::Timeout) {
                eprintln!("the test takes more than {LONGEST:?}: its daemon is killed");
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

    /// Returns where it is mounted.
    pub(crate) fn point(&self) -> &Path {
        &self.point
    }

    fn point_str(&self) -> &str {
        self.point.to_str().unwrap()
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

    fn look(&mut self) {
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
    /// any time, and with it syncs every file system: a test that counts commits, or tells what was
    /// not committed, is not to be reached.
    #[track_caller]
    pub(crate) fn hide_from_sync(&mut self) {
        self.down();
        self.mount("nosyncfs");
    }

    /// Kills the daemon with SIGKILL and waits until it is dead; the dead mount stays.
    pub(crate) fn kill(&mut self) {
        kill(self.pid.take().expect("it was mounted"));
    }

    /// The rights and wrongs of the store, after an unmount.
    pub(crate) fn check(&self) {
        assert!(
            self.pid.is_none(),
            "only a store that is not mounted can be checked"
        );
        super::check(&self.world, &self.store);
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
    std::fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe == teal())
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
