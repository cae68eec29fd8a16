//! `cargo xtask bench mount`: a mount of TealFS beside ext4, a bare mirror and juicefs, on the same
//! disk, in one run.
//!
//! # How
//! 1. Subjects are interleaved: every group of rows runs on each of them before the next group, the
//!    order turns with each round. A ratio is taken within a round; the report shows the median
//!    over rounds and the spread.
//! 2. Gates are counts; times are printed beside the mirror's, which is what user space can do here
//!    at all.
//! 3. Whatever is mounted, attached or started is undone at the end, after a failure, and after
//!    Ctrl-C.

pub(crate) mod andrew;
pub(crate) mod attach;
pub(crate) mod emulator;
mod lab;
mod meter;
pub(crate) mod phases;
pub(crate) mod portable;
mod programs;
mod report;
mod rows;
mod stage;
mod statistics;
mod subject;
pub(crate) mod undo;

use crate::arguments::count;
use anyhow::{Context as _, Result, ensure};
use lab::{MountTestbed, RunSite};
use rows::{GROUPS, RowGroup};
use stage::RowStage;
use std::path::PathBuf;
use subject::SubjectKind;

/// Times a mount beside ext4, a bare mirror and juicefs (root).
#[derive(Debug, clap::Args)]
pub(crate) struct MountArguments {
    /// Rounds of ext4, mirror and teal
    #[arg(long, value_name = "N", default_value = "5", value_parser = count(1))]
    rounds: usize,
    /// Rounds that juicefs takes part in: it is slow
    #[arg(long, value_name = "N", default_value = "1")]
    peer_rounds: usize,
    /// Only rows with PATTERN in their names
    #[arg(
        long = "rows",
        value_name = "PATTERN",
        default_value = "",
        hide_default_value = true
    )]
    pattern: String,
    /// Raw samples; the table goes beside them as .md [default: target/bench/mount.json]
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Without juicefs
    #[arg(long)]
    no_peers: bool,
    /// The directory of images and mounts, on the disk that is measured [default: target/bench]
    #[arg(long)]
    dir: Option<PathBuf>,
}

impl MountArguments {
    /// Returns the number of rounds that the peers take part in.
    fn rounds_of_peers(&self) -> usize {
        if self.no_peers {
            0
        } else {
            self.peer_rounds.min(self.rounds)
        }
    }
}

pub(crate) fn run(plan: &MountArguments) -> Result<bool> {
    let chosen = |group: &&RowGroup| {
        group
            .rows
            .iter()
            .any(|row| row.name.contains(&plan.pattern))
    };
    let groups: Vec<&RowGroup> = GROUPS.iter().filter(chosen).collect();
    ensure!(!groups.is_empty(), "no row contains {:?}", plan.pattern);
    let site = RunSite::begin_run("mount", plan.json.as_deref(), plan.dir.as_deref())?;
    let peer_rounds = plan.rounds_of_peers();
    let mut lab = MountTestbed::set_up(site, peer_rounds > 0)?;
    let mut samples = Vec::new();
    for round in 0..plan.rounds {
        for group in &groups {
            let mut kinds: Vec<SubjectKind> = lab.subject_kinds().collect();
            let turn = round % kinds.len();
            // The order turns with the rounds, so that no subject always comes first.
            kinds.rotate_left(turn);
            for kind in kinds {
                if kind == SubjectKind::Juicefs && round >= peer_rounds {
                    continue;
                }
                eprint!(
                    "\rround {}/{} {:<10} {:<24}",
                    round + 1,
                    plan.rounds,
                    kind.label(),
                    group.rows[0].name
                );
                // Every group begins without the names that the last one left in the kernel.
                lab::forget_names()?;
                let mut stage = RowStage::new(&mut lab, kind, round, &mut samples);
                let done = (group.run)(&mut stage).and_then(|()| stage.commit());
                done.with_context(|| format!("{} on {}", group.rows[0].name, kind.label()))?;
            }
        }
        // The peer is unmounted as soon as it is done: its daemon would take processor time from
        // the others.
        if round + 1 == peer_rounds {
            lab.remove_subject(SubjectKind::Juicefs)?;
        }
    }
    eprintln!();
    samples.retain(|sample| sample.row.contains(&plan.pattern));
    let (json, table) = (
        |of: &_| report::render_json(&samples, of),
        |of: &_| report::render_markdown(&samples, of),
    );
    println!("{}", lab.site.write_results(plan.rounds, json, table)?);
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::parse;

    #[test]
    fn arguments_say_what_is_measured() {
        let plan: MountArguments =
            parse(&["--rounds", "3", "--rows", "cold", "--peer-rounds", "9"]).unwrap();
        assert_eq!(
            (plan.rounds, plan.rounds_of_peers(), plan.pattern.as_str()),
            (3, 3, "cold")
        );
        assert_eq!(
            parse::<MountArguments>(&["--no-peers"])
                .unwrap()
                .rounds_of_peers(),
            0
        );
        for refused in [&["--rounds"][..], &["--rounds", "0"], &["--fast"]] {
            assert!(parse::<MountArguments>(refused).is_err(), "{refused:?}");
        }
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
