//! The content of a simulated disk in three layers, so that thousands of crash images share nearly
//! everything.
//!
//! # How
//! 1. `base` is the whole disk, `middle` has the units that became durable since `base` was shared,
//!    and `top` this disk's own units.
//! 2. An image takes `base` and `middle` by reference; only its own units are new.
//! 3. The unit is the physical sector: the smallest thing a crash keeps or loses.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use std::sync::Arc;
use teal_env::DiskShape;
use teal_types::SECTOR;

/// Number of a physical sector.
pub(crate) type Unit = u64;

/// The content of a disk.
#[derive(Debug, Clone)]
pub(crate) struct LayeredContent {
    unit_size: usize,
    base: Arc<Vec<u8>>,
    middle: Arc<BTreeMap<Unit, Arc<[u8]>>>,
    top: HashMap<Unit, Arc<[u8]>>,
    /// The number of units shared since [`share_all`](Self::share_all).
    shared_units: usize,
    /// The units that cannot be read.
    pub(crate) unreadable: BTreeSet<Unit>,
    /// One bit per 512-byte sector with host space; empty when allocation is not tracked.
    allocated: Arc<Vec<u64>>,
}

impl LayeredContent {
    pub(crate) fn new(shape: &DiskShape, mut bytes: Vec<u8>) -> Self {
        let unit = shape.physical as usize;
        assert!(shape.physical >= shape.logical && u64::from(shape.logical).is_multiple_of(SECTOR));
        assert!(shape.physical.is_power_of_two() && shape.sectors * SECTOR == bytes.len() as u64);
        // The last unit is whole, even when the disk ends inside it.
        // Reads of the last unit need all of its bytes.
        bytes.resize(bytes.len().next_multiple_of(unit), 0);
        // Only a sparse disk has space to allocate.
        let words = if shape.sparse {
            shape.sectors.div_ceil(64) as usize
        } else {
            0
        };
        Self {
            unit_size: unit,
            base: Arc::new(bytes),
            middle: Arc::default(),
            top: HashMap::new(),
            shared_units: 0,
            unreadable: BTreeSet::new(),
            allocated: Arc::new(vec![0; words]),
        }
    }

    pub(crate) fn unit_bytes(&self, unit: Unit) -> &[u8] {
        let start = unit as usize * self.unit_size;
        // The newest layer that has the unit wins.
        match self.top.get(&unit).or_else(|| self.middle.get(&unit)) {
            Some(bytes) => bytes,
            None => &self.base[start..start + self.unit_size],
        }
    }

    /// Returns the units that hold `len` bytes from byte `at`: for each the range inside it and the
    /// offset in the transfer.
    pub(crate) fn split_units(
        &self,
        at: u64,
        len: usize,
    ) -> impl Iterator<Item = (Unit, Range<usize>, usize)> + use<> {
        let unit = self.unit_size;
        let end = at as usize + len;
        (at as usize / unit..end.div_ceil(unit))
            .filter(move |_| len > 0)
            .map(move |n| {
                let from = (at as usize).max(n * unit);
                let to = end.min((n + 1) * unit);
                (
                    n as Unit,
                    from - n * unit..to - n * unit,
                    from - at as usize,
                )
            })
    }

    /// Fills `buf`, or returns the unit that cannot be read.
    pub(crate) fn read(&self, at: u64, buf: &mut [u8]) -> Result<(), Unit> {
        for (unit, inside, from) in self.split_units(at, buf.len()) {
            if self.unreadable.contains(&unit) {
                return Err(unit);
            }
            let len = inside.len();
            buf[from..from + len].copy_from_slice(&self.unit_bytes(unit)[inside]);
        }
        Ok(())
    }

    /// Writes into this disk's own layer, or returns the unit that cannot be read and would be
    /// written in part.
    pub(crate) fn write(&mut self, at: u64, data: &[u8]) -> Result<(), Unit> {
        let whole = self.unit_size;
        // The check comes before the first byte is written, so that a refused write changes
        // nothing.
        if let Some((unit, ..)) = self
            .split_units(at, data.len())
            .find(|(n, r, _)| r.len() < whole && self.unreadable.contains(n))
        {
            return Err(unit);
        }
        for (unit, inside, from) in self.split_units(at, data.len()) {
            let part = &data[from..from + inside.len()];
            self.unreadable.remove(&unit);
            // A whole unit is replaced, and heals one that cannot be read.
            if inside.len() == whole {
                self.top.insert(unit, part.into());
            } else {
                let old = self.unit_bytes(unit).into();
                Arc::make_mut(self.top.entry(unit).or_insert(old))[inside].copy_from_slice(part);
            }
        }
        Ok(())
    }

    /// Puts a whole unit into this disk's own layer.
    pub(crate) fn set_unit(&mut self, unit: Unit, bytes: Arc<[u8]>) {
        self.unreadable.remove(&unit);
        self.top.insert(unit, bytes);
    }

    /// Makes a whole unit part of the layers that later images share.
    pub(crate) fn share_unit(&mut self, unit: Unit, bytes: Arc<[u8]>) {
        self.unreadable.remove(&unit);
        let middle = Arc::make_mut(&mut self.middle);
        // No image shares the base yet: it can be changed in place.
        if let Some(base) = Arc::get_mut(&mut self.base) {
            let start = unit as usize * self.unit_size;
            base[start..start + self.unit_size].copy_from_slice(&bytes);
            middle.remove(&unit);
        } else {
            middle.insert(unit, bytes);
            self.shared_units += 1;
            // A base of its own costs one copy of the disk: it pays only for a disk that goes on
            // sharing units.
            if self.shared_units * self.unit_size * 16 > self.base.len() {
                self.base = Arc::new(self.to_bytes());
                self.middle = Arc::default();
                self.shared_units = 0;
            }
        }
    }

    /// Moves this disk's own layer into the shared one.
    pub(crate) fn share_all(&mut self) {
        let top = std::mem::take(&mut self.top);
        Arc::make_mut(&mut self.middle).extend(top);
        self.shared_units = 0;
    }

    /// Returns the whole disk, rounded up to whole units.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = self.base.as_ref().clone();
        for (&unit, data) in self.middle.iter().chain(&self.top) {
            bytes[unit as usize * self.unit_size..][..self.unit_size].copy_from_slice(data);
        }
        bytes
    }

    pub(crate) fn set_allocated(&mut self, at: u64, sectors: u64, to: bool) {
        if !self.allocated.is_empty() {
            let words = Arc::make_mut(&mut self.allocated);
            for sector in at..at + sectors {
                let (word, bit) = (&mut words[(sector / 64) as usize], 1 << (sector % 64));
                *word = if to { *word | bit } else { *word & !bit };
            }
        }
    }

    /// Lets every sector count as allocated from now on.
    pub(crate) fn stop_tracking_allocation(&mut self) {
        self.allocated = Arc::default();
    }

    pub(crate) fn is_allocated(&self, at: u64, sectors: u64) -> bool {
        let has = |sector: u64| self.allocated[(sector / 64) as usize] >> (sector % 64) & 1 == 1;
        self.allocated.is_empty() || (at..at + sectors).all(has)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(physical: u32, sectors: u64) -> LayeredContent {
        let shape = DiskShape {
            sectors,
            logical: 512,
            physical,
            rotational: false,
            sparse: true,
        };
        LayeredContent::new(&shape, vec![0; (sectors * SECTOR) as usize])
    }

    #[test]
    fn layers_show_the_newest_bytes() {
        let mut c = content(4096, 64);
        let shared = c.clone();
        c.write(512, &[1; 1024]).unwrap();
        c.share_all();
        c.share_unit(1, vec![2; 4096].into());
        c.write(3584, &[3; 1024]).unwrap();
        let mut buf = [9; 8192];
        c.read(0, &mut buf).unwrap();
        assert_eq!(
            (
                buf[0], buf[512], buf[1535], buf[1536], buf[3584], buf[4607], buf[4608]
            ),
            (0, 1, 1, 0, 3, 3, 2)
        );
        assert_eq!(c.to_bytes()[..8192], buf);
        assert!(
            shared.to_bytes().iter().all(|&b| b == 0),
            "a clone is untouched"
        );
    }

    #[test]
    fn an_unreadable_unit_is_healed_only_by_writing_all_of_it() {
        let mut c = content(4096, 64);
        c.unreadable.insert(1);
        assert_eq!(c.read(0, &mut [0; 8192]), Err(1));
        assert_eq!(c.write(3584, &[1; 1024]), Err(1));
        c.write(4096, &[1; 4096]).unwrap();
        assert_eq!(c.read(0, &mut [0; 8192]), Ok(()));
    }

    #[test]
    fn a_large_middle_is_folded_into_a_base_of_its_own() {
        let mut c = content(512, 64);
        let shared = c.clone();
        (0..64).for_each(|unit| c.share_unit(unit, vec![7; 512].into()));
        assert!(c.middle.len() <= 4 && c.to_bytes().iter().all(|&b| b == 7));
        assert!(shared.to_bytes().iter().all(|&b| b == 0));
    }

    #[test]
    fn allocation_is_per_sector() {
        let mut c = content(512, 200);
        c.set_allocated(60, 10, true);
        assert!(c.is_allocated(60, 10) && !c.is_allocated(60, 11) && !c.is_allocated(59, 1));
        c.set_allocated(65, 1, false);
        assert!(!c.is_allocated(60, 10));
    }
}
