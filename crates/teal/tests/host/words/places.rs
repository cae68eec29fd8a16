//! Places: nothing is left where nothing came about, and every name is shown and found.

use super::{says, str};
use crate::support::{Mounted, PrivateMounts, World};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// Returns what there is below a directory.
fn below(dir: &Path) -> Vec<OsString> {
    let mut found: Vec<_> = fs::read_dir(dir)
        .map(|dir| dir.map(|entry| entry.unwrap().file_name()).collect())
        .unwrap_or_default();
    found.sort();
    found
}

#[test]
fn a_fake_mount_mounts_nothing() {
    let test = "a_fake_mount_mounts_nothing";
    let Some(world) = World::new(test) else {
        return;
    };
    let Some(private) = PrivateMounts::new(&world) else {
        return teal_testkit::skip_test(test, "mount namespaces cannot be made here");
    };
    let store = world.store("s.teal", "32M");
    let before = crate::support::digest(&store);
    let script = r#"
        mkdir point
        mount -f -t teal s.teal point
        mount -f -v -t teal -o noatime,commit=7 s.teal point
        not grep -q " $PWD/point " /proc/self/mountinfo
        not mount -f -t teal -o frobnicate s.teal point 2> refused
        grep -q frobnicate refused
    "#;
    let said = private.with_mount_programs(script, &[]);
    assert_eq!(said.code, 0, "{said}");
    assert_eq!(crate::support::digest(&store), before, "nothing is written");
    assert!(
        below(&world.path("run")).iter().all(|name| name == "teal"),
        "no daemon listens"
    );
}

#[test]
fn up_leaves_nothing_where_it_fails() {
    let Some(world) = World::new("up_leaves_nothing_where_it_fails") else {
        return;
    };
    let said = world.teal(&["up", "/proc/nothing", "--size", "32M"]);
    says(said, &["/proc/nothing", "choose another place"]);
    assert!(
        below(&world.path("data")).is_empty(),
        "{:?}",
        below(&world.path("data"))
    );
    let (file, point) = (world.path("file"), world.path("point"));
    fs::write(&file, "").unwrap();
    let beneath = file.join("Teal");
    let said = world.teal(&[
        "up",
        str(&beneath),
        "--store",
        str(&world.path("a/b/s.teal")),
        "--size",
        "32M",
    ]);
    says(said, &[str(&beneath)]);
    assert!(!world.path("a").exists());
    let said = world.teal(&[
        "up",
        str(&point),
        "--store",
        "/proc/s.teal",
        "--size",
        "32M",
    ]);
    says(said, &["cannot make /proc/s.teal", "os error"]);
    assert!(!point.exists());
    let said = world.teal(&[
        "up",
        str(&point),
        "--store",
        str(&world.path("c/s.teal")),
        "--size",
        "20",
    ]);
    says(said, &["20 bytes", "16 MiB", "500M or 20G"]);
    assert!(!world.path("c").exists() && !point.exists());
    // The existing files stay.
    let Some(mut m) = Mounted::new("up_leaves_nothing_where_it_fails", "32M") else {
        return;
    };
    fs::write(m.path("f"), "content").unwrap();
    m.down();
    let blocked = m.world().path("run/teal");
    fs::remove_dir_all(&blocked).unwrap();
    fs::write(&blocked, "").unwrap();
    let said = m
        .world()
        .teal(&["up", str(m.point()), "--store", str(m.store())]);
    says(said, &[str(&blocked)]);
    fs::remove_file(&blocked).unwrap();
    m.up();
    assert_eq!(fs::read(m.path("f")).unwrap(), b"content");
    m.down();
    m.check();
}

#[test]
fn a_mount_point_of_any_bytes_is_shown_and_found() {
    let test = "a_mount_point_of_any_bytes_is_shown_and_found";
    let Some(world) = World::new(test) else {
        return;
    };
    let named = |name: &[u8]| world.path(OsStr::from_bytes(name));
    let (point, store) = (named(b"p\xffoint \\x41\n"), named(b"st\xfeore.teal"));
    let os = OsStr::new;
    let teal = |args: &[&OsStr]| world.teal(args);
    teal(&[
        os("up"),
        point.as_os_str(),
        os("--store"),
        store.as_os_str(),
        os("--size"),
        os("32M"),
    ])
    .expect_success();
    fs::write(point.join("f"), "content").unwrap();
    let shown = teal(&[os("status")]).expect_success();
    assert!(
        shown.contains(r"p\xffoint \x5cx41\n") && shown.contains(r"st\xfeore.teal"),
        "{shown}"
    );
    let json: serde_json::Value =
        serde_json::from_str(&teal(&[os("status"), os("--json")]).expect_success()).unwrap();
    let (place, bytes) = (
        json[0]["mount_point"].as_str().unwrap(),
        json[0]["store"].as_str().unwrap(),
    );
    assert!(
        place.ends_with("p\\xffoint \\x5cx41\n") && bytes.ends_with("st\\xfeore.teal"),
        "{json}"
    );
    teal(&[
        os("config"),
        os("set"),
        os("commit-seconds"),
        os("7"),
        point.as_os_str(),
    ])
    .expect_success();
    assert!(
        teal(&[os("config"), os("ls"), point.as_os_str()])
            .expect_success()
            .contains("commit-seconds 7")
    );
    // A volume without a server has no other copy: it matters here that its mount is found.
    let whereabouts = teal(&[os("where"), point.join("f").as_os_str()]);
    assert!(
        !whereabouts.stderr.contains("cannot be asked from here"),
        "{whereabouts}"
    );
    teal(&[
        os("serve"),
        point.as_os_str(),
        os("--listen"),
        os("127.0.0.1:0"),
        os("--device"),
        os("nas"),
    ])
    .expect_success();
    assert_eq!(fs::read(point.join("f")).unwrap(), b"content");
    assert!(
        teal(&[os("where"), point.join("f").as_os_str()])
            .expect_success()
            .contains("/f")
    );
    let said = teal(&[os("down"), point.as_os_str()]).expect_success();
    assert!(said.contains(r"p\xffoint"), "{said}");
    teal(&[os("check"), store.as_os_str()]).expect_success();
}
