//! `cargo xtask sim`: whole clients and a server in one process, under seeds; the test `replicas`
//! of the program in the release profile.
//!
//! The test reads from the environment:
//! - `TEAL_SEEDS`: the number of seeds of each stage; by default 1,000.
//! - `TEAL_SEED`: one seed only, which prints its steps and messages.

use anyhow::{Context as _, Result};

/// Runs whole clients and a server in one process, under seeds.
#[derive(Debug, clap::Args)]
pub(crate) struct SimArguments {
    /// Number of seeds of each stage
    #[arg(long, value_name = "N", default_value = "1000")]
    seeds: u64,
    /// One seed only, which prints its steps and messages
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
}

pub(crate) fn run(plan: &SimArguments) -> Result<bool> {
    let SimArguments { seeds, seed } = *plan;
    let mut command = crate::workspace::cargo_command();
    command
        .current_dir(crate::workspace::workspace_root())
        .args(["test", "--release", "-p", "teal", "--test", "replicas"]);
    match seed {
        Some(seed) => command
            .args(["--", "--nocapture", "--test-threads=1"])
            .env("TEAL_SEED", seed.to_string()),
        None => command.env("TEAL_SEEDS", seeds.to_string()),
    };
    Ok(command.status().context("cargo test")?.success())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::parse;

    #[test]
    fn arguments_say_one_seed_or_how_many() {
        let asked = |args: &[&str]| {
            let plan: SimArguments = parse(args).unwrap();
            (plan.seeds, plan.seed)
        };
        assert_eq!(asked(&[]), (1_000, None));
        assert_eq!(asked(&["--seeds", "7"]), (7, None));
        assert_eq!(asked(&["--seed", "0"]), (1_000, Some(0)));
        for refused in [&["--seeds"][..], &["--fast"]] {
            assert!(parse::<SimArguments>(refused).is_err(), "{refused:?}");
        }
    }
}
