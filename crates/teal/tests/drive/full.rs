//! Affinity that outgrows a drive, or the file system that holds the drive.

use crate::support::{Mounted, Nas, PATIENCE, TestMount, check, end, flush, seeded, wait_until};
use crate::{device, shown, text};
use std::fs;
use std::path::Path;

const FILES: u64 = 14;
const EACH: usize = 3 << 20;

/// Checks that a file that grows beyond the drive `usb` is named in every place that shows drives,
/// once in the log, and is copied when there is room.
fn outgrows(m: &Mounted, drive: &Path) {
    let dir = m.path("st");
    fs::create_dir(&dir).unwrap();
    (0..4).for_each(|n| fs::write(dir.join(format!("{n}")), seeded(n, EACH)).unwrap());
    let affinity = |args: &[&str]| {
        m.world()
            .teal(&[&["affinity"], args].concat())
            .expect_success()
    };
    affinity(&["add", text(&dir), "usb", "--sticky"]);
    flush(m);
    (4..FILES).for_each(|n| fs::write(dir.join(format!("{n}")), seeded(n, EACH)).unwrap());
    flush(m);
    let has_tried = || {
        shown(m, "usb")["short"]
            .as_u64()
            .is_some_and(|short| short > 0)
    };
    assert!(
        wait_until(PATIENCE, || has_tried() && shown(m, "usb")["queued"] == 0),
        "{}",
        shown(m, "usb")
    );
    let short = shown(m, "usb")["short"].as_u64().unwrap();
    let listed = affinity(&["ls", "usb", text(m.point())]);
    let lacking = listed
        .lines()
        .filter(|line| line.contains("of 3.0 MiB"))
        .count() as u64;
    assert_eq!(lacking, short, "{listed}");
    let said = format!("{short} files with affinity");
    assert!(
        listed.contains("usb is full") && listed.contains(&said),
        "{listed}"
    );
    let all = device(m, &["ls"]);
    assert!(all.contains("it is full") && all.contains(&said), "{all}");
    let line = m
        .world()
        .teal(&["device", "detach", "usb", text(m.point())])
        .expect_refusal();
    assert!(
        line.contains("usb is detached, without all") && line.contains("it is full"),
        "{line}"
    );
    let log = m.log();
    assert_eq!(log.matches("the drive usb is full").count(), 1, "{log}");
    assert!(log.matches("has no room for").count() <= 2, "{log}");
    // The drive is known again after it was away, and is full no longer when there is room.
    device(m, &["attach", text(drive)]);
    (2..FILES).for_each(|n| fs::remove_file(dir.join(format!("{n}"))).unwrap());
    device(m, &["detach", "usb"]);
    device(m, &["attach", text(drive)]);
    let listed = affinity(&["ls", "usb", text(m.point())]);
    assert!(
        !listed.contains("full") && listed.matches("   3.0 MiB").count() == 2,
        "{listed}"
    );
    device(m, &["detach", "usb"]);
    check(m.world(), drive);
}

#[test]
fn affinity_that_outgrows_a_drive_is_said() {
    let Some(nas) = Nas::of("affinity_that_outgrows_a_drive_is_said", |_| {}) else {
        return;
    };
    let drive = nas.0.world().path("usb.drive");
    device(&nas.0, &["add", text(&drive), "--size", "32M"]);
    outgrows(&nas.0, &drive);
    end(vec![nas.0]);
}

#[test]
fn affinity_that_outgrows_the_file_system_that_holds_a_drive_is_said() {
    let Some(nas) = Nas::of(
        "affinity_that_outgrows_the_file_system_that_holds_a_drive_is_said",
        |_| {},
    ) else {
        return;
    };
    let media = nas.0.world().path("media");
    fs::create_dir(&media).unwrap();
    let size = Some(c"size=36m");
    rustix::mount::mount(
        "tmpfs",
        &media,
        "tmpfs",
        rustix::mount::MountFlags::empty(),
        size,
    )
    .unwrap();
    let point = TestMount(media.clone());
    let drive = media.join("usb.drive");
    device(&nas.0, &["add", text(&drive), "--size", "100M"]);
    outgrows(&nas.0, &drive);
    drop(point);
    end(vec![nas.0]);
}
