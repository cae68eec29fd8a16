//! Drives that are carried between the machines of a life: attached, pulled out, copied, failing,
//! and what [`drive_faults`](crate::drive_faults) them.
//!
//! # Guarantees
//! 1. What a drive has of an object's content, as of some commit, is what history has there; and
//!    whatever it has is the newest as of the position it tells.
//! 2. Nothing that happens to a drive is an error of a machine.
//! 3. A copy is refused while the drive itself is in another machine that is there.

use crate::drive_faults::{DriveFaults, StickDisk};
use crate::ledger::Eyes;
use crate::power::{Power, PoweredDisk};
use crate::run::Run;
use crate::tree::entries;
use crate::world::{ROOT, World};
use std::ops::ControlFlow;
use std::sync::Arc;
use teal_device::Drive;
use teal_env::DiskShape;
use teal_replica::{KnownDrives, NewDrive};
use teal_testkit::{RecordingDisk, Rng};
use teal_types::{CommitSeq, FileType};

pub(crate) const SHAPE: DiskShape = DiskShape {
    sectors: (16 << 20) / 512,
    logical: 512,
    physical: 4096,
    rotational: false,
    sparse: false,
};
/// Drives of one life, copies among them.
const DRIVES_MAX: usize = 4;

/// A drive, wherever it is.
pub(crate) struct Stick {
    pub(crate) name: String,
    pub(crate) disk: RecordingDisk,
    pub(crate) power: Power,
    pub(crate) ails: DriveFaults,
    /// The machine it is in.
    pub(crate) at: Option<usize>,
}

impl World {
    /// A machine's power fails, and that of the drives in it.
    pub(crate) fn drop_sticks(&mut self, of: usize, rng: &mut Rng) {
        for stick in self.sticks.iter_mut().filter(|stick| stick.at == Some(of)) {
            stick.pull(rng);
        }
    }
}

impl Stick {
    /// Pulls the drive out in the middle of anything: any subset of the unflushed sectors is there.
    pub(crate) fn pull(&mut self, rng: &mut Rng) {
        self.power.fails_after(0);
        self.disk = self.disk.trace().crash_at_end(rng, true).disk;
        self.at = None;
    }

    pub(crate) fn disk(&mut self) -> Arc<StickDisk> {
        Arc::new(self.stick_disk())
    }

    pub(crate) fn stick_disk(&mut self) -> StickDisk {
        self.power = Power::new();
        let disk = PoweredDisk {
            disk: self.disk.clone(),
            power: self.power.clone(),
        };
        StickDisk {
            disk,
            gate: self.ails.gate.clone(),
            is_protected: false,
        }
    }
}

impl Run {
    pub(crate) fn client(&self, who: usize) -> Arc<teal_posix::FileSystem> {
        Arc::clone(&self.world.machines[who].client)
    }

    /// Something happens to a drive, or with one.
    pub(crate) fn happen_to_drives(&mut self, who: usize) {
        let count = self.world.sticks.len();
        if count == 0 || (count < DRIVES_MAX && self.rng.chance(0.05)) {
            return self.make_stick(who);
        }
        let which = self.rng.pick_index(count);
        let at = self.world.sticks[which].at;
        match (self.rng.below(18), at) {
            (0..4, Some(at)) => {
                let done = self.client(at).replica().unwrap().flush_drives();
                self.say(format_args!("  drives of {at} are flushed: {done:?}"));
            }
            (4..6, Some(at)) => {
                let fast = self.rng.chance(0.3);
                let name = self.world.sticks[which].name.clone();
                let done = self.client(at).replica().unwrap().detach_drive(&name, fast);
                self.say(format_args!(
                    "  {name} leaves {at}: {:?}",
                    done.as_ref().err().map(ToString::to_string)
                ));
                let rng = &mut self.rng;
                let stick = &mut self.world.sticks[which];
                if done.is_err() {
                    stick.pull(rng)
                } else {
                    stick.at = None
                }
            }
            (6, Some(at)) => {
                self.say(format_args!(
                    "  {} is pulled out of {at}",
                    self.world.sticks[which].name
                ));
                self.counts.pulled += 1;
                self.world.sticks[which].pull(&mut self.rng);
            }
            (7, Some(_)) => {
                // From some moment on the drive takes no writes; its content can still be read.
                let within = 1 + self.rng.below(40);
                self.world.sticks[which].power.fails_after(within);
            }
            (8, Some(at)) => {
                let name = self.world.sticks[which].name.clone();
                let (sticky, keep) = (self.rng.chance(0.5), self.rng.chance(0.7));
                let client = self.client(at);
                let done = match keep {
                    true => client
                        .replica()
                        .unwrap()
                        .add_affinity(ROOT, &name, sticky)
                        .map(drop),
                    false => client.replica().unwrap().remove_affinity(ROOT, &name),
                };
                self.say(format_args!(
                    "  affinity to {name}, {keep}: {:?}",
                    done.err().map(|e| e.to_string())
                ));
            }
            (12..15, Some(at)) => self.read_all(at),
            (9, None) if count < DRIVES_MAX => {
                let Stick { name, disk, .. } = &self.world.sticks[which];
                let copy = Stick {
                    name: name.clone(),
                    disk: disk.trace().crash_at_end(&mut self.rng, false).disk,
                    power: Power::new(),
                    ails: self.world.sticks[which].ails.of_copy(),
                    at: None,
                };
                self.world.sticks.push(copy);
            }
            (10, None) => self.flip(which),
            (11, None) => self.fill(which),
            (12, None) => self.attach_protected(which, who),
            (15..17, Some(at)) => self.read_while_slow(which, at),
            (17, Some(at)) => self.read_damaged(which, at),
            (_, None) => self.attach(which, who),
            _ => {}
        }
    }

    /// Reads all that is in the root of a machine that has just heard of everything: some of it
    /// comes from drives, which may not have.
    pub(crate) fn read_all(&mut self, who: usize) {
        let (client, hand) = (self.client(who), self.hand(who));
        if client.replica().unwrap().upstream_step().is_err() {
            return;
        }
        for (_, no, kind) in entries(&client, ROOT).unwrap_or_default() {
            if kind == FileType::File
                && let Ok(read) = client.read(no, 0, 70_000)
            {
                hand.is_as_at_the_position(&client, no, 0, &read);
            }
        }
    }

    fn make_stick(&mut self, who: usize) {
        let name = format!("stick {}", self.world.sticks.len());
        let mut stick = Stick {
            name: name.clone(),
            disk: RecordingDisk::new(SHAPE),
            power: Power::new(),
            ails: DriveFaults::default(),
            at: None,
        };
        let new = NewDrive {
            name,
            portable: true,
            profile: String::new(),
        };
        let (client, entropy) = (self.client(who), Arc::clone(&self.world.entropy));
        if client
            .replica()
            .unwrap()
            .add_drive(stick.disk(), "a stick", &new, &*entropy)
            .is_ok()
        {
            stick.at = Some(who);
            self.world.sticks.push(stick);
        }
    }

    fn attach(&mut self, which: usize, who: usize) {
        let (client, entropy) = (self.client(who), Arc::clone(&self.world.entropy));
        let elsewhere = self.is_elsewhere(which, who);
        let stick = &mut self.world.sticks[which];
        let done = client.replica().unwrap().attach_drive(
            stick.disk(),
            "a stick",
            &KnownDrives::new(),
            &*entropy,
        );
        let is_there = done.is_ok();
        // While the server is away, this cannot be known.
        let is_told = client
            .replica()
            .unwrap()
            .drive_statuses()
            .iter()
            .any(|drive| drive.name == stick.name && drive.is_told);
        if is_there
            && is_told
            && let Some(other) = elsewhere
        {
            panic!(
                "a copy of {} is attached to {who}, while it is in {other}, which is there",
                stick.name
            );
        }
        stick.at = is_there.then_some(who);
        if !is_there {
            stick.pull(&mut self.rng);
        }
        self.counts.attached += u64::from(is_there);
        let words = done.err().map(|e| e.to_string());
        self.say(format_args!(
            "  {} comes to {who}: {words:?}",
            self.world.sticks[which].name
        ));
    }

    /// The machine that has the drive of which this is a copy, if it is there, and the server knows
    /// that the drive is in it.
    fn is_elsewhere(&self, which: usize, who: usize) -> Option<usize> {
        let name = &self.world.sticks[which].name;
        let is_it = |drive: &teal_replica::DriveStatus| drive.name == *name && drive.is_told;
        let others = self
            .world
            .sticks
            .iter()
            .filter(|other| other.name == *name)
            .filter_map(|other| other.at);
        others.filter(|other| *other != who).find(|other| {
            let client = self.client(*other);
            client.replica().unwrap().drive_statuses().iter().any(is_it)
                && client.replica().unwrap().upstream_step().is_ok()
        })
    }

    /// All drives are taken out, and looked into.
    pub(crate) fn judge_drives(&mut self) {
        for which in 0..self.world.sticks.len() {
            if let Some(at) = self.world.sticks[which].at {
                self.client(at)
                    .replica()
                    .unwrap()
                    .flush_drives()
                    .unwrap_or_else(|e| self.say(format_args!("the last burst: {e}")));
                let name = self.world.sticks[which].name.clone();
                let _ = self
                    .client(at)
                    .replica()
                    .unwrap()
                    .detach_drive(&name, false);
            }
            self.world.sticks[which].pull(&mut self.rng);
            let disk = self.world.sticks[which].disk();
            // One that was damaged where it matters is not opened any more.
            if let Ok(drive) = Drive::open(disk, self.world.clock()) {
                self.judge_drive(&drive);
                self.world.sticks[which].ails.judge(&drive);
            }
        }
    }

    fn judge_drive(&mut self, drive: &Drive) {
        let server = self.world.server();
        let eyes = Eyes {
            server: &server,
            peer: self.tags.peer(),
        };
        let (mut numbers, position) = (Vec::new(), drive.label().position);
        let all = drive.visit_objects(&mut |no| {
            numbers.push(no);
            ControlFlow::Continue(())
        });
        all.unwrap_or_else(|_| numbers.clear());
        for no in numbers
            .into_iter()
            .filter(|no| !DriveFaults::is_ballast(*no))
        {
            let Ok(Some(content)) = drive.held_object(no).map(|held| held.content) else {
                continue;
            };
            let there = eyes
                .content(no, content.data_seq)
                .unwrap_or_else(|| panic!("{}: {no} was never there", drive.name()));
            assert_eq!(
                content.size,
                there.len() as u64,
                "{}: {no} at {:?}",
                drive.name(),
                content.data_seq
            );
            let newest = eyes.data_seq(no, position);
            let is_new = newest.is_none_or(|newest| newest == content.data_seq);
            assert!(
                is_new || position == CommitSeq::new(0),
                "{}: {no} is of {:?}, older than {position:?}",
                drive.name(),
                content.data_seq
            );
            let Ok(found) = drive.read(no, content.data_seq, 0, content.size) else {
                continue;
            };
            let mut read = vec![0; there.len()];
            for (at, piece) in found.pieces {
                read[at as usize..at as usize + piece.len()].copy_from_slice(&piece);
            }
            for (from, to) in found.present.iter() {
                let range = from as usize..to as usize;
                let other = range.clone().find(|at| read[*at] != there[*at]);
                assert!(
                    other.is_none(),
                    "{}: {no}, {from} to {to} of {}, is not as of {:?} at {other:?}",
                    drive.name(),
                    content.size,
                    content.data_seq
                );
            }
            self.counts.held += 1;
        }
    }
}
