//! One life of a volume: what happens to its machines and its server, by seed.
//!
//! # Stages
//! The first two and the two after the limits each have what the one before has: two machines that
//! take turns; then both at once, each with other threads that go on while it waits for the server;
//! then a network with faults and clocks that somebody sets; then power cuts in the middle of
//! anything. Then, beside all that, each machine in a directory of its own, while it looks at those
//! of others; or drives that are carried around, and files on demand; or stores that are copied,
//! and go on; or a server that is restored from a copy, without copied stores; or both.

use crate::operator::Operator;
use crate::power::Power;
use crate::steps::Steps;
use crate::tags::Tags;
use crate::world::{CALLER, Machine, ROOT, World};
use std::sync::Arc;
use std::time::Duration;
use teal_posix::{FileSystem, FsError, WriteFlags};
use teal_proto::ClientRequest;
use teal_replica::UpstreamStatus;
use teal_testkit::Rng;

/// The rounds of all machines after which nothing may wait to be sent any more.
pub(crate) const ROUNDS: usize = 16;
/// In the first of them a batch may meet what will never be: that is said once, and it is sent anew
/// in the next round. Each copy of a store takes the life of the others away, as long as it has
/// something to send.
const ROUGH: usize = 8;
/// Copies of stores in one life.
const COPIES: u64 = 2;

/// The troubles that a run may meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    Turns,
    AtOnce,
    Limits,
    Faults,
    Power,
    Apart,
    Drives,
    Copies,
    Restored,
    CopiesRestored,
}

/// The counts of troubles that have come.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Counts {
    pub(crate) operations: u64,
    pub(crate) messages: u64,
    pub(crate) batches: u64,
    pub(crate) cuts: u64,
    pub(crate) server_cuts: u64,
    pub(crate) clocks: u64,
    pub(crate) copies: u64,
    pub(crate) restored: u64,
    pub(crate) offered: u64,
    pub(crate) conflicts: u64,
    pub(crate) attached: u64,
    pub(crate) pulled: u64,
    pub(crate) flipped: u64,
    pub(crate) filled: u64,
    pub(crate) slow: u64,
    pub(crate) protected: u64,
    pub(crate) repaired: u64,
    pub(crate) pins: u64,
    pub(crate) held: u64,
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, more: Self) {
        self.operations += more.operations;
        self.messages += more.messages;
        self.batches += more.batches;
        self.cuts += more.cuts;
        self.server_cuts += more.server_cuts;
        self.clocks += more.clocks;
        self.copies += more.copies;
        self.restored += more.restored;
        self.offered += more.offered;
        self.conflicts += more.conflicts;
        self.attached += more.attached;
        self.pulled += more.pulled;
        self.flipped += more.flipped;
        self.filled += more.filled;
        self.slow += more.slow;
        self.protected += more.protected;
        self.repaired += more.repaired;
        self.pins += more.pins;
        self.held += more.held;
    }
}

pub(crate) struct Run {
    pub(crate) stage: Stage,
    pub(crate) rng: Rng,
    pub(crate) world: World,
    pub(crate) tags: Tags,
    pub(crate) counts: Counts,
    /// True if a round may fail.
    may_fail: bool,
    is_printed: bool,
}

impl Run {
    pub(crate) fn new(stage: Stage, seed: u64, is_printed: bool) -> Self {
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
        let (counts, may_fail) = (Counts::default(), stage >= Stage::Faults);
        let mut run = Self {
            stage,
            rng,
            world,
            tags,
            counts,
            may_fail,
            is_printed,
        };
        if stage == Stage::Turns {
            let machines = &run.world.machines;
            machines
                .iter()
                .for_each(|machine| machine.kernel.be_prompt());
        }
        if stage == Stage::Limits {
            run.begin_near_limits();
        }
        run.keep_all_busy();
        run
    }

    fn keep_all_busy(&mut self) {
        (0..self.world.machines.len()).for_each(|who| self.keep_busy(who));
    }

    pub(crate) fn say(&self, what: std::fmt::Arguments<'_>) {
        if self.is_printed {
            println!("{what}");
        }
    }

    pub(crate) fn hand(&self, who: usize) -> Operator {
        let Machine {
            name,
            power,
            kernel,
            ..
        } = &self.world.machines[who];
        let (tags, seat, is_printed) =
            (self.tags.clone(), self.world.seat.clone(), self.is_printed);
        let home = (self.stage == Stage::Apart).then(|| format!("of {name}"));
        Operator {
            who,
            name: name.clone(),
            home,
            power: power.clone(),
            kernel: kernel.clone(),
            tags,
            seat,
            is_printed,
        }
    }

    pub(crate) fn operate(&mut self, who: usize) {
        self.counts.operations += 1;
        let (client, hand) = (Arc::clone(&self.world.machines[who].client), self.hand(who));
        Steps {
            client,
            hand: &hand,
            rng: &mut self.rng,
        }
        .step();
    }

    /// While a machine waits for the server, its other threads go on, and other machines.
    fn keep_busy(&mut self, who: usize) {
        if self.stage < Stage::AtOnce || self.stage == Stage::Limits {
            return;
        }
        let (machine, hand, mut rng) = (&self.world.machines[who], self.hand(who), self.rng.fork());
        let client = Arc::downgrade(&machine.client);
        let others = self
            .world
            .machines
            .iter()
            .enumerate()
            .filter(|(at, _)| *at != who);
        let others: Vec<_> = others
            .map(|(_, other)| Arc::downgrade(&other.client))
            .collect();
        machine.wire.set_meanwhile(Some(Box::new(move |request| {
            let Some(client) = client
                .upgrade()
                .filter(|_| !hand.power.is_off() && rng.chance(0.2))
            else {
                return;
            };
            match request {
                ClientRequest::Read { .. } => {
                    if let Some(other) = rng.pick(&others).upgrade() {
                        let _ = other
                            .replica()
                            .unwrap()
                            .upstream_step()
                            .and_then(|_| other.replica().unwrap().flush_upstream());
                        hand.look();
                    }
                    // A machine with pins would wait there for the same that it waits for here.
                    if client
                        .replica()
                        .unwrap()
                        .upstream_status()
                        .is_ok_and(|of| of.pins.paths.is_empty())
                    {
                        let _ = client.replica().unwrap().upstream_step();
                    }
                }
                // Under these nothing is locked that an operation needs.
                ClientRequest::Have { .. }
                | ClientRequest::Put { .. }
                | ClientRequest::Stage { .. }
                | ClientRequest::Commit { .. } => {
                    for _ in 0..1 + rng.below(3) {
                        match rng.below(3) {
                            0 => drop(client.sync()),
                            _ => Steps {
                                client: Arc::clone(&client),
                                hand: &hand,
                                rng: &mut rng,
                            }
                            .step(),
                        }
                    }
                }
                _ => {}
            }
        })));
    }

    /// A round with the server; what it says if it did not go well.
    pub(crate) fn round(&mut self, who: usize, flushes: bool) -> Result<(), FsError> {
        let Machine { client, name, .. } = &self.world.machines[who];
        self.say(format_args!(
            "  {name} {}",
            if flushes { "flushes" } else { "steps" }
        ));
        let mut done = client.replica().unwrap().upstream_step().map(drop);
        if flushes && done.is_ok() {
            done = client.replica().unwrap().flush_upstream();
        }
        done.inspect_err(|e| self.say(format_args!("    {e}")))
    }

    fn must_round(&mut self, who: usize, flushes: bool) {
        match self.round(who, flushes) {
            Ok(()) => {}
            Err(
                FsError::Unreachable(_)
                | FsError::NotNow(_)
                | FsError::Refused(_)
                | FsError::Stuck(_),
            ) if self.may_fail => {}
            Err(_) if self.world.machines[who].power.is_off() => {}
            Err(e) => panic!(
                "{} cannot deal with the server: {e}",
                self.world.machines[who].name
            ),
        }
    }

    fn happen(&mut self) {
        let who = self.rng.pick_index(self.world.machines.len());
        let machine = &self.world.machines[who];
        match self.rng.below(100) {
            0..12 => self.must_round(who, true),
            12..30 => self.must_round(who, false),
            30..32 => drop(machine.client.step()),
            32..33 if self.stage >= Stage::AtOnce => drop(
                machine
                    .client
                    .replica()
                    .unwrap()
                    .make_room(self.rng.below(100_000)),
            ),
            33..36 => match machine.client.sync() {
                Ok(()) => self.tags.synced(who),
                Err(e) => assert!(machine.power.is_off(), "{}: {e}", machine.name),
            },
            36..39 if self.stage >= Stage::Faults => {
                machine.wire.cut(!machine.wire.is_cut());
                self.say(format_args!("{who} is cut: {}", machine.wire.is_cut()));
            }
            39..41 if self.stage >= Stage::Faults => {
                let whose = Some(who).filter(|_| self.rng.chance(0.6));
                let by = self.world.set_clock(whose, &mut self.rng);
                self.counts.clocks += 1;
                self.say(format_args!("the clock of {whose:?} is set by {by}"));
            }
            41..44 if self.stage >= Stage::Power => fails(&machine.power, &mut self.rng, 40),
            44..46 if self.stage >= Stage::Power => {
                fails(&self.world.seat.power, &mut self.rng, 30)
            }
            46..48
                if matches!(self.stage, Stage::Copies | Stage::CopiesRestored)
                    && self.counts.copies < COPIES
                    && machine.is_known() =>
            {
                self.say(format_args!("the disk of {who} is copied"));
                self.world.clone_disk(who, &mut self.rng);
                self.tags.copied(who, self.world.machines.len() - 1);
                self.counts.copies += 1;
                self.keep_all_busy();
            }
            48..50 if self.stage >= Stage::Restored => {
                self.say(format_args!("the server is copied"));
                self.world.back_up();
            }
            36.. if self.stage == Stage::Limits => self.near_limits(who),
            50..66 if self.stage == Stage::Drives => self.happen_to_drives(who),
            66..70 if self.stage == Stage::Drives => {
                drop(machine.client.replica().unwrap().make_room(1 << 20))
            }
            70..73 if self.stage == Stage::Drives => self.pin_or_free(who),
            _ => self.operate(who),
        }
        self.mend();
        let ms = if self.rng.chance(0.1) {
            self.rng.below(40_000)
        } else {
            self.rng.below(400)
        };
        self.world.advance(Duration::from_millis(1 + ms));
    }

    /// Gives power back to machines that have lost it, and looks at what has come to the server.
    pub(crate) fn mend(&mut self) {
        if self.world.seat.power.is_off() {
            self.say(format_args!("the server loses power"));
            self.counts.server_cuts += 1;
            self.world.cut_server(&mut self.rng);
        }
        for who in 0..self.world.machines.len() {
            if self.world.machines[who].power.is_off() {
                self.say(format_args!("{who} loses power"));
                self.counts.cuts += 1;
                self.tags.power_cut(who);
                self.world.cut_power(who, &mut self.rng);
                self.keep_all_busy();
            }
        }
        self.hand(0).look();
    }

    pub(crate) fn live(&mut self) {
        if self.stage >= Stage::Faults {
            let share = self.rng.below(40) as f64 / 100.0;
            self.world
                .machines
                .iter()
                .for_each(|machine| machine.wire.set_faults(share));
        }
        // Events of drives take their time.
        let share = if self.stage == Stage::Drives { 3 } else { 1 };
        // And what has a thousand names.
        let most = if self.stage == Stage::Limits { 10 } else { 80 };
        for _ in 0..share * (20 + self.rng.below(most)) {
            if self.stage == Stage::Turns {
                let who = self.rng.pick_index(self.world.machines.len());
                self.must_round(who, false);
                self.operate(who);
                self.must_round(who, true);
                self.mend();
                self.world.advance(Duration::from_millis(300));
            } else {
                self.happen();
            }
        }
    }

    /// The network heals, and the power stays.
    pub(crate) fn heal(&mut self) {
        self.say(format_args!("all is well again"));
        self.world.seat.power.stays();
        for machine in &self.world.machines {
            machine.power.stays();
            machine.wire.set_faults(0.0);
            machine.wire.cut(false);
            machine.wire.set_meanwhile(None);
            machine.kernel.close_all(&machine.client);
        }
    }

    /// Makes all machines send and fetch until nothing is left to do.
    pub(crate) fn settle(&mut self) {
        let all = 0..self.world.machines.len();
        let mut seen = None;
        for round in 0..ROUNDS {
            self.may_fail = round < ROUGH;
            for who in all.clone() {
                self.world.advance(Duration::from_secs(31));
                self.must_round(who, true);
                self.mend();
            }
            let clients = self.world.machines.iter().map(|machine| &machine.client);
            let all: Vec<_> = clients
                .map(|client| client.replica().unwrap().upstream_status().unwrap())
                .collect();
            let now: Vec<_> = all.iter().map(|status| status.seen).collect();
            let is_done =
                |status: &UpstreamStatus| status.only_here == 0 && status.stuck_objects.0 == 0;
            if all.iter().all(is_done) && seen.as_ref() == Some(&now) {
                return;
            }
            seen = Some(now);
        }
        let notes: Vec<_> = self.world.machines.iter().map(Machine::notes).collect();
        let clients = self.world.machines.iter().map(|machine| &machine.client);
        let stuck: Vec<_> = clients
            .map(|client| {
                client
                    .replica()
                    .unwrap()
                    .upstream_status()
                    .unwrap()
                    .stuck_objects
            })
            .collect();
        panic!("after {ROUNDS} rounds something is still pending: {stuck:?}, {notes:?}");
    }
}

/// Now, or in the middle of something later.
fn fails(power: &Power, rng: &mut Rng, within: u64) {
    power.fails_after(if rng.chance(0.3) {
        0
    } else {
        1 + rng.below(within)
    });
}

fn import(client: &FileSystem, count: u64, rng: &mut Rng) {
    let mut dirs = vec![ROOT];
    for n in 0..count {
        let (dir, name) = (*rng.pick(&dirs), format!("old-{n}"));
        if rng.chance(0.3) {
            dirs.push(
                client
                    .mkdir(&CALLER, dir, name.as_bytes(), 0o755)
                    .unwrap()
                    .object,
            );
        } else {
            let no = client
                .create(&CALLER, dir, name.as_bytes(), 0o600, true)
                .unwrap()
                .object;
            let content = vec![n as u8 + 1; rng.below(9_000) as usize];
            client
                .write(no, 0, &content, WriteFlags::default())
                .unwrap();
        }
    }
}
