//! A disk in memory: for tests and for volumes that need not outlive the process.

use crate::{Disk, DiskShape};
use std::io::{self, IoSlice};
use std::sync::{PoisonError, RwLock};
use teal_types::{SECTOR, Sector};

/// A disk held in memory. Every write is durable at once.
#[derive(Debug)]
pub struct MemDisk {
    shape: DiskShape,
    bytes: RwLock<Vec<u8>>,
}

impl MemDisk {
    /// Makes a zeroed disk of `sectors` with 512-byte physical sectors.
    pub fn new(sectors: u64) -> Self {
        let bytes = usize::try_from(sectors * SECTOR).expect("fits the address space");
        Self::from_bytes(vec![0; bytes])
    }

    /// Makes a disk with this content, rounded down to whole sectors.
    pub fn from_bytes(mut bytes: Vec<u8>) -> Self {
        // A rest that is no whole sector cannot be addressed.
        let sectors = bytes.len() as u64 / SECTOR;
        bytes.truncate((sectors * SECTOR) as usize);
        let shape = DiskShape {
            sectors,
            logical: 512,
            physical: 512,
            rotational: false,
            sparse: false,
        };
        Self {
            shape,
            bytes: RwLock::new(bytes),
        }
    }

    /// Returns a copy of the whole content.
    pub fn snapshot(&self) -> Vec<u8> {
        self.bytes
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Returns the bytes of a transfer, if it is one of whole sectors within the disk.
    fn byte_range(&self, at: Sector, len: usize) -> io::Result<std::ops::Range<usize>> {
        let len = len as u64;
        if !len.is_multiple_of(SECTOR) {
            let what = "not a whole number of sectors";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        let size = self.shape.sectors * SECTOR;
        // Checked without overflow: a sector address has 48 bits, but a caller may pass any number.
        let end = at.byte_offset().checked_add(len);
        match end.filter(|end| *end <= size) {
            Some(end) => Ok(at.byte_offset() as usize..end as usize),
            None => {
                let what = "beyond the end of the disk";
                Err(io::Error::new(io::ErrorKind::UnexpectedEof, what))
            }
        }
    }
}

impl Disk for MemDisk {
    fn shape(&self) -> DiskShape {
        self.shape
    }
    fn read_at(&self, at: Sector, buf: &mut [u8]) -> io::Result<()> {
        let range = self.byte_range(at, buf.len())?;
        buf.copy_from_slice(&self.bytes.read().unwrap_or_else(PoisonError::into_inner)[range]);
        Ok(())
    }
    fn write_at(&self, at: Sector, parts: &[IoSlice<'_>]) -> io::Result<()> {
        let range = self.byte_range(at, parts.iter().map(|p| p.len()).sum())?;
        let mut bytes = self.bytes.write().unwrap_or_else(PoisonError::into_inner);
        let mut from = range.start;
        for part in parts {
            bytes[from..from + part.len()].copy_from_slice(part);
            from += part.len();
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
