//! A real wedge: a process that waits for a file system which it serves itself and does not answer. No signal ends it.

use super::super::bounded::now;
use super::*;
use std::num::NonZeroUsize;
use teal_fuse::{InitConfig, MountOptions, Reply, Request, Serve, Session};

struct Silent;

impl Serve for Silent {
    fn serve(&self, _: Request<'_>, reply: Reply) {
        // A dropped reply would be an answer.
        std::mem::forget(reply);
    }
}

const TEST: &str = "test::attempt::tests::a_process_that_waits_for_its_own_file_system_is_ended";
const ROLE: &str = "TEAL_TEST_WEDGED";

/// Waits for ever for the file system it serves.
fn wedge() {
    let point = std::env::temp_dir().join("point");
    std::fs::create_dir(&point).unwrap();
    let options = MountOptions { source: "silent".into(), ..Default::default() };
    let session = Session::mount(&point, &options, &InitConfig::default()).unwrap();
    let serve = move || session.run(NonZeroUsize::MIN, &Silent);
    std::thread::Builder::new().name("silent".into()).spawn(serve).unwrap();
    eprintln!("about to wait");
    drop(std::fs::metadata(point.join("never")));
}

#[test]
fn a_process_that_waits_for_its_own_file_system_is_ended() {
    if std::env::var_os(ROLE).is_some() {
        return wedge();
    }
    if !rustix::process::geteuid().is_root() || !Path::new("/dev/fuse").exists() {
        return teal_testkit::skip(TEST, "needs root and /dev/fuse");
    }
    let dir = tempfile::tempdir().unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", TEST, "--nocapture"]).env(ROLE, "1");
    let stop = AtomicBool::new(false);
    let course = Course {
        limit: Duration::from_secs(2),
        grace: Duration::ZERO,
        places: &[],
        temporary: dir.path(),
        is_shown: false,
        stop: &stop,
    };
    let start = now();
    let expected = BTreeSet::from([TEST.to_owned()]);
    let attempt = run("wedged", command, &expected, course).unwrap();
    let said = String::from_utf8_lossy(&attempt.output).into_owned();
    assert_eq!(attempt.ending, Ending::Hung, "{said}");
    assert!(said.contains("about to wait") && said.contains("wedged does not end"), "{said}");
    assert!(attempt.left.iter().any(|left| left.starts_with("mount of fuse.teal at ")), "{:?}", attempt.left);
    assert!(!attempt.left.iter().any(|left| left.contains("cannot be killed")), "{:?} {said}", attempt.left);
    assert!(now() - start < Duration::from_secs(60));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "nothing is left");
}
