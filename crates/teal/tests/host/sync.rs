//! `sync(2)`, `syncfs(2)` and `umount(8)` reach a mount made by root.

mod contained;

use super::support::{Mounted, PATIENCE, PrivateMounts, World, has_loop_devices, wait_until};
use std::path::Path;

fn kind_of(point: &Path) -> String {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    let mut lines = mounts
        .lines()
        .map(|line| line.split(' ').collect::<Vec<_>>());
    lines.find(|fields| Path::new(fields[1]) == point).unwrap()[2].to_owned()
}

#[test]
fn syncfs_is_durable_without_any_fsync() {
    let Some(mut m) = Mounted::new("syncfs_is_durable_without_any_fsync", "64M") else {
        return;
    };
    assert_eq!(kind_of(m.point()), "fuseblk.teal");
    m.set("commit-seconds", "3600");
    let before = m.syncs();
    std::fs::write(m.path("f"), super::support::seeded(1, 300_000)).unwrap();
    let is_uncommitted = m.status()["uncommitted"] == true;
    let between = m.syncs();
    rustix::fs::syncfs(
        std::fs::OpenOptions::new()
            .read(true)
            .open(m.point())
            .unwrap(),
    )
    .unwrap();
    assert_eq!(m.status()["uncommitted"], false);
    assert!(m.syncs() > between, "{}", m.status());
    // Another program may have synced all file systems.
    assert!(
        is_uncommitted || between > before,
        "nothing commits it but a sync"
    );
    m.kill();
    m.up();
    assert_eq!(
        std::fs::read(m.path("f")).unwrap(),
        super::support::seeded(1, 300_000)
    );
    m.down();
    m.check();
    // The drive appears at once, unless another program looks at all devices just now.
    let is_gone = wait_until(PATIENCE, || loops_over(&m).is_empty());
    assert!(
        is_gone,
        "the loop device goes with the mount: {}",
        loops_over(&m)
    );
    m.mount("nosyncfs");
    assert_eq!(kind_of(m.point()), "fuse.teal");
    assert_eq!(loops_over(&m), "");
}

fn loops_over(m: &Mounted) -> String {
    super::support::shell(m.world(), r#"losetup --associated "$1""#, &[m.store()]).expect_success()
}

#[test]
fn what_umount_left_is_durable() {
    let Some(mut m) = Mounted::new("what_umount_left_is_durable", "64M") else {
        return;
    };
    m.set("commit-seconds", "3600");
    std::fs::write(m.path("f"), super::support::seeded(2, 200_000)).unwrap();
    // The copy is made of what the disk holds when umount returns.
    let copy = m.world().path("copy.teal");
    super::support::shell(
        m.world(),
        r#"umount "$1"; cp "$2" "$3""#,
        &[m.point(), m.store(), &copy],
    )
    .expect_success();
    m.ended();
    let point = m.world().path("other");
    std::fs::create_dir(&point).unwrap();
    m.world()
        .teal(&[
            "mount",
            copy.to_str().unwrap(),
            point.to_str().unwrap(),
            "-o",
            "ro",
        ])
        .expect_success();
    let read = std::fs::read(point.join("f"));
    m.world()
        .teal(&["down", point.to_str().unwrap()])
        .expect_success();
    assert_eq!(read.unwrap(), super::support::seeded(2, 200_000));
    m.check();
}

#[test]
fn a_store_on_a_block_device_is_mounted_on_it() {
    let test = "a_store_on_a_block_device_is_mounted_on_it";
    let Some(world) = World::new(test).filter(|_| has_loop_devices(test)) else {
        return;
    };
    let Some(private) = PrivateMounts::new(&world) else {
        return teal_testkit::skip_test(test, "mount namespaces cannot be made here");
    };
    let script = r#"
        teal="$1"; truncate -s 64M image; mkdir point second
        device=$(losetup --find --show image)
        trap 'umount -l point 2> /dev/null || true; losetup --detach "$device"' EXIT
        "$teal" mkfs "$device"
        "$teal" mount "$device" "$PWD/point" -o syncfs
        grep -q "^$device $PWD/point fuseblk.teal " /proc/self/mounts
        echo content > point/f
        not "$teal" mount "$device" "$PWD/second" -o nosyncfs 2> said
        grep -q 'in use' said
        not "$teal" mkfs --force "$device" 2> said
        grep -q 'is mounted on' said
        sync --file-system point/f
        "$teal" status --json "$PWD/point" | grep -q '"uncommitted": *false'
        pid=$("$teal" status --json "$PWD/point" | sed -n 's/.*"pid": *\([0-9]*\).*/\1/p')
        kill -9 $pid
        "$teal" mount "$device" "$PWD/point" -o syncfs
        test "$(cat point/f)" = content
        "$teal" down "$PWD/point"
        "$teal" check "$device"
    "#;
    private
        .run(script, &[Path::new(env!("CARGO_BIN_EXE_teal"))])
        .expect_success();
}

#[test]
fn whoever_wants_sync_to_reach_a_mount_in_a_namespace_of_its_own_says_so() {
    let test = "whoever_wants_sync_to_reach_a_mount_in_a_namespace_of_its_own_says_so";
    let Some(world) = World::new(test).filter(|_| has_loop_devices(test)) else {
        return;
    };
    let Some(private) = PrivateMounts::new(&world) else {
        return teal_testkit::skip_test(test, "mount namespaces cannot be made here");
    };
    let store = world.store("store.teal", "64M");
    let script = r#"
        teal="$1"; store="$2"; mkdir point
        "$teal" mount "$store" "$PWD/point" -o syncfs
        grep -q " $PWD/point fuseblk.teal " /proc/self/mounts
        "$teal" status "$PWD/point" > said
        not grep -q 'do not reach' said
        echo content > point/f; sync --file-system point/f
        "$teal" status --json "$PWD/point" | grep -q '"uncommitted": *false'
        "$teal" down "$PWD/point"
    "#;
    private
        .run(script, &[Path::new(env!("CARGO_BIN_EXE_teal")), &store])
        .expect_success();
}
