//! `teal lab matrix` and `tune` with file systems in guests, by the real program: beside this
//! kernel's, within a limit of memory, ended in the middle; what cannot be is refused.

use crate::support::{PATIENCE, World, guests_of, has_guests, has_loop_devices, wait_until};
use serde_json::Value;
use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Stdio;

const TEXT: &str = r#"
version = 1
[device]
profile = "ibm-microdrive-1gb"
size = "300M"
[runs]
least = 2
most = 2
scale = 0.01
seconds = 120
[[workload]]
name = "post"
script = "post.wml"
set = ["threads=2"]
operations = 300
[[system]]
name = "ext4"
kind = "ext4"
[[system]]
name = "nilfs2"
kind = "nilfs2"
[[system]]
name = "vfat noatime"
kind = "vfat"
mount = "noatime"
[schedulers]
names = ["none"]
"#;

struct Matrix {
    world: World,
    file: PathBuf,
    results: PathBuf,
}

impl Matrix {
    fn new(test: &str) -> Option<Self> {
        if !has_loop_devices(test)
            || !has_guests(test, &["mkfs.nilfs2", "mkfs.vfat", "mkfs.reiserfs"])
        {
            return None;
        }
        let world = World::new(test)?;
        let (file, results) = (world.path("matrix.toml"), world.path("results"));
        fs::write(&file, TEXT).unwrap();
        // What a script loads lies beside it, where no guest looks.
        fs::write(world.path("post.wml"), "load inner\n").unwrap();
        let mail = world.teal(&["lab", "workloads", "mail"]).expect_success();
        fs::write(world.path("inner.wml"), mail).unwrap();
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

    /// No mount, no disk and no guest stay behind.
    fn is_clean(&self) -> bool {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        !mounts.contains(self.results.to_str().unwrap())
            && self
                .world
                .teal(&["lab", "disk", "ls"])
                .expect_success()
                .is_empty()
            && guests_of(&self.world).is_empty()
    }

    fn change(&self, changes: &[(&str, &str)]) {
        let text = changes.iter().fold(TEXT.to_owned(), |text, (from, to)| {
            assert!(text.contains(from), "{from}");
            text.replacen(from, to, 1)
        });
        fs::write(&self.file, text).unwrap();
    }
}

fn joules(run: &Value) -> f64 {
    run["run"]["joules"].as_f64().unwrap() + run["drain"]["joules"].as_f64().unwrap()
}

#[test]
fn what_this_kernel_lacks_runs_in_a_guest_beside_what_it_has() {
    let Some(matrix) = Matrix::new("what_this_kernel_lacks_runs_in_a_guest_beside_what_it_has")
    else {
        return;
    };
    matrix.change(&[("kind = \"nilfs2\"", "kind = \"nilfs2\"\nwhere = \"guest\"")]);
    let said = matrix
        .world
        .teal(&matrix.args(&["--dry-run"]))
        .expect_success();
    assert!(
        said.contains("system nilfs2: in a guest") && !said.contains("system ext4:"),
        "{said}"
    );
    assert!(!matrix.results.exists(), "a dry run makes nothing");

    // Ctrl-C while a guest is there goes to everything that the terminal began.
    let mut command = matrix.world.command(&matrix.args(&[]));
    let command = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0);
    let mut first = command.spawn().unwrap();
    let runs = || matrix.runs().len();
    let begun = wait_until(PATIENCE, || runs() > 0)
        && wait_until(PATIENCE, || !guests_of(&matrix.world).is_empty());
    let group = rustix::process::Pid::from_child(&first);
    rustix::process::kill_process_group(group, rustix::process::Signal::INT).unwrap();
    let ended = first.wait().unwrap();
    let before = matrix.runs();
    assert!(
        begun && !ended.success() && (1..6).contains(&before.len()),
        "{ended}: {before:?}"
    );
    assert!(matrix.is_clean(), "{:?}", guests_of(&matrix.world));

    matrix.world.teal(&matrix.args(&[])).expect_success();
    let runs = matrix.runs();
    assert_eq!(
        (runs.len(), &runs[..before.len()]),
        (6, &before[..]),
        "what was there was not run again"
    );
    for run in &runs {
        assert_eq!(
            (run["operations"].as_u64(), &run["meter"]["model"]),
            (Some(300), &"ibm-microdrive-1gb".into())
        );
        let busy = run["run"]["busy"].as_f64().unwrap() + run["drain"]["busy"].as_f64().unwrap();
        assert!(
            joules(run) > 0.5 && (0.2..1.3).contains(&(joules(run) / busy)),
            "watts of this drive: {run}"
        );
        assert!(
            run["run"]["read"].as_u64().unwrap() > 100_000,
            "cold: {run}"
        );
        assert!(run["run"]["written"].as_u64().unwrap() > 100_000, "{run}");
        assert!(
            run["power"]
                .as_array()
                .is_some_and(|points| points.len() > 5),
            "power over time: {run}"
        );
        let kernel = run["guest"].as_str().unwrap_or_default();
        assert_eq!(
            kernel.starts_with("user-mode Linux "),
            run["system"] != "ext4",
            "{run}"
        );
    }
    // The same seed does the same: but for whose turn it is, as many bytes.
    let moved = |system: &str| {
        runs.iter()
            .find(|run| run["system"] == system && run["block"] == 0)
            .unwrap()["bytes"]
            .as_f64()
            .unwrap()
    };
    assert!(
        (moved("nilfs2") / moved("ext4") - 1.0).abs() < 0.3,
        "{} and {}",
        moved("nilfs2"),
        moved("ext4")
    );

    let report = fs::read_to_string(matrix.results.join("report.md")).unwrap();
    let page = fs::read_to_string(matrix.results.join("report.html")).unwrap();
    for words in [
        "In a guest (user-mode Linux ",
        ": nilfs2, vfat noatime. ",
        "guests: user-mode Linux ",
        "ext4 made by mke2fs ",
        "nilfs2 made by mkfs.nilfs2 ",
        "vfat made by mkfs.fat ",
        "in a guest: not ranked on the clock",
        "teal lab compare . again",
    ] {
        assert!(
            report.contains(words) && page.contains(words),
            "{words}: {report}"
        );
    }
    let again = matrix
        .world
        .teal(&matrix.args(&["--only-report"]))
        .expect_success();
    assert!(
        again.contains("6 runs")
            && fs::read_to_string(matrix.results.join("report.md")).unwrap() == report
    );
    assert!(matrix.is_clean());
}

#[test]
fn a_guest_has_the_schedulers_of_its_kernel_and_the_memory_of_the_matrix() {
    let Some(matrix) =
        Matrix::new("a_guest_has_the_schedulers_of_its_kernel_and_the_memory_of_the_matrix")
    else {
        return;
    };
    let script = "define fileset name=ff,path=$dir,entries=1,size=50m,dirwidth=20,dirgamma=0,prealloc\n\
        define process name=pp { thread name=tt,memsize=64k { flowop read name=rr,filesetname=ff,fd=1,iosize=4k,random } }\nrun 60\n";
    fs::write(matrix.world.path("look.wml"), script).unwrap();
    let only = &TEXT
        [TEXT.find("[[system]]\nname = \"nilfs2\"").unwrap()..TEXT.find("[schedulers]").unwrap()];
    let changes = [
        ("least = 2\nmost = 2", "least = 1\nmost = 1"),
        ("scale = 0.01\n", "scale = 1.0\n"),
        (
            "script = \"post.wml\"\nset = [\"threads=2\"]\noperations = 300",
            "script = \"look.wml\"\noperations = 30000",
        ),
        (only, ""),
        ("kind = \"ext4\"", "kind = \"ext4\"\nwhere = \"guest\""),
    ];
    let mut read = Vec::new();
    let all = &["none", "mq-deadline", "kyber", "bfq"][..];
    for (memory, schedulers) in [("[runs]\n", all), ("[runs]\nmemory = \"24M\"\n", &["bfq"])] {
        let names = format!("{schedulers:?}");
        matrix.change(
            &[
                &changes[..],
                &[("[runs]\n", memory), ("[\"none\"]", &names)],
            ]
            .concat(),
        );
        let _ = fs::remove_dir_all(&matrix.results);
        matrix.world.teal(&matrix.args(&[])).expect_success();
        let runs = matrix.runs();
        let is_whole = |name: &&str| {
            runs.iter()
                .any(|run| run["scheduler"] == **name && run["operations"] == 30_000)
        };
        assert!(
            runs.len() == schedulers.len() && schedulers.iter().all(is_whole),
            "{runs:?}"
        );
        let of = runs.iter().find(|run| run["scheduler"] == "bfq").unwrap();
        read.push(of["run"]["read"].as_u64().unwrap());
    }
    assert!(read[0] < 52 << 20, "each page once, of 50 MiB: {read:?}");
    assert!(read[1] * 10 > read[0] * 12, "{read:?}");
    assert!(matrix.is_clean());
}

#[test]
fn a_file_system_in_a_guest_is_aged_as_on_this_kernel() {
    let Some(matrix) = Matrix::new("a_file_system_in_a_guest_is_aged_as_on_this_kernel") else {
        return;
    };
    let script = "define fileset name=ff,path=$dir,entries=1,size=8m,dirwidth=20,dirgamma=0,prealloc\n\
        define process name=pp { thread name=tt,memsize=64k { flowop read name=rr,filesetname=ff,fd=1,iosize=64k } }\nrun 60\n";
    fs::write(matrix.world.path("look.wml"), script).unwrap();
    let only = &TEXT
        [TEXT.find("[[system]]\nname = \"nilfs2\"").unwrap()..TEXT.find("[schedulers]").unwrap()];
    let changes = [
        ("\"300M\"", "\"100M\""),
        ("least = 2\nmost = 2", "least = 1\nmost = 1"),
        (
            "script = \"post.wml\"\nset = [\"threads=2\"]\noperations = 300",
            "script = \"look.wml\"\noperations = 128",
        ),
        (
            only,
            "[[system]]\nname = \"ext4 apart\"\nkind = \"ext4\"\nwhere = \"guest\"\n",
        ),
    ];
    let seeks = |aged: &str| {
        matrix.change(&[&changes[..], &[("scale = 0.01\n", aged)]].concat());
        let _ = fs::remove_dir_all(&matrix.results);
        matrix.world.teal(&matrix.args(&[])).expect_success();
        let find = |name: &str| {
            matrix
                .runs()
                .iter()
                .find(|run| run["system"] == name)
                .unwrap()["run"]["seeks"]
                .as_u64()
        };
        ["ext4", "ext4 apart"].map(|name| find(name).unwrap())
    };
    let (fresh, aged) = (seeks("scale = 1.0\n"), seeks("scale = 1.0\naged = 60\n"));
    for place in 0..2 {
        assert!(aged[place] > 5 * fresh[place].max(1), "{fresh:?} {aged:?}");
    }
    assert!(matrix.is_clean());
}

#[test]
fn a_search_tries_candidates_in_guests_and_says_so() {
    let Some(matrix) = Matrix::new("a_search_tries_candidates_in_guests_and_says_so") else {
        return;
    };
    matrix.change(&[("mount = \"noatime\"", "mount = \"nosuchoption\"")]);
    let tune = |more: &[&str]| {
        let args = [
            "lab",
            "tune",
            "--workload",
            "mail",
            "--device",
            "ibm-microdrive-1gb:300M",
            "--scale",
            "0.01",
        ];
        let kept = [
            "--operations",
            "200",
            "--set",
            "threads=2",
            "--blocks",
            "2",
            "--results",
        ];
        let of = [
            matrix.results.to_str().unwrap(),
            "--space",
            matrix.file.to_str().unwrap(),
        ];
        matrix.world.teal(&[&args[..], &kept, &of, more].concat())
    };
    let said = tune(&["--dry-run"]).expect_success();
    assert!(
        said.contains("nilfs2 (in a guest)") && !said.contains("ext4 (in a guest)"),
        "{said}"
    );
    let said = tune(&[]).expect_success();
    assert!(
        said.contains("left out: vfat noatime: ") && said.contains("nosuchoption"),
        "{said}"
    );
    assert!(
        said.contains("2 whole blocks") && said.contains("best for mail: "),
        "{said}"
    );
    assert_eq!(
        said.contains("best for mail: nilfs2"),
        said.contains("it ran in a guest"),
        "{said}"
    );
    let runs = matrix.runs();
    assert!(
        runs.iter()
            .any(|run| run["system"] == "nilfs2" && joules(run) > 0.5),
        "{runs:?}"
    );
    assert!(
        fs::read_to_string(matrix.results.join("tune.md"))
            .unwrap()
            .contains("guests: user-mode Linux ")
    );
    assert!(matrix.is_clean());
}

#[test]
fn all_candidates_of_a_search_can_be_in_guests() {
    let Some(matrix) = Matrix::new("all_candidates_of_a_search_can_be_in_guests") else {
        return;
    };
    let tune = |more: &[&str]| {
        let args = [
            "lab",
            "tune",
            "--workload",
            "mail",
            "--device",
            "ibm-microdrive-1gb:300M",
            "--guests",
        ];
        let kept = [
            "--scale",
            "0.01",
            "--operations",
            "200",
            "--set",
            "threads=2",
            "--blocks",
            "2",
            "--results",
        ];
        matrix
            .world
            .teal(&[&args[..], &kept, &[matrix.results.to_str().unwrap()], more].concat())
    };
    let said = tune(&["--dry-run"]).expect_success();
    let offered: Vec<&str> = said.lines().filter(|line| line.starts_with("  ")).collect();
    assert!(
        offered
            .iter()
            .all(|line| line.ends_with("(in a guest)") && !line.contains("teal")),
        "{said}"
    );
    assert!(
        ["ext4", "nilfs2", "nilfs2 noatime"]
            .iter()
            .all(|name| said.contains(&format!("  {name} (in"))),
        "{said}"
    );
    assert!(!said.contains("reiserfs"), "it would be a risk: {said}");
    let said = tune(&["--dry-run", "--risky"]).expect_success();
    assert!(
        said.contains("  reiserfs (at a risk: Linux 6.13 and later have no reiserfs) (in a guest)"),
        "{said}"
    );
    let said = tune(&["--space", matrix.file.to_str().unwrap()]);
    assert!(
        said.code == 2
            && said
                .stderr
                .contains("'--guests' cannot be used with '--space"),
        "{said}"
    );
    assert!(matrix.is_clean() && !matrix.results.exists());
}

#[test]
fn what_cannot_be_in_a_guest_is_refused_before_anything_is_done() {
    let Some(matrix) = Matrix::new("what_cannot_be_in_a_guest_is_refused_before_anything_is_done")
    else {
        return;
    };
    let device = "profile = \"ibm-microdrive-1gb\"\nsize = \"300M\"";
    let nilfs2 = "kind = \"nilfs2\"";
    for (from, to, more, words) in [
        (
            nilfs2,
            "kind = \"nilfs2\"\nwhere = \"moon\"",
            "",
            "expected `host` or `guest`",
        ),
        (
            nilfs2,
            "kind = \"nilfs2\"\nwhere = \"host\"",
            "",
            "system nilfs2: this kernel has no nilfs2; leave `where` out",
        ),
        (
            nilfs2,
            "kind = \"teal\"\nwhere = \"guest\"",
            "",
            "system.where: nilfs2: teal runs on this machine's kernel",
        ),
        (
            nilfs2,
            "kind = \"nilfs2\"\nwhere = \"guest\"",
            device,
            "system.where: nilfs2: a guest has modelled disks only",
        ),
        (
            nilfs2,
            nilfs2,
            device,
            "this kernel has no nilfs2: it needs a guest, and a guest has modelled disks only",
        ),
        (
            "\"none\"",
            "\"none\", \"elevator\"",
            "",
            "has no scheduler elevator; it has none, ",
        ),
        (
            "mount = \"noatime\"",
            "mount = \"nosuchoption\"",
            "",
            "nosuchoption",
        ),
    ] {
        let path = if more.is_empty() {
            device
        } else {
            "path = \"/dev/null\""
        };
        matrix.change(&[(from, to), (device, path)]);
        let said = matrix.world.teal(&matrix.args(&[]));
        assert!(
            said.code == 1 && said.stderr.contains(words),
            "{to}: {said}"
        );
        assert!(matrix.is_clean(), "{to}");
        let _ = fs::remove_dir_all(&matrix.results);
    }
    // linux.uml is found by the path alone.
    matrix.change(&[]);
    let mut bare = matrix.world.command(&matrix.args(&[]));
    let said = crate::support::run_program(bare.env("PATH", "/nowhere")).expect_refusal();
    assert!(
        said.contains("system nilfs2: this kernel has no nilfs2: it needs a guest"),
        "{said}"
    );
    assert!(
        said.contains("linux.uml is not installed; on Debian: apt-get install user-mode-linux"),
        "{said}"
    );
    assert!(!matrix.results.exists());

    // Runs of one file system are not mixed.
    let line = r#"{"version":1,"workload":"post","system":"nilfs2","scheduler":"none","block":0,"operations":9,"bytes":9,"seconds":1.0,
        "latency_ms":[1,1,1,1],"steady_from":null,"rate":9.0,"meter":"none","run":{"joules":0,"busy":0,"read":0,"written":0,"flushes":0,"seeks":0},
        "drain":{"joules":0,"busy":0,"read":0,"written":0,"flushes":0,"seeks":0},"load_before":0.5}"#;
    fs::create_dir(&matrix.results).unwrap();
    fs::write(matrix.results.join("matrix.toml"), TEXT).unwrap();
    fs::write(
        matrix.results.join("runs.jsonl"),
        line.replace('\n', "") + "\n",
    )
    .unwrap();
    let said = matrix.world.teal(&matrix.args(&[])).expect_refusal();
    assert!(
        said.contains("nilfs2 ran here so far and would run in a guest now; say another --results"),
        "{said}"
    );
}
