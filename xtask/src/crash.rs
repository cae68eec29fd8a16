//! `cargo xtask crash`: runs the crash explorer of `teal-log` in the release profile.
//!
//! The test reads its size from the environment:
//! - `TEAL_CRASH_IMAGES`: crash images to look at, at least; by default 50,000, with `--long`
//!   10,000,000.
//! - `TEAL_CRASH_SEED`: the seed of workload and choice of images; by default 1. The same seed
//!   explores the same images.

use anyhow::{Context as _, Result};

/// Images to look at by default, and with `--long`.
const IMAGES: u64 = 50_000;
const IMAGES_LONG: u64 = 10_000_000;

/// Explores crash images of the log store.
#[derive(Debug, clap::Args)]
pub(crate) struct CrashArguments {
    /// Crash images to look at, at least [default: 50000, with --long 10000000]
    #[arg(long, value_name = "N")]
    images: Option<u64>,
    /// Seed of the workload and of the choice of images: the same seed explores the same images
    #[arg(long, value_name = "N", default_value = "1")]
    seed: u64,
    /// Hours instead of minutes
    #[arg(long = "long")]
    is_long: bool,
}

impl CrashArguments {
    fn image_count(&self) -> u64 {
        let default = if self.is_long { IMAGES_LONG } else { IMAGES };
        self.images.unwrap_or(default)
    }
}

pub(crate) fn run(plan: &CrashArguments) -> Result<bool> {
    let (images, seed) = (plan.image_count(), plan.seed);
    println!("exploring {images} crash images, seed {seed}");
    let status = crate::workspace::cargo_command()
        .current_dir(crate::workspace::workspace_root())
        .args([
            "test",
            "--release",
            "-p",
            "teal-log",
            "--test",
            "suite",
            "crash::",
            "--",
            "--nocapture",
        ])
        .env("TEAL_CRASH_IMAGES", images.to_string())
        .env("TEAL_CRASH_SEED", seed.to_string())
        .status()
        .context("cargo test")?;
    if !status.success() {
        println!("repeat with: cargo xtask crash --images {images} --seed {seed}");
    }
    Ok(status.success())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::parse;

    #[test]
    fn arguments_in_any_order_say_how_much() {
        let size = |args: &[&str]| {
            let plan: CrashArguments = parse(args).unwrap();
            (plan.image_count(), plan.seed)
        };
        assert_eq!(size(&[]), (50_000, 1));
        assert_eq!(size(&["--long"]), (10_000_000, 1));
        assert_eq!(size(&["--images", "7", "--long", "--seed", "9"]), (7, 9));
        for refused in [&["--seed"][..], &["--seed", "x"], &["--fast"]] {
            assert!(parse::<CrashArguments>(refused).is_err(), "{refused:?}");
        }
    }
}
