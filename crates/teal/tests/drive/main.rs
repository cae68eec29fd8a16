//! Drives between real machines: written at work, carried home, read there; forgotten, changed
//! elsewhere, pulled out, damaged, refused.

#![allow(clippy::unwrap_used, reason = "a test whose ground gives way fails")]

mod copied;
mod full;
mod hung;
mod leaving;
mod marked;
mod removable;
mod slow;
#[path = "../support/support.rs"]
mod support;
mod words;

use serde_json::Value;
use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use support::{
    Cable, Mounted, Nas, PATIENCE, TestMount, World, apart_in, check, end, seeded, wait_until,
};

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// `teal device …` of a mount.
#[track_caller]
fn device(m: &Mounted, args: &[&str]) -> String {
    m.world()
        .teal(&[&["device"], args, &[text(m.point())]].concat())
        .expect_success()
}

/// The one line with which it is refused.
#[track_caller]
fn refused(m: &Mounted, args: &[&str], words: &[&str]) {
    let line = m
        .world()
        .teal(&[&["device"], args, &[text(m.point())]].concat())
        .expect_refusal();
    words
        .iter()
        .for_each(|word| assert!(line.contains(word), "{word:?} is not in: {line}"));
}

/// Returns what `teal device ls` knows of a drive.
#[track_caller]
fn shown(m: &Mounted, name: &str) -> Value {
    let all: Value = serde_json::from_str(&device(m, &["ls", "--json"])).unwrap();
    all.as_array()
        .unwrap()
        .iter()
        .find(|line| line["name"] == name)
        .cloned()
        .unwrap_or_default()
}

fn count(of: &Value, name: &str) -> u64 {
    of.as_array()
        .unwrap()
        .iter()
        .find(|pair| pair[0] == name)
        .unwrap()[1]
        .as_u64()
        .unwrap()
}

/// Requests for content that the server has answered.
fn asked(nas: &Nas) -> u64 {
    count(&nas.0.status()["upstream"]["server_counts"], "request_read")
}

/// Bytes of content that the server has sent.
fn sent(nas: &Nas) -> u64 {
    count(&nas.0.status()["upstream"]["server_counts"], "sent_bytes")
}

/// Work, where the server is, and home, far away from it: machines in network namespaces of their
/// own, with a cable between them; a drive at work.
fn work_and_home(test: &str) -> Option<(Cable, Nas, Mounted, PathBuf)> {
    let worlds = [World::new(test)?, World::new(test)?];
    let (cable, nas, mut home) = apart_in(test, worlds, |_| {})?;
    home.down();
    home.mount("flush=1,delay_ms=40");
    let drive = nas.0.world().path("usb.drive");
    device(
        &nas.0,
        &["add", text(&drive), "--size", "64M", "--portable"],
    );
    Some((cable, nas, home, drive))
}

/// Takes the drive from work to home.
fn carried(nas: &Nas, home: &Mounted, drive: &Path) -> PathBuf {
    device(&nas.0, &["detach", "usb"]);
    let there = home.world().path("usb.drive");
    fs::rename(drive, &there).unwrap();
    device(home, &["attach", text(&there)]);
    there
}

/// Waits until a mount has come as far as the server's own.
fn catches_up(nas: &Nas, home: &Mounted) {
    let seen = |m: &Mounted| m.status()["upstream"]["seen"].clone();
    assert!(
        wait_until(PATIENCE, || seen(home) == seen(&nas.0)),
        "{}",
        home.status()
    );
}

#[test]
fn what_was_written_at_work_is_read_at_home_from_the_drive() {
    let test = "what_was_written_at_work_is_read_at_home_from_the_drive";
    let Some((_cable, nas, home, drive)) = work_and_home(test) else {
        return;
    };
    let large = seeded(1, 3_000_000);
    fs::create_dir(nas.0.path("papers")).unwrap();
    fs::write(nas.0.path("papers/large"), &large).unwrap();
    (0..20)
        .for_each(|n| fs::write(nas.0.path(format!("papers/small{n}")), seeded(n, 5000)).unwrap());
    // Nothing of it is on the drive before the server has it.
    assert_eq!(shown(&nas.0, "usb")["objects"], 0);
    nas.flush();
    let there = carried(&nas, &home, &drive);
    catches_up(&nas, &home);
    let before = asked(&nas);
    assert_eq!(fs::read(home.path("papers/large")).unwrap(), large);
    for n in 0..20 {
        assert_eq!(
            fs::read(home.path(format!("papers/small{n}"))).unwrap(),
            seeded(n, 5000)
        );
    }
    assert_eq!(
        asked(&nas),
        before,
        "no content came from the server: {}",
        shown(&home, "usb")
    );
    let usb = shown(&home, "usb");
    assert!(count(&usb["counts"], "read_bytes") >= 3_100_000, "{usb}");
    let said = home
        .world()
        .teal(&["where", text(&home.path("papers/large"))])
        .expect_success();
    assert!(
        said.contains("home log") && said.contains("usb") && said.contains("server"),
        "{said}"
    );
    // The way back: what is written at home is on it, too.
    fs::write(home.path("papers/answer"), "written at home").unwrap();
    support::flush(&home);
    device(&home, &["detach", "usb"]);
    fs::rename(&there, &drive).unwrap();
    assert!(
        wait_until(PATIENCE, || shown(&nas.0, "usb")["objects"] == 22),
        "attached by itself: {}",
        shown(&nas.0, "usb")
    );
    device(&nas.0, &["detach", "usb"]);
    check(nas.0.world(), &drive);
    end(vec![home, nas.0]);
}

#[test]
fn a_drive_is_found_wherever_it_is_mounted() {
    let test = "a_drive_is_found_wherever_it_is_mounted";
    let Some(mut nas) = Nas::of(test, |_| {}) else {
        return;
    };
    nas.serve();
    let (stick, media) = (nas.0.world().path("stick"), nas.0.world().path("my media"));
    [&stick, &media]
        .iter()
        .for_each(|dir| fs::create_dir(dir).unwrap());
    let drive = stick.join("usb.drive");
    device(&nas.0, &["add", text(&drive), "--size", "64M"]);
    device(&nas.0, &["detach", "usb"]);
    fs::write(stick.join("other"), vec![0; 20 << 20]).unwrap();
    rustix::mount::mount_bind(&stick, &media).unwrap();
    let bound = TestMount(media.clone());
    let there = media.join("usb.drive");
    assert!(
        wait_until(PATIENCE, || shown(&nas.0, "usb")["place"] == text(&there)),
        "{}",
        shown(&nas.0, "usb")
    );
    device(&nas.0, &["detach", "usb"]);
    drop(bound);
    end(vec![nas.0]);
}

#[test]
fn a_drive_that_somebody_detached_stays_so_over_a_remount_until_it_was_away() {
    let test = "a_drive_that_somebody_detached_stays_so_over_a_remount_until_it_was_away";
    let Some(mut nas) = Nas::of(test, |_| {}) else {
        return;
    };
    nas.serve();
    // Places are looked at in the order of their names: when the last is attached, all others have
    // been seen.
    let [first, last] = ["a.drive", "z.drive"].map(|name| nas.0.world().path(name));
    [&first, &last]
        .iter()
        .for_each(|drive| drop(device(&nas.0, &["add", text(drive), "--size", "32M"])));
    device(&nas.0, &["detach", "a"]);
    let is_there = |nas: &Nas, name: &str| shown(&nas.0, name)["place"].is_string();
    for _ in 0..2 {
        nas.0.down();
        nas.serve();
        assert!(
            wait_until(PATIENCE, || is_there(&nas, "z")),
            "{}",
            shown(&nas.0, "z")
        );
        assert!(
            !is_there(&nas, "a"),
            "detached by somebody: {}",
            shown(&nas.0, "a")
        );
    }
    // Another file of the same content, as if the drive had been away unnoticed.
    nas.0.down();
    let away = nas.0.world().path("away");
    fs::copy(&first, &away).unwrap();
    fs::rename(&away, &first).unwrap();
    nas.serve();
    assert!(
        wait_until(PATIENCE, || is_there(&nas, "a")),
        "{}",
        shown(&nas.0, "a")
    );
    // A drive that a person attaches stays attached across a remount.
    device(&nas.0, &["detach", "a"]);
    device(&nas.0, &["attach", text(&first)]);
    nas.0.down();
    nas.serve();
    assert!(
        wait_until(PATIENCE, || is_there(&nas, "a")),
        "{}",
        shown(&nas.0, "a")
    );
    end(vec![nas.0]);
}

#[test]
fn a_drive_that_was_here_is_read_while_the_server_is_away_and_one_that_was_elsewhere_is_not() {
    let test =
        "a_drive_that_was_here_is_read_while_the_server_is_away_and_one_that_was_elsewhere_is_not";
    let Some((_cable, mut nas, mut home, drive)) = work_and_home(test) else {
        return;
    };
    fs::write(nas.0.path("talk"), seeded(1, 300_000)).unwrap();
    fs::write(nas.0.path("draft"), seeded(2, 200_000)).unwrap();
    nas.flush();
    let there = carried(&nas, &home, &drive);
    catches_up(&nas, &home);
    assert_eq!(fs::metadata(home.path("talk")).unwrap().len(), 300_000);
    assert!(wait_until(PATIENCE, || shown(&home, "usb")["objects"] == 2));
    device(&home, &["detach", "usb"]);
    let pulled = home.world().path("pulled");
    fs::rename(&there, &pulled).unwrap();
    nas.0.down();
    let away = fs::read(home.path("talk")).unwrap_err();
    assert_eq!(
        away.raw_os_error(),
        Some(rustix::io::Errno::HOSTUNREACH.raw_os_error())
    );
    device(&home, &["attach", text(&pulled)]);
    assert_eq!(fs::read(home.path("talk")).unwrap(), seeded(1, 300_000));
    let place = home
        .world()
        .teal(&["where", text(&home.path("draft"))])
        .expect_success();
    assert!(
        place.contains("out of reach") && place.contains("read next"),
        "{place}"
    );
    // When the server is there again, it hears of it, and the drive goes on.
    nas.serve();
    assert!(
        wait_until(PATIENCE, || shown(&home, "usb")["attached_to"].is_string()),
        "{}",
        shown(&home, "usb")
    );
    fs::write(nas.0.path("draft"), seeded(3, 200_000)).unwrap();
    nas.flush();
    assert!(wait_until(PATIENCE, || fs::read(home.path("draft"))
        .is_ok_and(|draft| draft == seeded(3, 200_000))));
    // The drive was at work meanwhile, and has come to a commit that this machine has not reached.
    device(&home, &["detach", "usb"]);
    device(&nas.0, &["attach", text(&pulled)]);
    home.down();
    fs::write(nas.0.path("draft"), seeded(4, 100_000)).unwrap();
    nas.flush();
    device(&nas.0, &["detach", "usb"]);
    nas.0.down();
    home.mount("flush=1");
    refused(
        &home,
        &["attach", text(&pulled)],
        &["used elsewhere", "server"],
    );
    home.down();
}

#[test]
fn what_the_drive_has_does_not_come_from_the_server_with_what_it_has_not() {
    let test = "what_the_drive_has_does_not_come_from_the_server_with_what_it_has_not";
    let Some((_cable, nas, home, drive)) = work_and_home(test) else {
        return;
    };
    fs::create_dir(nas.0.path("notes")).unwrap();
    (0..60).for_each(|n| fs::write(nas.0.path(format!("notes/n{n}")), seeded(n, 3000)).unwrap());
    nas.flush();
    carried(&nas, &home, &drive);
    fs::write(nas.0.path("notes/new"), seeded(99, 3000)).unwrap();
    nas.flush();
    catches_up(&nas, &home);
    let before = (asked(&nas), sent(&nas));
    assert_eq!(fs::read(home.path("notes/new")).unwrap(), seeded(99, 3000));
    let after = (asked(&nas), sent(&nas));
    assert_eq!(after.0, before.0 + 1);
    assert!(
        after.1 - before.1 < 6000,
        "{} bytes came with 3000: {}",
        after.1 - before.1,
        shown(&home, "usb")
    );
    for n in 0..60 {
        assert_eq!(
            fs::read(home.path(format!("notes/n{n}"))).unwrap(),
            seeded(n, 3000)
        );
    }
    assert_eq!(
        asked(&nas),
        after.0,
        "no content request to the server: {}",
        shown(&home, "usb")
    );
    end(vec![home, nas.0]);
}

#[test]
fn a_drive_that_was_forgotten_is_not_missed_and_one_that_is_behind_is_not_believed() {
    let test = "a_drive_that_was_forgotten_is_not_missed_and_one_that_is_behind_is_not_believed";
    let Some((_cable, nas, home, drive)) = work_and_home(test) else {
        return;
    };
    (0..3).for_each(|n| fs::write(nas.0.path(format!("f{n}")), seeded(n, 200_000)).unwrap());
    nas.flush();
    device(&nas.0, &["detach", "usb"]);
    catches_up(&nas, &home);
    // Forgotten.
    let before = asked(&nas);
    assert_eq!(fs::read(home.path("f0")).unwrap(), seeded(0, 200_000));
    assert!(asked(&nas) > before);
    // Changed meanwhile, as a whole and in part.
    fs::write(nas.0.path("f1"), seeded(11, 150_000)).unwrap();
    let file = fs::OpenOptions::new()
        .write(true)
        .open(nas.0.path("f2"))
        .unwrap();
    file.write_all_at(b"changed", 100_000).unwrap();
    drop(file);
    let mut f2 = seeded(2, 200_000);
    f2[100_000..100_007].copy_from_slice(b"changed");
    nas.flush();
    let there = home.world().path("usb.drive");
    fs::rename(&drive, &there).unwrap();
    device(&home, &["attach", text(&there)]);
    catches_up(&nas, &home);
    assert_eq!(fs::read(home.path("f1")).unwrap(), seeded(11, 150_000));
    assert_eq!(fs::read(home.path("f2")).unwrap(), f2);
    device(&home, &["detach", "usb"]);
    check(home.world(), &there);
    end(vec![home, nas.0]);
}

#[test]
fn what_is_on_the_drive_is_read_while_the_server_is_away() {
    let test = "what_is_on_the_drive_is_read_while_the_server_is_away";
    let Some((_cable, mut nas, mut home, drive)) = work_and_home(test) else {
        return;
    };
    fs::write(nas.0.path("here"), seeded(1, 300_000)).unwrap();
    nas.flush();
    carried(&nas, &home, &drive);
    fs::write(nas.0.path("there"), seeded(2, 300_000)).unwrap();
    nas.flush();
    catches_up(&nas, &home);
    assert_eq!(fs::metadata(home.path("there")).unwrap().len(), 300_000);
    nas.0.kill();
    let away = fs::read(home.path("there")).unwrap_err();
    assert_eq!(
        away.raw_os_error(),
        Some(rustix::io::Errno::HOSTUNREACH.raw_os_error())
    );
    assert_eq!(fs::read(home.path("here")).unwrap(), seeded(1, 300_000));
    home.down();
    home.check();
}

#[test]
fn a_drive_that_is_pulled_out_blocks_nothing_and_loses_nothing() {
    let test = "a_drive_that_is_pulled_out_blocks_nothing_and_loses_nothing";
    let Some((_cable, nas, home, drive)) = work_and_home(test) else {
        return;
    };
    (0..6).for_each(|n| fs::write(nas.0.path(format!("f{n}")), seeded(n, 300_000)).unwrap());
    nas.flush();
    let there = carried(&nas, &home, &drive);
    catches_up(&nas, &home);
    assert_eq!(fs::read(home.path("f0")).unwrap(), seeded(0, 300_000));
    // Files that are read from now on are not here any more.
    fs::OpenOptions::new()
        .write(true)
        .open(&there)
        .unwrap()
        .set_len(0)
        .unwrap();
    for n in 1..6 {
        assert_eq!(
            fs::read(home.path(format!("f{n}"))).unwrap(),
            seeded(n, 300_000)
        );
    }
    assert!(
        shown(&home, "usb")["place"].is_null(),
        "{}",
        shown(&home, "usb")
    );
    fs::write(home.path("new"), "written without it").unwrap();
    support::flush(&home);
    nas.flush();
    assert!(wait_until(PATIENCE, || fs::read(nas.0.path("new"))
        .is_ok_and(|new| new == b"written without it")));
    end(vec![home, nas.0]);
}

#[test]
fn damaged_blocks_of_a_drive_are_read_elsewhere_and_repaired() {
    let test = "damaged_blocks_of_a_drive_are_read_elsewhere_and_repaired";
    let Some((_cable, nas, home, drive)) = work_and_home(test) else {
        return;
    };
    let large = seeded(5, 900_000);
    fs::write(nas.0.path("large"), &large).unwrap();
    nas.flush();
    device(&nas.0, &["detach", "usb"]);
    let image = fs::read(&drive).unwrap();
    let block = &large[409_600..409_632];
    let at = image
        .windows(block.len())
        .position(|bytes| bytes == block)
        .unwrap();
    let file = fs::OpenOptions::new().write(true).open(&drive).unwrap();
    file.write_all_at(&[image[at] ^ 4], at as u64).unwrap();
    let there = home.world().path("usb.drive");
    fs::rename(&drive, &there).unwrap();
    device(&home, &["attach", text(&there)]);
    catches_up(&nas, &home);
    assert_eq!(fs::read(home.path("large")).unwrap(), large);
    let usb = shown(&home, "usb");
    assert!(
        count(&usb["counts"], "spoiled") > 0 && count(&usb["counts"], "read_bytes") > 0,
        "{usb}"
    );
    // Detaching copies what it lacks.
    device(&home, &["detach", "usb"]);
    check(home.world(), &there);
    let repaired = fs::read(&there).unwrap();
    assert!(repaired.windows(block.len()).any(|bytes| bytes == block));
    end(vec![home, nas.0]);
}

#[test]
fn what_has_affinity_stays_on_the_drive_follows_saves_and_comes_again_when_it_has_changed_elsewhere()
 {
    let test = "what_has_affinity_stays_on_the_drive_follows_saves_and_comes_again_when_it_has_changed_elsewhere";
    let Some((_cable, nas, home, drive)) = work_and_home(test) else {
        return;
    };
    fs::create_dir_all(nas.0.path("talk/slides")).unwrap();
    fs::write(nas.0.path("talk/notes"), seeded(1, 100_000)).unwrap();
    fs::write(nas.0.path("talk/slides/one"), seeded(2, 50_000)).unwrap();
    nas.flush();
    let there = carried(&nas, &home, &drive);
    catches_up(&nas, &home);
    let affinity = |args: &[&str]| home.world().teal(&[&["affinity"], args].concat());
    let said = affinity(&["add", text(&home.path("talk")), "usb", "--sticky"]).expect_success();
    assert!(said.starts_with("2 files"), "{said}");
    for (args, word) in [
        (["add", text(&home.path("talk")), "other"], "other"),
        (
            ["add", text(&home.world().path("usb.drive")), "usb"],
            "not on a mount",
        ),
    ] {
        assert!(affinity(&args).expect_refusal().contains(word));
    }
    // An atomic save here, a new file, and one changed elsewhere that is not read here.
    fs::write(home.path("talk/.notes.new"), seeded(3, 90_000)).unwrap();
    fs::rename(home.path("talk/.notes.new"), home.path("talk/notes")).unwrap();
    fs::create_dir(home.path("talk/more")).unwrap();
    fs::write(home.path("talk/more/two"), seeded(4, 40_000)).unwrap();
    support::flush(&home);
    fs::write(nas.0.path("talk/slides/one"), seeded(5, 60_000)).unwrap();
    nas.flush();
    catches_up(&nas, &home);
    device(&home, &["detach", "usb"]);
    device(&home, &["attach", text(&there)]);
    let listed = affinity(&["ls", "usb", text(home.point())]).expect_success();
    for (path, size) in [
        ("/talk/notes", "87.9 KiB"),
        ("/talk/more/two", "39.1 KiB"),
        ("/talk/slides/one", "58.6 KiB"),
    ] {
        assert!(
            listed
                .lines()
                .any(|line| line.contains(path) && line.contains(size)),
            "{path} in {listed}"
        );
    }
    // More than fits.
    let large = home.path("large");
    fs::File::create_new(&large)
        .unwrap()
        .set_len(60 << 20)
        .unwrap();
    assert!(
        affinity(&["add", text(&large), "usb"])
            .expect_refusal()
            .contains("too small")
    );
    affinity(&["rm", text(&home.path("talk")), "usb"]).expect_success();
    assert_eq!(
        affinity(&["ls", "usb", text(home.point())]).expect_success(),
        ""
    );
    device(&home, &["detach", "usb"]);
    check(home.world(), &there);
    end(vec![home, nas.0]);
}

#[test]
fn what_is_no_drive_of_this_volume_is_refused_in_one_line() {
    let test = "what_is_no_drive_of_this_volume_is_refused_in_one_line";
    let Some((_cable, nas, home, drive)) = work_and_home(test) else {
        return;
    };
    let world = nas.0.world();
    refused(
        &nas.0,
        &["add", text(&world.path("small")), "--size", "1M"],
        &["16 MiB"],
    );
    refused(
        &nas.0,
        &[
            "add",
            text(&world.path("usb2")),
            "--size",
            "20M",
            "--name",
            "usb",
        ],
        &["usb", "--name"],
    );
    refused(&nas.0, &["add", text(&drive)], &["in use"]);
    refused(
        &nas.0,
        &[
            "add",
            text(&world.path("x")),
            "--size",
            "20M",
            "--profile",
            "ibm",
        ],
        &["ibm-microdrive"],
    );
    for left in ["small", "usb2", "x"] {
        assert!(!world.path(left).exists(), "{left}");
    }
    refused(
        &nas.0,
        &["attach", text(&world.path("nowhere"))],
        &["nowhere"],
    );
    assert!(device(&nas.0, &["attach", text(&drive)]).contains("usb is attached already"));
    refused(&nas.0, &["detach", "other"], &["other", "teal device ls"]);
    refused(&nas.0, &["rm", "other"], &["other"]);
    let store = world.store("store", "32M");
    refused(&nas.0, &["attach", text(&store)], &["not a drive"]);
    fs::write(world.path("text"), vec![7; 1 << 20]).unwrap();
    refused(&nas.0, &["attach", text(&world.path("text"))], &["text"]);
    // A copy, while the other is attached elsewhere, or here.
    fs::write(nas.0.path("f"), seeded(1, 10_000)).unwrap();
    nas.flush();
    device(&nas.0, &["detach", "usb"]);
    let copy = home.world().path("copy.drive");
    fs::copy(&drive, &copy).unwrap();
    refused(&nas.0, &["add", text(&copy), "--name", "new"], &["TealFS"]);
    device(&nas.0, &["attach", text(&drive)]);
    refused(&home, &["attach", text(&copy)], &["usb", "copy"]);
    let beside = world.path("beside.drive");
    fs::copy(&copy, &beside).unwrap();
    refused(&nas.0, &["attach", text(&beside)], &["usb", "copy"]);
    // This drive belongs to another server.
    if let Some(other) = Nas::of(test, |_| {}) {
        refused(&other.0, &["attach", text(&copy)], &["volume"]);
        end(vec![other.0]);
    }
    // The drive is not mounted, and one that was removed belongs to no volume.
    let point = world.path("point");
    let said = world
        .teal(&["up", text(&point), "--store", text(&copy)])
        .expect_refusal();
    assert!(said.contains("teal device attach"), "{said}");
    device(&nas.0, &["rm", "usb"]);
    refused(&nas.0, &["attach", text(&drive)], &["no drive"]);
    end(vec![home, nas.0]);
}

#[test]
fn a_volume_without_a_server_has_no_drives() {
    let test = "a_volume_without_a_server_has_no_drives";
    let Some(mut alone) = Mounted::new(test, "64M") else {
        return;
    };
    let drive = alone.world().path("usb");
    refused(
        &alone,
        &["add", text(&drive), "--size", "32M"],
        &["teal serve"],
    );
    assert!(!drive.exists());
    refused(&alone, &["ls"], &["teal serve"]);
    alone.down();
}

#[test]
fn the_priority_is_a_number_from_joules_to_speed() {
    let test = "the_priority_is_a_number_from_joules_to_speed";
    let Some(nas) = Nas::of(test, |_| {}) else {
        return;
    };
    let config = |args: &[&str]| {
        nas.0
            .world()
            .teal(&[&["config"], args, &[text(nas.0.point())]].concat())
    };
    assert!(config(&["ls"]).expect_success().contains("priority 0.5"));
    config(&["set", "priority", "0.9"]).expect_success();
    assert!(config(&["ls"]).expect_success().contains("priority 0.9"));
    for bad in ["2", "NaN", "fast"] {
        assert!(
            config(&["set", "priority", bad])
                .expect_refusal()
                .contains("speed"),
            "{bad}"
        );
    }
    end(vec![nas.0]);
}
