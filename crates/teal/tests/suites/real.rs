//! Real input: source trees, git, cargo, SQLite and PostgreSQL with their files on a mount that is
//! unmounted or killed.

use super::support::{
    Mounted, World, compare_trees, git, postgresql, run_program, shell, sources, sqlite,
};
use std::process::Command;

#[test]
fn a_large_source_tree_comes_back_byte_for_byte() {
    let Some(mut m) = Mounted::new("a_large_source_tree_comes_back_byte_for_byte", "2G") else {
        return;
    };
    let tree = sources(m.world(), 100 << 20);
    let script =
        r#"tar cf sources.tar -C "$1" .; mkdir "$2"; tar xf sources.tar -C "$2"; rm sources.tar"#;
    let ours = m.path("sources");
    shell(m.world(), script, &[&tree, &ours]).expect_success();
    let count = compare_trees(&tree, &ours);
    assert!(count > 100, "{count} files and directories");
    m.remount();
    assert_eq!(compare_trees(&tree, &ours), count);
    println!("{count} files and directories");
    m.down();
    m.check();
}

#[test]
fn a_git_repository_is_whole_after_a_remount() {
    let test = "a_git_repository_is_whole_after_a_remount";
    let Some(mut m) = Mounted::new(test, "1G") else {
        return;
    };
    git(test, &mut m, 30 << 20);
}

#[test]
fn two_crates_are_built_inside_the_mount() {
    let Some(mut m) = Mounted::new("two_crates_are_built_inside_the_mount", "1G") else {
        return;
    };
    let files = [
        (
            "Cargo.toml",
            "[workspace]\nmembers = [\"below\", \"above\"]\nresolver = \"3\"\n",
        ),
        (
            "below/Cargo.toml",
            "[package]\nname = \"below\"\nversion = \"0.1.0\"\nedition = \"2024\"\n",
        ),
        (
            "below/src/lib.rs",
            "pub fn answer() -> u32 {\n    6 * 7\n}\n",
        ),
        (
            "above/Cargo.toml",
            "[package]\nname = \"above\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n[dependencies]\nbelow = { path = \"../below\" }\n",
        ),
        (
            "above/src/main.rs",
            "fn main() {\n    println!(\"{}\", below::answer());\n}\n",
        ),
    ];
    for (path, text) in files {
        let path = m.path("ws").join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let cargo = |m: &Mounted, args: &[&str]| {
        let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command
            .current_dir(m.path("ws"))
            .args(args)
            .arg("--offline");
        command
            .env_remove("CARGO_TARGET_DIR")
            .env_remove("RUSTFLAGS")
            .env_remove("CARGO_MAKEFLAGS");
        run_program(&mut command)
    };
    cargo(&m, &["build"]).expect_success();
    assert_eq!(
        run_program(&mut Command::new(m.path("ws/target/debug/above"))).expect_success(),
        "42\n"
    );
    m.remount();
    assert_eq!(
        run_program(&mut Command::new(m.path("ws/target/debug/above"))).expect_success(),
        "42\n"
    );
    let again = cargo(&m, &["build"]);
    assert!(
        !again.stderr.contains("Compiling"),
        "times came back, so nothing is stale: {again}"
    );
    std::fs::write(
        m.path("ws/below/src/lib.rs"),
        "pub fn answer() -> u32 {\n    43\n}\n",
    )
    .unwrap();
    assert_eq!(cargo(&m, &["run", "-q"]).expect_success(), "43\n");
}

fn keeps_every_commit(test: &str, journal: &str) {
    let Some(mut m) = Mounted::new(test, "512M") else {
        return;
    };
    if sqlite(test, &mut m, journal, 3) {
        m.down();
        m.check();
    }
}

#[test]
fn sqlite_with_a_write_ahead_log_keeps_every_acknowledged_commit() {
    keeps_every_commit(
        "sqlite_with_a_write_ahead_log_keeps_every_acknowledged_commit",
        "WAL",
    );
}

#[test]
fn sqlite_with_a_rollback_journal_keeps_every_acknowledged_commit() {
    keeps_every_commit(
        "sqlite_with_a_rollback_journal_keeps_every_acknowledged_commit",
        "DELETE",
    );
}

#[test]
fn postgresql_keeps_every_acknowledged_transaction() {
    let test = "postgresql_keeps_every_acknowledged_transaction";
    if World::new(test).is_none() {
        return;
    }
    let mut m = Mounted::of(World::open_to_all(), "1G");
    if postgresql(test, &mut m, 2) {
        m.down();
        m.check();
    }
}
