//! Values that cannot be: what was given, what is accepted, with an example.

use super::{says, str};
use crate::support::{Mounted, World, run_program};

#[test]
fn every_size_and_time_that_is_none_is_answered_with_what_is_one() {
    let world = World::without_mounts();
    let new = world.path("new");
    for size in ["1.5G", "3X", "big", "", "-1"] {
        let commands: [&[&str]; 5] = [
            &["mkfs", str(&new)],
            &["up", str(&new)],
            &["serve", str(&new)],
            &["join", "host", str(&new), "--token", "a.b"],
            &["device", "add", str(&new)],
        ];
        for command in commands {
            let given = format!("--size={size}");
            let said = world.teal(&[command, &[&given]].concat());
            assert_eq!(said.code, 2, "{said}");
            for words in [
                &format!("'{size}' is no size"),
                "whole number",
                "20G",
                "--size",
            ] {
                assert!(said.stderr.contains(words), "{words}: {said}");
            }
        }
    }
    let said = world.teal(&["mkfs", str(&new), "--size", "99999999T"]);
    assert!(
        said.stderr.contains("99999999T is too large") && said.stderr.contains("16777215T"),
        "{said}"
    );
    says(
        world.teal(&["mkfs", str(&new), "--size", "20"]),
        &["20 bytes", "16 MiB", "20G"],
    );
    for time in ["1.5h", "10w", ""] {
        let given = format!("--for={time}");
        let said = world.teal(&["lab", "record", str(&new), "--out", "t", &given]);
        assert!(
            said.stderr.contains(&format!("'{time}' is no time")) && said.stderr.contains("10m"),
            "{said}"
        );
    }
    assert!(!new.exists());
}

#[test]
fn mount_options_that_mean_nothing_are_refused_with_their_range() {
    let test = "mount_options_that_mean_nothing_are_refused_with_their_range";
    let Some(mut m) = Mounted::new(test, "32M") else {
        return;
    };
    m.down();
    let before = crate::support::digest(m.store());
    for (option, words) in [
        ("commit=0", &["from 1 to 3600", "commit=30"][..]),
        ("commit=3601", &["3600"]),
        ("commit=1.5", &["whole number of seconds"]),
        ("commit", &["from 1 to 3600"]),
        ("checkpoint=0", &["from 1 to 86400"]),
        (
            "checkpoint_bytes=1",
            &["1.0 MiB", "4.0 GiB", "checkpoint_bytes=64M"],
        ),
        ("checkpoint_bytes=2.5M", &["'2.5M' is no size", "20G"]),
        ("queue=1", &["1.0 MiB", "queue=64M"]),
        ("queue=4M", &["no server", "teal serve"]),
        ("flush=0", &["from 1 to 86400"]),
        ("flush=5", &["no server"]),
        ("sync=remote", &["no server", "teal serve"]),
        ("sync=maybe", &["sync=local|remote"]),
        ("uring=maybe", &["uring=auto|on|off"]),
        ("ro=1", &["takes no value"]),
        ("noatime=yes", &["takes no value"]),
        ("suid=1", &["takes no value"]),
        ("dev=yes", &["takes no value"]),
        ("threads=0", &["whole number", "threads=4"]),
        ("threads=many", &["whole number"]),
    ] {
        let key = option.split('=').next().unwrap();
        let line = says(
            m.world()
                .teal(&["mount", str(m.store()), str(m.point()), "-o", option]),
            words,
        );
        assert!(line.contains(key), "{line}");
        assert!(!line.contains("non-zero type"), "{line}");
    }
    assert_eq!(crate::support::digest(m.store()), before);
    // The last one holds, as with mount(8).
    m.mount("ro,rw");
    std::fs::write(m.path("f"), "written").unwrap();
    m.down();
    m.mount("rw,ro");
    assert_eq!(m.status()["read_only"], true);
    m.down();
    m.check();
}

#[test]
fn settings_that_cannot_be_are_answered_with_what_can() {
    let Some(mut m) = Mounted::new("settings_that_cannot_be_are_answered_with_what_can", "32M")
    else {
        return;
    };
    for (key, value, words) in [
        (
            "commit-seconds",
            "soon",
            &["'soon'", "commit-seconds", "whole number"][..],
        ),
        ("commit-seconds", "1K", &["'1K'", "whole number"]),
        ("commit-seconds", "0", &["between 1 and 3600", "not 0"]),
        (
            "checkpoint-bytes",
            "1.5G",
            &["checkpoint-bytes", "'1.5G' is no size", "20G"],
        ),
        ("priority", "2", &["'2' is no priority", "from 0", "0.5"]),
    ] {
        says(
            m.world()
                .teal(&["config", "set", key, value, str(m.point())]),
            words,
        );
    }
    m.down();
}

#[test]
fn without_a_home_the_way_out_is_named() {
    let world = World::without_mounts();
    let teal = |args: &[&str]| {
        run_program(
            world
                .command(args)
                .env_remove("HOME")
                .env_remove("XDG_DATA_HOME"),
        )
    };
    says(
        teal(&["down"]),
        &["HOME is not set", "name the mount point"],
    );
    let new = world.path("new");
    says(
        teal(&["up", str(&new), "--size", "32M"]),
        &["HOME is not set", "--store", "XDG_DATA_HOME"],
    );
    assert!(!new.exists());
}

#[test]
fn what_is_no_store_is_said_to_be_none() {
    let world = World::without_mounts();
    let empty = world.path("empty");
    std::fs::write(&empty, "").unwrap();
    for args in [
        &["check", str(&empty)][..],
        &["dump", str(&empty), "superblock"],
        &["dump", str(&empty), "object:1"],
    ] {
        let line = says(
            world.teal(args),
            &[str(&empty), "not a TealFS store", "0 bytes", "teal mkfs"],
        );
        assert!(!line.contains("damaged"), "{line}");
    }
    let store = world.store("s.teal", "16M");
    says(
        world.teal(&["dump", str(&store), "segment:99999"]),
        &[str(&store), "no segment 99999"],
    );
    says(
        world.teal(&["dump", str(&store), "object:x"]),
        &["object:x", "whole number"],
    );
    says(
        world.teal(&["check", "/proc/nothing"]),
        &["cannot open /proc/nothing", "os error 2"],
    );
    says(
        world.teal(&["check", str(&world.path("home"))]),
        &["neither a regular file nor a block device"],
    );
}
