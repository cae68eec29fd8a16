//! Real files to work with.

use super::super::{World, run_program};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Sources that are surely here: what this was built from, up to about `bytes`.
pub(crate) fn sources(world: &World, bytes: u64) -> PathBuf {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home
        .or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")))
        .unwrap();
    let tree = world.path("sources");
    std::fs::create_dir(&tree).unwrap();
    let registry = home.join("registry/src");
    let mut crates: Vec<PathBuf> = std::fs::read_dir(registry)
        .into_iter()
        .flatten()
        .flat_map(|index| std::fs::read_dir(index.unwrap().path()).unwrap())
        .map(|entry| entry.unwrap().path())
        .collect();
    crates.push(
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .parent()
            .unwrap()
            .to_owned(),
    );
    crates.sort();
    let mut taken = 0;
    for dir in crates {
        if taken > bytes {
            break;
        }
        let du = run_program(Command::new("du").arg("-sb").arg(&dir)).expect_success();
        taken += du
            .split_whitespace()
            .next()
            .unwrap()
            .parse::<u64>()
            .unwrap();
        run_program(Command::new("cp").arg("-a").arg(&dir).arg(&tree)).expect_success();
    }
    tree
}
