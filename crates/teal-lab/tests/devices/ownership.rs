//! Directories of results of `teal lab` by the real program: whose they are, what a killed run
//! leaves, which devices options may not name.

use crate::support::{PATIENCE, TestLoopDevice, World, has_loop_devices, wait_until};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

const TEXT: &str = r#"
version = 1
[device]
profile = "ibm-microdrive-1gb"
size = "300M"
[runs]
least = 1
most = 1
scale = 0.01
seconds = 300
[[workload]]
name = "mail"
script = "mail"
set = ["threads=2"]
operations = 400
[[system]]
name = "it"
kind = "KIND"
[schedulers]
names = ["none"]
"#;

fn text(kind: &str) -> String {
    TEXT.replacen("KIND", kind, 1)
}

struct Lab {
    world: World,
    file: PathBuf,
    results: PathBuf,
}

impl Lab {
    fn new(test: &str) -> Option<Self> {
        if !has_loop_devices(test) {
            return None;
        }
        let world = World::new(test)?;
        let (file, results) = (world.path("matrix.toml"), world.path("results"));
        Some(Self {
            world,
            file,
            results,
        })
    }

    fn matrix<'a>(&'a self, more: &[&'a str]) -> Vec<&'a str> {
        let (file, results) = (self.file.to_str().unwrap(), self.results.to_str().unwrap());
        [&["lab", "matrix", file, "--results", results], more].concat()
    }

    fn phases<'a>(&'a self, more: &[&'a str]) -> Vec<&'a str> {
        let begin = [
            "lab",
            "phases",
            "--profile",
            "ibm-microdrive-1gb",
            "--size",
            "300M",
            "--systems",
            "ext4,teal",
        ];
        [
            &begin[..],
            &["--results", self.results.to_str().unwrap()],
            more,
        ]
        .concat()
    }

    /// Starts it, waits until it has mounted something, and kills it; what it had made is there.
    fn kill(&self, args: &[&str]) {
        let mut command = self.world.command(args);
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        assert!(
            wait_until(PATIENCE, || mounts(&self.results) > 0),
            "it mounts something"
        );
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(
            self.results.join("owner").exists() && self.disks().lines().count() == 1,
            "{}",
            self.disks()
        );
    }

    fn disks(&self) -> String {
        self.world.teal(&["lab", "disk", "ls"]).expect_success()
    }

    fn is_clean(&self) -> bool {
        mounts(&self.results) == 0
            && self.disks().is_empty()
            && !self.results.join("owner").exists()
    }
}

fn mounts(below: &Path) -> usize {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    mounts
        .lines()
        .filter(|line| line.contains(below.to_str().unwrap()))
        .count()
}

#[test]
fn what_a_killed_run_left_is_cleared_away_and_the_same_command_goes_on() {
    let test = "what_a_killed_run_left_is_cleared_away_and_the_same_command_goes_on";
    let Some(lab) = Lab::new(test) else { return };
    for kind in ["ext4", "teal"] {
        fs::write(&lab.file, text(kind)).unwrap();
        let _ = fs::remove_dir_all(&lab.results);
        lab.kill(&lab.matrix(&[]));
        lab.kill(&lab.matrix(&[]));
        lab.world.teal(&lab.matrix(&[])).expect_success();
        assert_eq!(
            fs::read_to_string(lab.results.join("runs.jsonl"))
                .unwrap()
                .lines()
                .count(),
            1
        );
        assert!(lab.is_clean(), "{kind}: {}", lab.disks());
    }
    fs::remove_dir_all(&lab.results).unwrap();
    let more = ["--groups", "4k", "--scale", "0.01"];
    lab.kill(&lab.phases(&more));
    lab.world.teal(&lab.phases(&more)).expect_success();
    assert_eq!(
        fs::read_to_string(lab.results.join("cells.jsonl"))
            .unwrap()
            .lines()
            .count(),
        2
    );
    assert!(lab.is_clean(), "{}", lab.disks());
}

#[test]
fn results_have_one_owner_and_its_groups_go_with_it() {
    let test = "results_have_one_owner_and_its_groups_go_with_it";
    let Some(lab) = Lab::new(test) else { return };
    let limited = text("ext4")
        .replacen("[runs]", "[runs]\nmemory = \"40M\"", 1)
        .replacen("400", "400000000", 1);
    fs::write(&lab.file, &limited).unwrap();
    let said = lab.world.teal(&lab.matrix(&["--dry-run"]));
    if said.stderr.contains("runs.memory") {
        return teal_testkit::skip_test(test, "memory cannot be limited here");
    }
    let mut command = lab.world.command(&lab.matrix(&[]));
    let mut first = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let group = || {
        let groups = fs::read_to_string(format!("/proc/{}/cgroup", first.id())).unwrap_or_default();
        groups.lines().find_map(|line| {
            line.split_once("teal-lab-")
                .map(|(_, name)| format!("teal-lab-{name}"))
        })
    };
    assert!(
        wait_until(PATIENCE, || group().is_some()),
        "it limits its memory"
    );
    let name = group().unwrap();
    for args in [lab.matrix(&[]), lab.matrix(&["--only-report"])] {
        let said = lab.world.teal(&args).expect_refusal();
        assert!(
            said.contains(&format!("process {} is measuring in", first.id())),
            "{said}"
        );
    }
    first.kill().unwrap();
    first.wait().unwrap();
    let owner = fs::read_to_string(lab.results.join("owner")).unwrap();
    let owner: serde_json::Value = serde_json::from_str(&owner).unwrap();
    let group = Path::new(owner["groups"].as_str().unwrap()).join(name);
    assert!(group.is_dir(), "{}", group.display());
    lab.world
        .teal(&lab.matrix(&["--only-report"]))
        .expect_success();
    assert!(
        lab.is_clean() && !group.exists(),
        "{} {}",
        lab.disks(),
        group.display()
    );
}

#[test]
fn directories_of_others_are_left_alone() {
    let Some(world) = World::new("directories_of_others_are_left_alone") else {
        return;
    };
    let dir = world.path("mine");
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("report.md"), "mine").unwrap();
    fs::write(dir.join("matrix.toml"), text("ext4")).unwrap();
    fs::write(dir.join("owner"), "me").unwrap();
    let (file, results) = (dir.join("matrix.toml"), dir.to_str().unwrap());
    let matrix = [
        "lab",
        "matrix",
        file.to_str().unwrap(),
        "--results",
        results,
    ];
    let tune = [
        "lab",
        "tune",
        "--workload",
        "mail",
        "--device",
        "ibm-microdrive-1gb:300M",
        "--results",
        results,
    ];
    let phases = [
        "lab",
        "phases",
        "--profile",
        "ibm-microdrive-1gb",
        "--systems",
        "ext4",
        "--results",
        results,
    ];
    for args in [&matrix[..], &tune, &phases] {
        for more in [&[][..], &["--dry-run"], &["--only-report"]] {
            let said = world.teal(&[args, more].concat()).expect_refusal();
            assert!(
                said.contains("has other files and no") && said.contains("another --results"),
                "{args:?}: {said}"
            );
        }
    }
    assert_eq!(fs::read_to_string(dir.join("report.md")).unwrap(), "mine");
    assert_eq!(
        fs::read_to_string(dir.join("owner")).unwrap(),
        "me",
        "not a file of that name, either"
    );
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 3, "nothing came");
}

#[test]
fn an_option_names_no_device_that_would_be_erased() {
    let test = "an_option_names_no_device_that_would_be_erased";
    let Some(lab) = Lab::new(test) else { return };
    let image = lab.world.path("image");
    let other = TestLoopDevice::new(&image, 300 << 20);
    let name = other.path().to_str().unwrap();
    for (kind, options) in [
        ("btrfs", format!("mkfs = [\"{name}\"]")),
        ("btrfs", format!("mkfs = [\"-m\", \"single\", \"{name}\"]")),
        ("ext4", format!("mkfs = [\"-J\", \"device={name}\"]")),
        ("xfs", format!("mount = \"logdev={name}\"")),
    ] {
        fs::write(
            &lab.file,
            text(kind).replacen("[schedulers]", &format!("{options}\n[schedulers]"), 1),
        )
        .unwrap();
        for more in [&["--dry-run"][..], &[]] {
            let said = lab.world.teal(&lab.matrix(more)).expect_refusal();
            assert!(
                said.contains("system: it: m") && said.contains("names a device"),
                "{options}: {said}"
            );
        }
    }
    let blocks = fs::metadata(&image)
        .map(|meta| std::os::unix::fs::MetadataExt::blocks(&meta))
        .unwrap();
    assert!(blocks == 0 && !lab.results.exists(), "nothing was written");
}

#[test]
fn results_keep_their_scripts_and_refuse_others() {
    let test = "results_keep_their_scripts_and_refuse_others";
    let Some(lab) = Lab::new(test) else { return };
    let part =
        "define fileset name=ff,path=$dir,entries=4,size=64k,dirwidth=20,dirgamma=0,prealloc\n";
    let script = "load \"part\"\ndefine process name=pp { thread name=tt,memsize=1m { flowop read name=rr,filesetname=ff,iosize=4k } }\nrun 60\n";
    let of = |name: &str| lab.world.path(name);
    fs::write(of("part.wml"), part).unwrap();
    fs::write(of("own.wml"), script).unwrap();
    let own = text("ext4").replacen(
        "script = \"mail\"\nset = [\"threads=2\"]",
        "script = \"own.wml\"",
        1,
    );
    fs::write(&lab.file, own).unwrap();
    lab.world.teal(&lab.matrix(&[])).expect_success();
    lab.world.teal(&lab.matrix(&[])).expect_success();
    // What it loads is part of it.
    fs::write(of("part.wml"), part.replacen("64k", "32k", 1)).unwrap();
    let said = lab.world.teal(&lab.matrix(&[])).expect_refusal();
    assert!(
        said.contains("workload mail: its script own.wml is not the one")
            && said.lines().count() == 1,
        "{said}"
    );
    lab.world
        .teal(&lab.matrix(&["--only-report"]))
        .expect_success();
    // As the report says, with nothing but the results.
    for gone in ["part.wml", "own.wml"] {
        fs::remove_file(of(gone)).unwrap();
    }
    let again = of("again");
    let (kept, to) = (lab.results.join("matrix.toml"), again.to_str().unwrap());
    lab.world
        .teal(&["lab", "matrix", kept.to_str().unwrap(), "--results", to])
        .expect_success();
    let operations = |dir: &Path| {
        let runs = fs::read_to_string(dir.join("runs.jsonl")).unwrap();
        serde_json::from_str::<serde_json::Value>(runs.trim()).unwrap()["operations"].clone()
    };
    assert_eq!(
        (operations(&lab.results), operations(&again)),
        (400.into(), 400.into())
    );
}
