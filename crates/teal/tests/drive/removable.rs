//! Drives on block devices that come and go, and on places that refuse writes.

use crate::support::{
    Mounted, Nas, PATIENCE, TestLoopDevice, TestMount, World, check, end, flush, has_loop_devices,
    run_program, seeded, wait_until,
};
use crate::words::kept;
use crate::{asked, catches_up, device, refused, shown, text, work_and_home};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const SIZE: u64 = 64 << 20;

/// A disk that can be taken away while it is in use, and put in again.
struct Stick {
    image: PathBuf,
    device: TestLoopDevice,
}

impl Stick {
    /// `None`, on record as skipped, where there are no loop devices.
    fn new(test: &str, world: &World) -> Option<Self> {
        let image = world.path("stick.img");
        has_loop_devices(test).then(|| Self {
            device: TestLoopDevice::new(&image, SIZE),
            image,
        })
    }

    fn device(&self) -> &Path {
        self.device.path()
    }

    fn is_size(&self, bytes: u64) {
        fs::OpenOptions::new()
            .write(true)
            .open(&self.image)
            .unwrap()
            .set_len(bytes)
            .unwrap();
        run_program(
            Command::new("losetup")
                .arg("--set-capacity")
                .arg(self.device()),
        )
        .expect_success();
    }

    /// Takes the drive out in the middle of anything: the disk has no medium any more, and every
    /// request to it fails. Returns its content.
    fn pull(&self) -> Vec<u8> {
        let bytes = fs::read(&self.image).unwrap();
        self.is_size(0);
        bytes
    }

    fn plug(&self, bytes: &[u8], size: u64) {
        fs::write(&self.image, bytes).unwrap();
        self.is_size(size);
    }
}

/// Waits until a machine says that a drive is there, or is not.
#[track_caller]
fn is_there(m: &Mounted, place: &Path, is_it: bool) {
    let there = || shown(m, "usb")["place"] == text(place);
    assert!(
        wait_until(PATIENCE, || there() == is_it),
        "{is_it}: {}",
        shown(m, "usb")
    );
}

#[test]
fn a_disk_that_is_pulled_out_blocks_nothing_and_is_attached_whenever_it_is_there_again() {
    let test =
        "a_disk_that_is_pulled_out_blocks_nothing_and_is_attached_whenever_it_is_there_again";
    let Some((_cable, nas, home, _)) = work_and_home(test) else {
        return;
    };
    let Some(stick) = Stick::new(test, home.world()) else {
        return;
    };
    device(&nas.0, &["rm", "usb"]);
    device(
        &home,
        &["add", text(stick.device()), "--name", "usb", "--portable"],
    );
    (0..6).for_each(|n| fs::write(nas.0.path(format!("f{n}")), seeded(n, 300_000)).unwrap());
    nas.flush();
    catches_up(&nas, &home);
    let read = |n: u64| {
        assert_eq!(
            fs::read(home.path(format!("f{n}"))).unwrap(),
            seeded(n, 300_000)
        )
    };
    (0..6).for_each(read);
    let is_on_it = || shown(&home, "usb")["objects"] == 6 && shown(&home, "usb")["queued"] == 0;
    assert!(wait_until(PATIENCE, is_on_it), "{}", shown(&home, "usb"));
    home.world()
        .teal(&["free", text(home.point())])
        .expect_success();
    // The kernel has it still.
    for n in 0..6 {
        let file = fs::OpenOptions::new()
            .read(true)
            .open(home.path(format!("f{n}")))
            .unwrap();
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    }
    let is_from_it = |n| {
        let before = asked(&nas);
        read(n);
        assert_eq!(
            asked(&nas),
            before,
            "no content came from the server: {}",
            shown(&home, "usb")
        );
    };
    is_from_it(0);
    // Pulled out, and read, written and sent without it.
    let bytes = stick.pull();
    (1..4).for_each(read);
    is_there(&home, stick.device(), false);
    fs::write(home.path("new"), "written without it").unwrap();
    flush(&home);
    // Put in again, as it was.
    stick.plug(&bytes, SIZE);
    is_there(&home, stick.device(), true);
    is_from_it(4);
    // A drive that was detached comes back when another medium has been put in, even if its absence
    // was not noticed.
    device(&home, &["detach", "usb"]);
    let bytes = stick.pull();
    stick.plug(&bytes, SIZE + (1 << 20));
    is_there(&home, stick.device(), true);
    is_from_it(5);
    device(&home, &["detach", "usb"]);
    check(home.world(), stick.device());
    end(vec![home, nas.0]);
}

/// Returns a read-only place with the content of `dir`.
fn protected_from(dir: &Path, point: PathBuf) -> TestMount {
    fs::create_dir(&point).unwrap();
    rustix::mount::mount_bind(dir, &point).unwrap();
    let point = TestMount(point);
    let flags = rustix::mount::MountFlags::BIND | rustix::mount::MountFlags::RDONLY;
    rustix::mount::mount_remount(&point.0, flags, "").unwrap();
    point
}

#[test]
fn a_drive_that_is_write_protected_is_refused_in_one_line_and_attached_when_it_is_not() {
    let test = "a_drive_that_is_write_protected_is_refused_in_one_line_and_attached_when_it_is_not";
    let Some(mut nas) = Nas::of(test, |_| {}) else {
        return;
    };
    nas.serve();
    let Some(stick) = Stick::new(test, nas.0.world()) else {
        return;
    };
    let files = nas.0.world().path("stick");
    fs::create_dir(&files).unwrap();
    let drive = nas.0.world().path("file.drive");
    device(&nas.0, &["add", text(&drive), "--size", "64M"]);
    device(&nas.0, &["add", text(stick.device()), "--name", "usb"]);
    for name in ["file", "usb"] {
        device(&nas.0, &["detach", name]);
    }
    let protected = protected_from(&files, nas.0.world().path("protected"));
    // Not before: it would be attached where it has just been mounted.
    fs::rename(&drive, files.join("file.drive")).unwrap();
    refused(
        &nas.0,
        &["attach", text(&protected.0.join("file.drive"))],
        &["file.drive", "write-protected"],
    );
    refused(
        &nas.0,
        &["add", text(&protected.0.join("new.drive")), "--size", "64M"],
        &["new.drive", "write-protected"],
    );
    run_program(Command::new("blockdev").arg("--setro").arg(stick.device())).expect_success();
    refused(
        &nas.0,
        &["attach", text(stick.device())],
        &[text(stick.device()), "write-protected"],
    );
    run_program(Command::new("blockdev").arg("--setrw").arg(stick.device())).expect_success();
    drop(protected);
    // A drive that was detached is attached again only when the daemon has seen it away.
    let is_left = || {
        let kept = kept(&nas);
        let left = kept
            .split_once("[left]\n")
            .map_or("", |(_, rest)| rest.split("\n[").next().unwrap());
        left.contains(text(&drive))
    };
    assert!(wait_until(PATIENCE, || !is_left()), "{}", kept(&nas));
    fs::rename(files.join("file.drive"), &drive).unwrap();
    device(&nas.0, &["attach", text(stick.device())]);
    let is_back = || shown(&nas.0, "file")["place"] == text(&drive);
    assert!(
        wait_until(PATIENCE, is_back),
        "it is attached by itself: {}",
        shown(&nas.0, "file")
    );
    fs::write(nas.0.path("f"), seeded(1, 10_000)).unwrap();
    nas.flush();
    for name in ["file", "usb"] {
        device(&nas.0, &["detach", name]);
    }
    nas.0.down();
    check(nas.0.world(), &drive);
    check(nas.0.world(), stick.device());
    nas.0.check();
}
