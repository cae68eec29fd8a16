//! Drives that do not answer, and drives that are let go before they have everything.

use crate::support::{
    Nas, PATIENCE, TestMount, end, find_program, has_loop_devices, seeded, shell, wait_until,
};
use crate::{device, shown, text};
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// A file system that holds back writes until this is dropped.
struct Frozen(PathBuf);

impl Frozen {
    fn new(point: PathBuf) -> Self {
        let done = Command::new("fsfreeze")
            .arg("--freeze")
            .arg(&point)
            .status()
            .unwrap();
        assert!(done.success(), "{}", point.display());
        Self(point)
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        let _ = Command::new("fsfreeze")
            .arg("--unfreeze")
            .arg(&self.0)
            .status();
    }
}

#[test]
fn a_drive_whose_writes_hang_is_let_go_and_nobody_waits_for_it() {
    let test = "a_drive_whose_writes_hang_is_let_go_and_nobody_waits_for_it";
    if find_program("mkfs.ext4", &[]).is_none()
        || find_program("fsfreeze", &[]).is_none()
        || !has_loop_devices(test)
    {
        return teal_testkit::skip_test(test, "mkfs.ext4 or fsfreeze is missing");
    }
    let Some(nas) = Nas::of(test, |_| {}) else {
        return;
    };
    let (image, point) = (nas.0.world().path("stick.img"), nas.0.world().path("stick"));
    fs::create_dir(&point).unwrap();
    shell(
        nas.0.world(),
        r#"truncate -s 128M "$1"; mkfs.ext4 -q -F "$1"; mount -o loop "$1" "$2""#,
        &[&image, &point],
    )
    .expect_success();
    let stick = TestMount(point.clone());
    let drive = point.join("usb.drive");
    device(
        &nas.0,
        &["add", text(&drive), "--size", "64M", "--portable"],
    );
    let frozen = Frozen::new(point);
    (0..8).for_each(|n| fs::write(nas.0.path(format!("f{n}")), seeded(n, 1 << 20)).unwrap());
    nas.flush();
    for (command, words) in [
        ("detach", "usb is detached, without all"),
        ("detach", "no drive called usb is attached here"),
    ] {
        let said = nas
            .0
            .world()
            .teal(&["device", command, "usb", "--fast", text(nas.0.point())]);
        let line = said.stderr.lines().last().unwrap_or_default().to_owned();
        assert!(said.code == 1 && line.contains(words), "{said}");
        assert!(
            !words.contains("without") || line.contains("it does not answer"),
            "{said}"
        );
    }
    assert_eq!(fs::read(nas.0.path("f3")).unwrap(), seeded(3, 1 << 20));
    drop(frozen);
    let attach = || {
        nas.0
            .world()
            .teal(&["device", "attach", text(&drive), text(nas.0.point())])
            .code
            == 0
    };
    assert!(
        wait_until(PATIENCE, attach),
        "it is the same drive, once it answers: {}",
        shown(&nas.0, "usb")
    );
    device(&nas.0, &["detach", "usb"]);
    drop(stick);
    end(vec![nas.0]);
}

#[test]
fn what_has_affinity_and_was_not_copied_when_a_drive_was_let_go_comes_when_it_is_attached() {
    let test =
        "what_has_affinity_and_was_not_copied_when_a_drive_was_let_go_comes_when_it_is_attached";
    let Some(nas) = Nas::of(test, |_| {}) else {
        return;
    };
    fs::create_dir(nas.0.path("talk")).unwrap();
    (0..5).for_each(|n| fs::write(nas.0.path(format!("talk/{n}")), seeded(n, 300_000)).unwrap());
    nas.flush();
    let drive = nas.0.world().path("usb.drive");
    device(
        &nas.0,
        &["add", text(&drive), "--size", "64M", "--portable"],
    );
    nas.0
        .world()
        .teal(&[
            "affinity",
            "add",
            text(&nas.0.path("talk")),
            "usb",
            "--sticky",
        ])
        .expect_success();
    device(&nas.0, &["detach", "usb", "--fast"]);
    device(&nas.0, &["attach", text(&drive)]);
    device(&nas.0, &["detach", "usb"]);
    device(&nas.0, &["attach", text(&drive)]);
    let listed = nas
        .0
        .world()
        .teal(&["affinity", "ls", "usb", text(nas.0.point())])
        .expect_success();
    for n in 0..5 {
        let is_whole =
            |line: &str| line.contains(&format!("/talk/{n}")) && line.contains("293.0 KiB");
        assert!(listed.lines().any(is_whole), "{n} in {listed}");
    }
    device(&nas.0, &["detach", "usb"]);
    end(vec![nas.0]);
}
