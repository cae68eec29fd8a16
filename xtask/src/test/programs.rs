//! The test programs of the workspace: built all at once, before the first one runs.

use super::TestArguments;
use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The builds, as arguments of `cargo test`. The last one leaves the programs as users have them.
const BUILDS: &[&[&str]] = &[
    // The tests themselves are tested with bugs that only this feature compiles in.
    &[
        "-p",
        "teal-log",
        "--features",
        "seeded-bugs",
        "--test",
        "seeded",
    ],
    &[
        "-p",
        "teal-chunk",
        "--features",
        "seeded-bugs",
        "--test",
        "seeded",
    ],
    &[
        "-p",
        "teal",
        "--features",
        "seeded-bugs",
        "--test",
        "seeded",
    ],
    &["--workspace"],
];

/// Programs with tests that mostly wait, for time-outs and for other machines, each with the number
/// of tests that run side by side: more than there are processors.
const WAITING: &[(&str, &str)] = &[
    ("teal::machines", "--test-threads=4"),
    ("teal::network", "--test-threads=6"),
];

/// Programs beside which no other runs, each with what it does to others.
const ALONE: &[(&str, &str)] = &[
    (
        "teal::host",
        "makes mount namespaces, and drops what the kernel has cached",
    ),
    ("teal::stress", "takes all of the machine that it gets"),
    ("teal-fuse::mount", COPIES_MOUNTS),
    (
        "teal-lab::traces",
        "counts what threads that run side by side come to",
    ),
    ("xtask", "ends file systems that no mount leads to"),
];
/// A new mount namespace begins as a copy: what others have mounted and unmount meanwhile stays
/// alive until the namespace ends.
const COPIES_MOUNTS: &str = "makes mount namespaces";

/// A program that runs tests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TestProgram {
    /// `crate` for its unit tests, `crate::file` for a file or a directory in `tests`.
    pub(super) name: String,
    pub(super) path: PathBuf,
    pub(super) args: Vec<OsString>,
    /// The directory in which it runs: the root of its package, as under cargo.
    pub(super) dir: PathBuf,
    /// Is true if it is the standard harness itself, which lists its tests and runs those that are
    /// named.
    pub(super) is_harness: bool,
}

impl TestProgram {
    /// Returns the examples in the docs, which cargo runs, as a program.
    pub(super) fn doc_examples(plan: &TestArguments) -> Self {
        // Cargo itself compiles and runs the examples.
        let args = ["test", "--workspace", "--doc", "--no-fail-fast"]
            .into_iter()
            .chain(plan.profile())
            .chain(plan.filter.as_deref());
        Self {
            name: "examples in the docs".to_owned(),
            path: crate::workspace::cargo_command().get_program().into(),
            args: args.map(Into::into).collect(),
            dir: crate::workspace::workspace_root().to_owned(),
            is_harness: false,
        }
    }

    /// Returns the argument for the number of its tests that run side by side; `None` for as many
    /// as there are processors.
    pub(super) fn side_by_side(&self) -> Option<&'static str> {
        let found = WAITING.iter().find(|(name, _)| *name == self.name);
        found.map(|(_, threads)| *threads)
    }

    /// Returns the reason why the program must run alone, if it must: its effect on others beside
    /// it.
    pub(super) fn is_alone_because(&self) -> Option<&'static str> {
        let found = ALONE.iter().find(|(name, _)| *name == self.name);
        found.map(|(_, reason)| *reason)
    }

    /// Returns a command for the program with the environment that cargo would give it, and `more`
    /// arguments.
    pub(super) fn to_command(&self, more: &[&str]) -> Command {
        let mut command = Command::new(&self.path);
        command.args(&self.args).args(more).current_dir(&self.dir);
        if self.is_harness {
            command
                .env("CARGO_MANIFEST_DIR", &self.dir)
                .env("CARGO", crate::workspace::cargo_command().get_program());
        }
        command
    }
}

/// Builds everything that [`run`](super::run) runs, examples too.
pub(super) fn build_all(plan: &TestArguments) -> Result<Vec<TestProgram>> {
    let mut programs = Vec::new();
    for what in BUILDS {
        let out = crate::workspace::cargo_command()
            .current_dir(crate::workspace::workspace_root())
            .args([
                "test",
                "--no-run",
                "--message-format=json-render-diagnostics",
            ])
            .args(*what)
            .args(plan.profile())
            .stdin(Stdio::null())
            .stderr(Stdio::inherit())
            .output()
            .context("cargo test --no-run")?;
        ensure!(out.status.success(), "the workspace does not build");
        programs.extend(
            String::from_utf8_lossy(&out.stdout)
                .lines()
                .filter_map(parse_program),
        );
    }
    debug_assert!(!programs.is_empty(), "the workspace has tests");
    // Cargo names them as they get ready; a fixed order is easier to compare.
    programs.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(programs)
}

/// Returns the test program in a message of cargo.
fn parse_program(message: &str) -> Option<TestProgram> {
    let message: Value = serde_json::from_str(message).ok()?;
    // Cargo's messages also name libraries and build scripts.
    let is_test = message["reason"] == "compiler-artifact" && message["profile"]["test"] == true;
    let path = message["executable"].as_str().filter(|_| is_test)?;
    let dir = Path::new(message["manifest_path"].as_str()?).parent()?;
    // Packages are named as their directories.
    let package = dir.file_name()?.to_str()?;
    let target = message["target"]["name"].as_str()?;
    let name = match message["target"]["kind"][0].as_str()? {
        "example" | "bench" => return None,
        "test" => format!("{package}::{target}"),
        "bin" if target != package => format!("{package} ({target})"),
        _ => package.to_owned(),
    };
    Some(TestProgram {
        name,
        path: path.into(),
        args: Vec::new(),
        dir: dir.to_owned(),
        is_harness: true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: &str, name: &str, is_test: bool) -> String {
        serde_json::json!({
            "reason": "compiler-artifact", "manifest_path": "/w/crates/teal-x/Cargo.toml",
            "executable": "/w/target/a",
            "target": { "kind": [kind], "name": name }, "profile": { "test": is_test },
        })
        .to_string()
    }

    #[test]
    fn test_programs_are_found_in_what_cargo_says() {
        let name =
            |kind, name| parse_program(&message(kind, name, true)).map(|program| program.name);
        assert_eq!(name("test", "stress").as_deref(), Some("teal-x::stress"));
        assert_eq!(name("lib", "teal_x").as_deref(), Some("teal-x"));
        assert_eq!(name("bin", "teal-x").as_deref(), Some("teal-x"));
        assert_eq!(name("bin", "other").as_deref(), Some("teal-x (other)"));
        assert_eq!(name("example", "show"), None, "it only has to build");
        assert_eq!(
            parse_program(&message("bin", "teal-x", false)),
            None,
            "no test"
        );
        assert_eq!(parse_program("   Compiling teal-x"), None);
        let found = parse_program(&message("test", "stress", true)).unwrap();
        assert_eq!(found.side_by_side(), None);
        let waiting = TestProgram {
            name: "teal::network".into(),
            ..found.clone()
        };
        assert_eq!(waiting.side_by_side(), Some("--test-threads=6"));
        assert_eq!(waiting.is_alone_because(), None);
        let copying = TestProgram {
            name: "teal-fuse::mount".into(),
            ..found.clone()
        };
        assert_eq!(copying.is_alone_because(), Some(COPIES_MOUNTS));
        assert_eq!(
            (found.path, found.dir),
            ("/w/target/a".into(), "/w/crates/teal-x".into())
        );
    }
}
