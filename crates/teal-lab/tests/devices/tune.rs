//! `teal lab tune` and `teal lab compare` by the real program: a small search on modelled disks,
//! going on with it, the recorded study replayed; what has changed between two results.

use crate::support::{World, has_loop_devices};
use serde_json::Value;
use std::fs;
use std::path::Path;

const STUDY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/lab-study");
const SPACE: &str = r#"
version = 1
[device]
profile = "ibm-microdrive-1gb"
size = "300M"
[runs]
[[workload]]
name = "mail"
script = "mail"
[[system]]
name = "ext4"
kind = "ext4"
[[system]]
name = "ext4 no such option"
kind = "ext4"
mount = "nosuchoption"
[[system]]
name = "ext4 noatime 1k"
kind = "ext4"
mkfs = ["-b", "1024"]
mount = "noatime"
[schedulers]
names = ["none", "mq-deadline"]
"#;

#[test]
fn a_search_prints_the_commands_of_the_best_and_goes_on_where_it_was() {
    let test = "a_search_prints_the_commands_of_the_best_and_goes_on_where_it_was";
    if !has_loop_devices(test) {
        return;
    }
    let Some(world) = World::new(test) else {
        return;
    };
    let (space, results) = (world.path("space.toml"), world.path("results"));
    fs::write(&space, SPACE).unwrap();
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
        let more = [
            &[
                "--operations",
                "200",
                "--set",
                "threads=2",
                "--space",
                space.to_str().unwrap(),
            ],
            more,
        ]
        .concat();
        world.teal(&[&args[..], &["--results", results.to_str().unwrap()], &more].concat())
    };
    let said = tune(&["--dry-run"]).expect_success();
    assert!(
        said.contains("6 candidates: 3 file systems under none, mq-deadline"),
        "{said}"
    );
    assert!(!results.exists(), "a dry run makes nothing");
    assert!(
        said.contains("the first block: 6 runs, at most 180 s of running")
            && said.contains("--budget is 3600 s"),
        "{said}"
    );
    let short = tune(&["--blocks", "2", "--budget", "1s"]).expect_refusal();
    assert!(short.contains("not even one block was whole"), "{short}");
    fs::remove_dir_all(&results).unwrap();
    let first = tune(&["--blocks", "2"]).expect_success();
    assert!(first.contains("left out: ext4 no such option"), "{first}");
    let runs = || {
        fs::read_to_string(results.join("runs.jsonl"))
            .unwrap()
            .lines()
            .count()
    };
    assert!(
        (7..=8).contains(&runs()),
        "two blocks of four, but for those beaten: {}",
        runs()
    );
    for words in [
        "best for mail: ext4",
        "mkfs.ext4 -q -F",
        "/queue/scheduler",
        "mount -t ext4",
        "2 whole blocks",
    ] {
        assert!(first.contains(words), "{words}: {first}");
    }
    assert!(
        fs::read_to_string(results.join("tune.md"))
            .unwrap()
            .contains("mkfs.ext4")
    );
    let before = runs();
    let again = tune(&["--blocks", "2"]).expect_success();
    assert_eq!(runs(), before, "nothing was run again: {again}");
    assert!(again.contains("best for mail"), "{again}");
    let only = tune(&["--blocks", "2", "--only-report"]).expect_success();
    assert!(
        only.contains("best for mail") && runs() == before,
        "nothing is run: {only}"
    );
    let same = world
        .teal(&[
            "lab",
            "compare",
            results.to_str().unwrap(),
            results.to_str().unwrap(),
        ])
        .expect_success();
    assert!(
        same.contains("mail: no difference that can be told")
            && same.contains("0 of 4 cells differ"),
        "{same}"
    );
    assert!(
        world
            .teal(&["lab", "disk", "ls"])
            .expect_success()
            .is_empty(),
        "no disk is left"
    );
}

#[test]
fn a_budget_too_short_for_one_block_is_refused_before_the_first_run() {
    let test = "a_budget_too_short_for_one_block_is_refused_before_the_first_run";
    if !has_loop_devices(test) {
        return;
    }
    let Some(world) = World::new(test) else {
        return;
    };
    let (space, results) = (world.path("space.toml"), world.path("results"));
    fs::write(&space, SPACE).unwrap();
    let said = world
        .teal(&[
            "lab",
            "tune",
            "--workload",
            "mail",
            "--device",
            "ibm-microdrive-1gb:300M",
            "--scale",
            "0.01",
            "--seconds",
            "400",
            "--budget",
            "20m",
            "--space",
            space.to_str().unwrap(),
            "--results",
            results.to_str().unwrap(),
        ])
        .expect_refusal();
    // One of three file systems cannot be had; two are tried under two schedulers.
    for words in [
        "--budget is 1200 s",
        "one block takes 1600 s at least (4 runs of 400 s)",
        "--space",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
    let runs = fs::read_to_string(results.join("runs.jsonl")).unwrap_or_default();
    assert_eq!(runs, "", "nothing was run");
    let disks = world.teal(&["lab", "disk", "ls"]).expect_success();
    assert!(disks.is_empty(), "no disk is left: {disks}");
}

const OPTIONS: &str = r#"
version = 1
[device]
profile = "ibm-microdrive-1gb"
size = "300M"
[runs]
[[workload]]
name = "mail"
script = "mail"
[[system]]
name = "ext4"
kind = "ext4"
[[system]]
name = "ext4 -m 0"
kind = "ext4"
mkfs = ["-m", "0"]
[[system]]
name = "ext4 delalloc"
kind = "ext4"
mount = "delalloc"
[[system]]
name = "ext4 data=journal"
kind = "ext4"
mount = "data=journal"
[schedulers]
names = ["none"]
"#;

#[test]
fn options_that_promise_most_are_tried_together_and_what_cannot_be_had_is_left_out() {
    let test = "options_that_promise_most_are_tried_together_and_what_cannot_be_had_is_left_out";
    if !has_loop_devices(test) {
        return;
    }
    let Some(world) = World::new(test) else {
        return;
    };
    let (space, results) = (world.path("space.toml"), world.path("results"));
    fs::write(&space, OPTIONS).unwrap();
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
        // The disk is modelled, and one thread does the same on a busy machine as on a quiet one:
        // with two, a combination was given up for the order in which they ran.
        let more = [
            &[
                "--operations",
                "1000",
                "--set",
                "threads=1",
                "--space",
                space.to_str().unwrap(),
            ],
            more,
        ]
        .concat();
        world
            .teal(&[&args[..], &["--results", results.to_str().unwrap()], &more].concat())
            .expect_success()
    };
    let said = tune(&["--dry-run"]);
    assert!(
        said.contains("4 candidates: 4 file systems under none")
            && said.contains("and 4 combinations"),
        "{said}"
    );
    let said = tune(&["--blocks", "5"]);
    assert!(said.contains(" of 8, 5 whole blocks"), "{said}");
    let runs = || fs::read_to_string(results.join("runs.jsonl")).unwrap();
    let of = |system: &str| runs().matches(&format!("\"system\":\"{system}\"")).count();
    // Neither does anything to mail, so that nothing speaks against both.
    assert!(
        (1..5).contains(&of("ext4 -m 0 delalloc")) && of("ext4") == 5,
        "{}",
        runs()
    );
    // ext4 takes each of the two, and not both.
    assert!(
        of("ext4 data=journal") > 0 && of("ext4 data=journal,delalloc") == 0,
        "{}",
        runs()
    );
    let (before, again) = (runs(), tune(&["--blocks", "5"]));
    assert_eq!(runs(), before, "nothing was run again: {again}");
}

#[test]
fn searches_that_make_no_sense_are_refused_with_a_reason() {
    let test = "searches_that_make_no_sense_are_refused_with_a_reason";
    let Some(world) = World::new(test) else {
        return;
    };
    let results = world.path("results");
    for (workload, device, words) in [
        ("mial", "wd-re-4tb:4G", "did you mean mail"),
        ("mail", "wd-re-4tb", "a modelled disk a size"),
        ("mail", "wd-re:4G", "did you mean wd-re-4tb"),
        ("mail", "/proc/self/exe", "no block device"),
    ] {
        let args = [
            "lab",
            "tune",
            "--workload",
            workload,
            "--device",
            device,
            "--results",
            results.to_str().unwrap(),
        ];
        let said = world.teal(&args).expect_refusal();
        assert!(said.contains(words), "{workload} {device}: {said}");
    }
    if !has_loop_devices(test) {
        return;
    }
    let aged = |percent: &str, scale: &str| {
        let args = [
            "lab",
            "tune",
            "--workload",
            "mail",
            "--device",
            "desktop-7200rpm-composed:600M",
            "--results",
            results.to_str().unwrap(),
        ];
        world.teal(
            &[
                &args[..],
                &["--dry-run", "--scale", scale, "--aged", percent],
            ]
            .concat(),
        )
    };
    assert!(
        aged("95", "0.01")
            .expect_refusal()
            .contains("runs.aged: 95 percent are none")
    );
    assert!(
        aged("70", "0.3")
            .expect_refusal()
            .contains("do not fit on 600.0 MiB aged to 70 %")
    );
    let said = aged("70", "0.01").expect_success();
    assert!(
        said.contains("aged to 70 %: each of ") && said.contains("if the budget allows"),
        "{said}"
    );
    assert!(!results.exists());
}

#[test]
fn of_the_recorded_study_the_search_finds_the_best() {
    let Some(world) = World::new("of_the_recorded_study_the_search_finds_the_best") else {
        return;
    };
    let said = world
        .teal(&["lab", "tune", "--replay", STUDY, "--seeds", "20"])
        .expect_success();
    assert_eq!(said.lines().count(), 8, "four workloads, two goals: {said}");
    for line in said.lines() {
        let found: u64 = line
            .split(": ")
            .nth(1)
            .unwrap()
            .split(' ')
            .next()
            .unwrap()
            .parse()
            .unwrap();
        assert!(found >= 18, "{line}");
    }
}

#[test]
fn a_result_that_is_worse_is_told_by_its_status() {
    let Some(world) = World::new("a_result_that_is_worse_is_told_by_its_status") else {
        return;
    };
    let worse = world.path("worse");
    fs::create_dir(&worse).unwrap();
    let runs = fs::read_to_string(Path::new(STUDY).join("runs.jsonl")).unwrap();
    let slower = runs
        .lines()
        .filter(|line| line.contains("\"mail\""))
        .map(|line| {
            let mut run: Value = serde_json::from_str(line).unwrap();
            for part in ["run", "drain"] {
                for key in ["joules", "busy"] {
                    run[part][key] = Value::from(run[part][key].as_f64().unwrap() * 1.1);
                }
            }
            run.to_string() + "\n"
        });
    fs::write(worse.join("runs.jsonl"), slower.collect::<String>()).unwrap();
    let compare = |a: &str, b: &str| world.teal(&["lab", "compare", a, b, "--json"]);
    let said = compare(STUDY, worse.to_str().unwrap());
    assert_eq!(said.code, 3, "{said}");
    let json: Value = serde_json::from_str(&said.stdout).unwrap();
    assert_eq!(
        (
            json["worse"].as_bool(),
            json["workloads"].as_array().unwrap().len()
        ),
        (Some(true), 1)
    );
    let ratio = json["workloads"][0]["ops_per_joule"]["ratio"]
        .as_f64()
        .unwrap();
    assert!((ratio - 1.0 / 1.1).abs() < 1e-6, "{ratio}");
    assert_eq!(
        json["alone"].as_array().unwrap().len(),
        72,
        "the other three workloads' cells"
    );
    let ext2 = world
        .teal(&["lab", "compare", STUDY, "--system", "ext4", "--json"])
        .expect_success();
    let ext2: Value = serde_json::from_str(&ext2).unwrap();
    let mail = ext2["parts"]
        .as_array()
        .unwrap()
        .iter()
        .find(|part| part["names"] == serde_json::json!(["mail", "ext2"]));
    let ratio = mail.unwrap()["ops_per_joule"]["ratio"].as_f64().unwrap();
    assert!(
        (0.6..0.66).contains(&ratio),
        "as docs/papers.md has it: {ratio}"
    );
    let said = world
        .teal(&["lab", "compare", STUDY, "--scheduler", "cfq"])
        .expect_refusal();
    assert!(said.contains("no cfq; it has bfq"), "{said}");
    assert_eq!(
        compare(worse.to_str().unwrap(), STUDY).code,
        0,
        "the other way round it is better"
    );
    let said = compare(STUDY, world.path("nothing").to_str().unwrap()).expect_refusal();
    assert!(said.contains("has no runs"), "{said}");
    let [one, two] = ["one.json", "two.json"].map(|name| world.path(name));
    for (file, rate) in [(&one, 10.0), (&two, 15.0)] {
        fs::write(
            file,
            format!(r#"{{"workload":"web","summary":{{"per_second":{rate}}}}}"#),
        )
        .unwrap();
    }
    let said = world
        .teal(&[
            "lab",
            "compare",
            one.to_str().unwrap(),
            two.to_str().unwrap(),
        ])
        .expect_success();
    assert!(
        said.contains("1.500 times") && said.contains("cannot be told"),
        "{said}"
    );
}
