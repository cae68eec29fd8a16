//! Requests over io_uring: mounts that work as others do, and that end whatever happens to them.

use super::support::{Mounted, PATIENCE, compare_trees, fill, wait_until};
use rustix::fs::{FlockOperation, major, minor};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{Builder, JoinHandle};

const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";
/// Times each end of a mount is met; a hang that comes once in a hundred is met by running the test
/// again.
const ROUNDS: u64 = 8;
const CALLERS: u64 = 16;

/// The kernel's switch in the position a test needs, as long as this lives. One test of the machine
/// has it at a time.
struct Switched {
    before: String,
    _alone: File,
}

impl Switched {
    fn to(test: &str, position: &str) -> Option<Self> {
        let Ok(alone) = OpenOptions::new().read(true).write(true).open(SWITCH) else {
            teal_testkit::skip_test(test, "the kernel has no FUSE over io_uring, or not for us");
            return None;
        };
        rustix::fs::flock(&alone, FlockOperation::LockExclusive).unwrap();
        let before = std::fs::read_to_string(SWITCH).unwrap();
        std::fs::write(SWITCH, position).unwrap();
        Some(Self {
            before,
            _alone: alone,
        })
    }
}

impl Drop for Switched {
    fn drop(&mut self) {
        std::fs::write(SWITCH, self.before.trim()).unwrap();
    }
}

/// A mount over rings.
fn mounted(test: &str) -> Option<(Switched, Mounted)> {
    let switched = Switched::to(test, "Y")?;
    let mut m = Mounted::new(test, "256M")?;
    m.down();
    m.mount("uring=on");
    assert_eq!(m.status()["uring"], true);
    Some((switched, m))
}

/// Programs that use the mount until told to stop, or until the first error.
struct Callers {
    enough: Arc<AtomicBool>,
    done: Arc<AtomicUsize>,
    threads: Vec<JoinHandle<io::Result<()>>>,
}

fn use_once(dir: &Path, caller: u64, turn: u64) -> io::Result<()> {
    let (name, other) = (
        dir.join(format!("{caller}-{turn}")),
        dir.join(format!("{caller}-{turn} moved")),
    );
    let content = super::support::seeded(caller, 3000 + 7000 * (turn as usize % 20));
    let mut file = OpenOptions::new()
        .create_new(true)
        .read(true)
        .write(true)
        .open(&name)?;
    file.write_all(&content)?;
    if turn.is_multiple_of(3) {
        file.sync_all()?;
    }
    std::fs::rename(&name, &other)?;
    let mut found = vec![0; content.len()];
    file.read_exact_at(&mut found, 0)?;
    assert!(found == content, "what was written is read");
    if turn.is_multiple_of(2) {
        std::fs::remove_file(&other)
    } else {
        Ok(())
    }
}

impl Callers {
    fn at_work(dir: &Path, round: u64) -> Self {
        let (enough, done) = (
            Arc::new(AtomicBool::new(false)),
            Arc::new(AtomicUsize::new(0)),
        );
        let caller = |caller| {
            let (dir, enough, done) = (dir.to_owned(), Arc::clone(&enough), Arc::clone(&done));
            let work = move || {
                for turn in round << 32.. {
                    if enough.load(Ordering::Relaxed) {
                        break;
                    }
                    use_once(&dir, caller, turn)?;
                    done.fetch_add(1, Ordering::Relaxed);
                }
                Ok(())
            };
            Builder::new()
                .name(format!("caller-{caller}"))
                .spawn(work)
                .unwrap()
        };
        let threads = (0..CALLERS).map(caller).collect();
        let this = Self {
            enough,
            done,
            threads,
        };
        let busy = || this.done.load(Ordering::Relaxed) > 3 * CALLERS as usize;
        assert!(wait_until(PATIENCE, busy), "nobody gets anything done");
        this
    }

    /// Returns what each met; that one does not come back is a failure and no hang.
    fn come_back(self) -> Vec<Option<Errno>> {
        assert!(
            wait_until(PATIENCE, || self
                .threads
                .iter()
                .all(JoinHandle::is_finished)),
            "a caller hangs"
        );
        let errno =
            |error: io::Error| Errno::from_io_error(&error).unwrap_or_else(|| panic!("{error}"));
        self.threads
            .into_iter()
            .map(|thread| thread.join().unwrap().err().map(errno))
            .collect()
    }

    fn stop(self) {
        self.enough.store(true, Ordering::Relaxed);
        assert_eq!(self.come_back(), [None; CALLERS as usize]);
    }

    /// Checks that requests which were on their way to workers that were `killed` get the kernel's
    /// own answer.
    fn are_told_of_the_end(self, killed: bool) {
        for met in self.come_back() {
            let by_kill = killed && matches!(met, Some(Errno::CANCELED | Errno::INTR));
            assert!(
                by_kill || matches!(met, Some(Errno::NOTCONN | Errno::CONNABORTED)),
                "{met:?}"
            );
        }
    }
}

/// The directory in which the connection of the mount is controlled. Its name is the number of a
/// loop device, which another program gets as soon as this one is free.
struct Connection(PathBuf, u64);

impl Connection {
    fn of(m: &Mounted) -> Self {
        let device = std::fs::metadata(m.point()).unwrap().dev();
        let path = Path::new("/sys/fs/fuse/connections")
            .join((major(device) << 20 | minor(device)).to_string());
        let inode = std::fs::metadata(&path).unwrap().ino();
        Self(path, inode)
    }

    fn abort(&self) {
        std::fs::write(self.0.join("abort"), "1").unwrap();
    }

    fn ends(&self) {
        let is_there =
            || std::fs::metadata(&self.0).is_ok_and(|directory| directory.ino() == self.1);
        assert!(
            wait_until(PATIENCE, || !is_there()),
            "the connection is still there"
        );
    }
}

fn nothing_went_wrong(m: &Mounted) {
    let log = m.log();
    assert!(
        !["of a ring", "panicked", "answer"]
            .iter()
            .any(|word| log.contains(word)),
        "{log}"
    );
}

#[test]
fn a_mount_over_rings_keeps_everything_and_can_be_read_only() {
    let Some((_switched, mut m)) =
        mounted("a_mount_over_rings_keeps_everything_and_can_be_read_only")
    else {
        return;
    };
    let (ours, mirror) = (m.path("tree"), m.world().path("mirror"));
    fill(&mirror, 1, 150);
    super::support::shell(m.world(), r#"cp -a "$1" "$2""#, &[&mirror, &ours]).expect_success();
    let big = super::support::seeded(9, 9_000_001);
    std::fs::write(m.path("big"), &big).unwrap();
    for options in ["uring=on", "uring=on,ro", "uring=off"] {
        m.down();
        m.mount(options);
        assert_eq!(m.status()["uring"], options != "uring=off");
        compare_trees(&mirror, &ours);
        assert!(std::fs::read(m.path("big")).unwrap() == big);
        if options.ends_with("ro") {
            assert_eq!(
                Errno::from_io_error(&std::fs::write(m.path("new"), "").unwrap_err()),
                Some(Errno::ROFS)
            );
        }
    }
    m.down();
    m.check();
    nothing_went_wrong(&m);
}

#[test]
fn rings_that_cannot_be_had_are_refused_in_words_and_only_if_asked_for() {
    let test = "rings_that_cannot_be_had_are_refused_in_words_and_only_if_asked_for";
    let Some(_switched) = Switched::to(test, "N") else {
        return;
    };
    let Some(mut m) = Mounted::new(test, "64M") else {
        return;
    };
    assert_eq!(m.status()["uring"], false);
    m.down();
    let (store, point) = (m.store().to_str().unwrap(), m.point().to_str().unwrap());
    let said = m.world().teal(&["mount", store, point, "-o", "uring=on"]);
    assert!(
        said.code != 0 && said.to_string().contains("enable_uring"),
        "{said}"
    );
    assert_eq!(
        std::fs::read_dir(point).unwrap().count(),
        0,
        "nothing is mounted"
    );
    m.mount("uring=auto");
    assert_eq!(m.status()["uring"], false);
}

#[test]
fn an_unmount_while_idle_or_right_after_a_burst_leaves_nothing() {
    let Some((_switched, mut m)) =
        mounted("an_unmount_while_idle_or_right_after_a_burst_leaves_nothing")
    else {
        return;
    };
    for round in 0..ROUNDS {
        let connection = Connection::of(&m);
        Callers::at_work(m.point(), round).stop();
        m.down();
        connection.ends();
        m.mount("uring=on");
        // Not used at all.
        m.down();
        m.mount("uring=on");
    }
    m.down();
    m.check();
    nothing_went_wrong(&m);
}

#[test]
fn a_daemon_killed_while_requests_are_in_flight_leaves_no_caller_waiting() {
    let Some((_switched, mut m)) =
        mounted("a_daemon_killed_while_requests_are_in_flight_leaves_no_caller_waiting")
    else {
        return;
    };
    for round in 0..ROUNDS {
        let connection = Connection::of(&m);
        let callers = Callers::at_work(m.point(), round);
        m.kill();
        callers.are_told_of_the_end(true);
        assert_eq!(rustix::fs::statfs(m.point()).err(), Some(Errno::NOTCONN));
        rustix::mount::unmount(m.point(), UnmountFlags::DETACH).unwrap();
        connection.ends();
        m.mount("uring=on");
    }
    m.down();
    m.check();
    nothing_went_wrong(&m);
}

#[test]
fn an_aborted_connection_ends_the_daemon_and_its_callers() {
    let Some((_switched, mut m)) = mounted("an_aborted_connection_ends_the_daemon_and_its_callers")
    else {
        return;
    };
    for round in 0..ROUNDS {
        let connection = Connection::of(&m);
        let callers = Callers::at_work(m.point(), round);
        connection.abort();
        callers.are_told_of_the_end(false);
        m.ended();
        assert_eq!(rustix::fs::statfs(m.point()).err(), Some(Errno::NOTCONN));
        rustix::mount::unmount(m.point(), UnmountFlags::DETACH).unwrap();
        connection.ends();
        m.mount("uring=on");
    }
    m.down();
    m.check();
    nothing_went_wrong(&m);
}
