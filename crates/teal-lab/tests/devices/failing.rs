//! Matrices of `teal lab` with something in them that fails, by the real program: told beforehand,
//! or in the report beside what came of the others.

use crate::support::{World, has_loop_devices};
use std::fs;

const TEXT: &str = r#"
version = 1
[device]
profile = "ibm-microdrive-1gb"
size = "100M"
[runs]
least = 2
most = 2
seconds = 300
[[workload]]
name = "small"
script = "small.wml"
operations = 200
[[workload]]
name = "large"
script = "large.wml"
[[system]]
name = "ext4"
kind = "ext4"
[[system]]
name = "ext2"
kind = "ext2"
[schedulers]
names = ["none"]
"#;

const LARGE: &str = "define fileset name=ff,path=$dir,entries=1,size=4k,dirwidth=20,dirgamma=0,prealloc
define process name=pp { thread name=tt,memsize=1m { flowop appendfile name=aa,filesetname=ff,fd=1,iosize=1m } }
run 300
";

fn small() -> String {
    LARGE.replacen("appendfile name=aa", "read name=rr", 1)
}

#[test]
fn what_fails_is_named_before_anything_is_run_or_in_the_report() {
    let test = "what_fails_is_named_before_anything_is_run_or_in_the_report";
    if !has_loop_devices(test) {
        return;
    }
    let Some(world) = World::new(test) else {
        return;
    };
    let (file, results) = (world.path("matrix.toml"), world.path("results"));
    fs::write(world.path("small.wml"), small()).unwrap();
    fs::write(world.path("large.wml"), LARGE).unwrap();
    let run = |text: &str, more: &[&str]| {
        fs::write(&file, text).unwrap();
        let args = [
            "lab",
            "matrix",
            file.to_str().unwrap(),
            "--results",
            results.to_str().unwrap(),
        ];
        world.teal(&[&args[..], more].concat())
    };
    for (from, to, words) in [
        ("[\"none\"]", "[\"none\", \"cfq\"]", "has no scheduler cfq"),
        ("\"100M\"", "\"1T\"", "holds 1000000000 bytes"),
    ] {
        let said = run(&TEXT.replacen(from, to, 1), &["--dry-run"]).expect_refusal();
        assert!(said.contains(words) && !results.exists(), "{to}: {said}");
    }
    let both = TEXT.replacen("kind = \"ext4\"", "kind = \"ext4\"\nmkfs = [\"--nope\"]", 1);
    let said = run(
        &both.replacen("kind = \"ext2\"", "kind = \"ext2\"\nmount = \"bogus\"", 1),
        &[],
    )
    .expect_refusal();
    assert!(
        said.contains("2 of 2 systems cannot be had, nothing was run: ext4: ")
            && said.contains("ext2: "),
        "{said}"
    );
    assert_eq!(said.trim().lines().count(), 1, "{said}");
    fs::remove_dir_all(&results).unwrap();

    let said = run(TEXT, &[]);
    assert_eq!(said.code, 1, "{said}");
    assert!(
        said.stderr.contains("2 cells failed") && said.stderr.contains("large, ext2, none: "),
        "{said}"
    );
    let lines = |name: &str| {
        fs::read_to_string(results.join(name))
            .unwrap()
            .lines()
            .count()
    };
    assert_eq!(
        (lines("runs.jsonl"), lines("failed.jsonl")),
        (4, 2),
        "both blocks of the others, and each failure once"
    );
    for name in ["report.md", "report.html"] {
        let report = fs::read_to_string(results.join(name)).unwrap();
        assert!(
            report.contains("What failed") && report.contains("No space left"),
            "{name}: {report}"
        );
        assert!(report.contains("2 whole blocks"), "{name}: {report}");
    }
    assert!(
        world
            .teal(&["lab", "disk", "ls"])
            .expect_success()
            .is_empty(),
        "no disk is left"
    );
    run(TEXT, &["--only-report"]).expect_success();
}

#[test]
fn a_run_that_ends_before_its_operations_says_so() {
    let test = "a_run_that_ends_before_its_operations_says_so";
    if !has_loop_devices(test) {
        return;
    }
    let Some(world) = World::new(test) else {
        return;
    };
    let (file, results) = (world.path("matrix.toml"), world.path("results"));
    let script = "set mode quit firstdone
define fileset name=ff,path=$dir,entries=50,size=4k,dirwidth=20,dirgamma=0,prealloc
define process name=pp { thread name=tt,memsize=1m { flowop deletefile name=dd,filesetname=ff } }
run 60
";
    fs::write(world.path("small.wml"), script).unwrap();
    let large =
        TEXT.find("[[workload]]\nname = \"large\"").unwrap()..TEXT.find("[[system]]").unwrap();
    let mut text = TEXT.to_owned();
    text.replace_range(large, "");
    fs::write(&file, text).unwrap();
    let said = world
        .teal(&[
            "lab",
            "matrix",
            file.to_str().unwrap(),
            "--results",
            results.to_str().unwrap(),
        ])
        .expect_success();
    assert!(
        said.contains("; ended after 50 of 200 operations: "),
        "{said}"
    );
    for name in ["report.md", "report.html"] {
        let report = fs::read_to_string(results.join(name)).unwrap();
        assert!(
            report.contains("What ended early")
                && report.contains("2 of 2 runs ended after 50 of 200"),
            "{report}"
        );
    }
}
