//! A drive on a disk that takes its time: a modelled one, in real time.

use crate::support::{Nas, World, end, seeded};
use crate::{device, shown, text};
use std::fs;
use std::path::{Path, PathBuf};

/// The disk; it goes with the test.
struct Slow {
    world: World,
    device: PathBuf,
}

impl Slow {
    /// `None`, on record as skipped, where there are no loop devices.
    fn new(test: &str) -> Option<Self> {
        if !Path::new("/dev/loop-control").exists() {
            teal_testkit::skip_test(test, "there are no loop devices");
            return None;
        }
        let world = World::new(test)?;
        let disk = [
            "start",
            "--profile",
            "ibm-microdrive-1gb",
            "--size",
            "128M",
            "--real-time",
            "slow",
        ];
        let device = world
            .teal(&[&["lab", "disk"], &disk[..]].concat())
            .expect_success()
            .trim()
            .into();
        Some(Self { world, device })
    }
}

impl Drop for Slow {
    fn drop(&mut self) {
        self.world.teal(&["lab", "disk", "stop", "slow"]);
    }
}

#[test]
fn who_waits_for_a_slow_drive_to_be_let_go_hears_how_far_that_is() {
    const FILES: u64 = 24;
    let test = "who_waits_for_a_slow_drive_to_be_let_go_hears_how_far_that_is";
    let Some(slow) = Slow::new(test) else { return };
    let Some(nas) = Nas::of(test, |_| {}) else {
        return;
    };
    device(
        &nas.0,
        &["add", text(&slow.device), "--name", "slow", "--portable"],
    );
    // The disk writes 4 MB a second at best.
    (0..FILES).for_each(|n| fs::write(nas.0.path(format!("f{n}")), seeded(n, 1 << 20)).unwrap());
    nas.flush();
    let said = nas
        .0
        .world()
        .teal(&["device", "detach", "slow", text(nas.0.point())]);
    assert_eq!(said.code, 0, "{}", said.stderr);
    let waits = |line: &str| {
        Some(
            line.strip_prefix("slow: ")?
                .split_once(" objects wait")?
                .0
                .parse::<u64>()
                .unwrap(),
        )
    };
    let waits: Vec<u64> = said.stderr.lines().filter_map(waits).collect();
    assert!(
        !waits.is_empty() && waits.iter().all(|n| *n <= FILES) && waits.is_sorted_by(|a, b| a >= b),
        "{waits:?}"
    );
    device(&nas.0, &["attach", text(&slow.device)]);
    assert_eq!(
        shown(&nas.0, "slow")["objects"],
        FILES,
        "all of them are on it"
    );
    end(vec![nas.0]);
}
