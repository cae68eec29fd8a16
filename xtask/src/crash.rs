//! `cargo xtask crash`: runs the crash explorer of `teal-log` in the release profile.
//!
//! The test reads its size from the environment:
//! - `TEAL_CRASH_IMAGES`: crash images to look at, at least; by default 50,000, with `--long` 10,000,000.
//! - `TEAL_CRASH_SEED`: the seed of workload and choice of images; by default 1. The same seed explores the same images.

use anyhow::{Context as _, Result, bail};

#[derive(Debug, PartialEq, Eq)]
struct Size {
    images: u64,
    seed: u64,
}

fn parse(args: &[&str]) -> Result<Size> {
    let mut size = Size {
        images: 50_000,
        seed: 1,
    };
    let mut asked = None;
    let mut args = args.iter();
    while let Some(&arg) = args.next() {
        let mut number = || {
            let said = args
                .next()
                .with_context(|| format!("{arg} needs a number"))?;
            said.parse::<u64>().with_context(|| format!("{arg} {said}"))
        };
        match arg {
            "--long" => size.images = 10_000_000,
            "--images" => asked = Some(number()?),
            "--seed" => size.seed = number()?,
            _ => bail!("unknown argument {arg}; known are --long, --seed N, --images N"),
        }
    }
    size.images = asked.unwrap_or(size.images);
    Ok(size)
}

pub(crate) fn run(args: &[&str]) -> Result<bool> {
    let Size { images, seed } = parse(args)?;
    println!("exploring {images} crash images, seed {seed}");
    let status = crate::cargo()
        .current_dir(crate::root())
        .args([
            "test",
            "--release",
            "-p",
            "teal-log",
            "--test",
            "crash",
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

    #[test]
    fn arguments_in_any_order_say_how_much() {
        assert_eq!(
            parse(&[]).unwrap(),
            Size {
                images: 50_000,
                seed: 1
            }
        );
        assert_eq!(
            parse(&["--images", "7", "--long", "--seed", "9"]).unwrap(),
            Size { images: 7, seed: 9 }
        );
        assert!(parse(&["--seed"]).is_err());
        assert!(parse(&["--seed", "x"]).is_err());
        assert!(parse(&["--fast"]).is_err());
    }
}
