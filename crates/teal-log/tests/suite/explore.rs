//! Crashes a life at every point, opens what is left, and compares.

#![allow(clippy::unwrap_used, reason = "all of it is test code")]

use crate::life::{Life, Plan, Seen, fresh, open, options};
use crate::oracle::Model;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use teal_env::{Disk, DiskShape};
use teal_log::{CheckOptions, MkfsOptions, Severity, SpaceStatus, Store};
use teal_testkit::{
    CrashImage, CrashPolicy, CrashWalk, DiskEvent, DiskTrace, RecordingDisk, Rng, SeededEntropy,
    SimClock,
};
use teal_types::SECTOR;

/// What the explorer counts.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Tally {
    pub(crate) images: u64,
    pub(crate) recoveries: u64,
    pub(crate) rolled_forward: u64,
    pub(crate) second_lives: u64,
    pub(crate) second_crashes: u64,
    pub(crate) anchors_lost: u64,
    pub(crate) kills: u64,
    /// Images whose objects were brought up to date all at once, and not one by one.
    pub(crate) settled_at_once: u64,
    pub(crate) seen: Seen,
}

impl Tally {
    pub(crate) fn add(&mut self, seen: Seen) {
        let s = &mut self.seen;
        s.ops += seen.ops;
        s.refused += seen.refused;
        s.commits += seen.commits;
        s.written += seen.written;
        s.checkpoints += seen.checkpoints;
        s.cleaned += seen.cleaned;
        s.large_batches += seen.large_batches;
        s.reopened += seen.reopened;
        s.closed += seen.closed;
        s.shared += seen.shared;
        s.reused += seen.reused;
        s.preallocated += seen.preallocated;
    }
}

/// How much to look at.
#[derive(Debug, Clone)]
pub(crate) struct Effort {
    pub(crate) policy: CrashPolicy,
    /// One image in this many is lived on with.
    pub(crate) second_life: u64,
    /// One second life in this many is crashed, too.
    pub(crate) second_crash: u64,
    /// One image in this many has its content verified by `check`.
    pub(crate) verify: u64,
}

pub(crate) fn shape(mib: u64, physical: u32, rotational: bool, sparse: bool) -> DiskShape {
    DiskShape {
        sectors: mib * 2048,
        logical: 512,
        physical,
        rotational,
        sparse,
    }
}

pub(crate) fn made(shape: DiskShape, seed: u64) -> (RecordingDisk, SimClock) {
    let (disk, clock) = (RecordingDisk::new(shape), SimClock::default());
    let name = MkfsOptions {
        label: "crash".into(),
        owner: (0, 0),
        ..MkfsOptions::default()
    };
    Store::mkfs(
        Arc::new(disk.clone()),
        Arc::new(clock.clone()),
        &SeededEntropy::new(seed),
        &name,
    )
    .unwrap();
    disk.restart_trace();
    (disk, clock)
}

pub(crate) fn begun(shape: DiskShape, seed: u64, plan: Plan) -> Life {
    let (note, clock) = made(shape, seed);
    let disk: Arc<dyn Disk> = Arc::new(note.clone());
    let store = open(&disk, &clock).unwrap();
    let model = fresh(&store);
    Life::new(note, disk, store, clock, Rng::new(seed), model, plan)
}

pub(crate) fn assert_checked(store: &Store, verify_data: bool) -> Result<(), String> {
    let report = store.check(CheckOptions { verify_data }, &mut |_| {});
    if report.is_clean() {
        return Ok(());
    }
    let said: Vec<_> = report
        .problems
        .iter()
        .filter(|p| p.severity > Severity::Note)
        .take(8)
        .map(ToString::to_string)
        .collect();
    Err(format!("check: {} problems: {said:#?}", report.total))
}

/// What is set aside for a batch that was redone, at most: two pages for each of ten changes.
const ASIDE_FOR_BATCH: u64 = 10 * 2 * 4096;

/// Compares what a store said of its space when it had looked at no object, against what it says
/// now that it has looked at all: it promised no more than there is, and not much less: `redone`
/// batches wait to be looked at.
fn sums_held(first: &SpaceStatus, now: &SpaceStatus, redone: u64) -> Result<(), String> {
    // Pages that the first life had taken into memory without need, and what is set aside until all
    // is known: two pages for each change.
    let (pages, aside) = (64 << 10, (256 << 10).max(redone * ASIDE_FOR_BATCH));
    let near = first.objects == now.objects
        && first.live.abs_diff(now.live) <= pages
        && first.free <= now.free + pages
        && now.free <= first.free + aside;
    if near {
        Ok(())
    } else {
        Err(format!(
            "it said {first:?} before it had looked at {redone} batches, and now {now:?}"
        ))
    }
}

/// What a crash at a point of a trace may show.
pub(crate) struct Allowed<'a> {
    pub(crate) batches: &'a BTreeMap<u64, Model>,
    pub(crate) promised: u64,
    pub(crate) submitted: u64,
}

impl<'a> Allowed<'a> {
    pub(crate) fn at(
        trace: &DiskTrace,
        point: usize,
        batches: &'a BTreeMap<u64, Model>,
        base: u64,
    ) -> Self {
        let (mut promised, mut submitted) = (base, base);
        for mark in trace.marks_before(point) {
            if mark % 2 == 1 {
                promised = mark / 2
            } else {
                submitted = mark / 2
            }
        }
        Self {
            batches,
            promised,
            submitted,
        }
    }

    /// The batch whose state the store shows.
    pub(crate) fn shown(&self, store: &Store) -> Result<(u64, &'a Model), String> {
        let mut why = Vec::new();
        for (ops, model) in self.batches.range(self.promised..=self.submitted).rev() {
            match model.differs(store, true) {
                Ok(()) => return Ok((*ops, model)),
                Err(what) => why.push(format!("not the state after {ops}: {what}")),
            }
        }
        Err(format!(
            "promised {}, submitted {}: {}",
            self.promised,
            self.submitted,
            why.join("; ")
        ))
    }
}

pub(crate) struct Explorer {
    pub(crate) effort: Effort,
    pub(crate) tally: Tally,
    pub(crate) rng: Rng,
    /// First failures, for people.
    pub(crate) failures: Vec<String>,
    pub(crate) most_failures: usize,
}

impl Explorer {
    pub(crate) fn new(effort: Effort, seed: u64) -> Self {
        Self {
            effort,
            tally: Tally::default(),
            rng: Rng::new(seed ^ 0x5eed),
            failures: Vec::new(),
            most_failures: 1,
        }
    }

    pub(crate) fn is_done(&self) -> bool {
        self.failures.len() >= self.most_failures
    }

    /// Looks at every image of a life; `name` says which one.
    pub(crate) fn explore(&mut self, life: &Life, name: &str) {
        let trace = life.note.trace();
        self.explore_trace(&trace, &life.batches, 0, &life.clock, name, true);
        self.tally.add(life.seen);
    }

    fn explore_trace(
        &mut self,
        trace: &DiskTrace,
        batches: &BTreeMap<u64, Model>,
        base: u64,
        clock: &SimClock,
        name: &str,
        is_first: bool,
    ) {
        let mut rng = self.rng.fork();
        let mut walk = CrashWalk::new(trace);
        for point in trace.crash_points() {
            while walk.point() < point && walk.apply_next().is_some() {}
            let allowed = Allowed::at(trace, point, batches, base);
            for image in walk.crash_images(&mut rng, &self.effort.policy.clone()) {
                if self.is_done() {
                    return;
                }
                self.tally.images += 1;
                let said = format!("{name}, {image}");
                let looked = catch_unwind(AssertUnwindSafe(|| {
                    self.look(&image, &allowed, clock, is_first)
                }));
                match looked {
                    Ok(Ok(())) => {}
                    Ok(Err(what)) => self.failures.push(format!("{said}: {what}")),
                    Err(panic) => {
                        let text = panic.downcast_ref::<String>().cloned();
                        let text =
                            text.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned()));
                        self.failures
                            .push(format!("{said}: panic: {}", text.unwrap_or_default()));
                    }
                }
            }
        }
    }

    fn look(
        &mut self,
        image: &CrashImage,
        allowed: &Allowed<'_>,
        clock: &SimClock,
        is_first: bool,
    ) -> Result<(), String> {
        let clock = SimClock::new(teal_env::Clock::civil_time(clock));
        // One fault at a time.
        let has_lost = is_first && image.unreadable.is_none() && self.rng.below(16) == 0;
        if has_lost {
            self.lose_newest_anchor(image);
        }
        let disk: Arc<dyn Disk> = Arc::new(image.disk.clone());
        let opened = Store::open(Arc::clone(&disk), Arc::new(clock.clone()), options());
        let (store, recovery) = opened.map_err(|e| format!("open: {e}"))?;
        self.tally.recoveries += 1;
        self.tally.rolled_forward += u64::from(recovery.batches > 0);
        let space = store.space();
        // All objects at once, or one after another.
        let at_once = self.rng.below(4) == 0;
        if at_once {
            assert_checked(&store, false)?;
            self.tally.settled_at_once += 1;
        }
        let (ops, model) = allowed.shown(&store)?;
        let verify = self.rng.below(self.effort.verify) == 0;
        assert_checked(&store, verify)?;
        sums_held(&space, &store.space(), recovery.batches)?;
        if self.rng.below(self.effort.second_life) == 0 {
            let lost = allowed.submitted - ops;
            self.live_on(image, store, clock, model, lost, is_first && !has_lost)?;
        }
        Ok(())
    }

    /// Flips a bit of both anchors of the newest checkpoint, as decay does; what was durable then
    /// must come from the one before.
    pub(crate) fn lose_newest_anchor(&mut self, image: &CrashImage) {
        let Ok(sb) = teal_log::read_superblock(&image.disk) else {
            return;
        };
        let per =
            u64::from(sb.segment_sectors) * u64::from(sb.segments) / u64::from(sb.anchor_places);
        let slot = 8.max(u64::from(sb.commit_align) / SECTOR);
        let mut newest = (0, Vec::new());
        for place in 0..u64::from(sb.anchor_places) {
            for side in 0..2 {
                let start =
                    place * per / u64::from(sb.segment_sectors) * u64::from(sb.segment_sectors);
                let at = teal_types::Sector::new(start + (side + u64::from(place == 0)) * slot);
                let mut bytes = [0; 512];
                let is_read = image.disk.read_at(at, &mut bytes).is_ok();
                if is_read && bytes[..4] == *b"TANC" {
                    let number = u64::from_le_bytes(bytes[24..32].try_into().unwrap());
                    if number > newest.0 {
                        newest = (number, Vec::new());
                    }
                    if number == newest.0 {
                        newest.1.push(at);
                    }
                }
            }
        }
        // The first checkpoint of all has none before it.
        let (number, places) = newest;
        if number > 1 {
            for at in places {
                image.disk.flip_bit(at, self.rng.below(4096) as u32);
            }
            self.tally.anchors_lost += 1;
        }
    }

    fn live_on(
        &mut self,
        image: &CrashImage,
        store: Arc<Store>,
        clock: SimClock,
        model: &Model,
        lost: u64,
        is_first: bool,
    ) -> Result<(), String> {
        self.tally.second_lives += 1;
        image.disk.restart_trace();
        let plan = Plan {
            heavy: 0.02,
            spare: 1 << 20,
            batch: 4,
        };
        let disk: Arc<dyn Disk> = Arc::new(image.disk.clone());
        let rng = self.rng.fork();
        let mut life = Life::new(
            image.disk.clone(),
            disk,
            store,
            clock,
            rng,
            model.clone(),
            plan,
        );
        life.open_anew()?;
        life.run(lost.clamp(3, 20))
            .map_err(|e| format!("second life: {e}"))?;
        let clean = self.rng.chance(0.3);
        life.reopen(clean)
            .map_err(|what| format!("second life, reopened: {what}"))?;
        assert_checked(&life.store, true).map_err(|what| format!("second life, {what}"))?;
        if is_first && self.rng.below(self.effort.second_crash) == 0 {
            self.tally.second_crashes += 1;
            let trace = image.disk.trace();
            let small = CrashPolicy {
                exhaustive: 3,
                random: 4,
                unreadable: true,
            };
            let full = std::mem::replace(&mut self.effort.policy, small);
            self.explore_trace(&trace, &life.batches, 0, &life.clock, "second life", false);
            self.effort.policy = full;
            self.tally.add(life.seen);
        }
        Ok(())
    }

    /// SIGKILL first: what was written is still in the page cache when the store is opened; then a
    /// power cut.
    pub(crate) fn kill_and_cut(&mut self, life: &Life, name: &str) {
        let trace = life.note.trace();
        let mut walk = CrashWalk::new(&trace);
        let mut rng = self.rng.fork();
        let nothing = CrashPolicy {
            exhaustive: 0,
            random: 0,
            unreadable: false,
        };
        let mut pending: Vec<&DiskEvent> = Vec::new();
        let mut turn = 0_u64;
        for point in trace.crash_points() {
            while walk.point() < point {
                match walk.apply_next() {
                    Some(DiskEvent::Sync) => pending.clear(),
                    Some(event) => pending.push(event),
                    None => break,
                }
            }
            if pending.iter().all(|e| matches!(e, DiskEvent::Mark(_))) || self.is_done() {
                continue;
            }
            turn += 1;
            if !turn.is_multiple_of(3) {
                continue;
            }
            let Some(image) = walk.crash_images(&mut rng, &nothing).next() else {
                continue;
            };
            image.disk.restart_trace();
            for event in &pending {
                replay(&image.disk, event);
            }
            let allowed = Allowed::at(&trace, point, &life.batches, 0);
            if let Err(what) = self.killed(&image, &allowed, &life.clock) {
                self.failures
                    .push(format!("{name}, killed at {point}: {what}"));
            }
        }
    }

    fn killed(
        &mut self,
        image: &CrashImage,
        allowed: &Allowed<'_>,
        clock: &SimClock,
    ) -> Result<(), String> {
        self.tally.kills += 1;
        let clock = SimClock::new(teal_env::Clock::civil_time(clock));
        let disk: Arc<dyn Disk> = Arc::new(image.disk.clone());
        let store = open(&disk, &clock).map_err(|e| format!("open: {e}"))?;
        let (_, model) = allowed.shown(&store)?;
        let plan = Plan {
            heavy: 0.0,
            spare: 1 << 20,
            batch: 3,
        };
        let rng = self.rng.fork();
        let mut second = Life::new(
            image.disk.clone(),
            disk,
            store,
            clock,
            rng,
            model.clone(),
            plan,
        );
        second.open_anew()?;
        second.note.add_mark(crate::life::promised(0));
        second.run(3).map_err(|e| format!("second life: {e}"))?;
        // Only what happened after the second opening: before it, the first life's promises count.
        let trace = image.disk.trace();
        let opened = trace
            .events()
            .iter()
            .position(|e| *e == DiskEvent::Mark(crate::life::promised(0)));
        let small = CrashPolicy {
            exhaustive: 2,
            random: 3,
            unreadable: false,
        };
        let mut walk = CrashWalk::new(&trace);
        let mut rng = self.rng.fork();
        for point in trace
            .crash_points()
            .filter(|p| opened.is_some_and(|o| *p > o))
        {
            while walk.point() < point && walk.apply_next().is_some() {}
            let allowed = Allowed::at(&trace, point, &second.batches, 0);
            for image in walk.crash_images(&mut rng, &small) {
                self.tally.images += 1;
                self.tally.recoveries += 1;
                let disk: Arc<dyn Disk> = Arc::new(image.disk.clone());
                let store = open(&disk, &second.clock)
                    .map_err(|e| format!("{image}: open after the cut: {e}"))?;
                allowed
                    .shown(&store)
                    .map_err(|e| format!("{image}: after the cut: {e}"))?;
            }
        }
        Ok(())
    }
}

fn replay(disk: &RecordingDisk, event: &DiskEvent) {
    match event {
        DiskEvent::Write { at, data } => {
            disk.write_at(*at, &[std::io::IoSlice::new(data)]).unwrap()
        }
        DiskEvent::Allocate { at, sectors } => disk.allocate(*at, *sectors).unwrap(),
        DiskEvent::Discard { at, sectors } => disk.discard(*at, *sectors).unwrap(),
        DiskEvent::Sync | DiskEvent::SyncFailed | DiskEvent::Mark(_) => {}
    }
}
