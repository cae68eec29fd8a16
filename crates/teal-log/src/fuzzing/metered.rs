//! A disk in memory that shares its content with its like, and gives out only so much.

use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::RwLock;
use teal_env::{Clock, Disk, DiskShape, Entropy};
use teal_types::{SECTOR, Sector, Timestamp};

/// What a request costs beside its bytes.
const REQUEST: u64 = 4096;

/// A copy-on-write disk. Work on it is metered: opening and using an image must not read it without
/// end.
pub(super) struct MeteredDisk {
    base: Arc<Vec<u8>>,
    /// Sectors that differ from the base.
    changed: RwLock<BTreeMap<u64, [u8; SECTOR as usize]>>,
    left: AtomicU64,
}

impl MeteredDisk {
    pub(super) fn new(base: Arc<Vec<u8>>, budget: u64) -> Self {
        Self {
            base,
            changed: RwLock::default(),
            left: AtomicU64::new(budget),
        }
    }

    fn charge_request(&self, at: Sector, len: usize) -> io::Result<()> {
        let cost = REQUEST + len as u64;
        let left = self.left.load(Relaxed);
        assert!(
            left >= cost,
            "too much work for an image of {} bytes",
            self.base.len()
        );
        self.left.store(left - cost, Relaxed);
        let end = at
            .get()
            .checked_mul(SECTOR)
            .and_then(|byte| byte.checked_add(len as u64));
        if end.is_none_or(|end| end > self.base.len() as u64)
            || !(len as u64).is_multiple_of(SECTOR)
        {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "beyond the end of the disk",
            ));
        }
        Ok(())
    }

    /// Changes bytes in place.
    pub(super) fn poke(&self, byte: usize, bytes: &[u8]) {
        for (i, value) in bytes
            .iter()
            .enumerate()
            .take_while(|(i, _)| byte + i < self.base.len())
        {
            let at = byte + i;
            let start = at / SECTOR as usize * SECTOR as usize;
            let mut changed = self.changed.write();
            let sector = changed
                .entry((start / SECTOR as usize) as u64)
                .or_insert_with(|| {
                    let mut old = [0; SECTOR as usize];
                    old.copy_from_slice(&self.base[start..start + SECTOR as usize]);
                    old
                });
            sector[at - start] = *value;
        }
    }

    /// The bytes there are now; fewer at the end of the disk.
    pub(super) fn peek(&self, byte: usize, len: usize) -> Vec<u8> {
        let end = (byte + len).min(self.base.len());
        let changed = self.changed.read();
        let one = |at: usize| {
            changed
                .get(&(at as u64 / SECTOR))
                .map_or(self.base[at], |s| s[at % SECTOR as usize])
        };
        (byte.min(end)..end).map(one).collect()
    }

    /// The whole content.
    pub(super) fn snapshot(&self) -> Vec<u8> {
        let mut out = self.base.to_vec();
        for (sector, bytes) in &*self.changed.read() {
            let at = (sector * SECTOR) as usize;
            out[at..at + SECTOR as usize].copy_from_slice(bytes);
        }
        out
    }
}

impl Disk for MeteredDisk {
    fn shape(&self) -> DiskShape {
        let sectors = self.base.len() as u64 / SECTOR;
        DiskShape {
            sectors,
            logical: 512,
            physical: 512,
            rotational: false,
            sparse: false,
        }
    }
    fn read_at(&self, at: Sector, buf: &mut [u8]) -> io::Result<()> {
        self.charge_request(at, buf.len())?;
        let from = at.byte_offset() as usize;
        buf.copy_from_slice(&self.base[from..from + buf.len()]);
        for (sector, bytes) in self
            .changed
            .read()
            .range(at.get()..at.get() + buf.len() as u64 / SECTOR)
        {
            let to = ((sector - at.get()) * SECTOR) as usize;
            buf[to..to + SECTOR as usize].copy_from_slice(bytes);
        }
        Ok(())
    }
    fn write_at(&self, at: Sector, parts: &[IoSlice<'_>]) -> io::Result<()> {
        let bytes = parts
            .iter()
            .map(|part| &part[..])
            .collect::<Vec<_>>()
            .concat();
        self.charge_request(at, bytes.len())?;
        let mut changed = self.changed.write();
        for (number, sector) in (at.get()..).zip(bytes.chunks_exact(SECTOR as usize)) {
            let mut new = [0; SECTOR as usize];
            new.copy_from_slice(sector);
            changed.insert(number, new);
        }
        Ok(())
    }
    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
    fn allocate(&self, _: Sector, _: u64) -> io::Result<()> {
        Ok(())
    }
    fn discard(&self, _: Sector, _: u64) -> io::Result<()> {
        Ok(())
    }
}

/// A clock that stands still.
pub(super) struct FixedClock;

impl Clock for FixedClock {
    fn civil_time(&self) -> Timestamp {
        Timestamp::new(1_700_000_000, 5)
    }
    fn monotonic_time(&self) -> std::time::Duration {
        std::time::Duration::from_secs(100)
    }
}

/// The same bytes every time.
pub(super) struct ConstantEntropy;

impl Entropy for ConstantEntropy {
    fn fill(&self, out: &mut [u8]) {
        out.fill(7);
    }
}
