//! The two programs find each other, and say what is missing.

use crate::support::{World, run_program};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

/// The programs as they were built, side by side.
const TEAL_LAB: &str = env!("CARGO_BIN_EXE_teal-lab");

/// Copies a program, as an installation does: what is beside it is found from its own place.
fn install(built: &Path, dir: &Path) -> std::path::PathBuf {
    let there = dir.join(built.file_name().unwrap());
    let copied = Command::new("cp").arg(built).arg(&there).status();
    assert!(copied.unwrap().success());
    there
}

#[test]
fn teal_starts_the_laboratory_beside_it_then_in_path_or_says_what_to_install() {
    let world = World::without_mounts();
    let [here, elsewhere] = ["here", "elsewhere"].map(|name| world.path(name));
    std::fs::create_dir(&here).unwrap();
    std::fs::create_dir(&elsewhere).unwrap();
    let teal = install(&Path::new(TEAL_LAB).with_file_name("teal"), &here);
    let lab = |path: &Path| {
        let mut command = Command::new(&teal);
        world.furnish(&mut command).env("PATH", path);
        run_program(command.args(["lab", "workloads", "camera"]))
    };
    let missing = lab(&elsewhere).expect_refusal();
    assert!(
        missing.contains("cargo install --path crates/teal-lab"),
        "{missing}"
    );
    symlink(TEAL_LAB, elsewhere.join("teal-lab")).unwrap();
    let in_path = lab(&elsewhere).expect_success();
    // The one beside comes first: this one says something else.
    let beside = here.join("teal-lab");
    std::fs::write(&beside, "#!/bin/sh\necho \"$@\"\n").unwrap();
    let sh = Command::new("chmod").arg("755").arg(&beside).status();
    assert!(sh.unwrap().success());
    assert!(in_path.contains("define"), "{in_path}");
    let said = Command::new(&teal)
        .args(["lab", "workloads", "-x", "--help"])
        .output()
        .unwrap();
    assert_eq!(said.stdout, b"workloads -x --help\n");
}

#[test]
fn the_laboratory_refuses_a_teal_of_another_version_and_names_both() {
    let world = World::without_mounts();
    let dir = world.path("installed");
    std::fs::create_dir(&dir).unwrap();
    let lab = install(Path::new(TEAL_LAB), &dir);
    let record = || {
        let mut command = Command::new(&lab);
        world.furnish(&mut command).env("PATH", "/nowhere");
        run_program(command.args(["record", "mount", "--out", "trace"])).expect_refusal()
    };
    let missing = record();
    assert!(
        missing.contains("cargo install --path crates/teal"),
        "{missing}"
    );
    let teal = dir.join("teal");
    let script = world.path("script");
    std::fs::write(&script, "#!/bin/sh\necho teal 99.1.2\n").unwrap();
    let copied = Command::new("cp").arg(&script).arg(&teal).status();
    assert!(copied.unwrap().success());
    let sh = Command::new("chmod").arg("755").arg(&teal).status();
    assert!(sh.unwrap().success());
    let other = record();
    assert!(
        other.contains("99.1.2") && other.contains(env!("CARGO_PKG_VERSION")),
        "{other}"
    );
}
