//! `teal lab matrix` by the real program: cells on modelled disks, interrupted and gone on with, the report; matrices that are wrong.

#![allow(clippy::unwrap_used, reason = "a test whose ground gives way fails")]

#[path = "support/support.rs"]
mod support;

use serde_json::Value;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use support::{PATIENCE, World, wait_until};

const TEXT: &str = r#"
version = 1
[device]
profile = "ibm-microdrive-1gb"
size = "300M"
[runs]
least = 2
most = 2
scale = 0.01
seconds = 1
[[workload]]
name = "mail"
script = "mail"
set = ["threads=2"]
[[system]]
name = "ext4 noatime"
kind = "ext4"
mkfs = ["-b", "1024"]
mount = "noatime"
[[system]]
name = "teal"
kind = "teal"
[schedulers]
names = ["none", "mq-deadline"]
"#;

struct Matrix {
    world: World,
    file: PathBuf,
    results: PathBuf,
}

impl Matrix {
    fn new(test: &str) -> Option<Self> {
        if !Path::new("/dev/loop-control").exists() {
            teal_testkit::skip(test, "there are no loop devices");
            return None;
        }
        let world = World::new(test)?;
        let (file, results) = (world.path("matrix.toml"), world.path("results"));
        fs::write(&file, TEXT).unwrap();
        Some(Self { world, file, results })
    }

    fn args<'a>(&'a self, more: &[&'a str]) -> Vec<&'a str> {
        let (file, results) = (self.file.to_str().unwrap(), self.results.to_str().unwrap());
        [&["lab", "matrix", file, "--results", results], more].concat()
    }

    fn runs(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.results.join("runs.jsonl")).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

fn is_mounted(dir: &Path) -> bool {
    fs::read_to_string("/proc/self/mounts").unwrap().contains(dir.to_str().unwrap())
}

#[test]
fn a_matrix_that_is_interrupted_goes_on_and_says_what_to_take() {
    let test = "a_matrix_that_is_interrupted_goes_on_and_says_what_to_take";
    let Some(matrix) = Matrix::new(test) else { return };
    let said = matrix.world.teal(&matrix.args(&["--dry-run"])).good();
    assert!(said.contains("4 cells, 8 to 8 runs") && said.contains("no device of this machine is touched"), "{said}");
    assert!(!matrix.results.exists(), "a dry run makes nothing");

    let mut command = matrix.world.command(&matrix.args(&[]));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut first = command.spawn().unwrap();
    let begun = wait_until(PATIENCE, || !matrix.runs().is_empty());
    let pid = rustix::process::Pid::from_child(&first);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    assert!(!first.wait().unwrap().success() && begun, "it was interrupted after its first run");
    let before = matrix.runs();
    assert!((1..8).contains(&before.len()), "{before:?}");
    assert!(
        !is_mounted(&matrix.results) && matrix.world.teal(&["lab", "disk", "ls"]).good().is_empty(),
        "nothing is left"
    );

    // As a power cut leaves the last line.
    let mut file = fs::OpenOptions::new().append(true).open(matrix.results.join("runs.jsonl")).unwrap();
    file.write_all(b"{\"version\":1,\"workl").unwrap();
    matrix.world.teal(&matrix.args(&[])).good();
    let runs = matrix.runs();
    assert_eq!((runs.len(), &runs[..before.len()]), (8, &before[..]), "what was there was not run again");
    for run in &runs {
        let spent = |key: &str| run["run"][key].as_f64().unwrap() + run["drain"][key].as_f64().unwrap();
        assert!(spent("joules") > 0.1 && spent("written") > 1e5 && spent("busy") > 0.1, "{run}");
        // Power of this drive between its least and its most.
        let watts = spent("joules") / spent("busy");
        assert!((0.2..1.3).contains(&watts), "{watts} W: {run}");
        assert!(run["operations"].as_u64().unwrap() > 10 && run["latency_ms"][0].as_f64().unwrap() > 0.0);
        assert!(run["run"]["read"].as_u64().unwrap() > 0, "cold: {run}");
        assert_eq!(run["meter"]["model"], "ibm-microdrive-1gb");
    }
    let report = fs::read_to_string(matrix.results.join("report.md")).unwrap();
    for words in [
        "8 runs of 4 cells, 2 whole blocks",
        "modelled by ibm-microdrive-1gb",
        "| mail | teal | none | 2 ",
        "### mail",
        "scaled by 0.01",
    ] {
        assert!(report.contains(words), "{words}: {report}");
    }
    assert!(!is_mounted(&matrix.results) && matrix.world.teal(&["lab", "disk", "ls"]).good().is_empty());
    let again = matrix.world.teal(&matrix.args(&["--only-report"])).good();
    assert!(again.contains("8 runs"), "{again}");
    assert_eq!(fs::read_to_string(matrix.results.join("report.md")).unwrap(), report);
}

#[test]
fn matrices_that_cannot_be_run_are_refused_with_a_reason() {
    let test = "matrices_that_cannot_be_run_are_refused_with_a_reason";
    let Some(matrix) = Matrix::new(test) else { return };
    let refused = |from: &str, to: &str, more: &[&str]| {
        fs::write(&matrix.file, TEXT.replacen(from, to, 1)).unwrap();
        let said = matrix.world.teal(&matrix.args(more));
        assert_eq!(said.code, 1, "{to}: {said}");
        said.stderr
    };
    for (from, to, words) in [
        ("seconds = 1", "second = 1", "unknown field"),
        ("script = \"mail\"", "script = \"mial\"", "did you mean mail"),
        ("script = \"mail\"", "script = \"mine.wml\"", "mine.wml"),
        ("threads=2", "thread=", "thread"),
        ("ibm-microdrive-1gb", "ibm-microdrive", "ibm-microdrive"),
        ("size = \"300M\"", "size = \"3T\"", "holds 1000000000 bytes"),
        ("\"mq-deadline\"", "\"elevator\"", "has no scheduler elevator"),
        ("\"-b\", \"1024\"", "\"-b\", \"1000\"", "mkfs.ext4"),
        ("scale = 0.01", "scale = 2.0", "--scale"),
    ] {
        let said = refused(from, to, &[]);
        assert!(said.contains(words), "{to}: {said}");
        let _ = fs::remove_dir_all(&matrix.results);
        assert!(!is_mounted(&matrix.results), "{to}");
    }
    assert!(matrix.world.teal(&["lab", "disk", "ls"]).good().is_empty(), "no disk is left");
    let line = r#"{"version":1,"workload":"mail","system":"teal","scheduler":"none","block":0,"operations":9,"bytes":9,"seconds":1.0,
        "latency_ms":[1,1,1,1],"steady_from":null,"rate":9.0,"meter":"none","run":{"joules":0,"busy":0,"read":0,"written":0,"flushes":0,"seeks":0},
        "drain":{"joules":0,"busy":0,"read":0,"written":0,"flushes":0,"seeks":0},"load_before":0.5}"#;
    let kept = matrix.results.join("runs.jsonl");
    fs::create_dir(&matrix.results).unwrap();
    fs::write(matrix.results.join("matrix.toml"), TEXT).unwrap();
    fs::write(&kept, line.replace('\n', "") + "\n").unwrap();
    let said = refused("seconds = 1", "seconds = 2", &["--only-report"]);
    assert!(said.contains("results of another matrix"), "{said}");
    fs::write(&kept, "{}\n").unwrap();
    let said = refused("seconds = 1", "seconds = 2", &["--only-report"]);
    assert!(said.contains("runs.jsonl, line 1"), "{said}");
    let regular = refused("profile = \"ibm-microdrive-1gb\"\nsize = \"300M\"", "path = \"/proc/self/exe\"", &[]);
    assert!(regular.contains("no block device"), "{regular}");
}

#[test]
fn a_real_device_is_not_touched_while_it_is_used_or_before_it_is_said_twice() {
    let test = "a_real_device_is_not_touched_while_it_is_used_or_before_it_is_said_twice";
    let Some(matrix) = Matrix::new(test) else { return };
    let image = matrix.world.path("image");
    fs::File::create_new(&image).unwrap().set_len(300 << 20).unwrap();
    let device = support::run(Command::new("losetup").args(["-f", "--show"]).arg(&image)).good();
    let device = Loop(device.trim().to_owned());
    let by_path = format!("path = \"{}\"", device.0);
    let text = TEXT.replacen("profile = \"ibm-microdrive-1gb\"\nsize = \"300M\"", &by_path, 1);
    fs::write(&matrix.file, text.replacen("least = 2\nmost = 2", "least = 1\nmost = 1", 1)).unwrap();
    let said = matrix.world.teal(&matrix.args(&[])).refused();
    assert!(said.contains(&format!("--erase {}", device.0)), "{said}");
    assert_eq!(
        fs::metadata(&image).map(|meta| std::os::unix::fs::MetadataExt::blocks(&meta)).unwrap(),
        0,
        "nothing was written"
    );
    support::run(Command::new("mkfs.ext4").args(["-q", &device.0])).good();
    let point = matrix.world.path("point");
    fs::create_dir(&point).unwrap();
    support::run(Command::new("mount").arg(&device.0).arg(&point)).good();
    let said = matrix.world.teal(&matrix.args(&["--erase", &device.0])).refused();
    support::run(Command::new("umount").arg(&point)).good();
    assert!(said.contains("is in use"), "{said}");
    matrix.world.teal(&matrix.args(&["--erase", &device.0])).good();
    let runs = matrix.runs();
    assert_eq!(runs.len(), 4);
    for run in runs {
        assert_eq!(
            (&run["meter"], run["run"]["joules"].as_f64()),
            (&Value::from("none"), Some(0.0)),
            "no meter, no joules"
        );
        assert!(run["run"]["written"].as_u64().unwrap() > 100_000, "{run}");
    }
    let report = fs::read_to_string(matrix.results.join("report.md")).unwrap();
    assert!(report.contains("Energy: not known"), "{report}");

    // A meter: a program that prints watts.
    let metered = |meter: &str| {
        let text =
            text.replacen("least = 2\nmost = 2", "least = 1\nmost = 1", 1).replacen("seconds = 1", "seconds = 3", 1);
        fs::write(&matrix.file, format!("{text}\n[meter]\n{meter}\n")).unwrap();
        let _ = fs::remove_dir_all(&matrix.results);
        matrix.world.teal(&matrix.args(&["--erase", &device.0]))
    };
    for (meter, words) in [
        ("kind = \"hwmon\"\npath = \"/nowhere/power1_input\"", "there is no /nowhere/power1_input"),
        ("kind = \"rapl\"\npath = \"/nowhere\"", "RAPL: /nowhere/max_energy_range_uj"),
        ("kind = \"command\"\ncommand = [\"echo\", \"much\"]", "printed 'much', not watts"),
        ("kind = \"command\"\ncommand = [\"echo\", \"5\"]\nevery_ms = 500", "30 readings are needed"),
    ] {
        let said = metered(meter).refused();
        assert!(said.contains(words), "{meter}: {said}");
    }
    metered("kind = \"command\"\ncommand = [\"echo\", \"5\"]\nevery_ms = 10").good();
    for run in matrix.runs() {
        let joules = |part: &str| run[part]["joules"].as_f64().unwrap();
        let seconds = run["seconds"].as_f64().unwrap();
        assert_eq!(run["meter"]["measured"], "echo 5");
        assert!(
            joules("run") >= seconds * 5.0 * 0.99 && joules("drain") >= 0.0,
            "5 W for {seconds} s and a little more: {run}"
        );
        assert!(run["power"].as_array().unwrap().iter().all(|of| of[1] == 5.0), "{run}");
    }
    let page = fs::read_to_string(matrix.results.join("report.html")).unwrap();
    assert!(page.contains("measured by echo 5"), "{page}");
}

/// A loop device that goes with the test.
struct Loop(String);

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["-d", &self.0]).status();
    }
}

#[test]
fn what_does_not_fit_into_the_memory_of_a_run_is_read_again() {
    let test = "what_does_not_fit_into_the_memory_of_a_run_is_read_again";
    let Some(matrix) = Matrix::new(test) else { return };
    let script = "define fileset name=ff,path=$dir,entries=1,size=50m,dirwidth=20,dirgamma=0,prealloc\n\
        define process name=pp { thread name=tt,memsize=64k { flowop read name=rr,filesetname=ff,fd=1,iosize=4k,random } }\nrun 60\n";
    fs::write(matrix.world.path("look.wml"), script).unwrap();
    let text = TEXT
        .replacen("least = 2\nmost = 2", "least = 1\nmost = 1", 1)
        .replacen("scale = 0.01\nseconds = 1", "seconds = 120", 1)
        .replacen("script = \"mail\"\nset = [\"threads=2\"]", "script = \"look.wml\"\noperations = 30000", 1)
        .replacen("[[system]]\nname = \"teal\"\nkind = \"teal\"\n", "", 1)
        .replacen("[\"none\", \"mq-deadline\"]", "[\"none\"]", 1);
    let mut read = Vec::new();
    for memory in ["", "memory = \"24M\"\n"] {
        fs::write(&matrix.file, text.replacen("[runs]\n", &format!("[runs]\n{memory}"), 1)).unwrap();
        let _ = fs::remove_dir_all(&matrix.results);
        let said = matrix.world.teal(&matrix.args(&["--dry-run"]));
        if said.stderr.contains("runs.memory") {
            return teal_testkit::skip(test, "memory cannot be limited here");
        }
        matrix.world.teal(&matrix.args(&[])).good();
        let runs = matrix.runs();
        assert_eq!((runs.len(), runs[0]["operations"].as_u64()), (1, Some(30_000)));
        read.push(runs[0]["run"]["read"].as_u64().unwrap());
    }
    assert!(read[0] < 52 << 20, "each page once, of 50 MiB: {read:?}");
    assert!(read[1] * 10 > read[0] * 12, "{read:?}");
    let here = fs::read_to_string("/proc/self/cgroup").unwrap();
    assert!(!here.contains("teal-lab-"), "{here}");
}
