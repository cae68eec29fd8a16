//! `teal lab phases` by the real program: on this kernel, in a guest, interrupted and gone on with;
//! what is wrong is said.

use crate::support::{PATIENCE, World, guests_of, has_guests, has_loop_devices, wait_until};
use serde_json::Value;
use std::fs;
use std::path::PathBuf;
use std::process::Stdio;

struct Phases {
    world: World,
    results: PathBuf,
}

impl Phases {
    fn new(test: &str) -> Option<Self> {
        if !has_loop_devices(test) {
            return None;
        }
        let world = World::new(test)?;
        let results = world.path("results");
        Some(Self { world, results })
    }

    fn args<'a>(&'a self, systems: &'a str, more: &[&'a str]) -> Vec<&'a str> {
        let begin = [
            "lab",
            "phases",
            "--profile",
            "ibm-microdrive-1gb",
            "--size",
            "300M",
            "--systems",
            systems,
        ];
        [
            &begin[..],
            &["--results", self.results.to_str().unwrap()],
            more,
        ]
        .concat()
    }

    fn cells(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.results.join("cells.jsonl")).unwrap_or_default();
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    fn report(&self) -> String {
        fs::read_to_string(self.results.join("report.md")).unwrap()
    }

    /// No mount and no disk stay behind.
    fn is_clean(&self) -> bool {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        !mounts.contains(self.results.to_str().unwrap())
            && self
                .world
                .teal(&["lab", "disk", "ls"])
                .expect_success()
                .is_empty()
    }
}

fn number(of: &Value, key: &str) -> u64 {
    of[key].as_u64().unwrap_or_else(|| panic!("{key}: {of}"))
}

/// What holds for every file system that is synced after each write call.
fn check(cell: &Value) {
    for phase in cell["phases"].as_array().unwrap() {
        let tally = &phase["tally"];
        let (joules, time) = (number(tally, "microjoules"), number(tally, "elapsed_ns"));
        let used: u64 = tally["uses"]
            .as_array()
            .unwrap()
            .iter()
            .map(|used| number(used, "microjoules"))
            .sum();
        assert_eq!(used, joules, "{phase}");
        let watts = joules as f64 * 1e3 / time as f64;
        assert!((0.5..0.8).contains(&watts), "{watts} W at work: {phase}");
        assert!(
            number(phase, "floor_microjoules") > 0 && number(phase, "drain_microjoules") < joules,
            "{phase}"
        );
        let (bytes, operations) = (number(phase, "bytes"), number(phase, "operations"));
        if phase["writes"] == true {
            assert!(
                number(tally, "bytes_written") > bytes && number(tally, "flushes") >= operations,
                "{phase}"
            );
            assert!(
                joules > number(phase, "floor_microjoules"),
                "nothing is below the floor: {phase}"
            );
        } else {
            assert!(number(tally, "bytes_read") >= bytes, "cold: {phase}");
        }
    }
}

#[test]
fn phases_on_this_kernel_are_measured_once_and_go_on_where_they_were_interrupted() {
    let test = "phases_on_this_kernel_are_measured_once_and_go_on_where_they_were_interrupted";
    let Some(phases) = Phases::new(test) else {
        return;
    };
    let more = ["--groups", "4k,update", "--scale", "0.005"];
    let said = phases
        .world
        .teal(&phases.args("ext4,teal", &[&more[..], &["--dry-run"]].concat()))
        .expect_success();
    assert!(
        said.contains("4 cells to be measured")
            && said.contains("no device of this machine is touched"),
        "{said}"
    );
    assert!(!phases.results.exists(), "a dry run makes nothing");

    let mut command = phases.world.command(&phases.args("ext4,teal", &more));
    let mut first = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let begun = wait_until(PATIENCE, || !phases.cells().is_empty());
    rustix::process::kill_process(
        rustix::process::Pid::from_child(&first),
        rustix::process::Signal::INT,
    )
    .unwrap();
    let ended = first.wait().unwrap();
    let before = phases.cells();
    assert!(
        begun && (!ended.success() || before.len() == 4),
        "{before:?}"
    );
    assert!(phases.is_clean(), "nothing is left");

    phases
        .world
        .teal(&phases.args("ext4,teal", &more))
        .expect_success();
    let cells = phases.cells();
    assert_eq!(
        (cells.len(), &cells[..before.len()]),
        (4, &before[..]),
        "what was there was not measured again"
    );
    cells.iter().for_each(check);
    let find = |system: &str, group: &str, phase: usize| {
        let cell = cells
            .iter()
            .find(|cell| cell["system"] == system && cell["group"] == group)
            .unwrap();
        cell["phases"][phase].clone()
    };
    let joules = |of: &Value| number(&of["tally"], "microjoules");
    let (ext4, teal) = (find("ext4", "4k", 0), find("teal", "4k", 0));
    assert_eq!(
        (number(&teal, "operations"), number(&teal, "bytes")),
        (64, 64 << 12)
    );
    assert!(
        joules(&teal) * 3 < joules(&ext4),
        "one write for each file: {teal}, {ext4}"
    );
    assert_eq!(number(&find("ext4", "update", 2), "operations"), 15);
    let report = phases.report();
    for words in [
        "| phase | ext4 | teal | floor |",
        "| 4k create |",
        "| update rand_reread |",
        "## teal (Linux ",
        "scale 0.005",
    ] {
        assert!(report.contains(words), "{words}: {report}");
    }
    phases
        .world
        .teal(&phases.args("ext4,teal", &[&more[..], &["--only-report"]].concat()))
        .expect_success();
    assert_eq!(phases.report(), report);
    let other = phases
        .world
        .teal(&phases.args("teal", &["--groups", "4k", "--scale", "0.01"]))
        .expect_refusal();
    assert!(other.contains("another mode, scale or disk"), "{other}");
    assert!(phases.is_clean());
}

/// Returns what a phase asks of the file system and, where it reads, what that takes from the
/// disk. What is written back beside it, and when, is the kernel's choice: it also follows the
/// `sync(2)` of other programs, and with it the blocks that are allocated.
fn fixed_counts(phase: &Value) -> [u64; 4] {
    let is_write = phase["writes"] == true;
    [
        number(phase, "operations"),
        number(phase, "bytes"),
        number(phase, "floor_microjoules"),
        if is_write {
            0
        } else {
            number(&phase["tally"], "bytes_read")
        },
    ]
}

#[test]
fn the_same_phases_ask_the_same_of_the_disk() {
    let Some(phases) = Phases::new("the_same_phases_ask_the_same_of_the_disk") else {
        return;
    };
    let args = phases.args("ext2", &["--groups", "32k", "--scale", "0.01"]);
    let run = || {
        phases.world.teal(&args).expect_success();
        let cell = phases.cells().remove(0);
        check(&cell);
        fs::remove_dir_all(&phases.results).unwrap();
        let counts = cell["phases"].as_array().unwrap().iter().map(fixed_counts);
        counts.collect::<Vec<_>>()
    };
    let (first, second) = (run(), run());
    assert_eq!(first.len(), 6, "{first:?}");
    assert_eq!(first, second);
}

#[test]
fn fragmented_free_space_costs_more() {
    let Some(phases) = Phases::new("fragmented_free_space_costs_more") else {
        return;
    };
    let begin = [
        "lab",
        "phases",
        "--profile",
        "ibm-microdrive-1gb",
        "--size",
        "64M",
        "--systems",
        "ext2",
        "--results",
    ];
    let args = [
        &begin[..],
        &[
            phases.results.to_str().unwrap(),
            "--groups",
            "camera,fragmented",
            "--scale",
            "0.02",
        ],
    ];
    phases.world.teal(&args.concat()).expect_success();
    let cells = phases.cells();
    let joules =
        |cell: usize, phase: usize| number(&cells[cell]["phases"][phase]["tally"], "microjoules");
    assert_eq!(cells[1]["phases"][0]["phase"], "camera at 80 %");
    assert!(
        joules(1, 0) * 2 > joules(0, 0) * 3,
        "half as much again: {}, {}",
        joules(1, 0),
        joules(0, 0)
    );
    assert_eq!(cells[1]["phases"].as_array().unwrap().len(), 12);
    assert!(phases.is_clean());
}

#[test]
fn file_systems_that_this_kernel_lacks_run_in_a_guest_that_leaves_nothing() {
    let test = "file_systems_that_this_kernel_lacks_run_in_a_guest_that_leaves_nothing";
    let Some(phases) = Phases::new(test) else {
        return;
    };
    if !has_guests(test, &["mkfs.reiserfs", "mkfs.vfat"]) {
        return;
    }
    let groups = ["--groups", "32k", "--scale", "0.01"];
    phases
        .world
        .teal(&phases.args("reiserfs@guest,ext4@guest", &groups))
        .expect_success();
    let cells = phases.cells();
    assert_eq!(cells.len(), 2);
    for cell in &cells {
        assert!(
            cell["kernel"]
                .as_str()
                .unwrap()
                .starts_with("user-mode Linux"),
            "{cell}"
        );
        assert_eq!(cell["phases"].as_array().unwrap().len(), 6, "{cell}");
        check(cell);
    }
    assert!(
        phases
            .report()
            .contains("## reiserfs@guest (user-mode Linux"),
        "{}",
        phases.report()
    );
    assert!(
        phases.is_clean() && guests_of(&phases.world).is_empty(),
        "{:?}",
        guests_of(&phases.world)
    );
    phases
        .world
        .teal(&phases.args("vfat@guest", &["--groups", "32k", "--scale", "0.01"]))
        .expect_success();
    assert!(phases.cells().len() == 3, "vfat needs modules");
}

#[test]
fn a_guest_ends_with_the_command_that_wanted_it_however_that_ends() {
    let test = "a_guest_ends_with_the_command_that_wanted_it_however_that_ends";
    let Some(phases) = Phases::new(test) else {
        return;
    };
    if !has_guests(test, &["mkfs.reiserfs", "mkfs.vfat"]) {
        return;
    }
    let args = phases.args("ext4@guest", &["--groups", "4k"]);
    for signal in [rustix::process::Signal::INT, rustix::process::Signal::KILL] {
        let mut command = phases.world.command(&args);
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        assert!(
            wait_until(PATIENCE, || !guests_of(&phases.world).is_empty()),
            "a guest is there"
        );
        rustix::process::kill_process(rustix::process::Pid::from_child(&child), signal).unwrap();
        assert!(!child.wait().unwrap().success());
        assert!(
            wait_until(PATIENCE, || guests_of(&phases.world).is_empty()),
            "{signal:?}: {:?}",
            guests_of(&phases.world)
        );
    }
    assert!(phases.cells().is_empty() && phases.is_clean());
}

#[test]
fn what_makes_no_sense_is_refused_and_what_is_missing_is_named() {
    let Some(phases) = Phases::new("what_makes_no_sense_is_refused_and_what_is_missing_is_named")
    else {
        return;
    };
    for (systems, more, words) in [
        ("ext5", &[][..], "did you mean ext"),
        ("ext4,ext2,ext4", &[], "ext4 is named twice"),
        ("ext4@moon", &[], "guest or host"),
        ("teal@guest", &[], "runs on this kernel"),
        ("ext4", &["--groups", "5k"], "there are 4k, 32k"),
        ("reiserfs@host", &[], "reiserfs"),
    ] {
        let said = phases
            .world
            .teal(&phases.args(systems, more))
            .expect_refusal();
        assert!(said.contains(words), "{systems} {more:?}: {said}");
    }
    // linux.uml is found by the path alone.
    let mut bare = phases
        .world
        .command(&phases.args("f2fs@guest", &["--groups", "4k"]));
    let said = crate::support::run_program(bare.env("PATH", "/nowhere")).expect_refusal();
    assert!(
        said.contains("f2fs@guest") && said.contains("apt-get install user-mode-linux"),
        "{said}"
    );
    assert!(!phases.results.exists() && phases.is_clean());
}
