//! `cargo xtask sim`: whole clients and a server in one process, under seeds; the test `replicas` of the program in the release profile.
//!
//! The test reads from the environment:
//! - `TEAL_SEEDS`: how many seeds of each stage; by default 1,000.
//! - `TEAL_SEED`: one seed only, which prints its steps and messages.

use anyhow::{Context as _, Result, bail};

#[derive(Debug, PartialEq, Eq)]
struct Asked {
    seeds: u64,
    seed: Option<u64>,
}

fn parse(args: &[&str]) -> Result<Asked> {
    let mut asked = Asked {
        seeds: 1_000,
        seed: None,
    };
    let mut args = args.iter();
    while let Some(&arg) = args.next() {
        let mut number = || {
            let said = args
                .next()
                .with_context(|| format!("{arg} needs a number"))?;
            said.parse::<u64>().with_context(|| format!("{arg} {said}"))
        };
        match arg {
            "--seeds" => asked.seeds = number()?,
            "--seed" => asked.seed = Some(number()?),
            _ => bail!("unknown argument {arg}; known are --seed N, --seeds N"),
        }
    }
    Ok(asked)
}

pub(crate) fn run(args: &[&str]) -> Result<bool> {
    let Asked { seeds, seed } = parse(args)?;
    let mut command = crate::cargo();
    command.current_dir(crate::root()).args([
        "test",
        "--release",
        "-p",
        "teal",
        "--test",
        "replicas",
    ]);
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

    #[test]
    fn arguments_say_one_seed_or_how_many() {
        assert_eq!(
            parse(&[]).unwrap(),
            Asked {
                seeds: 1_000,
                seed: None
            }
        );
        assert_eq!(
            parse(&["--seeds", "7"]).unwrap(),
            Asked {
                seeds: 7,
                seed: None
            }
        );
        assert_eq!(parse(&["--seed", "0"]).unwrap().seed, Some(0));
        assert!(parse(&["--seeds"]).is_err());
        assert!(parse(&["--fast"]).is_err());
    }
}
