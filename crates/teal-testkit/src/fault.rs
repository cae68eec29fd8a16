//! A disk that fails on command, around any other.
//!
//! # Guarantees
//! 1. Calls are numbered from 0, per kind and over all kinds, failing ones included; the same run
//!    numbers them alike.
//! 2. A failing call never reaches the disk inside, except that a failing write may pass on its
//!    first half ([`FaultDisk::tear_writes`]).
//! 3. Allocation beyond the [limit](FaultDisk::limit_allocation) is `StorageFull` and changes
//!    nothing; discarding gives room back.

use crate::recording::medium_error;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::fmt;
use std::io::{self, ErrorKind, IoSlice};
use std::sync::Arc;
use teal_env::{Disk, DiskShape};
use teal_types::{SECTOR, Sector};

/// The kinds of calls to a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiskCall {
    /// [`Disk::read_at`].
    Read,
    /// [`Disk::write_at`].
    Write,
    /// [`Disk::sync`].
    Sync,
    /// [`Disk::allocate`].
    Allocate,
    /// [`Disk::discard`].
    Discard,
}

/// For how long a fault lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultDuration {
    /// One call fails.
    Once,
    /// The call and all later ones of its kind fail.
    Forever,
}

#[derive(Debug, Clone, Copy)]
struct DiskFault {
    /// `None`: the number counts all kinds together.
    call: Option<DiskCall>,
    nth: u64,
    lasts: FaultDuration,
    kind: ErrorKind,
}

type Hook = Box<dyn Fn() + Send>;

#[derive(Default)]
struct FaultPlan {
    faults: Vec<DiskFault>,
    calls: [u64; 5],
    does_tear: bool,
    budget: Option<u64>,
    allocated: BTreeSet<u64>,
    unreadable: BTreeSet<u64>,
    flips: Vec<(Sector, u32)>,
    on_failed_sync: Option<Hook>,
}

/// A [`Disk`] that fails on command. Clones are handles of the same disk.
pub struct FaultDisk<D> {
    disk: Arc<D>,
    plan: Arc<Mutex<FaultPlan>>,
}

impl<D> Clone for FaultDisk<D> {
    fn clone(&self) -> Self {
        Self {
            disk: Arc::clone(&self.disk),
            plan: Arc::clone(&self.plan),
        }
    }
}

impl<D: fmt::Debug> fmt::Debug for FaultDisk<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FaultDisk")
            .field("disk", &self.disk)
            .finish_non_exhaustive()
    }
}

impl<D: Disk> FaultDisk<D> {
    /// Wraps `disk`, without faults so far.
    pub fn new(disk: D) -> Self {
        Self {
            disk: Arc::new(disk),
            plan: Arc::default(),
        }
    }

    /// Returns the disk inside.
    pub fn inner(&self) -> &D {
        &self.disk
    }

    /// Fails call number `nth` of this kind, counted from the beginning.
    pub fn fail_nth(&self, call: DiskCall, nth: u64, lasts: FaultDuration, kind: ErrorKind) {
        self.plan.lock().faults.push(DiskFault {
            call: Some(call),
            nth,
            lasts,
            kind,
        });
    }

    /// Fails the `nth` call of whatever kind.
    pub fn fail_any(&self, nth: u64, lasts: FaultDuration, kind: ErrorKind) {
        self.plan.lock().faults.push(DiskFault {
            call: None,
            nth,
            lasts,
            kind,
        });
    }

    /// Takes all faults back; counts go on, decay and the budget stay.
    pub fn clear_faults(&self) {
        self.plan.lock().faults.clear();
    }

    /// Lets failing writes reach the disk with their first half, rounded down to whole logical
    /// sectors.
    pub fn tear_writes(&self) {
        self.plan.lock().does_tear = true;
    }

    /// Sets a hook that is called when a sync fails; with a recording disk inside: `move ||
    /// disk.sync_failed()`.
    pub fn on_failed_sync(&self, hook: impl Fn() + Send + 'static) {
        self.plan.lock().on_failed_sync = Some(Box::new(hook));
    }

    /// Limits the room of the host to this many sectors that were not allocated through here yet.
    pub fn limit_allocation(&self, sectors: u64) {
        self.plan.lock().budget = Some(sectors);
    }

    /// Lets reads of this sector fail, until it is written.
    pub fn make_unreadable(&self, at: Sector) {
        self.plan.lock().unreadable.insert(at.get());
    }

    /// Flips this bit in every read of this sector, whatever is written.
    ///
    /// # Panics
    /// If `bit` is not inside the sector.
    pub fn flip_on_read(&self, at: Sector, bit: u32) {
        assert!(u64::from(bit) < SECTOR * 8, "a sector has 4096 bits");
        self.plan.lock().flips.push((at, bit));
    }

    /// Flips a bit at rest: reads it from the disk inside and writes it back.
    ///
    /// # Errors
    /// The errors of the disk inside.
    ///
    /// # Panics
    /// If `bit` is not inside the sector.
    pub fn flip_at_rest(&self, at: Sector, bit: u32) -> io::Result<()> {
        assert!(u64::from(bit) < SECTOR * 8, "a sector has 4096 bits");
        let unit = u64::from(self.disk.shape().logical) / SECTOR;
        let start = Sector::new(at.get() / unit * unit);
        let mut bytes = vec![0; (unit * SECTOR) as usize];
        self.disk.read_at(start, &mut bytes)?;
        bytes[((at.get() - start.get()) * SECTOR) as usize + bit as usize / 8] ^= 1 << (bit % 8);
        self.disk.write_at(start, &[IoSlice::new(&bytes)])
    }

    /// Returns the number of calls of this kind so far.
    pub fn call_count(&self, call: DiskCall) -> u64 {
        self.plan.lock().calls[call as usize]
    }

    /// Returns the number of calls of all kinds so far.
    pub fn all_calls(&self) -> u64 {
        self.plan.lock().calls.iter().sum()
    }
}

impl FaultPlan {
    /// Counts the call, and returns the error if it is to fail.
    fn count_call(&mut self, call: DiskCall) -> io::Result<()> {
        // The number of this call, of its kind and of all kinds, before it is counted.
        let (nth, any) = (self.calls[call as usize], self.calls.iter().sum());
        self.calls[call as usize] += 1;
        let hits = |fault: &&DiskFault| {
            let now = if fault.call.is_none() { any } else { nth };
            let is_time =
                now == fault.nth || (fault.lasts == FaultDuration::Forever && now > fault.nth);
            is_time && fault.call.is_none_or(|kind| kind == call)
        };
        self.faults
            .iter()
            .find(hits)
            .map_or(Ok(()), |fault| Err(fault.kind.into()))
    }
}

fn sector_range(at: Sector, bytes: usize) -> std::ops::Range<u64> {
    at.get()..at.get() + bytes as u64 / SECTOR
}

impl<D: Disk> Disk for FaultDisk<D> {
    fn shape(&self) -> DiskShape {
        self.disk.shape()
    }

    fn read_at(&self, at: Sector, buf: &mut [u8]) -> io::Result<()> {
        let mut plan = self.plan.lock();
        plan.count_call(DiskCall::Read)?;
        let range = sector_range(at, buf.len());
        // One bad sector fails the whole read, as on a real disk.
        if let Some(&bad) = plan.unreadable.range(range.clone()).next() {
            return Err(medium_error(bad));
        }
        self.disk.read_at(at, buf)?;
        for (sector, bit) in plan
            .flips
            .iter()
            .filter(|(sector, _)| range.contains(&sector.get()))
        {
            buf[(sector.byte_offset() - at.byte_offset()) as usize + *bit as usize / 8] ^=
                1 << (bit % 8);
        }
        Ok(())
    }

    fn write_at(&self, at: Sector, parts: &[IoSlice<'_>]) -> io::Result<()> {
        let mut plan = self.plan.lock();
        let len = parts.iter().map(|part| part.len()).sum();
        if let Err(e) = plan.count_call(DiskCall::Write) {
            let logical = self.disk.shape().logical as usize;
            // A torn write keeps whole logical sectors, as a disk does.
            let half = len / 2 / logical * logical;
            if plan.does_tear && half > 0 {
                let bytes: Vec<u8> = parts
                    .iter()
                    .flat_map(|part| part.iter().copied())
                    .take(half)
                    .collect();
                self.disk.write_at(at, &[IoSlice::new(&bytes)])?;
            }
            return Err(e);
        }
        self.disk.write_at(at, parts)?;
        let range = sector_range(at, len);
        // A write heals the sectors that it covers.
        plan.unreadable.retain(|sector| !range.contains(sector));
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut plan = self.plan.lock();
        if let Err(e) = plan.count_call(DiskCall::Sync) {
            if let Some(hook) = &plan.on_failed_sync {
                // The hook runs under the lock: no other call can come between failure and hook.
                hook();
            }
            return Err(e);
        }
        self.disk.sync()
    }

    fn allocate(&self, at: Sector, count: u64) -> io::Result<()> {
        let mut plan = self.plan.lock();
        plan.count_call(DiskCall::Allocate)?;
        let range = at.get()..at.get() + count;
        // Sectors that were allocated before take no more room.
        let new = count - plan.allocated.range(range.clone()).count() as u64;
        if plan.budget.is_some_and(|room| room < new) {
            return Err(ErrorKind::StorageFull.into());
        }
        self.disk.allocate(at, count)?;
        plan.budget = plan.budget.map(|room| room - new);
        plan.allocated.extend(range);
        Ok(())
    }

    fn discard(&self, at: Sector, count: u64) -> io::Result<()> {
        let mut plan = self.plan.lock();
        plan.count_call(DiskCall::Discard)?;
        self.disk.discard(at, count)?;
        let range = at.get()..at.get() + count;
        let given_back = plan.allocated.range(range.clone()).count() as u64;
        plan.allocated.retain(|sector| !range.contains(sector));
        plan.budget = plan.budget.map(|room| room + given_back);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
