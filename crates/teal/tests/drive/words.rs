//! The words about drives: paths that are not what they seem, files that are no drives, and the
//! fate of one.

use crate::support::{
    Mounted, Nas, PATIENCE, ProgramOutput, TestLoopDevice, TestMount, World, check, end,
    has_loop_devices, is_user_able, run_program, seeded, shell, wait_until,
};
use crate::{device, refused, shown, text};
use serde_json::Value;
use std::fs;
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A served volume, and a drive of 32 MiB.
fn with_drive(test: &str) -> Option<(Nas, PathBuf)> {
    let mut nas = Nas::of(test, |_| {})?;
    nas.serve();
    let drive = nas.0.world().path("usb.drive");
    device(&nas.0, &["add", text(&drive), "--size", "32M"]);
    Some((nas, drive))
}

/// Returns what the daemon keeps in mind of drives.
pub(crate) fn kept(nas: &Nas) -> String {
    fs::read_to_string(nas.0.store().with_extension("teal.d").join("drives.toml")).unwrap()
}

/// Returns whether another process opens a file within some looks of the daemon.
fn is_opened(path: &Path) -> bool {
    let events = rustix::fs::inotify::init(rustix::fs::inotify::CreateFlags::NONBLOCK).unwrap();
    rustix::fs::inotify::add_watch(&events, path, rustix::fs::inotify::WatchFlags::OPEN).unwrap();
    let mut is_opened = false;
    let _ = wait_until(std::time::Duration::from_secs(5), || {
        is_opened |= rustix::io::read(events.as_fd(), &mut [0; 1024]).is_ok();
        is_opened
    });
    is_opened
}

/// A place of other content.
fn replaced(path: &Path) {
    let other = path.with_extension("other");
    fs::write(&other, vec![0; 17 << 20]).unwrap();
    fs::rename(&other, path).unwrap();
}

#[test]
fn what_was_a_drive_is_looked_at_once_and_forgotten_with_it() {
    let test = "what_was_a_drive_is_looked_at_once_and_forgotten_with_it";
    let Some((nas, drive)) = with_drive(test) else {
        return;
    };
    device(&nas.0, &["detach", "usb"]);
    replaced(&drive);
    let is_seen = || nas.0.log().contains("usb.drive is no drive");
    assert!(wait_until(PATIENCE, is_seen), "{}", nas.0.log());
    assert!(!is_opened(&drive), "it has been looked at: {}", nas.0.log());
    // The file is a drive again.
    let other = nas.0.world().path("other.drive");
    device(&nas.0, &["add", text(&other), "--size", "32M"]);
    device(&nas.0, &["detach", "other"]);
    fs::rename(&other, &drive).unwrap();
    assert!(
        wait_until(PATIENCE, || shown(&nas.0, "other")["place"] == text(&drive)),
        "{}",
        nas.0.log()
    );
    device(&nas.0, &["detach", "other"]);
    assert!(kept(&nas).contains("usb.drive"));
    device(&nas.0, &["rm", "other"]);
    assert!(!kept(&nas).contains("usb.drive"), "{}", kept(&nas));
    end(vec![nas.0]);
}

#[test]
fn a_drive_that_another_machine_has_removed_is_forgotten() {
    let test = "a_drive_that_another_machine_has_removed_is_forgotten";
    let Some((mut nas, drive)) = with_drive(test) else {
        return;
    };
    let home = crate::support::join(test, &nas.serve());
    let there = home.world().path("usb.drive");
    device(&nas.0, &["detach", "usb"]);
    fs::rename(&drive, &there).unwrap();
    device(&home, &["attach", text(&there)]);
    device(&home, &["detach", "usb"]);
    device(&home, &["rm", "usb"]);
    fs::rename(&there, &drive).unwrap();
    assert!(
        wait_until(PATIENCE, || !kept(&nas).contains("usb.drive")),
        "{}: {}",
        kept(&nas),
        nas.0.log()
    );
    assert!(!is_opened(&drive));
    end(vec![home, nas.0]);
}

#[test]
fn what_lies_on_another_file_system_below_or_above_a_volume_is_not_of_it() {
    let test = "what_lies_on_another_file_system_below_or_above_a_volume_is_not_of_it";
    let Some((nas, _)) = with_drive(test) else {
        return;
    };
    let (world, dir) = (nas.0.world(), nas.0.path("dir"));
    fs::create_dir_all(dir.join("sub")).unwrap();
    fs::write(nas.0.path("file"), "content").unwrap();
    let below = TestMount(nas.0.path("below"));
    fs::create_dir(&below.0).unwrap();
    rustix::mount::mount(
        "none",
        &below.0,
        "tmpfs",
        rustix::mount::MountFlags::empty(),
        None,
    )
    .unwrap();
    fs::write(below.0.join("file"), "another").unwrap();
    let from = |dir: &Path, args: &[&str]| run_program(world.command(args).current_dir(dir));
    for args in [
        ["where", "."],
        ["pin", "."],
        ["free", "."],
        ["where", "file"],
        ["pin", "file"],
    ] {
        let said = from(&below.0, &args).expect_refusal();
        assert!(
            said.contains("not on a mount of TealFS"),
            "{args:?}: {said}"
        );
    }
    for args in [
        &["affinity", "add", ".", "usb"][..],
        &["affinity", "rm", "file", "usb"],
    ] {
        assert!(
            from(&below.0, args)
                .expect_refusal()
                .contains("not on a mount of TealFS"),
            "{args:?}"
        );
    }
    assert_eq!(nas.0.status()["upstream"]["pinned"], serde_json::json!([]));
    let above = from(nas.0.point(), &["where", ".."]).expect_refusal();
    assert!(above.contains("not on a mount of TealFS"), "{above}");
    // Paths that lead to the same file.
    for (dir, path) in [
        (&*dir, ".."),
        (&*dir, "../dir/../."),
        (nas.0.point(), "."),
        (&*dir.join("sub"), "../.."),
    ] {
        let said = from(dir, &["where", path]).expect_success();
        assert!(said.starts_with("/ ("), "{path}: {said}");
    }
    let link = world.path("link");
    std::os::unix::fs::symlink(&dir, &link).unwrap();
    assert!(
        from(world.path("").as_path(), &["where", "link/../file"])
            .expect_success()
            .starts_with("/file (7 B)")
    );
    assert!(
        from(world.path("").as_path(), &["where", "link"])
            .expect_success()
            .starts_with("/dir (")
    );
    std::os::unix::fs::symlink("file", nas.0.path("symlink")).unwrap();
    let said = from(nas.0.point(), &["where", "symlink"]).expect_refusal();
    assert!(said.contains("neither a file nor a directory"), "{said}");
    drop(below);
    end(vec![nas.0]);
}

#[test]
fn a_drive_inside_of_a_volume_is_refused() {
    let test = "a_drive_inside_of_a_volume_is_refused";
    let Some((nas, drive)) = with_drive(test) else {
        return;
    };
    let (inside, link) = (nas.0.path("inside.drive"), nas.0.world().path("link.drive"));
    refused(
        &nas.0,
        &["add", text(&inside), "--size", "32M"],
        &["inside.drive", "on a mount of TealFS"],
    );
    assert!(!inside.exists());
    device(&nas.0, &["detach", "usb"]);
    fs::copy(&drive, &inside).unwrap();
    std::os::unix::fs::symlink(&inside, &link).unwrap();
    for path in [&inside, &link] {
        refused(
            &nas.0,
            &["attach", text(path)],
            &["inside.drive", "on a mount of TealFS"],
        );
        refused(
            &nas.0,
            &["add", text(path), "--name", "x", "--force"],
            &["inside.drive", "on a mount of TealFS"],
        );
    }
    fs::create_dir(nas.0.path("dir")).unwrap();
    let dir = nas.0.world().path("dir");
    std::os::unix::fs::symlink(nas.0.path("dir"), &dir).unwrap();
    refused(
        &nas.0,
        &["add", text(&dir.join("new")), "--size", "32M"],
        &["on a mount of TealFS"],
    );
    end(vec![nas.0]);
}

#[test]
fn a_drive_whose_file_was_deleted_or_cut_short_is_gone_with_the_next_question() {
    let test = "a_drive_whose_file_was_deleted_or_cut_short_is_gone_with_the_next_question";
    let Some((nas, drive)) = with_drive(test) else {
        return;
    };
    let other = nas.0.world().path("other.drive");
    device(&nas.0, &["add", text(&other), "--size", "32M"]);
    fs::remove_file(&drive).unwrap();
    assert!(shown(&nas.0, "usb")["place"].is_null());
    assert!(
        nas.0
            .log()
            .contains("usb is gone (its file was deleted); nothing is lost"),
        "{}",
        nas.0.log()
    );
    fs::OpenOptions::new()
        .write(true)
        .open(&other)
        .unwrap()
        .set_len(16 << 20)
        .unwrap();
    refused(
        &nas.0,
        &["detach", "other"],
        &["other is gone", "cut short", "nothing is lost"],
    );
    // With the next burst.
    let third = nas.0.world().path("third.drive");
    device(&nas.0, &["add", text(&third), "--size", "32M"]);
    fs::remove_file(&third).unwrap();
    fs::write(nas.0.path("large"), seeded(1, 9 << 20)).unwrap();
    nas.flush();
    let is_noticed = || nas.0.log().contains("third is gone (its file was deleted)");
    assert!(wait_until(PATIENCE, is_noticed), "{}", nas.0.log());
    end(vec![nas.0]);
}

#[test]
fn what_was_used_otherwise_becomes_a_drive_by_force_only() {
    let test = "what_was_used_otherwise_becomes_a_drive_by_force_only";
    let Some((nas, drive)) = with_drive(test) else {
        return;
    };
    let world = nas.0.world();
    refused(
        &nas.0,
        &["add", text(&drive), "--name", "new", "--force"],
        &["in use", "teal device detach usb"],
    );
    device(&nas.0, &["detach", "usb"]);
    device(&nas.0, &["rm", "usb"]);
    refused(
        &nas.0,
        &["add", text(&drive), "--name", "new"],
        &["TealFS", "--force"],
    );
    let before = fs::read(&drive).unwrap();
    let second = world.path("second.drive");
    device(&nas.0, &["add", text(&second), "--size", "32M"]);
    refused(
        &nas.0,
        &[
            "add",
            text(&drive),
            "--name",
            "second",
            "--size",
            "20M",
            "--force",
        ],
        &["second", "--name"],
    );
    assert!(
        fs::read(&drive).unwrap() == before,
        "what is refused changes nothing"
    );
    device(&nas.0, &["add", text(&drive), "--name", "new", "--force"]);
    assert_eq!(shown(&nas.0, "new")["place"], text(&drive));
    refused(
        &nas.0,
        &["add", text(nas.0.store()), "--name", "x", "--force"],
        &["in use"],
    );
    if has_loop_devices(test) {
        let disk = TestLoopDevice::new(&world.path("disk.img"), 64 << 20);
        run_program(Command::new("mkfs.ext4").arg("-q").arg(disk.path())).expect_success();
        refused(
            &nas.0,
            &["add", text(disk.path()), "--name", "disk"],
            &["ext2/3/4", "--force"],
        );
        device(
            &nas.0,
            &["add", text(disk.path()), "--name", "disk", "--force"],
        );
        device(&nas.0, &["detach", "disk"]);
        check(world, disk.path());
        device(&nas.0, &["rm", "disk"]);
    }
    for name in ["new", "second"] {
        device(&nas.0, &["detach", name]);
    }
    check(world, &drive);
    end(vec![nas.0]);
}

#[test]
fn what_is_no_drive_or_damaged_is_called_so() {
    let test = "what_is_no_drive_or_damaged_is_called_so";
    let Some((nas, drive)) = with_drive(test) else {
        return;
    };
    let world = nas.0.world();
    fs::write(nas.0.path("f"), seeded(1, 300_000)).unwrap();
    nas.flush();
    device(&nas.0, &["detach", "usb"]);
    let image = fs::read(&drive).unwrap();
    let of = |name: &str, bytes: &[u8]| {
        let path = world.path(name);
        fs::write(&path, bytes).unwrap();
        path
    };
    for path in [
        of("garbage", &seeded(7, 20 << 20)),
        of("empty", b""),
        of("short", &image[..100]),
    ] {
        refused(
            &nas.0,
            &["attach", text(&path)],
            &["is no drive", "teal device add"],
        );
    }
    refused(
        &nas.0,
        &["attach", text(world.path("").as_path())],
        &["neither a regular file nor a block device"],
    );
    // Its superblocks, and a part of it, are damaged.
    let mut damaged = image.clone();
    damaged[8..4096].fill(0xa5);
    let end_of = damaged.len() - 4096;
    damaged[end_of..].fill(0xa5);
    let damaged = of("damaged", &damaged);
    refused(
        &nas.0,
        &["attach", text(&damaged)],
        &[
            "damaged",
            "nothing was only on it",
            "teal device add",
            "--force",
        ],
    );
    let cut = of("cut", &image[..image.len() - 4096]);
    refused(
        &nas.0,
        &["attach", text(&cut)],
        &["cut short", "teal device add", "--force"],
    );
    let content = seeded(1, 300_000);
    let at = image
        .windows(64)
        .position(|bytes| bytes == &content[40_960..41_024])
        .unwrap();
    let mut spoiled = image;
    spoiled[at] ^= 4;
    let spoiled = of("spoiled", &spoiled);
    let said = world.teal(&["check", text(&spoiled)]);
    assert!(
        said.code == 1 && said.stdout.contains("this is a drive: nothing is lost"),
        "{said}"
    );
    end(vec![nas.0]);
}

/// Runs a script as a user without rights; `$teal` is the program, `$1` a directory of root's.
fn nobody(world: &World, script: &str, theirs: &Path) -> ProgramOutput {
    let script = format!(
        r#"set -e; mkdir -p mine/home mine/run mine/state; cp "$1" mine/teal; chown -R 65534 mine
        export HOME=$PWD/mine/home XDG_DATA_HOME=$PWD/mine/home XDG_RUNTIME_DIR=$PWD/mine/run XDG_STATE_HOME=$PWD/mine/state
        export teal=$PWD/mine/teal
        exec setpriv --reuid 65534 --regid 65534 --clear-groups sh -c '{script}' sh "$2""#
    );
    shell(
        world,
        &script,
        &[Path::new(env!("CARGO_BIN_EXE_teal")), theirs],
    )
}

#[test]
fn who_may_not_write_is_not_told_of_a_write_protection() {
    let test = "who_may_not_write_is_not_told_of_a_write_protection";
    if !is_user_able() {
        return teal_testkit::skip_test(test, "needs root and setpriv");
    }
    let Some(world) = World::new(test) else {
        return;
    };
    let theirs = world.path("theirs");
    fs::create_dir(&theirs).unwrap();
    fs::write(theirs.join("root.drive"), vec![0; 17 << 20]).unwrap();
    fs::set_permissions(theirs.join("root.drive"), fs::Permissions::from_mode(0o600)).unwrap();
    // Root without its power over the files of others.
    let script = r#"chown -R 65534 "$2"; export teal=$1
        exec setpriv --bounding-set=-dac_override,-dac_read_search sh -e -c '
        $teal up T --store s --size 64M >log
        $teal serve T --store s --device nas --listen 127.0.0.1:0 >>log
        $teal device attach "$1/root.drive" T || echo refused
        $teal device add "$1/new.drive" --size 20M T || echo refused
        $teal device add no/new.drive --size 20M T || echo refused
        $teal down T >>log' sh "$2""#;
    let said = shell(
        &world,
        script,
        &[Path::new(env!("CARGO_BIN_EXE_teal")), &theirs],
    );
    assert_eq!(
        (said.code, said.stdout.as_str()),
        (0, "refused\nrefused\nrefused\n"),
        "{said}"
    );
    let lines: Vec<&str> = said.stderr.lines().collect();
    assert_eq!(lines.len(), 3, "{said}");
    for (line, name) in [(lines[0], "root.drive"), (lines[1], "new.drive")] {
        assert!(
            line.contains(name) && line.contains("permission denied") && line.contains("number 0"),
            "{line}"
        );
    }
    assert!(lines[2].contains("No such file"), "{said}");
    assert!(!said.stderr.contains("protect"), "{said}");
}

#[test]
fn a_mount_of_another_user_is_called_so() {
    let test = "a_mount_of_another_user_is_called_so";
    if !is_user_able() {
        return teal_testkit::skip_test(test, "needs root and setpriv");
    }
    let mut m = Mounted::of(World::open_to_all(), "64M");
    fs::set_permissions(m.point(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(m.path("f"), "content").unwrap();
    for (script, name) in [
        (r#"exec $teal where "$1/f""#, "Teal"),
        (r#"cd "$1"; exec $teal pin f"#, "Teal"),
        (r#"exec $teal device ls "$1""#, "Teal"),
        (r#"exec $teal config ls "$1""#, "Teal"),
    ] {
        let said = nobody(m.world(), script, m.point()).expect_refusal();
        assert!(
            said.contains(name) && said.contains("another user (number 0)"),
            "{script}: {said}"
        );
    }
    let said = nobody(
        m.world(),
        r#"exec $teal where "$1""#,
        m.world().path("mine").as_path(),
    )
    .expect_refusal();
    assert!(said.contains("not on a mount of TealFS"), "{said}");
    m.down();
}

#[test]
fn names_that_are_no_names_and_errors_are_said_in_one_line_and_once() {
    let test = "names_that_are_no_names_and_errors_are_said_in_one_line_and_once";
    let Some((nas, drive)) = with_drive(test) else {
        return;
    };
    let world = nas.0.world();
    let once = |args: &[&str], word: &str| {
        let line = world
            .teal(&[&["device"], args, &[text(nas.0.point())]].concat())
            .expect_refusal();
        assert_eq!(line.matches(word).count(), 1, "{line}");
    };
    once(&["attach", text(&world.path("nowhere"))], "No such file");
    once(
        &["add", text(&world.path("no/where")), "--size", "20M"],
        "No such file",
    );
    once(
        &["add", text(&world.path("")), "--name", "x", "--force"],
        "neither a regular file nor a block device",
    );
    once(
        &["add", text(&world.path("big")), "--size", "100T"],
        "File too large",
    );
    assert!(
        !world.path("big").exists(),
        "what could not be made is not left behind"
    );
    std::os::unix::fs::symlink("nothing", world.path("dangling")).unwrap();
    once(
        &["add", text(&world.path("dangling")), "--size", "20M"],
        "leads nowhere",
    );
    for name in ["server", "Home Log", "elsewhere"] {
        refused(
            &nas.0,
            &[
                "add",
                text(&world.path("x")),
                "--size",
                "20M",
                "--name",
                name,
            ],
            &[name, "--name"],
        );
    }
    // Lines and bytes that are no text.
    once(&["attach", text(&world.path("a\nb"))], "a\\nb");
    let bad = world.path(std::ffi::OsStr::from_bytes(b"bad\xff.drive"));
    let said = run_program(
        world
            .command(&["device", "add", "--size", "20M"])
            .arg(&bad)
            .arg(nas.0.point()),
    )
    .expect_refusal();
    assert!(
        said.contains(r"bad\xff.drive") && said.contains("UTF-8"),
        "{said}"
    );
    let odd = nas.0.path("li\nne");
    fs::write(&odd, "content").unwrap();
    nas.flush();
    assert!(
        world
            .teal(&["where", text(&odd)])
            .expect_success()
            .starts_with("/li\\nne (7 B)\n")
    );
    let said = world
        .teal(&["affinity", "add", text(&odd), "usb"])
        .expect_success();
    assert!(said.starts_with("1 file (7 B) is always on usb"), "{said}");
    let said = world
        .teal(&["affinity", "ls", "usb", text(nas.0.point())])
        .expect_success();
    assert!(
        said.contains("/li\\nne") && said.lines().count() == 1,
        "{said}"
    );
    let large = nas.0.path("large");
    fs::File::create_new(&large)
        .unwrap()
        .set_len(60 << 20)
        .unwrap();
    let said = world
        .teal(&["affinity", "add", text(&large), "usb"])
        .expect_refusal();
    assert!(said.contains("usb is too small: 60.0 MiB"), "{said}");
    // The commands in messages can be typed.
    let spaced = world.path("sp ace.drive");
    let said = device(&nas.0, &["add", text(&spaced), "--size", "20M"]);
    assert!(said.contains("teal device detach 'sp ace'"), "{said}");
    let status = world
        .teal(&["status", text(nas.0.point())])
        .expect_success();
    assert!(
        status.contains(&format!("drive    usb, in {}", text(&drive))) && status.contains("sp ace"),
        "{status}"
    );
    end(vec![nas.0]);
}

#[test]
fn drives_are_where_they_are_and_cost_what_is_known() {
    let test = "drives_are_where_they_are_and_cost_what_is_known";
    let Some((mut nas, drive)) = with_drive(test) else {
        return;
    };
    let mut home = crate::support::join(test, &nas.serve());
    assert!(
        device(&home, &["ls"]).starts_with("usb  attached to nas, stays here"),
        "{}",
        device(&home, &["ls"])
    );
    fs::write(nas.0.path("f"), seeded(1, 50_000)).unwrap();
    nas.flush();
    device(&nas.0, &["detach", "usb"]);
    assert!(
        device(&home, &["ls"]).starts_with("usb  not attached"),
        "{}",
        device(&home, &["ls"])
    );
    device(&nas.0, &["attach", text(&drive)]);
    let here = home.world().path("here.drive");
    device(
        &home,
        &[
            "add",
            text(&here),
            "--size",
            "32M",
            "--profile",
            "ibm-microdrive-1gb",
        ],
    );
    crate::catches_up(&nas, &home);
    let line = |said: &str, name: &str| {
        let line = said
            .lines()
            .find(|line| line.trim_start().starts_with(name));
        line.unwrap_or_else(|| panic!("{name} in {said}"))
            .to_owned()
    };
    // Nothing has been read from this drive, and it has no profile.
    let at_nas = nas.0.path("f");
    let said = nas
        .0
        .world()
        .teal(&["where", text(&at_nas)])
        .expect_success();
    assert!(line(&said, "usb").contains("not measured yet"), "{said}");
    let found = |m: &Mounted| -> Value {
        let said = m
            .world()
            .teal(&["where", "--json", text(&m.path("f"))])
            .expect_success();
        serde_json::from_str(&said).unwrap()
    };
    let source = |found: &Value, name: &str| {
        found["sources"]
            .as_array()
            .unwrap()
            .iter()
            .find(|source| source["name"] == name)
            .cloned()
            .unwrap_or_default()
    };
    let before = found(&nas.0);
    for name in ["home log", "usb"] {
        let known = source(&before, name);
        let is_null = ["microseconds", "is_measured", "microjoules", "cost"]
            .iter()
            .all(|key| known[key].is_null());
        assert!(is_null && known["bytes"] == 50_000, "{name} in {before}");
    }
    assert_eq!(fs::read(home.path("f")).unwrap(), seeded(1, 50_000));
    let server = source(&found(&home), "server");
    let (micros, joules) = (
        server["microseconds"].as_f64().unwrap(),
        server["microjoules"].as_f64().unwrap(),
    );
    assert!(
        server["is_measured"] == true && server["cost"].as_f64().unwrap() > 0.0,
        "{server}"
    );
    // The machine draws 5 W while it waits, and half a second counts as half a joule.
    assert!(
        (joules - micros * 5.0).abs() < joules / 50.0 + 10.0,
        "{server}"
    );
    device(&home, &["detach", "here"]);
    device(&home, &["attach", text(&here)]);
    let said = home
        .world()
        .teal(&["where", text(&home.path("f"))])
        .expect_success();
    for (name, how) in [("server", "ms (measured)"), ("here", "ms (modelled)")] {
        assert!(
            line(&said, name).contains(how) && line(&said, name).contains("mJ (modelled)"),
            "{said}"
        );
    }
    // Without the server, those that are elsewhere are not known.
    nas.0.down();
    let said = home.world().teal(&["device", "ls", text(home.point())]);
    assert!(
        said.stdout.starts_with("here  in") && !said.stdout.contains("usb"),
        "{said}"
    );
    assert!(
        said.stderr.contains("only drives attached here are listed"),
        "{said}"
    );
    assert!(drive.exists());
    home.down();
}

#[test]
fn a_setting_that_is_not_known_is_told_all_that_are() {
    let test = "a_setting_that_is_not_known_is_told_all_that_are";
    let Some(nas) = Nas::of(test, |_| {}) else {
        return;
    };
    let config = |args: &[&str]| {
        nas.0
            .world()
            .teal(&[&["config"], args, &[text(nas.0.point())]].concat())
    };
    let said = config(&["set", "prioriti", "1"]).expect_refusal();
    for line in config(&["ls"]).expect_success().lines() {
        assert!(
            said.contains(line.split(' ').next().unwrap()),
            "{line} in {said}"
        );
    }
    end(vec![nas.0]);
}

#[test]
fn what_is_given_back_is_counted_as_it_is() {
    let test = "what_is_given_back_is_counted_as_it_is";
    let Some((mut nas, _)) = with_drive(test) else {
        return;
    };
    let home = crate::support::join(test, &nas.serve());
    fs::write(nas.0.path("nine"), "nine byte").unwrap();
    nas.flush();
    crate::catches_up(&nas, &home);
    let nine = home.path("nine");
    let teal = |what: &str| home.world().teal(&[what, text(&nine)]).expect_success();
    assert_eq!(fs::read(&nine).unwrap(), b"nine byte");
    assert!(
        teal("free").starts_with("1 file is given back; it comes"),
        "all of it was in its inode"
    );
    assert!(teal("free").starts_with("there is nothing to give back"));
    assert!(teal("pin").starts_with("1 file (9 B) is always here"));
    end(vec![home, nas.0]);
}

#[test]
fn a_mount_whose_daemon_is_gone_or_out_of_reach_is_called_so() {
    let Some(mut m) = Mounted::new(
        "a_mount_whose_daemon_is_gone_or_out_of_reach_is_called_so",
        "64M",
    ) else {
        return;
    };
    let elsewhere = m.world().path("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    let said = run_program(
        m.world()
            .command(&["device", "ls", text(m.point())])
            .env("XDG_RUNTIME_DIR", &elsewhere),
    )
    .expect_refusal();
    assert!(said.contains("XDG_RUNTIME_DIR"), "{said}");
    m.kill();
    for args in [["device", "ls"], ["config", "ls"]] {
        let said = m
            .world()
            .teal(&[&args[..], &[text(m.point())]].concat())
            .expect_refusal();
        assert!(
            said.contains("is gone") && said.contains(&format!("teal down {}", text(m.point()))),
            "{said}"
        );
    }
}
