//! A real wedge: a process that waits for a file system which it serves itself and does not answer.
//! No signal ends it.

use super::super::bounded::time_since_boot;
use super::*;
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::mount::UnmountFlags;
use std::num::NonZeroUsize;
use teal_fuse::{
    FuseMountOptions, FuseSession, InitConfig, KernelRequest, ReplySender, RequestHandler,
};

struct Silent;

impl RequestHandler for Silent {
    fn handle_request(&self, _: KernelRequest<'_>, reply: ReplySender) {
        // A dropped reply would be an answer.
        std::mem::forget(reply);
    }
}

const ROLE: &str = "TEAL_TEST_WEDGED";

/// Waits for ever for the file system it serves, and which is out of sight if it `is_hidden`.
fn wedge(is_hidden: bool) {
    let point = std::env::temp_dir().join("point");
    std::fs::create_dir(&point).unwrap();
    let options = FuseMountOptions {
        source: "silent".into(),
        ..Default::default()
    };
    let session = FuseSession::mount(&point, &options, &InitConfig::default()).unwrap();
    let serve = move || session.run(NonZeroUsize::MIN, &Silent);
    std::thread::Builder::new()
        .name("silent".into())
        .spawn(serve)
        .unwrap();
    let root = rustix::fs::open(&point, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap();
    if is_hidden {
        rustix::mount::unmount(&point, UnmountFlags::DETACH).unwrap();
    }
    eprintln!("about to wait");
    let _ = rustix::fs::statat(&root, "never", AtFlags::empty());
}

/// Lets the test `name` wedge itself in a process of its own, and what is left of it; `None` if it
/// is that process.
fn wedged(name: &str, is_hidden: bool) -> Option<Vec<String>> {
    if std::env::var_os(ROLE).is_some() {
        wedge(is_hidden);
        return None;
    }
    let has_control = std::fs::read_to_string("/proc/self/mounts")
        .unwrap()
        .contains(" fusectl ");
    if !rustix::process::geteuid().is_root()
        || !Path::new("/dev/fuse").exists()
        || is_hidden && !has_control
    {
        teal_testkit::skip_test(
            name,
            "needs root, /dev/fuse and, if hidden, the control file system of FUSE",
        );
        return None;
    }
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let [open, large] = dirs.each_ref().map(|dir| dir.path().to_owned());
    let rooms = RunDirectories { open, large };
    let mut command = Command::new(std::env::current_exe().unwrap());
    let test = format!("{}::{name}", module_path!().split_once("::").unwrap().1);
    command
        .args(["--exact", &test, "--nocapture"])
        .env(ROLE, "1");
    let stop = AtomicBool::new(false);
    let course = RunTerms {
        limit: Duration::from_secs(2),
        grace: Duration::ZERO,
        directories: &rooms,
        is_shown: false,
        stop: &stop,
        running_lock: &RwLock::default(),
    };
    let start = time_since_boot();
    let attempt = run_to_end("wedged", command, &BTreeSet::from([test]), course).unwrap();
    let said = String::from_utf8_lossy(&attempt.output).into_owned();
    assert_eq!(attempt.ending, RunEnding::Hung, "{said}");
    assert!(
        said.contains("about to wait") && said.contains("wedged does not end"),
        "{said}"
    );
    assert!(
        !attempt
            .leftovers
            .iter()
            .any(|left| left.contains("cannot be killed")),
        "{:?} {said}",
        attempt.leftovers
    );
    assert!(time_since_boot() - start < Duration::from_secs(60));
    assert!(
        dirs.iter()
            .all(|dir| std::fs::read_dir(dir.path()).unwrap().count() == 0),
        "nothing is left"
    );
    Some(attempt.leftovers)
}

#[test]
fn a_process_that_waits_for_its_own_file_system_is_ended() {
    if let Some(left) = wedged(
        "a_process_that_waits_for_its_own_file_system_is_ended",
        false,
    ) {
        assert!(
            left.iter()
                .any(|left| left.starts_with("mount of fuse.teal at ")),
            "{left:?}"
        );
    }
}

#[test]
fn a_process_that_waits_for_its_own_file_system_out_of_sight_is_ended() {
    wedged(
        "a_process_that_waits_for_its_own_file_system_out_of_sight_is_ended",
        true,
    );
}
