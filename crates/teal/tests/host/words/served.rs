//! `teal serve` serves what is mounted, or leaves everything as it was.

use super::{says, str};
use crate::support::{Mounted, World};
use std::fs;
use std::net::TcpListener;

fn serve(m: &Mounted, more: &[&str]) -> crate::support::ProgramOutput {
    m.world()
        .teal(&[&["serve", str(m.point()), "--device", "nas"], more].concat())
}

/// Returns an address on which another program listens.
fn taken() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    (listener, address)
}

#[test]
fn the_store_that_is_mounted_is_served_and_no_other() {
    let test = "the_store_that_is_mounted_is_served_and_no_other";
    let Some(mut m) = Mounted::new(test, "64M") else {
        return;
    };
    fs::write(m.path("f"), "of this volume").unwrap();
    m.down();
    m.mount("commit=7,noatime");
    let other = m.world().store("other.teal", "32M");
    let pid = m.pid();
    let store = str(m.store()).to_owned();
    says(
        serve(&m, &["--store", str(&other), "--listen", "127.0.0.1:0"]),
        &[&store, str(&other), "--store"],
    );
    assert_eq!(m.status()["pid"], pid, "the mount is as it was");
    serve(&m, &["--listen", "127.0.0.1:0"]).expect_success();
    m.adopt();
    let status = m.status();
    assert_eq!(status["store"], store.as_str());
    assert!(status["upstream"]["served"].as_str().is_some(), "{status}");
    assert_eq!(
        status["options"],
        serde_json::json!(["commit=7", "noatime"]),
        "it is mounted as it was"
    );
    assert_eq!(fs::read(m.path("f")).unwrap(), b"of this volume");
    assert!(
        !m.world().path("data/teal").exists(),
        "no store is made elsewhere"
    );
    m.down();
    m.check();
    m.mount("ro");
    let pid = m.pid();
    says(serve(&m, &[]), &[str(m.point()), "read-only", "`ro`"]);
    assert_eq!(m.status()["pid"], pid, "the mount is as it was");
    m.down();
}

#[test]
fn a_port_in_use_leaves_the_mount_as_it_was() {
    let Some(mut m) = Mounted::new("a_port_in_use_leaves_the_mount_as_it_was", "64M") else {
        return;
    };
    fs::write(m.path("f"), "content").unwrap();
    let (_listener, taken) = taken();
    let pid = m.pid();
    let beside = m.store().with_extension("teal.d");
    says(
        serve(&m, &["--listen", &taken]),
        &[&taken, "--listen", "in use"],
    );
    assert_eq!(m.status()["pid"], pid, "it was not unmounted");
    assert!(!beside.exists(), "nothing of a server is left");
    // A volume that is not mounted: nothing is made.
    let (point, store) = (m.world().path("new"), m.world().path("deep/er/new.teal"));
    let args = [
        "serve",
        str(&point),
        "--store",
        str(&store),
        "--size",
        "32M",
        "--listen",
        &taken,
    ];
    says(m.world().teal(&args), &[&taken]);
    assert!(
        !point.exists() && !m.world().path("deep").exists(),
        "nothing is left"
    );
    // A volume that is served: it is served where it was.
    serve(&m, &["--listen", "127.0.0.1:0"]).expect_success();
    m.adopt();
    let before = m.status()["upstream"]["served"]
        .as_str()
        .unwrap()
        .to_owned();
    let pid = m.pid();
    says(serve(&m, &["--listen", &taken]), &[&taken, "in use"]);
    assert_eq!(
        (&m.status()["upstream"]["served"], &m.status()["pid"]),
        (&before.as_str().into(), &pid.into())
    );
    m.down();
    m.check();
}

#[test]
fn what_cannot_be_served_after_all_is_mounted_again_as_it_was() {
    let test = "what_cannot_be_served_after_all_is_mounted_again_as_it_was";
    let Some(mut m) = Mounted::new(test, "64M") else {
        return;
    };
    m.down();
    m.mount("commit=9");
    fs::write(m.path("f"), "content").unwrap();
    serve(&m, &["--listen", "127.0.0.1:0"]).expect_success();
    let port = m.status()["upstream"]["served"]
        .as_str()
        .unwrap()
        .rsplit_once(':')
        .unwrap()
        .1
        .to_owned();
    serve(&m, &["--listen", &format!("127.0.0.1:{port}")]).expect_success();
    m.adopt();
    let setting = m.store().with_extension("teal.d").join("replica.toml");
    let before = fs::read_to_string(&setting).unwrap();
    // Its own port is free only when it has ended; the address is none of this machine.
    let elsewhere = format!("192.0.2.1:{port}");
    says(
        serve(&m, &["--listen", &elsewhere]),
        &[&elsewhere, "as it was"],
    );
    m.adopt();
    let status = m.status();
    assert_eq!(status["upstream"]["served"], format!("127.0.0.1:{port}"));
    assert_eq!(status["options"], serde_json::json!(["commit=9"]));
    assert_eq!(fs::read_to_string(&setting).unwrap(), before);
    assert_eq!(fs::read(m.path("f")).unwrap(), b"content");
    // Files that are open there refuse it before anything has changed.
    let open = fs::OpenOptions::new().read(true).open(m.path("f")).unwrap();
    let pid = m.pid();
    says(serve(&m, &["--listen", "127.0.0.1:0"]), &["busy"]);
    assert_eq!(m.status()["pid"], pid);
    assert_eq!(fs::read_to_string(&setting).unwrap(), before);
    drop(open);
    m.down();
    m.check();
}

#[test]
fn what_is_not_ours_is_not_served() {
    let Some(world) = World::new("what_is_not_ours_is_not_served") else {
        return;
    };
    says(
        world.teal(&["serve", "/proc", "--listen", "127.0.0.1:0"]),
        &["/proc", "nothing of TealFS"],
    );
    assert!(!world.path("data/teal").exists(), "no store is made");
}
