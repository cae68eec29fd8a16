//! The crash explorer: every disk that a crash at any point of a [`DiskTrace`] may leave behind.
//!
//! # Guarantees
//! 1. *Durable*: data that was written before a successful sync is in every image after it, unless
//!    overwritten.
//! 2. *Any subset*: each physical sector written since is old, or holds any one of the contents
//!    written to it, on its own.
//! 3. *Whole sectors*: a write smaller than a physical sector puts the whole physical sector,
//!    neighbours included, at risk.
//! 4. *Unreadable*: with [`CrashPolicy::unreadable`], some images have one pending physical sector
//!    that gives `EIO`.
//! 5. *No second chance*: a sector that was pending when a sync failed stays pending, whatever
//!    later syncs return, until it is written again.
//! 6. Host space allocated since the last good sync is lost, except under sectors that were kept.
//!
//! # How
//! [`CrashWalk`] follows the trace and keeps the durable content up to date; an image shares it and
//! holds only its own pending sectors. Small sets are enumerated (in mixed radix, since a sector
//! may have been written more than once). From large ones both extremes, prefixes in the order of
//! writing and random subsets of different densities are taken.

use crate::content::{LayeredContent, Unit};
use crate::recording::{JUNK, RecordingDisk};
use crate::rng::Rng;
use crate::trace::{DiskEvent, DiskTrace};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use teal_types::SECTOR;

/// The number of images to look at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CrashPolicy {
    /// Up to this many pending physical sectors, all subsets are taken.
    pub exhaustive: u32,
    /// Beyond that, this many prefixes and random subsets besides both extremes.
    pub random: usize,
    /// Is true if a sector that was being written may be unreadable afterwards.
    pub unreadable: bool,
}

impl Default for CrashPolicy {
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
pub struct CrashImage {
    /// The disk. It records again, so that its second life can be crashed too.
    pub disk: RecordingDisk,
    /// The number of events of the trace that had happened.
    pub point: usize,
    /// Physical sectors that were pending.
    pub pending: usize,
    /// The sectors that kept a pending content: (number, which of the contents written, from 1).
    pub kept: Vec<(u64, usize)>,
    /// The physical sector that became unreadable.
    pub unreadable: Option<u64>,
}

impl fmt::Display for CrashImage {
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
struct PendingSector {
    versions: Vec<Arc<[u8]>>,
    /// The number of them that a failed sync may have lost.
    doubtful: usize,
}

/// A walk along a trace.
#[derive(Debug)]
pub struct CrashWalk<'a> {
    trace: &'a DiskTrace,
    point: usize,
    durable: LayeredContent,
    pending: BTreeMap<Unit, PendingSector>,
    /// Writes of pending sectors in order: (sector, which of its contents, from 1).
    order: Vec<(Unit, usize)>,
    /// The place in `order` at which the last write request begins.
    last_request: usize,
    allocations: Vec<(u64, u64)>,
}

impl<'a> CrashWalk<'a> {
    /// Makes a walk that stands at the beginning.
    pub fn new(trace: &'a DiskTrace) -> Self {
        let mut durable = trace.start.clone();
        durable.share_all();
        Self {
            trace,
            point: 0,
            durable,
            pending: BTreeMap::new(),
            order: vec![],
            last_request: 0,
            allocations: vec![],
        }
    }

    /// Returns the number of events that have happened.
    pub fn point(&self) -> usize {
        self.point
    }

    /// Returns the number of physical sectors that are pending.
    pub fn pending_count(&self) -> usize {
        self.pending.len()
    }

    /// Lets the next event happen, and returns it; `None` at the end.
    pub fn apply_next(&mut self) -> Option<&'a DiskEvent> {
        let event = self.trace.events.get(self.point)?;
        debug_assert!(self.point < self.trace.events.len(), "the event exists");
        self.point += 1;
        match event {
            DiskEvent::Write { at, data } => self.apply_write(at.byte_offset(), data),
            DiskEvent::Sync => self.apply_sync(),
            DiskEvent::SyncFailed => self
                .pending
                .values_mut()
                .for_each(|p| p.doubtful = p.versions.len()),
            DiskEvent::Allocate { at, sectors } => self.allocations.push((at.get(), *sectors)),
            DiskEvent::Discard { at, sectors } => {
                self.apply_write(at.byte_offset(), &vec![JUNK; (sectors * SECTOR) as usize]);
                self.durable.set_allocated(at.get(), *sectors, false);
            }
            DiskEvent::Mark(_) => {}
        }
        Some(event)
    }

    fn apply_write(&mut self, at: u64, data: &[u8]) {
        self.last_request = self.order.len();
        for (unit, inside, from) in self.durable.split_units(at, data.len()) {
            // A partial write begins from the newest pending version, or from the durable content.
            let pending = self.pending.entry(unit).or_default();
            let mut bytes: Arc<[u8]> = pending
                .versions
                .last()
                .map_or_else(|| self.durable.unit_bytes(unit).into(), Arc::clone);
            let len = inside.len();
            Arc::make_mut(&mut bytes)[inside].copy_from_slice(&data[from..from + len]);
            pending.versions.push(bytes);
            self.order.push((unit, pending.versions.len()));
        }
    }

    fn apply_sync(&mut self) {
        let durable = &mut self.durable;
        self.pending.retain(|&unit, pending| {
            // A version behind the doubtful ones was written after the failed sync, and this sync
            // covers it.
            let is_written = pending.versions.len() > pending.doubtful;
            if is_written {
                durable.share_unit(
                    unit,
                    Arc::clone(pending.versions.last().expect("more than none")),
                );
            }
            !is_written
        });
        self.order
            .retain(|(unit, _)| self.pending.contains_key(unit));
        self.last_request = 0;
        for (at, sectors) in self.allocations.drain(..) {
            durable.set_allocated(at, sectors, true);
        }
    }

    /// Returns the images of a crash now.
    pub fn crash_images<'w>(&'w self, rng: &'w mut Rng, policy: &CrashPolicy) -> CrashImages<'w> {
        // A sector with several versions counts with each of them.
        let limit = 1_usize << policy.exhaustive.min(24);
        // The product is given up as soon as it is too large.
        let combinations = self.pending.values().try_fold(1_usize, |product, pending| {
            product
                .checked_mul(pending.versions.len() + 1)
                .filter(|&product| product <= limit)
        });
        let mut plans: Vec<ImagePlan> = Vec::new();
        if let Some(combinations) = combinations {
            plans.extend((0..combinations).map(ImagePlan::Numbered));
            if policy.unreadable {
                plans.extend(self.pending.keys().map(|&unit| ImagePlan::Unreadable(unit)));
            }
        } else {
            plans.extend([ImagePlan::Prefix(0), ImagePlan::Prefix(self.order.len())]);
            // A quarter of the images are prefixes: crashes of a disk that keeps the order of
            // writes.
            let quarter = policy.random / 4;
            plans.extend((0..quarter).map(|_| ImagePlan::Prefix(rng.pick_index(self.order.len()))));
            plans.extend((quarter..policy.random).map(|_| ImagePlan::Random {
                may_lose: policy.unreadable,
            }));
        }
        // Plans are taken from the end.
        plans.reverse();
        CrashImages {
            walk: self,
            rng,
            plans,
        }
    }

    /// Returns one image of a crash now, by chance. With `may_lose`, a sector that was being
    /// written may be unreadable in it.
    pub fn random_image(&self, rng: &mut Rng, may_lose: bool) -> CrashImage {
        let plan = match (self.order.len(), rng.below(8)) {
            (0, _) | (_, 0) => ImagePlan::Prefix(0),
            (len, 1..4) => ImagePlan::Prefix(1 + rng.pick_index(len)),
            _ => ImagePlan::Random { may_lose },
        };
        CrashImages {
            walk: self,
            rng,
            plans: vec![plan],
        }
        .next()
        .expect("one plan, one image")
    }

    fn build_image(&self, kept: Vec<(Unit, usize)>, unreadable: Option<Unit>) -> CrashImage {
        let mut content = self.durable.clone();
        debug_assert!(
            kept.iter().all(|(unit, _)| self.pending.contains_key(unit)),
            "only pending \
            sectors are kept"
        );
        let per_unit = u64::from(self.trace.shape.physical) / SECTOR;
        for &(unit, version) in &kept {
            content.set_unit(unit, Arc::clone(&self.pending[&unit].versions[version - 1]));
            let at = unit * per_unit;
            // A sector that was kept has its space, whatever became of the allocation.
            content.set_allocated(at, per_unit.min(self.trace.shape.sectors - at), true);
        }
        content.unreadable.extend(unreadable);
        let disk = RecordingDisk::from_content(self.trace.shape, content);
        CrashImage {
            disk,
            point: self.point,
            pending: self.pending.len(),
            kept,
            unreadable,
        }
    }

    /// Returns the contents kept after the first `len` sector writes.
    fn kept_prefix(&self, len: usize) -> Vec<(Unit, usize)> {
        self.order[..len]
            .iter()
            .copied()
            .collect::<BTreeMap<_, _>>()
            .into_iter()
            .collect()
    }

    /// Returns the contents kept in combination `number`.
    fn kept_combination(&self, mut number: usize) -> Vec<(Unit, usize)> {
        let digits = self.pending.iter().map(|(&unit, pending)| {
            let radix = pending.versions.len() + 1;
            let digit = number % radix;
            number /= radix;
            (unit, digit)
        });
        digits.filter(|&(_, version)| version > 0).collect()
    }

    /// Returns each pending sector with probability `density`, and then mostly its newest content.
    fn kept_random(&self, rng: &mut Rng, density: f64) -> Vec<(Unit, usize)> {
        let mut kept = Vec::new();
        for (&unit, pending) in &self.pending {
            if rng.chance(density) {
                let newest = pending.versions.len();
                kept.push((
                    unit,
                    if newest > 1 && rng.chance(0.3) {
                        1 + rng.pick_index(newest)
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
enum ImagePlan {
    Numbered(usize),
    Unreadable(Unit),
    Prefix(usize),
    Random { may_lose: bool },
}

/// The images of a crash at one point.
#[derive(Debug)]
pub struct CrashImages<'w> {
    walk: &'w CrashWalk<'w>,
    rng: &'w mut Rng,
    plans: Vec<ImagePlan>,
}

impl Iterator for CrashImages<'_> {
    type Item = CrashImage;

    fn next(&mut self) -> Option<CrashImage> {
        let Self { walk, rng, plans } = self;
        Some(match plans.pop()? {
            ImagePlan::Numbered(number) => walk.build_image(walk.kept_combination(number), None),
            ImagePlan::Unreadable(unit) => {
                image_with_unreadable(walk, walk.kept_random(rng, 0.5), unit)
            }
            ImagePlan::Prefix(len) => walk.build_image(walk.kept_prefix(len), None),
            ImagePlan::Random { may_lose } => {
                let count = walk.pending.len() as f64;
                // Also densities at which one sector is kept or one is lost: many bugs need just
                // that.
                let density = *rng.pick(&[0.5, 0.5, 0.1, 0.9, 1.0 / count, 1.0 - 1.0 / count]);
                let kept = walk.kept_random(rng, density);
                if may_lose && rng.chance(0.25) {
                    // Most likely it is a sector of the last request.
                    let from = if rng.chance(0.5) {
                        walk.last_request
                    } else {
                        0
                    };
                    let unit = rng.pick(&walk.order[from.min(walk.order.len() - 1)..]).0;
                    image_with_unreadable(walk, kept, unit)
                } else {
                    walk.build_image(kept, None)
                }
            }
        })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.plans.len(), Some(self.plans.len()))
    }
}

fn image_with_unreadable(
    walk: &CrashWalk<'_>,
    mut kept: Vec<(Unit, usize)>,
    unit: Unit,
) -> CrashImage {
    kept.retain(|&(other, _)| other != unit);
    walk.build_image(kept, Some(unit))
}

impl DiskTrace {
    /// Returns the disk that a crash at the end leaves, by chance; see [`CrashWalk::random_image`].
    pub fn crash_at_end(&self, rng: &mut Rng, may_lose: bool) -> CrashImage {
        let mut walk = CrashWalk::new(self);
        while walk.apply_next().is_some() {}
        walk.random_image(rng, may_lose)
    }

    /// Shows `visit` the images of a crash at each of the [points](DiskTrace::crash_points), and
    /// returns how many there were.
    pub fn explore(
        &self,
        rng: &mut Rng,
        policy: &CrashPolicy,
        mut visit: impl FnMut(CrashImage),
    ) -> u64 {
        let mut walk = CrashWalk::new(self);
        let mut count = 0;
        for point in self.crash_points() {
            while walk.point() < point && walk.apply_next().is_some() {}
            for image in walk.crash_images(rng, policy) {
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
