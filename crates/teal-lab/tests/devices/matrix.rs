//! `teal lab matrix` by the real program: cells on modelled disks, interrupted and gone on with,
//! the report; matrices that are wrong.

use crate::support::{PATIENCE, TestLoopDevice, TestMount, World, has_loop_devices, wait_until};
use serde_json::Value;
use std::fs;
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

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
        if !has_loop_devices(test) {
            return None;
        }
        let world = World::new(test)?;
        let (file, results) = (world.path("matrix.toml"), world.path("results"));
        fs::write(&file, TEXT).unwrap();
        Some(Self {
            world,
            file,
            results,
        })
    }

    fn args<'a>(&'a self, more: &[&'a str]) -> Vec<&'a str> {
        let (file, results) = (self.file.to_str().unwrap(), self.results.to_str().unwrap());
        [&["lab", "matrix", file, "--results", results], more].concat()
    }

    fn runs(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.results.join("runs.jsonl")).unwrap_or_default();
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }
}

fn is_mounted(dir: &Path) -> bool {
    fs::read_to_string("/proc/self/mounts")
        .unwrap()
        .contains(dir.to_str().unwrap())
}

#[test]
fn a_matrix_that_is_interrupted_goes_on_and_says_what_to_take() {
    let test = "a_matrix_that_is_interrupted_goes_on_and_says_what_to_take";
    let Some(matrix) = Matrix::new(test) else {
        return;
    };
    let said = matrix
        .world
        .teal(&matrix.args(&["--dry-run"]))
        .expect_success();
    assert!(
        said.contains("4 cells, 8 to 8 runs")
            && said.contains("no device of this machine is touched"),
        "{said}"
    );
    assert!(!matrix.results.exists(), "a dry run makes nothing");

    let mut command = matrix.world.command(&matrix.args(&[]));
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut first = command.spawn().unwrap();
    let begun = wait_until(PATIENCE, || !matrix.runs().is_empty());
    let pid = rustix::process::Pid::from_child(&first);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    assert!(
        !first.wait().unwrap().success() && begun,
        "it was interrupted after its first run"
    );
    let before = matrix.runs();
    assert!((1..8).contains(&before.len()), "{before:?}");
    assert!(
        !is_mounted(&matrix.results)
            && matrix
                .world
                .teal(&["lab", "disk", "ls"])
                .expect_success()
                .is_empty(),
        "nothing is left"
    );

    // As a power cut leaves the last line.
    let mut file = fs::OpenOptions::new()
        .append(true)
        .open(matrix.results.join("runs.jsonl"))
        .unwrap();
    file.write_all(b"{\"version\":1,\"workl").unwrap();
    matrix.world.teal(&matrix.args(&[])).expect_success();
    let runs = matrix.runs();
    assert_eq!(
        (runs.len(), &runs[..before.len()]),
        (8, &before[..]),
        "what was there was not run again"
    );
    for run in &runs {
        let spent =
            |key: &str| run["run"][key].as_f64().unwrap() + run["drain"][key].as_f64().unwrap();
        assert!(
            spent("joules") > 0.1 && spent("written") > 2e4 && spent("busy") > 0.1,
            "{run}"
        );
        // Power of this drive between its least and its most.
        let watts = spent("joules") / spent("busy");
        assert!((0.2..1.3).contains(&watts), "{watts} W: {run}");
        assert!(
            run["operations"].as_u64().unwrap() > 10
                && run["latency_ms"][0].as_f64().unwrap() > 0.0
        );
        assert!(run["run"]["read"].as_u64().unwrap() > 0, "cold: {run}");
        assert_eq!(run["meter"]["model"], "ibm-microdrive-1gb");
        // Over the drive's own time, from the first operation to the end of the drain.
        let power: Vec<[f64; 2]> = serde_json::from_value(run["power"].clone()).unwrap();
        assert!(
            (20..=64).contains(&power.len()) && power.is_sorted_by(|a, b| a[0] < b[0]),
            "{run}"
        );
        assert!(
            power[0][0] > 0.0 && power[power.len() - 1][0] < spent("busy"),
            "{run}"
        );
        assert!(power.iter().all(|of| (0.05..1.3).contains(&of[1])), "{run}");
        let mean = power.iter().map(|of| of[1]).sum::<f64>() / power.len() as f64;
        assert!(
            (mean / watts - 1.0).abs() < 0.1,
            "{mean} W, but for the last bin, which is shorter: {run}"
        );
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
    let page = fs::read_to_string(matrix.results.join("report.html")).unwrap();
    assert!(page.contains("s of virtual time, modelled: "), "{page}");
    assert!(report.contains("processes wanted to run"), "{report}");
    assert!(
        !is_mounted(&matrix.results)
            && matrix
                .world
                .teal(&["lab", "disk", "ls"])
                .expect_success()
                .is_empty()
    );
    let again = matrix
        .world
        .teal(&matrix.args(&["--only-report"]))
        .expect_success();
    assert!(again.contains("8 runs"), "{again}");
    assert_eq!(
        fs::read_to_string(matrix.results.join("report.md")).unwrap(),
        report
    );
}

/// Returns whether a process has a child now.
fn has_child(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))
        .is_ok_and(|children| !children.trim().is_empty())
}

#[test]
fn what_ctrl_c_ends_is_no_failed_cell_and_leaves_no_disk() {
    let test = "what_ctrl_c_ends_is_no_failed_cell_and_leaves_no_disk";
    let Some(matrix) = Matrix::new(test) else {
        return;
    };
    // Ctrl-C at a terminal is for all that the terminal began. Each time it comes while some
    // program makes, mounts, starts or stops something.
    let mut hits = 0;
    for runs_before in 0..6 {
        let mut command = matrix.world.command(&matrix.args(&[]));
        let mut lab = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .unwrap();
        let group = rustix::process::Pid::from_child(&lab);
        let is_over = || matrix.runs().len() >= 8;
        let came = wait_until(PATIENCE, || {
            is_over() || matrix.runs().len() >= runs_before && has_child(lab.id())
        });
        assert!(came, "it runs programs");
        if is_over() {
            lab.wait().unwrap();
            break;
        }
        rustix::process::kill_process_group(group, rustix::process::Signal::INT).unwrap();
        let ended = lab.wait().unwrap();
        hits += 1;
        assert!(!ended.success(), "it was interrupted");
        assert!(
            !matrix.results.join("failed.jsonl").exists(),
            "what was interrupted has not failed: {}",
            fs::read_to_string(matrix.results.join("failed.jsonl")).unwrap_or_default()
        );
        let disks = matrix.world.teal(&["lab", "disk", "ls"]).expect_success();
        assert!(
            disks.is_empty() && !is_mounted(&matrix.results),
            "nothing is left: {disks}"
        );
    }
    assert!(hits >= 3, "{hits} interruptions");
    matrix.world.teal(&matrix.args(&[])).expect_success();
    assert_eq!(
        matrix.runs().len(),
        8,
        "each cell was run once in each block"
    );
}

#[test]
fn matrices_that_cannot_be_run_are_refused_with_a_reason() {
    let test = "matrices_that_cannot_be_run_are_refused_with_a_reason";
    let Some(matrix) = Matrix::new(test) else {
        return;
    };
    let refused = |from: &str, to: &str, more: &[&str]| {
        fs::write(&matrix.file, TEXT.replacen(from, to, 1)).unwrap();
        let said = matrix.world.teal(&matrix.args(more));
        assert_eq!(said.code, 1, "{to}: {said}");
        said.stderr
    };
    for (from, to, words) in [
        ("seconds = 1", "second = 1", "unknown field"),
        (
            "script = \"mail\"",
            "script = \"mial\"",
            "did you mean mail",
        ),
        ("script = \"mail\"", "script = \"mine.wml\"", "mine.wml"),
        ("threads=2", "thread=", "thread"),
        ("ibm-microdrive-1gb", "ibm-microdrive", "ibm-microdrive"),
        ("size = \"300M\"", "size = \"3T\"", "holds 1000000000 bytes"),
        (
            "\"mq-deadline\"",
            "\"elevator\"",
            "has no scheduler elevator",
        ),
        ("\"-b\", \"1024\"", "\"-b\", \"1000\"", "mkfs.ext4"),
        (
            "scale = 0.01",
            "scale = 0.01\nmemory = \"99999G\"",
            "runs.memory: ",
        ),
        (
            "scale = 0.01",
            "scale = 2.0",
            "of files on 300.0 MiB; say a smaller runs.scale",
        ),
        (
            "scale = 0.01",
            "scale = 0.5\naged = 80",
            "of files do not fit on 300.0 MiB aged to 80 %",
        ),
        (
            "scale = 0.01",
            "scale = 0.01\naged = 95",
            "runs.aged: 95 percent are none",
        ),
    ] {
        let said = refused(from, to, &[]);
        assert!(said.contains(words), "{to}: {said}");
        let _ = fs::remove_dir_all(&matrix.results);
        assert!(!is_mounted(&matrix.results), "{to}");
    }
    let said = refused("mail", "mail", &["--erase", "/dev/null"]);
    assert!(
        said.contains("--erase /dev/null: this is on a modelled disk"),
        "{said}"
    );
    assert!(
        matrix
            .world
            .teal(&["lab", "disk", "ls"])
            .expect_success()
            .is_empty(),
        "no disk is left"
    );
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
    let regular = refused(
        "profile = \"ibm-microdrive-1gb\"\nsize = \"300M\"",
        "path = \"/proc/self/exe\"",
        &[],
    );
    assert!(regular.contains("no block device"), "{regular}");
}

#[test]
fn a_real_device_is_not_touched_while_it_is_used_or_before_it_is_said_twice() {
    let test = "a_real_device_is_not_touched_while_it_is_used_or_before_it_is_said_twice";
    let Some(matrix) = Matrix::new(test) else {
        return;
    };
    let image = matrix.world.path("image");
    let attached = TestLoopDevice::new(&image, 300 << 20);
    let device = attached.path().to_str().unwrap();
    let by_path = format!("path = \"{device}\"");
    let text = TEXT.replacen(
        "profile = \"ibm-microdrive-1gb\"\nsize = \"300M\"",
        &by_path,
        1,
    );
    fs::write(
        &matrix.file,
        text.replacen("least = 2\nmost = 2", "least = 1\nmost = 1", 1),
    )
    .unwrap();
    let said = matrix.world.teal(&matrix.args(&[])).expect_refusal();
    assert!(said.contains(&format!("--erase {device}")), "{said}");
    assert_eq!(
        fs::metadata(&image)
            .map(|meta| std::os::unix::fs::MetadataExt::blocks(&meta))
            .unwrap(),
        0,
        "nothing was written"
    );
    crate::support::run_program(Command::new("mkfs.ext4").args(["-q", device])).expect_success();
    let point = matrix.world.path("point");
    fs::create_dir(&point).unwrap();
    crate::support::run_program(Command::new("mount").arg(device).arg(&point)).expect_success();
    let said = matrix
        .world
        .teal(&matrix.args(&["--erase", device]))
        .expect_refusal();
    crate::support::run_program(Command::new("umount").arg(&point)).expect_success();
    assert!(said.contains("is in use"), "{said}");
    matrix
        .world
        .teal(&matrix.args(&["--erase", device]))
        .expect_success();
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
    assert!(
        report.contains("each joule: not known: the device has no meter"),
        "{report}"
    );
    assert!(
        report.contains(&format!("--results again --erase {device}")),
        "{report}"
    );

    // A meter: a program that prints watts.
    let metered = |meter: &str| {
        let text = text
            .replacen("least = 2\nmost = 2", "least = 1\nmost = 1", 1)
            .replacen("seconds = 1", "seconds = 3", 1);
        fs::write(&matrix.file, format!("{text}\n[meter]\n{meter}\n")).unwrap();
        let _ = fs::remove_dir_all(&matrix.results);
        matrix.world.teal(&matrix.args(&["--erase", device]))
    };
    for (meter, words) in [
        (
            "kind = \"hwmon\"\npath = \"/nowhere/power1_input\"",
            "there is no /nowhere/power1_input",
        ),
        (
            "kind = \"rapl\"\npath = \"/nowhere\"",
            "RAPL: /nowhere/max_energy_range_uj",
        ),
        (
            "kind = \"command\"\ncommand = [\"echo\", \"much\"]",
            "printed 'much', not watts",
        ),
        (
            "kind = \"command\"\ncommand = [\"echo\", \"5\"]\nevery_ms = 500",
            "30 readings are needed",
        ),
    ] {
        let said = metered(meter).expect_refusal();
        assert!(said.contains(words), "{meter}: {said}");
    }
    metered("kind = \"command\"\ncommand = [\"echo\", \"5\"]\nevery_ms = 10").expect_success();
    for run in matrix.runs() {
        let joules = |part: &str| run[part]["joules"].as_f64().unwrap();
        let seconds = run["seconds"].as_f64().unwrap();
        assert_eq!(run["meter"]["measured"], "echo 5");
        assert!(
            joules("run") >= seconds * 5.0 * 0.99 && joules("drain") >= 0.0,
            "5 W for {seconds} s and a little more: {run}"
        );
        assert!(
            run["power"]
                .as_array()
                .unwrap()
                .iter()
                .all(|of| of[1] == 5.0),
            "{run}"
        );
    }
    let page = fs::read_to_string(matrix.results.join("report.html")).unwrap();
    assert!(page.contains("measured by echo 5"), "{page}");
}

/// Reads a file of 8 MiB from its beginning to its end.
const LOOK: &str = "define fileset name=ff,path=$dir,entries=1,size=8m,dirwidth=20,dirgamma=0,prealloc
define process name=pp { thread name=tt,memsize=1m { flowop read name=rr,filesetname=ff,fd=1,iosize=64k } }
run 60
";

#[test]
fn an_aged_file_system_has_its_files_in_pieces_and_the_same_ones_each_time() {
    let test = "an_aged_file_system_has_its_files_in_pieces_and_the_same_ones_each_time";
    let Some(matrix) = Matrix::new(test) else {
        return;
    };
    fs::write(matrix.world.path("look.wml"), LOOK).unwrap();
    let text = TEXT
        .replacen("least = 2\nmost = 2", "least = 1\nmost = 1", 1)
        .replacen("scale = 0.01\nseconds = 1", "AGED\nseconds = 60", 1)
        .replacen(
            "script = \"mail\"\nset = [\"threads=2\"]",
            "script = \"look.wml\"\noperations = 128",
            1,
        )
        .replacen("\"300M\"", "\"100M\"", 1)
        .replacen("[\"none\", \"mq-deadline\"]", "[\"none\"]", 1);
    let run = |text: &str, more: &[&str]| {
        fs::write(&matrix.file, text).unwrap();
        let _ = fs::remove_dir_all(&matrix.results);
        matrix.world.teal(&matrix.args(more)).expect_success()
    };
    let aged = text.replacen("AGED", "aged = 60", 1);
    let said = run(&aged, &["--dry-run"]);
    assert!(
        said.contains("aged to 60 %: each of 2 to 2 runs first writes 100.0 MiB"),
        "{said}"
    );
    let seeks = |aged: &str| {
        run(&text.replacen("AGED", aged, 1), &[]);
        matrix
            .runs()
            .iter()
            .map(|run| run["run"]["seeks"].as_u64().unwrap())
            .collect::<Vec<_>>()
    };
    let (fresh, old) = (seeks(""), seeks("aged = 60"));
    assert_eq!((fresh.len(), old.len()), (2, 2));
    // Both file systems together: the `sync(2)` of another program makes ext4 allocate early, and
    // then it has few pieces, once aged, or some, when it is fresh.
    assert!(
        old.iter().sum::<u64>() > fresh.iter().sum::<u64>() + 20,
        "{fresh:?} {old:?}"
    );
    let report = fs::read_to_string(matrix.results.join("report.md")).unwrap();
    assert!(
        report.contains("File systems are aged") && report.contains("of which 60 %"),
        "{report}"
    );

    // What is left on a device that stays.
    let device = TestLoopDevice::new(&matrix.world.path("image"), 100 << 20);
    let (name, point) = (device.path().to_str().unwrap(), matrix.world.path("point"));
    fs::create_dir(&point).unwrap();
    let by_path = format!("path = \"{name}\"");
    let on_it = aged
        .replacen(
            "profile = \"ibm-microdrive-1gb\"\nsize = \"100M\"",
            &by_path,
            1,
        )
        .replacen("[[system]]\nname = \"teal\"\nkind = \"teal\"\n", "", 1);
    let left = |text: &str| {
        run(text, &["--erase", name]);
        crate::support::run_program(Command::new("mount").args(["-o", "ro", name]).arg(&point))
            .expect_success();
        let mounted = TestMount(point.clone());
        let room = rustix::fs::statvfs(&point).unwrap();
        let part = |dir: fs::DirEntry| fs::read_dir(dir.path()).unwrap().map(Result::unwrap);
        let files = fs::read_dir(point.join("aged"))
            .unwrap()
            .map(Result::unwrap)
            .flat_map(part);
        let mut files: Vec<_> = files
            .map(|file| (file.path(), file.metadata().unwrap().len()))
            .collect();
        files.sort();
        drop(mounted);
        (files, room.f_blocks * room.f_frsize)
    };
    let (files, room) = left(&on_it);
    let bytes = files.iter().map(|(_, bytes)| bytes).sum::<u64>();
    assert!(
        (0.54..0.62).contains(&(bytes as f64 / room as f64)),
        "{bytes} of {room}"
    );
    assert_eq!(left(&on_it).0, files, "the same each time");
    assert_ne!(
        left(&on_it.replacen("[runs]\n", "[runs]\nseed = 9\n", 1)).0,
        files
    );
}

#[test]
fn what_does_not_fit_into_the_memory_of_a_run_is_read_again() {
    let test = "what_does_not_fit_into_the_memory_of_a_run_is_read_again";
    let Some(matrix) = Matrix::new(test) else {
        return;
    };
    let script = "define fileset name=ff,path=$dir,entries=1,size=50m,dirwidth=20,dirgamma=0,prealloc\n\
        define process name=pp { thread name=tt,memsize=64k { flowop read name=rr,filesetname=ff,fd=1,iosize=4k,random } }\nrun 60\n";
    fs::write(matrix.world.path("look.wml"), script).unwrap();
    let text = TEXT
        .replacen("least = 2\nmost = 2", "least = 1\nmost = 1", 1)
        .replacen("scale = 0.01\nseconds = 1", "seconds = 120", 1)
        .replacen(
            "script = \"mail\"\nset = [\"threads=2\"]",
            "script = \"look.wml\"\noperations = 30000",
            1,
        )
        .replacen("[[system]]\nname = \"teal\"\nkind = \"teal\"\n", "", 1)
        .replacen("[\"none\", \"mq-deadline\"]", "[\"none\"]", 1);
    let mut read = Vec::new();
    for memory in ["", "memory = \"24M\"\n"] {
        fs::write(
            &matrix.file,
            text.replacen("[runs]\n", &format!("[runs]\n{memory}"), 1),
        )
        .unwrap();
        let _ = fs::remove_dir_all(&matrix.results);
        let said = matrix.world.teal(&matrix.args(&["--dry-run"]));
        if said.stderr.contains("runs.memory") {
            return teal_testkit::skip_test(test, "memory cannot be limited here");
        }
        matrix.world.teal(&matrix.args(&[])).expect_success();
        let runs = matrix.runs();
        assert_eq!(
            (runs.len(), runs[0]["operations"].as_u64()),
            (1, Some(30_000))
        );
        read.push(runs[0]["run"]["read"].as_u64().unwrap());
    }
    assert!(read[0] < 52 << 20, "each page once, of 50 MiB: {read:?}");
    assert!(read[1] * 10 > read[0] * 12, "{read:?}");
    let here = fs::read_to_string("/proc/self/cgroup").unwrap();
    assert!(!here.contains("teal-lab-"), "{here}");
}
