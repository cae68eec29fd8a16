//! `teal lab run`: every workload that comes along, by the real program; the mix of its operations;
//! files that are wrong.

use crate::support::World;
use serde_json::Value;
use std::collections::BTreeMap;

/// Returns what is set so that a second is enough, and the files are few.
fn small(name: &str) -> Vec<&'static str> {
    match name {
        "web" | "file" | "mail" => vec!["--seconds", "1", "--scale", "0.01", "--set", "threads=8"],
        "db" => vec![
            "--seconds",
            "1",
            "--scale",
            "0.001",
            "--set",
            "posts=100",
            "--set",
            "highwater=100",
        ],
        "updates" => vec!["--set", "size=1m", "--set", "updates=50"],
        "updates_reread" => vec!["--set", "size=1m"],
        "camera" => vec!["--set", "files=12", "--set", "size=100k"],
        "mp3" => vec!["--set", "files=12", "--set", "size=300k"],
        "fragmented" => vec![
            "--set",
            "pieces=500",
            "--set",
            "piece=4k",
            "--set",
            "large=1m",
        ],
        _ => vec!["--scale", "0.02"],
    }
}

fn ran(world: &World, name: &str, more: &[&str]) -> Value {
    let (dir, json) = (world.path("files"), world.path("figures.json"));
    std::fs::create_dir_all(&dir).unwrap();
    let mut args = vec![
        "lab",
        "run",
        name,
        "--dir",
        dir.to_str().unwrap(),
        "--json",
        json.to_str().unwrap(),
    ];
    args.extend(small(name));
    args.extend(more);
    world.teal(&args).expect_success();
    serde_json::from_str(&std::fs::read_to_string(json).unwrap()).unwrap()
}

fn counts(json: &Value) -> BTreeMap<String, u64> {
    let count = |flowop: &Value| {
        (
            flowop["name"].as_str().unwrap().to_owned(),
            flowop["operations"].as_u64().unwrap(),
        )
    };
    json["flowops"]
        .as_array()
        .unwrap()
        .iter()
        .map(count)
        .collect()
}

/// Every flowop has been done as often in a round as its share says; a thread may be anywhere in
/// its round when the time is over.
#[track_caller]
fn mix(counts: &BTreeMap<String, u64>, shares: &[(&str, u64)], threads: u64) {
    let rounds = counts[shares[0].0] as f64 / shares[0].1 as f64;
    for (name, share) in shares {
        let (is, wanted) = (counts[*name] as f64, rounds * *share as f64);
        let allowed = (wanted * 0.02).max((threads * share) as f64);
        assert!(
            (is - wanted).abs() <= allowed,
            "{name}: {is} is not {wanted}: {counts:?}"
        );
    }
}

#[test]
fn servers_do_their_operations_in_the_shares_of_their_scripts() {
    let world = World::without_mounts();
    let web = counts(&ran(&world, "web", &[]));
    mix(
        &web,
        &[
            ("page.read", 10),
            ("page.open", 10),
            ("page.close", 10),
            ("log", 1),
        ],
        8,
    );
    let file = counts(&ran(&world, "file", &[]));
    let once = [
        "make",
        "fill",
        "close-made",
        "open-to-extend",
        "extend",
        "open-to-read",
        "read",
        "close-read",
        "delete",
        "stat",
    ];
    mix(&file, &once.map(|name| (name, 1)), 8);
    let mail = counts(&ran(&world, "mail", &[]));
    let once = [
        "delete",
        "deliver",
        "write",
        "sync-delivered",
        "open-to-answer",
        "answer",
        "sync-answer",
        "open",
        "read",
        "close",
    ];
    mix(&mail, &once.map(|name| (name, 1)), 8);
    let db = ran(&world, "db", &[]);
    let of = counts(&db);
    // A hundred reads let ten writers write ten pages each; who is ahead is so by a high-water
    // mark.
    assert!(
        of["look"] + 210 >= of["page"] && of["look"] <= of["page"] + 100 + 100 + 210,
        "{of:?}"
    );
    assert!(
        of["look"] > 0 && db["summary"]["implicit_opens"].as_u64().unwrap() > 0,
        "readers opened their files, uncounted"
    );
}

#[test]
fn phases_do_exactly_what_their_scripts_say() {
    let world = World::without_mounts();
    // 12,800 files by 0.02.
    for (name, each) in [
        ("create", "fill"),
        ("read", "read"),
        ("rand_read", "read"),
        ("rewrite", "rewrite"),
        ("reread", "read"),
        ("rand_reread", "read"),
    ] {
        let json = ran(&world, name, &[]);
        assert_eq!(counts(&json)[each], 256, "{name}");
        assert_eq!(
            (
                &json["filesets"][0]["files"],
                &json["filesets"][0]["files_asked"]
            ),
            (&256.into(), &12_800.into()),
            "{name}"
        );
        assert_eq!(json["summary"]["bytes"], 256 * 4096, "{name}");
    }
    assert_eq!(counts(&ran(&world, "updates", &[]))["update"], 50);
    assert_eq!(
        ran(&world, "updates_reread", &[])["summary"]["bytes"],
        1 << 20
    );
    assert_eq!(
        ran(&world, "camera", &[])["summary"]["bytes"],
        12 * 100 * 1024
    );
    assert_eq!(counts(&ran(&world, "mp3", &[]))["play.read"], 12);
    for percent in [0, 40, 80] {
        let set = [
            format!("percent={percent}"),
            format!("rest={}", 100 - percent),
        ];
        let json = ran(&world, "fragmented", &["--set", &set[0], "--set", &set[1]]);
        let holes = counts(&json)["drill.hole"] as f64 / 5.0;
        assert!(
            (holes - f64::from(percent)).abs() < 6.0,
            "{holes} of {percent} percent"
        );
    }
}

#[test]
fn figures_come_by_flowop_by_second_and_in_filebenchs_form() {
    let world = World::without_mounts();
    let (csv, dir) = (world.path("series.csv"), world.path("files"));
    let json = ran(&world, "mail", &["--csv", csv.to_str().unwrap()]);
    let series = std::fs::read_to_string(csv).unwrap();
    assert!(
        series.starts_with("second,operations,")
            && series.lines().count() == json["seconds"].as_array().unwrap().len() + 1,
        "{series}"
    );
    let in_series: u64 = json["seconds"]
        .as_array()
        .unwrap()
        .iter()
        .map(|second| second["operations"].as_u64().unwrap())
        .sum();
    let all = json["summary"]["operations"].as_u64().unwrap();
    assert!(
        in_series <= all && in_series as f64 >= all as f64 * 0.8,
        "{in_series} of {all}"
    );
    let latency = &json["flowops"][0]["latency_ns"];
    assert!(
        latency["p50"].as_u64() <= latency["p99"].as_u64()
            && latency["p99"].as_u64() <= latency["max"].as_u64(),
        "{latency}"
    );
    let mut args = vec![
        "lab",
        "run",
        "web",
        "--dir",
        dir.to_str().unwrap(),
        "--strict-filebench",
    ];
    args.extend(small("web"));
    let said = world.teal(&args).expect_success();
    let lines: Vec<&str> = said.lines().collect();
    let first = lines
        .iter()
        .position(|line| line.ends_with("Per-Operation Breakdown"))
        .unwrap();
    assert!(
        lines[first + 1].starts_with("log ") && lines[first + 1].contains("ms/op ["),
        "the last first: {said}"
    );
    assert!(
        said.contains("IO Summary:") && said.contains(" rd/wr "),
        "{said}"
    );
    assert!(
        said.contains("scaled by 0.01: pages has 200 of 20000 files"),
        "{said}"
    );
}

#[test]
fn scripts_that_are_wrong_end_with_their_line() {
    let world = World::without_mounts();
    let dir = world.path("files");
    std::fs::create_dir_all(&dir).unwrap();
    let set = "define fileset name=ff,path=$dir,entries=10,size=4k,dirwidth=5,prealloc\n";
    let thread = |body: &str| {
        format!("{set}define process name=pp {{ thread name=tt {{\n {body}\n}} }}\nrun 1\n")
    };
    let circle =
        "define flowop name=aa { flowop aa name=xx }\n".to_owned() + &thread("flowop aa name=yy");
    for (at, (text, line, word)) in [
        (thread("flowop raed name=rr"), 3, "did you mean read?"),
        (
            thread("flowop read name=rr,filename=ff,iosize=$none"),
            3,
            "undefined variable '$none'",
        ),
        (
            thread("flowop read name=rr,filename=ff,iosize=0"),
            3,
            "iosize 0",
        ),
        (
            thread("flowop read name=rr,filename=ff,iosize=big"),
            3,
            "must be a number",
        ),
        (circle, 1, "cyclic composite flowop"),
        ("\nload script5\n".to_owned(), 2, "cyclic load"),
        ("set $n=3\nrun".to_owned(), 1, "two characters"),
    ]
    .into_iter()
    .enumerate()
    {
        let path = world.path(format!("script{at}.wml"));
        std::fs::write(&path, text).unwrap();
        let said = world
            .teal(&[
                "lab",
                "run",
                path.to_str().unwrap(),
                "--dir",
                dir.to_str().unwrap(),
            ])
            .expect_refusal();
        assert!(
            said.contains(&format!(".wml:{line}:")) || said.contains(&format!("script5:{line}:")),
            "{said}"
        );
        assert!(said.contains(word), "{said}");
    }
    let path = world.path("none.wml");
    std::fs::write(&path, set).unwrap();
    let said = world
        .teal(&[
            "lab",
            "run",
            path.to_str().unwrap(),
            "--dir",
            dir.to_str().unwrap(),
        ])
        .expect_refusal();
    assert!(said.contains("none.wml: there is no 'run'"), "{said}");
    let said = world
        .teal(&["lab", "run", "wbe", "--dir", dir.to_str().unwrap()])
        .expect_refusal();
    assert!(said.contains("did you mean web?"), "{said}");
    assert_eq!(
        std::fs::read_dir(&dir).unwrap().count(),
        0,
        "nothing was made"
    );
}

#[test]
fn a_set_larger_than_the_disk_is_refused_before_anything_is_written() {
    let world = World::without_mounts();
    let dir = world.path("files");
    std::fs::create_dir_all(&dir).unwrap();
    let args = [
        "lab",
        "run",
        "db",
        "--dir",
        dir.to_str().unwrap(),
        "--set",
        "size=4096g",
    ];
    let said = world.teal(&args).expect_refusal();
    assert!(
        said.contains("nothing was written") && said.contains("--scale"),
        "{said}"
    );
    assert!(
        said.contains("db:") && said.contains("tables, most of all"),
        "{said}"
    );
    // Sizes that are drawn, as large as numbers are; memory; where the figures are to go.
    let run = |script: &str, more: &[&str]| {
        let path = world.path("script.wml");
        std::fs::write(&path, script).unwrap();
        world.teal(
            &[
                &[
                    "lab",
                    "run",
                    path.to_str().unwrap(),
                    "--dir",
                    dir.to_str().unwrap(),
                ],
                more,
            ]
            .concat(),
        )
    };
    let thread = |memory: &str| {
        format!(
            "define fileset name=ff,path=$dir,entries=10,size=$size,dirwidth=5,prealloc
             define process name=pp {{ thread name=tt{memory} {{ flowop read name=rr,filename=ff,iosize=4k }} }}\nrun 1"
        )
    };
    let endless = "set $size=randvar(type=tabular,randtable={{100,9223372036854775807,9223372036854775807}})\n";
    let unbounded = "set $size=cvar(type=cvar-exponential,parameters=mean:1e300)\n";
    for drawn in [endless, unbounded] {
        for more in [&["--dry-run"][..], &[]] {
            let said = run(&(drawn.to_owned() + &thread("")), more).expect_refusal();
            assert!(
                said.contains("script.wml:2:") && said.contains("nothing was written"),
                "{said}"
            );
        }
    }
    let said = run(
        &("set $size=4k\n".to_owned() + &thread(",memsize=2000000g")),
        &[],
    )
    .expect_refusal();
    assert!(
        said.contains("hold 2147483648") && said.contains("thread 'tt'"),
        "{said}"
    );
    let kept = world.path("nowhere/figures.json");
    let said = run(
        &("set $size=4k\n".to_owned() + &thread("")),
        &["--json", kept.to_str().unwrap()],
    )
    .expect_refusal();
    assert!(said.contains("nowhere/figures.json"), "{said}");
    std::fs::write(world.path("script.wml"), b"set $aa=1\n\xff\xfe").unwrap();
    let said = world
        .teal(&[
            "lab",
            "run",
            world.path("script.wml").to_str().unwrap(),
            "--dir",
            "/",
        ])
        .expect_refusal();
    assert!(
        said.contains("script.wml:2: these bytes are no text"),
        "{said}"
    );
    assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 0);
}

#[test]
fn a_dry_run_says_what_would_be_done() {
    let world = World::without_mounts();
    let dir = world.path("files");
    std::fs::create_dir_all(&dir).unwrap();
    let said = world
        .teal(&[
            "lab",
            "run",
            "webserver",
            "--dir",
            dir.to_str().unwrap(),
            "--dry-run",
            "--scale",
            "0.02",
        ])
        .expect_success();
    assert!(
        said.contains("fileset pages: 400 of 20000 files") && said.contains("100 threads for 60 s"),
        "{said}"
    );
    assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 0);
    let listed = world.teal(&["lab", "workloads"]).expect_success();
    assert!(
        listed.contains("web (webserver): Web server") && listed.contains("files=20000"),
        "{listed}"
    );
    let script = world
        .teal(&["lab", "workloads", "varmail"])
        .expect_success();
    assert!(script.contains("define fileset name=mail"), "{script}");
}
