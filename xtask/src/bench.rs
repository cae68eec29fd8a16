//! `cargo xtask bench mount`: a mount of TealFS beside ext4, a bare mirror and juicefs, on the same disk, in one run.
//!
//! # How
//! 1. Subjects are interleaved: every group of rows runs on each of them before the next group, the order turns with each round.
//!    A ratio is taken within a round; the report shows the median over rounds and the spread.
//! 2. Gates are counts; times are printed beside the mirror's, which is what user space can do here at all.
//! 3. Whatever is mounted, attached or started is undone at the end, after a failure, and after Ctrl-C.

pub(crate) mod andrew;
pub(crate) mod attach;
pub(crate) mod emulator;
mod lab;
mod meter;
pub(crate) mod phases;
pub(crate) mod portable;
mod report;
mod rows;
mod stage;
mod statistics;
mod subject;
pub(crate) mod undo;

use anyhow::{Context as _, Result, bail, ensure};
use lab::{Lab, Site};
use rows::{GROUPS, Group};
use stage::Stage;
use std::path::PathBuf;
use subject::Kind;

const HELP: &str = "\
cargo xtask bench mount [--rounds N] [--peer-rounds N] [--rows PATTERN] [--json FILE] [--no-peers] [--dir DIR]
  --rounds N       rounds of ext4, mirror and teal (5)
  --peer-rounds N  rounds juicefs takes part in (1: it is slow)
  --rows PATTERN   only rows whose name contains PATTERN
  --json FILE      raw samples (target/bench/mount.json; the table goes beside it as .md)
  --no-peers       without juicefs
  --dir DIR        where images and mounts lie: the disk that is measured (target/bench)";

#[derive(Debug)]
struct Plan {
    rounds: usize,
    peer_rounds: usize,
    pattern: String,
    json: Option<PathBuf>,
    dir: Option<PathBuf>,
}

fn parse(args: &[&str]) -> Result<Option<Plan>> {
    let mut plan = Plan {
        rounds: 5,
        peer_rounds: 1,
        pattern: String::new(),
        json: None,
        dir: None,
    };
    let mut peers = true;
    let mut args = args.iter();
    while let Some(&arg) = args.next() {
        let mut value = || {
            args.next()
                .copied()
                .with_context(|| format!("{arg} needs a value"))
        };
        match arg {
            "--rounds" => plan.rounds = value()?.parse().context("--rounds")?,
            "--peer-rounds" => plan.peer_rounds = value()?.parse().context("--peer-rounds")?,
            "--rows" => value()?.clone_into(&mut plan.pattern),
            "--json" => plan.json = Some(value()?.into()),
            "--dir" => plan.dir = Some(value()?.into()),
            "--no-peers" => peers = false,
            "--help" => return Ok(None),
            _ => bail!("unknown argument {arg}\n{HELP}"),
        }
    }
    ensure!(plan.rounds > 0, "--rounds 0 measures nothing");
    plan.peer_rounds = if peers {
        plan.peer_rounds.min(plan.rounds)
    } else {
        0
    };
    Ok(Some(plan))
}

pub(crate) fn run(args: &[&str]) -> Result<bool> {
    let Some(plan) = parse(args)? else {
        println!("{HELP}");
        return Ok(true);
    };
    let chosen = |group: &&Group| {
        group
            .rows
            .iter()
            .any(|row| row.name.contains(&plan.pattern))
    };
    let groups: Vec<&Group> = GROUPS.iter().filter(chosen).collect();
    ensure!(!groups.is_empty(), "no row contains {:?}", plan.pattern);
    let site = Site::begin("mount", plan.json.as_deref(), plan.dir.as_deref())?;
    let mut lab = Lab::set_up(site, plan.peer_rounds > 0)?;
    let mut samples = Vec::new();
    for round in 0..plan.rounds {
        for group in &groups {
            let mut kinds: Vec<Kind> = lab.kinds().collect();
            let turn = round % kinds.len();
            kinds.rotate_left(turn);
            for kind in kinds {
                if kind == Kind::Juicefs && round >= plan.peer_rounds {
                    continue;
                }
                eprint!(
                    "\rround {}/{} {:<10} {:<24}",
                    round + 1,
                    plan.rounds,
                    kind.name(),
                    group.rows[0].name
                );
                lab::forget_names()?;
                let mut stage = Stage::new(&mut lab, kind, round, &mut samples);
                let done = (group.run)(&mut stage).and_then(|()| stage.commit());
                done.with_context(|| format!("{} on {}", group.rows[0].name, kind.name()))?;
            }
        }
        if round + 1 == plan.peer_rounds {
            lab.dismiss(Kind::Juicefs)?;
        }
    }
    eprintln!();
    samples.retain(|sample| sample.row.contains(&plan.pattern));
    let (json, table) = (
        |of: &_| report::json(&samples, of),
        |of: &_| report::markdown(&samples, of),
    );
    println!("{}", lab.site.keep(plan.rounds, json, table)?);
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_say_what_is_measured() {
        let plan = parse(&["--rounds", "3", "--rows", "cold", "--peer-rounds", "9"])
            .unwrap()
            .unwrap();
        assert_eq!(
            (plan.rounds, plan.peer_rounds, plan.pattern.as_str()),
            (3, 3, "cold")
        );
        assert_eq!(parse(&["--no-peers"]).unwrap().unwrap().peer_rounds, 0);
        assert!(
            parse(&["--rounds"]).is_err()
                && parse(&["--rounds", "0"]).is_err()
                && parse(&["--fast"]).is_err()
        );
    }

    #[test]
    fn rows_have_names_of_their_own() {
        let mut names: Vec<_> = GROUPS
            .iter()
            .flat_map(|group| group.rows)
            .map(|row| row.name)
            .collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
