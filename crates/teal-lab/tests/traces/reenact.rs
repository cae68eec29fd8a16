//! Each re-enactment by one command: the papers' figures beside ours.

use crate::support::World;
use serde_json::Value;

#[test]
fn each_figure_is_re_enacted_by_one_command() {
    let world = World::without_mounts();
    let mut names = vec!["bluefs-4", "bluefs-7", "bluefs-8", "bluefs-9", "greenfs-4"];
    if crate::support::is_long() {
        // A day of two million operations, several times.
        names.extend(["greenfs-3", "greenfs-5", "greenfs-jeff"]);
    }
    for name in names {
        let said = world.teal(&["lab", "reenact", name]).expect_success();
        assert!(
            said.contains("paper") && said.contains("ours modelled by") || name == "greenfs-3",
            "{said}"
        );
        assert!(
            said.lines().any(|line| line.starts_with("  - ")),
            "a frank word: {said}"
        );
        let json = world
            .teal(&["lab", "reenact", name, "--json"])
            .expect_success();
        let json: Value = serde_json::from_str(&json).unwrap();
        assert_eq!(json["name"], name);
        for row in json["rows"].as_array().unwrap() {
            assert!(
                said.contains(row["ours"].as_str().unwrap()),
                "the same again: {row} {said}"
            );
        }
    }
}

#[test]
fn what_no_paper_has_is_refused_in_one_line() {
    let world = World::without_mounts();
    let said = world
        .teal(&["lab", "reenact", "bluefs-77"])
        .expect_refusal();
    assert!(said.contains("did you mean bluefs-7?"), "{said}");
    let said = world
        .teal(&["lab", "reenact", "everything"])
        .expect_refusal();
    assert!(said.contains("greenfs-jeff"), "{said}");
}
