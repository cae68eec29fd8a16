//! A mount's life: up, down, signals, a killed daemon, settings, silence.

use super::support::{
    Mounted, PATIENCE, PrivateMounts, World, compare_trees, fill, find_program, is_user_able,
    let_pass, wait_until,
};
use rustix::process::{Pid, Signal};
use serde_json::Value;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

#[test]
fn up_down_up_keeps_everything() {
    let Some(mut m) = Mounted::new("up_down_up_keeps_everything", "256M") else {
        return;
    };
    let (ours, mirror) = (m.path("tree"), m.world().path("mirror"));
    fill(&mirror, 1, 150);
    std::os::unix::fs::symlink("d0/f1", mirror.join("link")).unwrap();
    std::fs::hard_link(mirror.join("d0/f1"), mirror.join("second name")).unwrap();
    super::support::shell(m.world(), r#"cp -a "$1" "$2""#, &[&mirror, &ours]).expect_success();
    for _ in 0..3 {
        m.remount();
        compare_trees(&mirror, &ours);
    }
    m.down();
    m.check();
    assert_eq!(
        std::fs::read_dir(m.point()).unwrap().count(),
        0,
        "nothing is left in the mount point"
    );
}

#[test]
fn the_foreground_ends_cleanly_on_signals() {
    let Some(world) = World::new("the_foreground_ends_cleanly_on_signals") else {
        return;
    };
    let (point, store) = (world.path("Teal"), world.store("s.teal", "64M"));
    for (round, signal) in [Signal::TERM, Signal::INT].into_iter().enumerate() {
        let args = [
            "up",
            point.to_str().unwrap(),
            "--store",
            store.to_str().unwrap(),
            "--foreground",
        ];
        let mut child = world
            .command(&args)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let status = || world.teal(&["status", point.to_str().unwrap(), "--json"]);
        let is_up = wait_until(PATIENCE, || status().code == 0);
        if is_up {
            std::fs::write(point.join(format!("round {round}")), "not synced").unwrap();
        }
        rustix::process::kill_process(Pid::from_child(&child), signal).unwrap();
        let mut code = None;
        let has_ended = wait_until(PATIENCE, || {
            code = child.try_wait().unwrap();
            code.is_some()
        });
        if !has_ended {
            child.kill().unwrap();
        }
        let said = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&said.stderr).into_owned();
        assert!(is_up && has_ended, "{signal:?}: {said}");
        assert_eq!(code.and_then(|c| c.code()), Some(0), "{signal:?}: {said}");
        assert!(
            !said.contains("redone"),
            "the round before ended cleanly: {said}"
        );
        assert_eq!(std::fs::read_dir(&point).unwrap().count(), 0, "unmounted");
        super::support::check(&world, &store);
    }
    let mut m = Mounted::of(world, "64M");
    m.down();
    let args = [
        "mount",
        store.to_str().unwrap(),
        m.point().to_str().unwrap(),
    ];
    m.world().teal(&args).expect_success();
    m.adopt();
    for round in 0..2 {
        assert_eq!(
            std::fs::read(m.path(format!("round {round}"))).unwrap(),
            b"not synced"
        );
    }
}

#[test]
fn a_killed_daemon_leaves_a_mount_point_that_the_next_up_repairs() {
    let Some(mut m) = Mounted::new(
        "a_killed_daemon_leaves_a_mount_point_that_the_next_up_repairs",
        "256M",
    ) else {
        return;
    };
    for round in 0..3 {
        let file = std::fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(m.path(format!("f{round}")))
            .unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, &super::support::seeded(round, 100_000), 0)
            .unwrap();
        file.sync_all().unwrap();
        // Open when the daemon dies: the mount stays busy.
        m.kill();
        assert_eq!(
            rustix::fs::statfs(m.point()).err(),
            Some(rustix::io::Errno::NOTCONN)
        );
        let said = m.up();
        assert!(said.contains("repaired"), "{said}");
        for n in 0..=round {
            assert!(
                std::fs::read(m.path(format!("f{n}"))).unwrap()
                    == super::support::seeded(n, 100_000),
                "f{n}"
            );
        }
    }
    m.kill();
    let said = m
        .world()
        .teal(&["down", m.point().to_str().unwrap()])
        .expect_success();
    assert!(said.contains("free again"), "{said}");
    assert_eq!(std::fs::read_dir(m.point()).unwrap().count(), 0);
    m.check();
}

#[test]
fn status_tells_programs_everything() {
    let Some(mut m) = Mounted::new("status_tells_programs_everything", "64M") else {
        return;
    };
    std::fs::write(m.path("f"), super::support::seeded(1, 1 << 20)).unwrap();
    std::fs::OpenOptions::new()
        .write(true)
        .open(m.path("f"))
        .unwrap()
        .sync_all()
        .unwrap();
    let s = m.status();
    assert_eq!(s["mount_point"], m.point().to_str().unwrap());
    assert_eq!(s["store"], m.store().to_str().unwrap());
    assert_eq!(s["label"], "Teal");
    assert_eq!(s["uuid"].as_str().unwrap().len(), 32);
    assert_eq!(
        (&s["read_only"], &s["failed"]),
        (&Value::Bool(false), &Value::Bool(false))
    );
    let number = |key: &str| s[key].as_u64().unwrap_or_else(|| panic!("{key} in {s}"));
    assert!(
        number("total_bytes") <= 64 << 20 && number("total_bytes") > 44 << 20,
        "{s}"
    );
    assert!(number("free_bytes") < number("total_bytes"));
    assert!(number("live_bytes") >= 1 << 20, "{s}");
    assert_eq!(number("objects"), 2, "the root and a file: {s}");
    assert_eq!(number("orphans"), 0);
    for (list, key) in [
        ("settings", "commit-seconds"),
        ("counters", "barriers"),
        ("requests", "write"),
    ] {
        let has = s[list]
            .as_array()
            .unwrap()
            .iter()
            .any(|pair| pair[0] == key && pair[1].is_u64());
        assert!(has, "{key} in {s}");
    }
    assert_eq!(s["uncommitted"], false);
    let people = m.world().teal(&["status"]).expect_success();
    assert!(
        people.contains(m.point().to_str().unwrap())
            && people.contains("everything is on the disk"),
        "{people}"
    );
    m.down();
    assert_eq!(
        m.world()
            .teal(&["status", "--json"])
            .expect_success()
            .trim(),
        "[]"
    );
    m.mount("ro");
    assert_eq!(m.status()["read_only"], true);
}

#[test]
fn a_setting_takes_effect_at_once_and_is_shown() {
    let Some(mut m) = Mounted::new("a_setting_takes_effect_at_once_and_is_shown", "64M") else {
        return;
    };
    m.hide_from_sync();
    m.set("checkpoint-seconds", "3600");
    m.set("commit-seconds", "3600");
    let shown = |m: &Mounted| {
        m.world()
            .teal(&["config", "ls", m.point().to_str().unwrap()])
            .expect_success()
    };
    assert!(
        shown(&m).lines().any(|line| line == "commit-seconds 3600"),
        "{}",
        shown(&m)
    );
    std::fs::write(m.path("f"), "x").unwrap();
    let_pass(Duration::from_secs(7));
    assert_eq!(
        m.status()["uncommitted"],
        true,
        "the default of 5 s does not hold any more"
    );
    m.set("commit-seconds", "1");
    assert!(
        shown(&m).lines().any(|line| line == "commit-seconds 1"),
        "{}",
        shown(&m)
    );
    assert!(
        wait_until(PATIENCE, || m.status()["uncommitted"] == false),
        "{}",
        m.status()
    );
}

#[test]
fn what_is_older_than_the_commit_interval_survives_a_killed_daemon() {
    let Some(mut m) = Mounted::new(
        "what_is_older_than_the_commit_interval_survives_a_killed_daemon",
        "64M",
    ) else {
        return;
    };
    m.set("commit-seconds", "2");
    std::fs::create_dir(m.path("d")).unwrap();
    std::fs::write(m.path("d/f"), super::support::seeded(3, 200_000)).unwrap();
    // The promise is about time, not about what the daemon says. A loaded machine takes some of it
    // for the commit itself.
    let_pass(Duration::from_secs(8));
    m.kill();
    m.up();
    assert!(std::fs::read(m.path("d/f")).unwrap() == super::support::seeded(3, 200_000));
}

fn io_counters(m: &Mounted) -> Vec<(String, u64)> {
    let status = m.status();
    let pairs = status["counters"].as_array().unwrap().iter();
    pairs
        .map(|p| (p[0].as_str().unwrap().to_owned(), p[1].as_u64().unwrap()))
        .collect()
}

#[test]
fn an_idle_mount_is_silent() {
    let Some(mut m) = Mounted::new("an_idle_mount_is_silent", "128M") else {
        return;
    };
    m.hide_from_sync();
    m.set("commit-seconds", "1");
    m.set("checkpoint-seconds", "1");
    fill(&m.path("t"), 5, 100);
    for n in 0..50 {
        std::fs::remove_dir_all(m.path(format!("t/d{n}"))).ok();
    }
    let mut last = io_counters(&m);
    // Quiet once: 3 s without a change, then it must stay so.
    let settled = wait_until(PATIENCE, || {
        let_pass(Duration::from_secs(3));
        let now = io_counters(&m);
        let is_same = now == last && m.status()["uncommitted"] == false;
        last = now;
        is_same
    });
    assert!(settled, "{last:?}");
    let_pass(Duration::from_secs(12));
    assert_eq!(io_counters(&m), last);
    std::fs::write(m.path("one more"), "x").unwrap();
    assert!(
        wait_until(PATIENCE, || io_counters(&m) != last),
        "the counters do move when something happens"
    );
}

#[test]
fn the_space_a_store_takes_is_what_is_in_it() {
    let Some(m) = Mounted::new("the_space_a_store_takes_is_what_is_in_it", "8G") else {
        return;
    };
    let taken = |path: &Path| std::fs::metadata(path).unwrap().blocks() * 512;
    assert!(
        taken(m.store()) < 128 << 20,
        "{} bytes for an empty store of 8 GiB",
        taken(m.store())
    );
}

#[test]
fn mount_8_and_fstab_work() {
    let test = "mount_8_and_fstab_work";
    let Some(world) = World::new(test) else {
        return;
    };
    let Some(private) = PrivateMounts::new(&world) else {
        return teal_testkit::skip_test(test, "mount namespaces cannot be made here");
    };
    let store = world.store("s.teal", "64M");
    std::fs::create_dir(world.path("point")).unwrap();
    // The daemon lives in the namespace, which ends with it.
    let script = r#"
        store="$1"; point=$PWD/point; teal="$2"
        trap 'umount -l "$point" 2> /dev/null || true' EXIT
        mount -t teal "$store" "$point" -o noatime,commit=2,syncfs
        echo content > "$point/f"
        grep -q " $point fuseblk.teal rw,.*noatime" /proc/self/mounts
        "$teal" config ls "$point" | grep -qx 'commit-seconds 2'
        mount -o remount,ro "$point"
        not touch "$point/g" 2> /dev/null
        mount -o remount,rw "$point"
        touch "$point/g"
        "$teal" down "$point"
        echo "$store $point teal ro,nofail,x-systemd.automount 0 0" > fstab
        mount --fstab fstab "$point"
        mount --fstab fstab --all
        test "$(cat "$point/f")" = content
        not touch "$point/h" 2> /dev/null
        "$teal" down "$point"
        not mount -t teal "$store" "$point" -o frobnicate 2> said
        grep -q 'frobnicate' said
        not mountpoint -q "$point"
    "#;
    private
        .with_mount_programs(script, &[&store, Path::new(env!("CARGO_BIN_EXE_teal"))])
        .expect_success();
    super::support::check(&world, &store);
}

#[test]
fn a_mount_by_a_user_serves_that_user() {
    let test = "a_mount_by_a_user_serves_that_user";
    if !is_user_able()
        || !Path::new("/dev/fuse").exists()
        || find_program("fusermount3", &[]).is_none()
    {
        return teal_testkit::skip_test(test, "needs root, setpriv, fusermount3 and /dev/fuse");
    }
    let world = World::open_to_all();
    let Some(private) = PrivateMounts::new(&world) else {
        return teal_testkit::skip_test(test, "mount namespaces cannot be made here");
    };
    // A /dev/fuse that all users may open, as on most machines, in a namespace of its own.
    let script = r#"
        cp "$1" teal; mknod -m 666 fuse c 10 229; mount --bind fuse /dev/fuse
        mkdir mine; chown 65534:65534 mine; cd mine
        export HOME=$PWD/home XDG_RUNTIME_DIR=$PWD/run XDG_STATE_HOME=$PWD/state XDG_DATA_HOME=$PWD/data
        user() { setpriv --reuid 65534 --regid 65534 --clear-groups "$@"; }
        user mkdir home run state data
        trap 'umount -l "$HOME/Teal" 2> /dev/null || true' EXIT
        user ../teal up --size 64M > said
        grep -q "$HOME/Teal is ready" said && grep -q 'try next' said
        user sh -c 'echo mine > ~/Teal/f; mkdir ~/Teal/d; ln ~/Teal/f ~/Teal/d/g'
        test "$(user stat -c %u:%g ~/Teal/f)" = 65534:65534
        not cat ~/Teal/f 2> /dev/null
        user ../teal status | grep -q "$HOME/Teal"
        pid=$(user ../teal status --json | sed -n 's/.*"pid": \([0-9]*\).*/\1/p')
        user sync ~/Teal/f
        kill -9 $pid
        user ../teal up | grep -q repaired
        test "$(user cat ~/Teal/d/g)" = mine
        user ../teal down
        not user cat ~/Teal/f 2> /dev/null
        user ../teal up > said
        not grep -q 'a new store' said
        test "$(user cat ~/Teal/f)" = mine
        user ../teal down
    "#;
    let script = script.replace('~', "\"$HOME\"");
    private
        .run(&script, &[Path::new(env!("CARGO_BIN_EXE_teal"))])
        .expect_success();
}

#[test]
fn the_space_a_new_store_takes_does_not_grow_with_what_it_may_hold() {
    let test = "the_space_a_new_store_takes_does_not_grow_with_what_it_may_hold";
    let Some(world) = World::new(test) else {
        return;
    };
    for (size, most) in [("100G", 80), ("1T", 160), ("10T", 1100)] {
        let store = world.store("s.teal", size);
        let taken = (std::fs::metadata(&store).unwrap().blocks() * 512) >> 20;
        assert!(taken < most, "{taken} MiB for an empty store of {size}");
        std::fs::remove_file(store).unwrap();
    }
}

#[test]
fn the_name_of_a_new_store_is_durable_when_mkfs_returns() {
    let test = "the_name_of_a_new_store_is_durable_when_mkfs_returns";
    let Some(world) = World::new(test) else {
        return;
    };
    if find_program("strace", &[]).is_none() {
        return teal_testkit::skip_test(test, "needs strace");
    }
    let script = r#"
        strace -f -y -e trace=?open,openat,fsync -o trace "$1" mkfs new.teal --size 64M
        grep -q "/new.teal\".*O_CREAT" trace
        grep -q "fsync([0-9]*<$(pwd -P)>) *= 0" trace
    "#;
    super::support::shell(&world, script, &[Path::new(env!("CARGO_BIN_EXE_teal"))])
        .expect_success();
}

#[test]
fn the_bare_directory_is_never_seen_while_a_killed_daemon_is_replaced() {
    let Some(mut m) = Mounted::new(
        "the_bare_directory_is_never_seen_while_a_killed_daemon_is_replaced",
        "64M",
    ) else {
        return;
    };
    std::fs::write(m.path("kept"), "content").unwrap();
    for round in 0..10 {
        m.set("commit-seconds", "1");
        assert!(wait_until(PATIENCE, || m.status()["uncommitted"] == false));
        m.kill();
        let is_over = std::sync::atomic::AtomicBool::new(false);
        let point = m.point().to_owned();
        std::thread::scope(|scope| {
            // A program that writes a new file whenever it can.
            scope.spawn(|| {
                let mut number = 0;
                while !is_over.load(std::sync::atomic::Ordering::Acquire) {
                    number += u32::from(
                        std::fs::write(point.join(format!("{round}-{number}")), "x").is_ok(),
                    );
                }
            });
            let said = m.world().teal(&[
                "up",
                point.to_str().unwrap(),
                "--store",
                m.store().to_str().unwrap(),
            ]);
            is_over.store(true, std::sync::atomic::Ordering::Release);
            assert!(
                said.code == 0 && said.to_string().contains("repaired"),
                "round {round}: {said}"
            );
        });
        m.adopt();
        assert_eq!(std::fs::read(m.path("kept")).unwrap(), b"content");
    }
    m.down();
    assert_eq!(
        std::fs::read_dir(m.point()).unwrap().count(),
        0,
        "nothing was written beneath the mount"
    );
    m.check();
}

#[test]
fn too_many_threads_are_refused_and_as_many_as_are_allowed_end() {
    let Some(mut m) = Mounted::new(
        "too_many_threads_are_refused_and_as_many_as_are_allowed_end",
        "64M",
    ) else {
        return;
    };
    m.down();
    for number in ["100000", "257", "0", "-1", "many"] {
        let option = format!("threads={number}");
        let said = m.world().teal(&[
            "mount",
            m.store().to_str().unwrap(),
            m.point().to_str().unwrap(),
            "-o",
            &option,
        ]);
        let line = said.expect_refusal();
        assert!(
            line.contains(&option) && line.contains("from 1 to 256"),
            "{line}"
        );
    }
    for number in [1, 256] {
        m.mount(&format!("threads={number}"));
        std::fs::write(m.path("f"), "content").unwrap();
        m.down();
    }
    m.check();
}

#[test]
fn a_copy_of_the_mount_in_another_namespace_does_not_keep_it_from_ending() {
    let test = "a_copy_of_the_mount_in_another_namespace_does_not_keep_it_from_ending";
    let Some(mut m) = Mounted::new(test, "64M") else {
        return;
    };
    if PrivateMounts::new(m.world()).is_none() {
        return teal_testkit::skip_test(test, "mount namespaces cannot be made here");
    }
    for is_signal in [false, true] {
        let mut holder = std::process::Command::new("unshare");
        let script = "test -d \"$0\"; echo ready; cat > /dev/null";
        let script = [
            "--mount",
            "--propagation",
            "private",
            "sh",
            "-e",
            "-c",
            script,
            m.point().to_str().unwrap(),
        ];
        let mut holder = holder
            .args(script)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = String::new();
        std::io::BufRead::read_line(
            &mut std::io::BufReader::new(holder.stdout.take().unwrap()),
            &mut said,
        )
        .unwrap();
        assert_eq!(said, "ready\n");
        let content = super::support::seeded(u64::from(is_signal), 300_000);
        std::fs::write(m.path("f"), &content).unwrap();
        if is_signal {
            rustix::process::kill_process(Pid::from_raw(m.pid()).unwrap(), Signal::TERM).unwrap();
            m.ended();
        } else {
            m.down();
        }
        m.check();
        m.up();
        assert!(std::fs::read(m.path("f")).unwrap() == content);
        drop(holder.stdin.take());
        holder.wait().unwrap();
    }
    m.down();
}

/// The files of the rounds so far are there.
#[track_caller]
fn has_rounds(m: &Mounted, rounds: u8) {
    for round in 0..rounds {
        let found = std::fs::read(m.path(format!("f{round}"))).unwrap();
        assert!(
            found == super::support::seeded(round.into(), 3 << 20),
            "f{round}"
        );
    }
}

/// Takes a mount away with umount(8). A program that another test begins just now has all of this
/// one's files open for a moment.
const UMOUNT: &str =
    r#"n=0; until umount "$1"; do n=$((n + 1)); test $n -lt 100; sleep 0.1; done; "#;

/// Unmounts with umount(8) and mounts at once, again and again, with much that is not on the disk.
fn is_mounted_again_at_once(test: &str, options: &str) {
    let Some(mut m) = Mounted::new(test, "256M") else {
        return;
    };
    m.down();
    m.mount(options);
    for round in 0..8 {
        let content = super::support::seeded(round.into(), 3 << 20);
        std::fs::write(m.path(format!("f{round}")), content).unwrap();
        let script = format!(r#"{UMOUNT} "$2" mount "$3" "$1" -o "$4""#);
        let program = Path::new(super::support::TEAL);
        let args = [m.point(), program, m.store(), Path::new(options)];
        super::support::shell(m.world(), &script, &args).expect_success();
        m.look();
        has_rounds(&m, round + 1);
    }
    m.down();
    m.check();
}

#[test]
fn umount_and_mount_at_once_works_on_a_device_mount() {
    is_mounted_again_at_once("umount_and_mount_at_once_works_on_a_device_mount", "syncfs");
}

#[test]
fn umount_and_mount_at_once_works_where_umount_does_not_wait() {
    is_mounted_again_at_once(
        "umount_and_mount_at_once_works_where_umount_does_not_wait",
        "nosyncfs",
    );
}

#[test]
fn umount_of_a_device_mount_returns_when_the_store_is_free() {
    let test = "umount_of_a_device_mount_returns_when_the_store_is_free";
    let Some(mut m) = Mounted::new(test, "128M") else {
        return;
    };
    if m.status()["syncfs"] != true {
        return teal_testkit::skip_test(test, "no mount on a loop device");
    }
    for round in 0..4 {
        std::fs::write(
            m.path(format!("f{round}")),
            super::support::seeded(round, 3 << 20),
        )
        .unwrap();
        let script = format!(r#"{UMOUNT} flock --exclusive --nonblock "$2" true"#);
        super::support::shell(m.world(), &script, &[m.point(), m.store()]).expect_success();
        m.ended();
        m.check();
        m.up();
    }
    m.down();
}
