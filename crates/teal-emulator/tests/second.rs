//! The log of an emulated Microdrive against a second computation of the same requests: in floating
//! point, from the thesis's Table 3.1 and the definitions, sharing no code with the mechanics or
//! the drive.
#![allow(clippy::unwrap_used, reason = "tests panic where they fail")]

use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::io::{self, IoSlice, Write};
use std::sync::Arc;
use teal_emulator::log::{DiskEventKind, DiskLogRecord, LogReader, LogWriter};
use teal_emulator::{EmulatedDisk, EmulationPace, EmulationSetup, VirtualClock};
use teal_energy::Profile;
use teal_energy::profile::DriveElectronics;
use teal_env::{Disk, MemDisk};
use teal_types::{Bytes, Energy, Sector, TimeSpan};

// Table 3.1, in watts and seconds; 3300 KiB/s at 3600 turns per minute are 110 sectors on a track.
const SEEK: (f64, f64) = (0.637, 0.012);
const TURN: f64 = 0.016_666_667;
const PER_TRACK: u64 = 110;
const WAIT: f64 = 0.594;
const READ: f64 = 0.627;
const WRITE: f64 = 0.756;
const IDLE: f64 = 0.222;
const STANDBY: f64 = 0.061;
const UP: (f64, f64) = (0.605, 0.8);
const OVERHEAD: f64 = 0.000_5;

/// Where the second disk stands.
struct Second {
    now: f64,
    joules: f64,
    track: u64,
    dirty: BTreeSet<u64>,
    cache: u64,
    patience: f64,
    busy: f64,
    asleep: bool,
}

impl Second {
    fn spend(&mut self, watts: f64, seconds: f64) {
        self.now += seconds;
        self.joules += watts * seconds;
    }

    fn surface(&mut self, at: u64, count: u64, watts: f64) {
        for sector in at..at + count {
            let track = sector / PER_TRACK;
            if track.abs_diff(self.track) > 1 {
                self.spend(SEEK.0, SEEK.1);
            }
            self.track = track;
            let place = (sector % PER_TRACK) as f64 / PER_TRACK as f64;
            let wait = (place - self.now / TURN).rem_euclid(1.0) * TURN;
            // Between two sectors that follow each other there is no wait but for rounding.
            self.spend(WAIT, if TURN - wait < 2e-6 { 0.0 } else { wait });
            self.spend(watts, TURN / PER_TRACK as f64);
        }
    }

    /// The first dirty run from the arm on, or the first of all.
    fn next_run(&self) -> Option<(u64, u64)> {
        let begins = |s: &&u64| **s == 0 || !self.dirty.contains(&(**s - 1));
        let from = self.track * PER_TRACK;
        let at = *self
            .dirty
            .range(from..)
            .find(begins)
            .or_else(|| self.dirty.iter().find(begins))?;
        Some((
            at,
            (at..).take_while(|s| self.dirty.contains(s)).count() as u64,
        ))
    }

    fn write_run(&mut self) -> bool {
        let Some((at, count)) = self.next_run() else {
            return false;
        };
        (at..at + count).for_each(|s| assert!(self.dirty.remove(&s)));
        self.surface(at, count, WRITE);
        self.busy = self.now;
        true
    }

    fn rest(&mut self, until: f64) {
        let watts = if self.asleep { STANDBY } else { IDLE };
        let span = (until - self.now).max(0.0);
        self.spend(watts, span);
    }

    /// Until somebody asks: it writes, then rests, then sleeps.
    fn alone(&mut self, until: f64) {
        while !self.asleep && self.now < until - 1e-9 && self.write_run() {}
        if !self.asleep && self.busy + self.patience <= until {
            self.rest(self.busy + self.patience);
            self.asleep = true;
        }
        self.rest(until);
    }

    fn serve(&mut self, record: &DiskLogRecord) -> (f64, f64) {
        self.alone(seconds(record.asked.get()));
        if self.asleep {
            self.asleep = false;
            self.joules += UP.0;
            self.now += UP.1;
        }
        let before = self.joules;
        self.spend(WAIT, OVERHEAD);
        let (at, count) = (record.at.get(), record.count);
        match record.kind {
            DiskEventKind::Read if (at..at + count).all(|s| self.dirty.contains(&s)) => {}
            DiskEventKind::Read => {
                if (at..at + count).any(|s| self.dirty.contains(&s)) {
                    while self.write_run() {}
                }
                self.surface(at, count, READ);
            }
            DiskEventKind::Write if count > self.cache => {
                self.dirty.retain(|s| !(at..at + count).contains(s));
                self.surface(at, count, WRITE);
            }
            DiskEventKind::Write => {
                while self.dirty.len() as u64 > self.cache - count && self.write_run() {}
                self.dirty.extend(at..at + count);
            }
            DiskEventKind::Flush => while self.write_run() {},
            kind => panic!("{kind:?}"),
        }
        self.busy = self.now;
        (self.now, self.joules - before)
    }
}

fn seconds(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}

/// Collects the bytes of a log.
#[derive(Debug, Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().write(bytes)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A mixed stream with pauses on a disk with this cache, and its log.
fn log(cache: u64, seed: u64) -> Vec<DiskLogRecord> {
    let electronics = DriveElectronics {
        overhead: TimeSpan::from_micros(500),
        interface: None,
        track_buffer: Bytes::default(),
        write_cache: Bytes::new(cache * 512),
    };
    let setup = EmulationSetup::new(
        Profile::find_shipped("ibm-microdrive-1gb").unwrap(),
        64 << 20,
    )
    .unwrap();
    let setup = setup
        .with_electronics(electronics)
        .with_spin_down(Some(TimeSpan::from_secs(2)));
    let clock = VirtualClock::default();
    let (pace, bytes) = (EmulationPace::Virtual(clock.clone()), Shared::default());
    let writer = LogWriter::new(
        bytes.clone(),
        &EmulatedDisk::<MemDisk>::log_header(&setup, &pace),
    )
    .unwrap();
    let disk = EmulatedDisk::new(
        MemDisk::new(setup.sectors()),
        &setup,
        pace,
        Box::new(writer),
    )
    .unwrap();
    let mut state = seed;
    let mut random = |below: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let mut next = 0;
    for _ in 0..1500 {
        // Half of them follow the one before, as streams do.
        let count = 1 + random(60);
        let at = if random(2) == 0 {
            next
        } else {
            random(disk.shape().sectors - 100)
        };
        let at = at.min(disk.shape().sectors - count);
        next = at + count;
        let mut data = vec![1; (count * 512) as usize];
        match random(8) {
            0..=2 => disk.read_at(Sector::new(at), &mut data).unwrap(),
            3..=5 => disk
                .write_at(Sector::new(at), &[IoSlice::new(&data)])
                .unwrap(),
            6 => disk.sync().unwrap(),
            _ => clock.advance_by(TimeSpan::from_micros(random(4_000_000))),
        }
    }
    drop(disk);
    let bytes = bytes.0.lock();
    LogReader::new(bytes.as_slice())
        .unwrap()
        .map(Result::unwrap)
        .collect()
}

/// The first record that the second computation does not confirm.
fn disagreement(records: &[DiskLogRecord], cache: u64) -> Option<String> {
    let (now, joules, busy) = (0.0, 0.0, 0.0);
    let mut second = Second {
        now,
        joules,
        track: 0,
        dirty: BTreeSet::new(),
        cache,
        patience: 2.0,
        busy,
        asleep: false,
    };
    let (mut served, mut slept, mut off_by_turns) = (0, 0, 0);
    for record in records {
        if matches!(record.kind, DiskEventKind::Asleep | DiskEventKind::Awake) {
            slept += u32::from(record.kind == DiskEventKind::Asleep);
            continue;
        }
        let (done, joules) = second.serve(record);
        served += 1;
        let off = (seconds(record.done.get()) - done).abs();
        // A sector that is just met here and just missed there costs a turn.
        let turns = (off / TURN).round();
        let theirs = record.energy.get() as f64 / 1e6;
        let is_near = (off - turns * TURN).abs() < 2e-5
            && (theirs - joules).abs() < 3e-5 + turns * TURN * WAIT;
        if !is_near {
            return Some(format!("{record:?}: {done} s and {joules} J here"));
        }
        off_by_turns += u32::from(turns > 0.0);
        // From where the log is.
        second.now = seconds(record.done.get());
        second.busy = second.now;
    }
    assert!(
        served > 1000 && slept > 5,
        "{served} requests, {slept} sleeps"
    );
    let total = records.last()?.total.get() as f64 / 1e6;
    let is_near = off_by_turns * 100 < served && (total - second.joules).abs() < total * 1e-3;
    let said = || {
        format!(
            "{total} J in the log, {} J here; {off_by_turns} off by a turn",
            second.joules
        )
    };
    (!is_near).then(said)
}

#[test]
fn a_second_computation_of_the_log_agrees() {
    for (cache, seed) in [(0, 1), (256, 2)] {
        assert_eq!(
            disagreement(&log(cache, seed), cache),
            None,
            "with a cache of {cache} sectors"
        );
    }
}

#[test]
fn what_is_wrong_in_a_log_is_noticed() {
    let records = log(256, 2);
    let wrong = |change: &dyn Fn(&mut DiskLogRecord)| {
        let mut records = records.clone();
        let at = records
            .iter()
            .rposition(|record| record.kind == DiskEventKind::Read)
            .unwrap();
        change(&mut records[at]);
        disagreement(&records, 256).is_some()
    };
    assert!(wrong(
        &|record| record.done = record.done + TimeSpan::from_micros(100)
    ));
    assert!(wrong(&|record| record.energy += Energy::from_millijoules(1)));
    assert!(wrong(&|record| record.at = record.at.plus(37)));
    let mut more = records.clone();
    more.last_mut().unwrap().total += Energy::from_joules(1);
    assert!(disagreement(&more, 256).is_some(), "a joule of idle time");
}

#[test]
fn the_same_requests_give_the_same_log() {
    assert_eq!(log(256, 3), log(256, 3));
}
