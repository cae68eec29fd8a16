//! `teal lab compare` by the real program: what two results have different is said, and what did
//! other work is refused.

use crate::support::World;
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};

const STUDY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/lab-study");

/// The recorded study, with its matrix changed.
fn study(world: &World, name: &str, from: &str, to: &str) -> PathBuf {
    let dir = world.path(name);
    fs::create_dir(&dir).unwrap();
    fs::copy(Path::new(STUDY).join("runs.jsonl"), dir.join("runs.jsonl")).unwrap();
    let matrix = fs::read_to_string(Path::new(STUDY).join("matrix.toml")).unwrap();
    assert!(matrix.contains(from), "{from}: {matrix}");
    fs::write(dir.join("matrix.toml"), matrix.replacen(from, to, 1)).unwrap();
    dir
}

#[test]
fn results_of_another_device_are_compared_and_those_of_other_work_are_refused() {
    let Some(world) =
        World::new("results_of_another_device_are_compared_and_those_of_other_work_are_refused")
    else {
        return;
    };
    let compare = |dir: &Path, more: &[&str]| {
        world.teal(&[&["lab", "compare", STUDY, dir.to_str().unwrap()], more].concat())
    };
    let said = compare(&study(&world, "same", "seed", "seed"), &[]).expect_success();
    assert!(
        !said.contains("they differ in") && said.contains("would look so by chance"),
        "{said}"
    );
    let matrix = fs::read_to_string(Path::new(STUDY).join("matrix.toml")).unwrap();
    let line = |key: &str| {
        matrix
            .lines()
            .find(|line| line.starts_with(key))
            .unwrap()
            .to_owned()
    };
    let memory = line("memory");
    let said = compare(&study(&world, "memory", &memory, "memory = \"99M\""), &[]).expect_success();
    assert!(
        said.starts_with("they differ in: memory ") && said.contains(" and 99M\n"),
        "{said}"
    );
    let (scale, operations) = (line("scale"), line("operations"));
    for (name, from, to, words) in [
        ("scale", &scale, "scale = 0.5", " and 0.5"),
        (
            "operations",
            &operations,
            "operations = 7",
            "operations of ",
        ),
        (
            "set",
            &operations,
            "operations = 200000\nset = [\"x=1\"]",
            "variables of ",
        ),
        (
            "script",
            &line("script"),
            "script = \"oltp\"",
            "the script of ",
        ),
    ] {
        let dir = study(&world, name, from, to);
        let said = compare(&dir, &[]).expect_refusal();
        assert!(
            said.contains("did other work") && said.contains(words) && said.lines().count() == 1,
            "{name}: {said}"
        );
        let said = compare(&dir, &["--anyway"]).expect_success();
        assert!(
            said.starts_with("they differ in: ") && said.contains(words),
            "{name}: {said}"
        );
    }
    // One block in common says nothing.
    let one = world.path("one");
    fs::create_dir(&one).unwrap();
    let runs = fs::read_to_string(Path::new(STUDY).join("runs.jsonl")).unwrap();
    let first: String = runs
        .lines()
        .filter(|line| line.contains("\"block\":0,"))
        .map(|line| format!("{line}\n"))
        .collect();
    fs::write(one.join("runs.jsonl"), first).unwrap();
    assert!(
        compare(&one, &[])
            .expect_refusal()
            .contains("share fewer than two blocks")
    );
    let said = world
        .teal(&["lab", "compare", one.to_str().unwrap(), "--system", "ext4"])
        .expect_refusal();
    assert!(said.contains("shares two blocks"), "{said}");
}

#[test]
fn runs_of_other_work_or_that_were_interrupted_are_refused() {
    let Some(world) = World::new("runs_of_other_work_or_that_were_interrupted_are_refused") else {
        return;
    };
    let base = json!({ "workload": "web", "scale": 0.1, "seed": 1, "set": ["files=4"], "threads": 2, "ended": "the time was over", "interrupted": false,
        "summary": { "per_second": 10.0 } });
    let file = |name: &str, of: &Value| {
        let path = world.path(name);
        fs::write(&path, of.to_string()).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let first = file("a.json", &base);
    for (key, value, words) in [
        ("scale", json!(0.2), Some("scale 0.1 and 0.2")),
        ("set", json!(["files=5"]), Some("files=5")),
        (
            "interrupted",
            json!(true),
            Some("the second was interrupted"),
        ),
        ("seed", json!(2), None),
    ] {
        let mut other = base.clone();
        other[key] = value;
        let other = file("b.json", &other);
        let said = world.teal(&["lab", "compare", &first, &other]);
        match words {
            Some(words) => {
                let said = said.expect_refusal();
                assert!(
                    said.contains(words) && said.contains("--anyway"),
                    "{key}: {said}"
                );
                world
                    .teal(&["lab", "compare", &first, &other, "--anyway"])
                    .expect_success();
            }
            None => assert!(
                said.expect_success()
                    .contains("they differ in: seed 1 and 2"),
                "{key}"
            ),
        }
    }
}
