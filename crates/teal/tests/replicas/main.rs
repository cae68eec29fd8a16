//! Whole clients and a server in one process, under seeds: in the end all have the same tree, and no update is lost.
//!
//! # Guarantees
//! 1. *Repeatable*: a seed of a stage always gives the same messages; `TEAL_SEED=n` runs one and prints it, `TEAL_SEEDS=n` says how many.
//! 2. *Ending*: a seed that hangs fails.
//!
//! # Stages
//! Each has what the one before has: two machines that take turns, then both at once, then a network with faults, then power cuts.

#![allow(clippy::unwrap_used, reason = "tests panic where they fail")]

mod steps;
mod tags;
mod tree;
mod wire;
mod world;

use std::sync::mpsc::channel;
use std::time::Duration;
use steps::Steps;
use tags::Tags;
use teal_client::FsError;
use teal_testkit::Rng;
use tree::{differences, walk};
use world::{Machine, World};

/// A seed takes far less.
const DEADLINE: Duration = Duration::from_secs(60);
/// Rounds of everybody after which nothing may be pending any more.
const ROUNDS: usize = 12;
const SEEDS: u64 = 60;

/// What a run may meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Turns,
    AtOnce,
    Faults,
    Power,
}

struct Run {
    stage: Stage,
    rng: Rng,
    world: World,
    tags: Tags,
    is_printed: bool,
}

impl Run {
    fn new(stage: Stage, seed: u64, is_printed: bool) -> Self {
        let mut rng = Rng::new(seed);
        let mut world = World::new(seed, is_printed);
        let fill = rng.below(12);
        let mut more = rng.fork();
        world.found(&mut rng, |client| import(client, fill, &mut more));
        let tags = Tags::new(world.enrol("spy"));
        world.join("laptop", &mut rng);
        if rng.chance(0.4) {
            world.join("desk", &mut rng);
        }
        Self { stage, rng, world, tags, is_printed }
    }

    fn say(&self, what: std::fmt::Arguments<'_>) {
        if self.is_printed {
            println!("{what}");
        }
    }

    fn operate(&mut self, who: usize) {
        let Self { rng, tags, world, is_printed, .. } = self;
        Steps { machine: &world.machines[who], who, rng, tags, is_printed: *is_printed }.step();
    }

    /// A round with the server; says whether it went well. Without faults it does.
    fn round(&mut self, who: usize, flushes: bool) -> bool {
        self.say(format_args!("  {} {}", self.world.machines[who].name, if flushes { "flushes" } else { "steps" }));
        let client = &self.world.machines[who].client;
        let mut done = client.upstream_step().map(drop);
        if flushes && done.is_ok() {
            done = client.flush_upstream();
        }
        self.tags.look(&self.world.server());
        match done {
            Ok(()) => true,
            Err(e @ FsError::Unreachable(_)) if self.stage >= Stage::Faults => {
                self.say(format_args!("    {e}"));
                false
            }
            Err(e) => panic!("{} cannot deal with the server: {e}", self.world.machines[who].name),
        }
    }

    fn happen(&mut self) {
        let who = self.rng.index(self.world.machines.len());
        match self.rng.below(100) {
            0..12 => drop(self.round(who, true)),
            12..30 => drop(self.round(who, false)),
            30..33 => drop(self.world.machines[who].client.step()),
            33..36 => {
                self.world.machines[who].client.sync().unwrap();
                self.tags.synced(who);
            }
            36..39 if self.stage >= Stage::Faults => {
                let wire = &self.world.machines[who].wire;
                wire.cut(!wire.is_cut());
                self.say(format_args!("{who} is cut: {}", wire.is_cut()));
            }
            39..42 if self.stage >= Stage::Power => {
                self.say(format_args!("{who} loses power"));
                self.tags.power_cut(who);
                self.world.cut_power(who);
            }
            42..44 if self.stage >= Stage::Power => {
                self.say(format_args!("the server loses power"));
                self.world.cut_server();
            }
            _ => self.operate(who),
        }
        let ms = if self.rng.chance(0.1) { self.rng.below(40_000) } else { self.rng.below(400) };
        self.world.clock.advance(Duration::from_millis(1 + ms));
    }

    fn live(&mut self) {
        if self.stage >= Stage::Faults {
            let share = self.rng.below(40) as f64 / 100.0;
            self.world.machines.iter().for_each(|machine| machine.wire.set_faults(share));
        }
        for _ in 0..20 + self.rng.below(80) {
            if self.stage == Stage::Turns {
                let who = self.rng.index(self.world.machines.len());
                self.round(who, false);
                self.operate(who);
                self.round(who, true);
                self.world.clock.advance(Duration::from_millis(300));
            } else {
                self.happen();
            }
        }
    }

    /// The network heals; everybody sends and fetches until nothing is left to do.
    fn settle(&mut self) {
        self.say(format_args!("all is well again"));
        for machine in &self.world.machines {
            machine.wire.set_faults(0.0);
            machine.wire.cut(false);
        }
        let mut seen = None;
        for round in 0..ROUNDS {
            // What a batch met that will never be is said once, and sent anew in the next round.
            self.stage = if round < 2 { Stage::Faults } else { Stage::AtOnce };
            for who in 0..self.world.machines.len() {
                self.world.clock.advance(Duration::from_secs(31));
                self.round(who, true);
            }
            let clients = self.world.machines.iter().map(|machine| &machine.client);
            let all: Vec<_> = clients.map(|client| client.upstream_status().unwrap().unwrap()).collect();
            let now: Vec<_> = all.iter().map(|status| status.seen).collect();
            if all.iter().all(|status| status.only_here == 0) && seen.as_ref() == Some(&now) {
                return;
            }
            seen = Some(now);
        }
        let notes: Vec<_> = self.world.machines.iter().map(Machine::notes).collect();
        panic!("after {ROUNDS} rounds something is still pending: {notes:?}");
    }

    fn judge(&mut self) -> u64 {
        let conflicts: Vec<_> = self.world.machines.iter().map(|machine| machine.client.conflicts().unwrap()).collect();
        assert!(conflicts.windows(2).all(|pair| pair[0] == pair[1]), "all are told the same conflicts");
        assert!(self.stage_is_free_of_conflicts(&conflicts), "conflicts with nobody: {conflicts:#?}");
        let problems = self.world.problems();
        assert!(problems.is_empty(), "{}", problems.join("\n"));
        let mut rng = self.rng.fork();
        self.world.join("fresh", &mut rng);
        let fresh = self.world.machines.pop().unwrap();
        fresh.client.upstream_step().unwrap();
        // The first walk lists what the number of names is known from.
        walk(&fresh.client).unwrap();
        let there = walk(&fresh.client).unwrap();
        for machine in &self.world.machines {
            walk(&machine.client).unwrap();
            let here = walk(&machine.client).unwrap();
            let wrong = differences(&here, &there, self.took_turns());
            assert!(
                wrong.is_empty(),
                "{} (first) and a fresh one (second) differ:\n{}",
                machine.name,
                wrong.join("\n")
            );
        }
        let lost = self.tags.lost(&there);
        assert!(lost.is_empty(), "lost: {}", lost.join("\n"));
        self.world.machines.push(fresh);
        self.world.trace.digest()
    }

    fn stage_is_free_of_conflicts(&self, conflicts: &[Vec<teal_proto::ConflictNote>]) -> bool {
        !self.took_turns() || conflicts.iter().all(Vec::is_empty)
    }

    fn took_turns(&self) -> bool {
        self.stage == Stage::Turns
    }
}

fn import(client: &teal_client::Client, count: u64, rng: &mut Rng) {
    let mut dirs = vec![world::ROOT];
    for n in 0..count {
        let (dir, name) = (*rng.pick(&dirs), format!("old-{n}"));
        if rng.chance(0.3) {
            dirs.push(client.mkdir(&world::CALLER, dir, name.as_bytes(), 0o755).unwrap().object);
        } else {
            let no = client.create(&world::CALLER, dir, name.as_bytes(), 0o600, true).unwrap().object;
            let content = vec![n as u8 + 1; rng.below(9_000) as usize];
            client.write(no, 0, &content, teal_client::WriteFlags::default()).unwrap();
        }
    }
}

fn run(stage: Stage, seed: u64, is_printed: bool) -> u64 {
    let mut run = Run::new(stage, seed, is_printed);
    run.live();
    let lived = run.stage;
    run.settle();
    run.stage = lived;
    run.judge()
}

/// Runs a seed on a thread of its own; a panic or a hang is an error.
fn attempt(stage: Stage, seed: u64, is_printed: bool) -> Result<u64, String> {
    let (say, hear) = channel();
    let name = format!("{stage:?}-{seed}");
    let thread = std::thread::Builder::new().name(name).spawn(move || {
        let _ = say.send(run(stage, seed, is_printed));
    });
    match (hear.recv_timeout(DEADLINE), thread.unwrap()) {
        (Ok(digest), _) => Ok(digest),
        (Err(std::sync::mpsc::RecvTimeoutError::Timeout), _) => Err(format!("{stage:?}, seed {seed}, hangs")),
        (Err(_), thread) => {
            let _ = thread.join();
            Err(format!("{stage:?}, seed {seed}, fails"))
        }
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|said| said.parse().unwrap())
}

fn explore(stage: Stage) {
    if let Some(seed) = number("TEAL_SEED") {
        attempt(stage, seed, true).unwrap();
        return;
    }
    let failed: Vec<String> =
        (0..number("TEAL_SEEDS").unwrap_or(SEEDS)).filter_map(|seed| attempt(stage, seed, false).err()).collect();
    assert!(failed.is_empty(), "{} failed:\n{}\nrepeat one with TEAL_SEED=n", failed.len(), failed.join("\n"));
}

#[test]
fn machines_that_take_turns_never_meet_a_conflict_and_agree() {
    explore(Stage::Turns);
}

#[test]
fn machines_at_once_agree_and_lose_nothing() {
    explore(Stage::AtOnce);
}

#[test]
fn a_network_with_faults_changes_nothing_of_that() {
    explore(Stage::Faults);
}

#[test]
fn power_cuts_lose_only_what_was_not_durable() {
    explore(Stage::Power);
}

#[test]
fn a_seed_gives_the_same_messages_again() {
    for (stage, seed) in [(Stage::AtOnce, 1_000), (Stage::Power, 1_001)] {
        assert_eq!(attempt(stage, seed, false).unwrap(), attempt(stage, seed, false).unwrap());
    }
}
