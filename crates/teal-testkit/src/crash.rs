//! The crash explorer: every disk that a crash at any point of a [`Trace`] may leave behind.
//!
//! # Guarantees
//! 1. *Durable*: what was written before a good sync is in every image after it, unless
//!    overwritten.
//! 2. *Any subset*: each physical sector written since is old, or holds any one of the contents
//!    written to it, on its own.
//! 3. *Whole sectors*: a write smaller than a physical sector puts the whole physical sector,
//!    neighbours included, at risk.
//! 4. *Unreadable*: with [`Policy::unreadable`], some images have one pending physical sector that
//!    gives `EIO`.
//! 5. *No second chance*: what was pending when a sync failed stays pending, whatever later syncs
//!    return, until written again.
//! 6. Host space allocated since the last good sync is lost, except under sectors that were kept.
//!
//! # How
//! [`Walk`] follows the trace and keeps the durable content up to date; an image shares it and holds only its own pending sectors.
//! Small sets are enumerated (in mixed radix, since a sector may have been written more than once).
//! Of large ones both extremes, prefixes in the order of writing and random subsets of different
//! densities are taken.

use crate::content::{Content, Unit};
use crate::recording::{JUNK, RecordingDisk};
use crate::rng::Rng;
use crate::trace::{Event, Trace};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use teal_types::SECTOR;

/// How many images to look at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// Up to this many pending physical sectors, all subsets are taken.
    pub exhaustive: u32,
    /// Beyond that, this many prefixes and random subsets besides both extremes.
    pub random: usize,
    /// Whether a sector that was being written may be unreadable afterwards.
    pub unreadable: bool,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            exhaustive: 10,
            random: 256,
            unreadable: true,
        }
    }
}

/// A disk as a crash left it.
#[derive(Debug)]
pub struct Image {
    /// The disk. It records again, so that its second life can be crashed too.
    pub disk: RecordingDisk,
    /// How many events of the trace had happened.
    pub point: usize,
    /// Physical sectors that were pending.
    pub pending: usize,
    /// Those that kept a pending content: (number, which of the contents written, from 1).
    pub kept: Vec<(u64, usize)>,
    /// The physical sector that became unreadable.
    pub unreadable: Option<u64>,
}

impl fmt::Display for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "point {}, {} of {} pending sectors kept",
            self.point,
            self.kept.len(),
            self.pending
        )?;
        if self.kept.len() < self.pending && self.kept.len() <= 32 {
            let kept = self
                .kept
                .iter()
                .map(|(unit, version)| format!(" {unit}v{version}"));
            write!(f, ":{}", kept.collect::<String>())?;
        }
        self.unreadable
            .map_or(Ok(()), |unit| write!(f, ", {unit} unreadable"))
    }
}

/// The contents written to a physical sector since it was last durable, oldest first.
#[derive(Debug, Default)]
struct Pending {
    versions: Vec<Arc<[u8]>>,
    /// How many of them a failed sync may have lost.
    doubtful: usize,
}

/// A walk along a trace.
#[derive(Debug)]
pub struct Walk<'a> {
    trace: &'a Trace,
    point: usize,
    durable: Content,
    pending: BTreeMap<Unit, Pending>,
    /// Writes of pending sectors in order: (sector, which of its contents, from 1).
    order: Vec<(Unit, usize)>,
    /// Where in `order` the last write request begins.
    last: usize,
    allocations: Vec<(u64, u64)>,
}

impl<'a> Walk<'a> {
    /// A walk that stands at the beginning.
    pub fn new(trace: &'a Trace) -> Self {
        let mut durable = trace.start.clone();
        durable.settle_all();
        Self {
            trace,
            point: 0,
            durable,
            pending: BTreeMap::new(),
            order: vec![],
            last: 0,
            allocations: vec![],
        }
    }

    /// Returns how many events have happened.
    pub fn point(&self) -> usize {
        self.point
    }

    /// Returns how many physical sectors are pending.
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    /// Lets the next event happen; `None` at the end.
    pub fn step(&mut self) -> Option<&'a Event> {
        let event = self.trace.events.get(self.point)?;
        self.point += 1;
        match event {
            Event::Write { at, data } => self.write(at.byte(), data),
            Event::Sync => self.sync(),
            Event::SyncFailed => self
                .pending
                .values_mut()
                .for_each(|p| p.doubtful = p.versions.len()),
            Event::Allocate { at, sectors } => self.allocations.push((at.get(), *sectors)),
            Event::Discard { at, sectors } => {
                self.write(at.byte(), &vec![JUNK; (sectors * SECTOR) as usize]);
                self.durable.set_allocated(at.get(), *sectors, false);
            }
            Event::Mark(_) => {}
        }
        Some(event)
    }

    fn write(&mut self, at: u64, data: &[u8]) {
        self.last = self.order.len();
        for (unit, inside, from) in self.durable.split(at, data.len()) {
            let pending = self.pending.entry(unit).or_default();
            let mut bytes: Arc<[u8]> = pending
                .versions
                .last()
                .map_or_else(|| self.durable.unit_of(unit).into(), Arc::clone);
            let len = inside.len();
            Arc::make_mut(&mut bytes)[inside].copy_from_slice(&data[from..from + len]);
            pending.versions.push(bytes);
            self.order.push((unit, pending.versions.len()));
        }
    }

    fn sync(&mut self) {
        let durable = &mut self.durable;
        self.pending.retain(|&unit, pending| {
            let is_written = pending.versions.len() > pending.doubtful;
            if is_written {
                durable.settle(
                    unit,
                    Arc::clone(pending.versions.last().expect("more than none")),
                );
            }
            !is_written
        });
        self.order
            .retain(|(unit, _)| self.pending.contains_key(unit));
        self.last = 0;
        for (at, sectors) in self.allocations.drain(..) {
            durable.set_allocated(at, sectors, true);
        }
    }

    /// The images of a crash now.
    pub fn images<'w>(&'w self, rng: &'w mut Rng, policy: &Policy) -> Images<'w> {
        let limit = 1_usize << policy.exhaustive.min(24);
        let combinations = self.pending.values().try_fold(1_usize, |product, pending| {
            product
                .checked_mul(pending.versions.len() + 1)
                .filter(|&product| product <= limit)
        });
        let mut plans: Vec<Plan> = Vec::new();
        if let Some(combinations) = combinations {
            plans.extend((0..combinations).map(Plan::Numbered));
            if policy.unreadable {
                plans.extend(self.pending.keys().map(|&unit| Plan::Unreadable(unit)));
            }
        } else {
            plans.extend([Plan::Prefix(0), Plan::Prefix(self.order.len())]);
            let quarter = policy.random / 4;
            plans.extend((0..quarter).map(|_| Plan::Prefix(rng.index(self.order.len()))));
            plans.extend((quarter..policy.random).map(|_| Plan::Random {
                may_lose: policy.unreadable,
            }));
        }
        plans.reverse();
        Images {
            walk: self,
            rng,
            plans,
        }
    }

    /// One image of a crash now, by chance. `may_lose`: a sector that was being written may be
    /// unreadable in it.
    pub fn any(&self, rng: &mut Rng, may_lose: bool) -> Image {
        let plan = match (self.order.len(), rng.below(8)) {
            (0, _) | (_, 0) => Plan::Prefix(0),
            (len, 1..4) => Plan::Prefix(1 + rng.index(len)),
            _ => Plan::Random { may_lose },
        };
        Images {
            walk: self,
            rng,
            plans: vec![plan],
        }
        .next()
        .expect("one plan, one image")
    }

    fn image(&self, kept: Vec<(Unit, usize)>, unreadable: Option<Unit>) -> Image {
        let mut content = self.durable.clone();
        let per_unit = u64::from(self.trace.shape.physical) / SECTOR;
        for &(unit, version) in &kept {
            content.set(unit, Arc::clone(&self.pending[&unit].versions[version - 1]));
            let at = unit * per_unit;
            content.set_allocated(at, per_unit.min(self.trace.shape.sectors - at), true);
        }
        content.unreadable.extend(unreadable);
        let disk = RecordingDisk::from_content(self.trace.shape, content);
        Image {
            disk,
            point: self.point,
            pending: self.pending.len(),
            kept,
            unreadable,
        }
    }

    /// The state after the first `len` sector writes.
    fn prefix(&self, len: usize) -> Vec<(Unit, usize)> {
        self.order[..len]
            .iter()
            .copied()
            .collect::<BTreeMap<_, _>>()
            .into_iter()
            .collect()
    }

    /// The `number`th combination.
    fn numbered(&self, mut number: usize) -> Vec<(Unit, usize)> {
        let digits = self.pending.iter().map(|(&unit, pending)| {
            let radix = pending.versions.len() + 1;
            let digit = number % radix;
            number /= radix;
            (unit, digit)
        });
        digits.filter(|&(_, version)| version > 0).collect()
    }

    /// Each sector new with probability `density`, and then mostly the newest.
    fn random(&self, rng: &mut Rng, density: f64) -> Vec<(Unit, usize)> {
        let mut kept = Vec::new();
        for (&unit, pending) in &self.pending {
            if rng.chance(density) {
                let newest = pending.versions.len();
                kept.push((
                    unit,
                    if newest > 1 && rng.chance(0.3) {
                        1 + rng.index(newest)
                    } else {
                        newest
                    },
                ));
            }
        }
        kept
    }
}

#[derive(Debug, Clone, Copy)]
enum Plan {
    Numbered(usize),
    Unreadable(Unit),
    Prefix(usize),
    Random { may_lose: bool },
}

/// The images of a crash at one point.
#[derive(Debug)]
pub struct Images<'w> {
    walk: &'w Walk<'w>,
    rng: &'w mut Rng,
    plans: Vec<Plan>,
}

impl Iterator for Images<'_> {
    type Item = Image;

    fn next(&mut self) -> Option<Image> {
        let Self { walk, rng, plans } = self;
        Some(match plans.pop()? {
            Plan::Numbered(number) => walk.image(walk.numbered(number), None),
            Plan::Unreadable(unit) => lost(walk, walk.random(rng, 0.5), unit),
            Plan::Prefix(len) => walk.image(walk.prefix(len), None),
            Plan::Random { may_lose } => {
                let count = walk.pending.len() as f64;
                let density = *rng.pick(&[0.5, 0.5, 0.1, 0.9, 1.0 / count, 1.0 - 1.0 / count]);
                let kept = walk.random(rng, density);
                if may_lose && rng.chance(0.25) {
                    // Most likely it is a sector of the last request.
                    let from = if rng.chance(0.5) { walk.last } else { 0 };
                    let unit = rng.pick(&walk.order[from.min(walk.order.len() - 1)..]).0;
                    lost(walk, kept, unit)
                } else {
                    walk.image(kept, None)
                }
            }
        })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.plans.len(), Some(self.plans.len()))
    }
}

fn lost(walk: &Walk<'_>, mut kept: Vec<(Unit, usize)>, unit: Unit) -> Image {
    kept.retain(|&(other, _)| other != unit);
    walk.image(kept, Some(unit))
}

impl Trace {
    /// The disk that a crash at the end leaves, by chance; see [`Walk::any`].
    pub fn crash(&self, rng: &mut Rng, may_lose: bool) -> Image {
        let mut walk = Walk::new(self);
        while walk.step().is_some() {}
        walk.any(rng, may_lose)
    }

    /// Shows `visit` the images of a crash at each of the [points](Trace::points); returns how many
    /// there were.
    pub fn explore(&self, rng: &mut Rng, policy: &Policy, mut visit: impl FnMut(Image)) -> u64 {
        let mut walk = Walk::new(self);
        let mut count = 0;
        for point in self.points() {
            while walk.point() < point && walk.step().is_some() {}
            for image in walk.images(rng, policy) {
                count += 1;
                visit(image);
            }
        }
        count
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod toy_log;
