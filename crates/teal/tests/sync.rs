//! `sync(2)`, `syncfs(2)` and `umount(8)` reach a mount made by root.

#![allow(clippy::unwrap_used, reason = "tests panic where they fail")]

#[path = "support/support.rs"]
mod support;

use std::path::Path;
use support::{Mounted, PATIENCE, PrivateMounts, World, has_loop_devices, wait_until};

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
    std::fs::write(m.path("f"), support::seeded(1, 300_000)).unwrap();
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
        support::seeded(1, 300_000)
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
    support::shell(m.world(), r#"losetup --associated "$1""#, &[m.store()]).expect_success()
}

#[test]
fn what_umount_left_is_durable() {
    let Some(mut m) = Mounted::new("what_umount_left_is_durable", "64M") else {
        return;
    };
    m.set("commit-seconds", "3600");
    std::fs::write(m.path("f"), support::seeded(2, 200_000)).unwrap();
    // The copy is made of what the disk holds when umount returns.
    let copy = m.world().path("copy.teal");
    support::shell(
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
    assert_eq!(read.unwrap(), support::seeded(2, 200_000));
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
        not "$teal" mount "$device" "$PWD/second" 2> said
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

/// The ways in which a daemon comes to live in a mount namespace that ends with it, and the
/// commands that make them.
const NAMESPACES: &[(&str, &str)] = &[
    ("a mount namespace", "unshare --mount sh -e -c"),
    (
        "a process namespace, too",
        "unshare --mount --pid --fork sh -e -c",
    ),
    (
        "a process namespace with its own /proc",
        "unshare --mount --pid --fork --mount-proc sh -e -c",
    ),
    (
        "as in a container",
        "unshare --mount --pid --fork --ipc --uts --net --cgroup sh -e -c 'mount --rbind / root; \
         mount -t proc proc root/proc; cd root; exec chroot . sh -e -c \"$0\" \"$@\"'",
    ),
];

#[test]
fn a_daemon_that_is_killed_with_its_mount_namespace_leaves_nothing_behind() {
    let test = "a_daemon_that_is_killed_with_its_mount_namespace_leaves_nothing_behind";
    let Some(world) = World::new(test) else {
        return;
    };
    if PrivateMounts::new(&world).is_none() {
        return teal_testkit::skip_test(test, "mount namespaces cannot be made here");
    }
    let store = world.store("store.teal", "64M");
    for dir in ["point", "root"] {
        std::fs::create_dir(world.path(dir)).unwrap();
    }
    for (n, (what, command)) in NAMESPACES.iter().enumerate() {
        // The namespace's first process kills the daemon, and all else in it, with its own end. On
        // a device it would get stuck: not even tried.
        let script = r#"
            dir="${1%/}"; teal="$2"; store="$3"; n="$4"; point="$dir/point"
            "$teal" mount "$store" "$point"
            grep -q " $point fuse.teal " /proc/self/mounts
            "$teal" status "$point" | grep -q "do not reach this volume"
            "$teal" status --json "$point" | grep -q "\"syncfs\": false"
            echo content > "$point/f$n"; sync "$point/f$n"
            pid=$("$teal" status --json "$point" | sed -n "s/.*\"pid\": *\([0-9]*\).*/\1/p")
            kill -9 "$pid"; echo "$pid"
        "#;
        let whole = format!(r#"cd "$1"; {command} "$0" sh "$@""#);
        let mut shell = std::process::Command::new("sh");
        let number = n.to_string();
        let args = [
            world.path(""),
            env!("CARGO_BIN_EXE_teal").into(),
            store.clone(),
            number.into(),
        ];
        shell.args(["-e", "-c", &whole, script]).args(args);
        let said = support::run_program(world.furnish(&mut shell)).expect_success();
        // A namespace of processes has ended only when all in it are dead. Elsewhere the number is
        // the daemon's here, too.
        let daemon = Path::new("/proc").join(said.trim());
        assert!(
            n > 0 || wait_until(PATIENCE, || !daemon.exists()),
            "{what}: {} does not die",
            daemon.display()
        );
        let mut m = Mounted::on(World::new(test).unwrap(), store.clone());
        assert_eq!(
            kind_of(m.point()),
            "fuseblk.teal",
            "here, in the first namespace"
        );
        for done in 0..=n {
            assert_eq!(
                std::fs::read(m.path(format!("f{done}"))).unwrap(),
                b"content\n",
                "{what}"
            );
        }
        m.down();
        m.check();
    }
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
