//! `cargo xtask fuzz`: runs the fuzz targets of the crate `fuzz` in front of libFuzzer, guided by
//! coverage.
//!
//! Stable Rust: LLVM's coverage pass is asked for by name, libFuzzer comes with the crate
//! `libfuzzer-sys` and needs a C++ compiler.
//!
//! # How
//! 1. Each target starts from `fuzz/corpus/TARGET` and what its seeds say; what it finds new goes
//!    to `target/fuzz/TARGET`.
//! 2. An input that breaks a promise is written to `target/fuzz/broken/TARGET` as `crash-…`,
//!    `oom-…` or `timeout-…`; `cargo xtask fuzz TARGET FILE` repeats it. Once it is fixed, it goes
//!    to `fuzz/corpus/TARGET`, where `cargo test` replays it.
//! 3. With `--keep`, the smallest inputs that together reach what all found reach are taken into
//!    `fuzz/corpus`.

use anyhow::{Context as _, Result, bail};
use clap::builder::PossibleValuesParser;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Every target, with the share of time it gets.
const TARGETS: [(&str, u64); 14] = [
    ("superblock", 1),
    ("anchor", 1),
    ("record", 1),
    ("body", 2),
    ("inode", 2),
    ("extent", 1),
    ("imap", 1),
    ("usage", 1),
    ("page", 2),
    ("shared", 1),
    ("future", 1),
    ("image", 20),
    ("image-sealed", 6),
    ("fuse", 2),
];
/// The length of the longest input that is tried.
const LONGEST: &str = "-max_len=4096";
const SLOWEST: &str = "-timeout=60";
/// An input longer than this is not taken into the repository.
const KEEP_BYTES: u64 = 2048;
const HOST: &str = "x86_64-unknown-linux-gnu";

/// Fuzzes decoders and images, all targets by default, or repeats one input.
#[derive(Debug, PartialEq, Eq, clap::Args)]
pub(crate) struct FuzzArguments {
    /// The only target
    #[arg(value_parser = PossibleValuesParser::new(TARGETS.map(|(name, _)| name)))]
    target: Option<String>,
    /// An input to repeat
    file: Option<PathBuf>,
    /// Minutes of fuzzing, over all targets
    #[arg(long, value_name = "N", default_value = "10")]
    minutes: u64,
    /// Take the smallest inputs that together reach what all found reach into fuzz/corpus
    #[arg(long)]
    keep: bool,
}

pub(crate) fn run(plan: &FuzzArguments) -> Result<bool> {
    let program = build_fuzzer()?;
    if let (Some(target), Some(file)) = (&plan.target, &plan.file) {
        return Ok(program.command_for(target).arg(file).status()?.success());
    }
    let chosen: Vec<_> = TARGETS
        .into_iter()
        .filter(|(name, _)| plan.target.as_deref().is_none_or(|only| only == *name))
        .collect();
    // Targets share the time by their weights.
    let shares: u64 = chosen.iter().map(|(_, share)| share).sum();
    let mut sound = true;
    debug_assert!(shares > 0, "at least one target was chosen");
    for (target, share) in chosen {
        // A target gets at least a second, or libFuzzer would run without end.
        let seconds = (plan.minutes * 60 * share / shares).max(1);
        sound &= program.fuzz_target(target, seconds)?;
        if plan.keep {
            program.keep_smallest(target)?;
        }
    }
    Ok(sound)
}

struct FuzzProgram {
    path: PathBuf,
    /// The directory of the targets' findings.
    found: PathBuf,
}

fn build_fuzzer() -> Result<FuzzProgram> {
    let flags = [
        "-Cpasses=sancov-module",
        "-Cllvm-args=-sanitizer-coverage-level=4",
        "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
        "-Cllvm-args=-sanitizer-coverage-pc-table",
        "-Cllvm-args=-sanitizer-coverage-trace-compares",
    ];
    let dir = crate::workspace::workspace_root().join("fuzz");
    let target = std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(
            || crate::workspace::workspace_root().join("target"),
            PathBuf::from,
        )
        .join("fuzz");
    let built = crate::workspace::cargo_command()
        .current_dir(&dir)
        // With --target, build scripts are built without these flags.
        .args(["build", "--release", "--target", HOST, "--target-dir"])
        .arg(target.join("build"))
        .env("RUSTFLAGS", flags.join(" "))
        .status()
        .context("cargo build")?;
    if !built.success() {
        bail!("the fuzzer does not build; libFuzzer needs a C++ compiler (c++)");
    }
    Ok(FuzzProgram {
        path: target.join("build").join(HOST).join("release/teal-fuzz"),
        found: target,
    })
}

fn corpus_dir(target: &str) -> PathBuf {
    crate::workspace::workspace_root()
        .join("fuzz/corpus")
        .join(target)
}

fn sorted_files(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(dir).with_context(|| dir.display().to_string())? {
        files.push(entry?.path());
    }
    files.sort();
    Ok(files)
}

impl FuzzProgram {
    fn command_for(&self, target: &str) -> Command {
        let mut command = Command::new(&self.path);
        command
            .env("TEAL_FUZZ_TARGET", target)
            .args([LONGEST, SLOWEST, "-rss_limit_mb=1500"]);
        command
    }

    fn make_dirs(&self, target: &str) -> Result<(PathBuf, PathBuf)> {
        let (found, kept) = (self.found.join(target), corpus_dir(target));
        std::fs::create_dir_all(&found)?;
        std::fs::create_dir_all(&kept)?;
        Ok((found, kept))
    }

    /// Fuzzes one target, and returns whether all promises held.
    fn fuzz_target(&self, target: &str, seconds: u64) -> Result<bool> {
        let (found, kept) = self.make_dirs(target)?;
        let broken = self.found.join("broken").join(target);
        std::fs::create_dir_all(&broken)?;
        // Findings of earlier runs are no findings of this one.
        let before = sorted_files(&broken)?;
        let out = self
            .command_for(target)
            .env("TEAL_FUZZ_SEEDS", &found)
            // The target runs in a process of its own, which is replaced when an input kills it.
            .args([
                "-fork=1",
                "-len_control=0",
                "-ignore_crashes=1",
                "-ignore_ooms=1",
                "-ignore_timeouts=1",
            ])
            .arg(format!("-max_total_time={seconds}"))
            .arg(format!("-artifact_prefix={}/", broken.display()))
            .args([&found, &kept])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .output()
            .context("the fuzzer")?;
        let said = String::from_utf8_lossy(&out.stderr);
        let (runs, coverage) = last_report(&said).unwrap_or_default();
        println!("{target}: {runs} executions in {seconds} s, coverage {coverage}");
        let fresh: Vec<_> = sorted_files(&broken)?
            .into_iter()
            .filter(|file| !before.contains(file))
            .collect();
        for file in &fresh {
            println!(
                "  broken; repeat with: cargo xtask fuzz {target} {}",
                file.display()
            );
        }
        if !out.status.success() {
            said.lines()
                .rev()
                .take(25)
                .for_each(|line| println!("  {line}"));
        }
        Ok(out.status.success() && fresh.is_empty())
    }

    /// Copies the smallest inputs that reach everything into the repository, beside those that once
    /// broke a promise.
    fn keep_smallest(&self, target: &str) -> Result<()> {
        let (found, kept) = self.make_dirs(target)?;
        let merged = self.found.join(format!("{target}.merged"));
        // The corpus is merged into an empty directory: old files there would count as reached.
        let _ = std::fs::remove_dir_all(&merged);
        std::fs::create_dir_all(&merged)?;
        let done = self
            .command_for(target)
            .arg("-merge=1")
            .args([&merged, &kept, &found])
            .stderr(Stdio::null())
            .status()?;
        if !done.success() {
            bail!("{target}: the corpora cannot be merged while an input breaks a promise");
        }
        let is_named = |path: &Path| {
            path.file_name()
                .is_some_and(|name| name.to_string_lossy().contains('-'))
        };
        // Inputs with a dash in their names once broke a promise, and stay.
        for old in sorted_files(&kept)?
            .into_iter()
            .filter(|path| !is_named(path))
        {
            std::fs::remove_file(old)?;
        }
        let mut count = 0;
        for path in sorted_files(&merged)? {
            if let Some(name) = path
                .file_name()
                .filter(|_| path.metadata().is_ok_and(|m| m.len() <= KEEP_BYTES))
            {
                std::fs::copy(&path, kept.join(name))?;
                count += 1;
            }
        }
        println!("{target}: {count} inputs kept");
        Ok(())
    }
}

/// Returns executions and coverage of libFuzzer's last report: `#9: cov: 5 ft: …`.
fn last_report(said: &str) -> Option<(u64, u64)> {
    said.lines().rev().find_map(|line| {
        let (runs, rest) = line.strip_prefix('#')?.split_once(": cov: ")?;
        Some((runs.parse().ok()?, rest.split(' ').next()?.parse().ok()?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::parse;

    #[test]
    fn arguments_say_what_to_fuzz_and_how_long() {
        let everything = FuzzArguments {
            target: None,
            file: None,
            minutes: 10,
            keep: false,
        };
        assert_eq!(parse::<FuzzArguments>(&[]).unwrap(), everything);
        let one = FuzzArguments {
            target: Some("image".to_owned()),
            file: Some("crash-1".into()),
            minutes: 3,
            keep: true,
        };
        assert_eq!(
            parse::<FuzzArguments>(&["image", "--minutes", "3", "--keep", "crash-1"]).unwrap(),
            one
        );
        for refused in [&["nonsense"][..], &["--minutes"], &["--fast"]] {
            assert!(parse::<FuzzArguments>(refused).is_err(), "{refused:?}");
        }
    }

    #[test]
    fn progress_is_read_from_what_the_fuzzer_says() {
        assert_eq!(
            last_report("#1: cov: 2 ft: 3\n#10: cov: 25 ft: 9\nINFO: x"),
            Some((10, 25))
        );
    }
}
