//! Free space is no more than the disk under the store has room for.

use super::str;
use crate::support::{Mounted, TestMount, World, wait_until};
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

fn free(path: &Path) -> u64 {
    let df = rustix::fs::statvfs(path).unwrap();
    df.f_bavail * df.f_frsize
}

/// A file system of a test's own.
struct Small {
    point: TestMount,
    /// Removed when nothing is mounted there any more.
    _dir: tempfile::TempDir,
}

/// A file system of `mib` MiB.
fn small(mib: u64) -> Small {
    let place = std::env::var_os("TMPDIR").unwrap_or_else(|| "/var/tmp".into());
    let dir = tempfile::Builder::new()
        .prefix("teal-")
        .tempdir_in(place)
        .unwrap();
    let host = dir.path().to_owned();
    let options = format!("size={mib}m");
    let done = std::process::Command::new("mount")
        .args(["-t", "tmpfs", "-o", &options, "none"])
        .arg(&host)
        .status();
    assert!(done.unwrap().success());
    Small {
        point: TestMount(host),
        _dir: dir,
    }
}

#[test]
fn a_store_promises_what_the_disk_under_it_has() {
    let test = "a_store_promises_what_the_disk_under_it_has";
    let Some(world) = World::new(test) else {
        return;
    };
    let host = small(400);
    let store = host.point.0.join("store.teal");
    world
        .teal(&["mkfs", str(&store), "--size", "50G"])
        .expect_success();
    let mut m = Mounted::on(world, store);
    let promised = free(m.point());
    assert!(
        promised <= 400 << 20,
        "{promised} bytes are promised of a disk of 400 MiB"
    );
    let df = rustix::fs::statvfs(m.point()).unwrap();
    let used = (df.f_blocks - df.f_bfree) * df.f_frsize;
    assert!(used < 64 << 20, "what the host lacks is not used: {used}");
    let status = m.status();
    assert!(
        status["free_bytes"].as_u64().unwrap() <= 400 << 20,
        "{status}"
    );
    let shown = m.world().teal(&["status", str(m.point())]).expect_success();
    assert!(
        shown.contains("the disk under the store is too full"),
        "{shown}"
    );
    // An allocation that the host cannot hold is refused before anything is written.
    let whole = std::fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .open(m.path("allocated"))
        .unwrap();
    let refused = rustix::fs::fallocate(&whole, rustix::fs::FallocateFlags::empty(), 0, 1 << 30);
    assert_eq!(refused, Err(rustix::io::Errno::NOSPC));
    drop(whole);
    std::fs::remove_file(m.path("allocated")).unwrap();
    // Promised space can be written, and no more.
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .open(m.path("f"))
        .unwrap();
    let piece = crate::support::seeded(1, 1 << 20);
    let written = (0..1024_u64)
        .take_while(|_| {
            file.write_all(&piece)
                .and_then(|()| file.sync_data())
                .is_ok()
        })
        .count();
    let written = (written as u64) << 20;
    drop(file);
    assert!(
        written + (16 << 20) >= promised && written <= promised + (16 << 20),
        "{written} of {promised}"
    );
    assert!(free(m.point()) <= 16 << 20, "{}", free(m.point()));
    // The space comes back: blocks that the host has given already count, after a remount too.
    std::fs::remove_file(m.path("f")).unwrap();
    let is_back = || free(m.point()) + (32 << 20) >= promised;
    assert!(
        wait_until(crate::support::PATIENCE, is_back),
        "{} of {promised}",
        free(m.point())
    );
    m.remount();
    assert!(
        wait_until(crate::support::PATIENCE, || free(m.point()) + (32 << 20)
            >= promised),
        "{}",
        free(m.point())
    );
    m.down();
    m.check();
}

#[test]
fn what_others_take_of_the_host_is_seen() {
    let test = "what_others_take_of_the_host_is_seen";
    let Some(world) = World::new(test) else {
        return;
    };
    let host = small(600);
    let store = host.point.0.join("store.teal");
    world
        .teal(&["mkfs", str(&store), "--size", "8G"])
        .expect_success();
    let mut m = Mounted::on(world, store);
    let before = free(m.point());
    let others = host.point.0.join("others");
    std::fs::write(&others, vec![1; 200 << 20]).unwrap();
    let age = Duration::from_secs(30);
    let is_seen = || free(m.point()) + (190 << 20) <= before;
    assert!(wait_until(age, is_seen), "{} of {before}", free(m.point()));
    std::fs::remove_file(&others).unwrap();
    assert!(
        wait_until(age, || free(m.point()) + (10 << 20) >= before),
        "{} of {before}",
        free(m.point())
    );
    m.down();
    m.check();
}
