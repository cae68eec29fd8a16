//! Holds the bytes of a modelled disk, in a file that stays or in a temporary one.

use anyhow::{Context, Result};
use std::io::{self, IoSlice};
use std::path::Path;
use teal_command::paths;
use teal_env::{Disk, DiskShape, FileDisk, OpenMode};
use teal_types::Sector;

/// Holds the bytes. The drive's time is modelled, so the host's page cache may serve.
#[derive(Debug)]
pub(crate) enum DiskBacking {
    /// The bytes are in a file that stays; a sync of the disk is one of the file.
    Kept(FileDisk),
    /// The bytes are in a file without a name. They do not outlive the process, so there is nothing
    /// to sync.
    Scratch(FileDisk),
}

impl DiskBacking {
    /// Opens the file `image` of `bytes`, and makes it if it is missing; without `image` it makes a
    /// file without a name.
    pub(crate) fn open(image: Option<&Path>, name: &str, bytes: u64) -> Result<Self> {
        let Some(image) = image else {
            let path = paths::disk_image(&format!("{name}-{}", std::process::id()))?;
            let disk = FileDisk::open(&path, OpenMode::Create(bytes))?.without_direct_io();
            // Removed at once: the file goes with its last descriptor, even if the process is
            // killed.
            std::fs::remove_file(&path).with_context(|| path.display().to_string())?;
            return Ok(Self::Scratch(disk));
        };
        let mode = if image.exists() {
            OpenMode::Write
        } else {
            OpenMode::Create(bytes)
        };
        Ok(Self::Kept(FileDisk::open(image, mode)?.without_direct_io()))
    }

    fn backing_file(&self) -> &FileDisk {
        let (Self::Kept(file) | Self::Scratch(file)) = self;
        file
    }
}

impl Disk for DiskBacking {
    fn shape(&self) -> DiskShape {
        self.backing_file().shape()
    }
    fn read_at(&self, at: Sector, buf: &mut [u8]) -> io::Result<()> {
        self.backing_file().read_at(at, buf)
    }
    fn write_at(&self, at: Sector, parts: &[IoSlice<'_>]) -> io::Result<()> {
        self.backing_file().write_at(at, parts)
    }
    fn sync(&self) -> io::Result<()> {
        match self {
            Self::Kept(file) => file.sync(),
            Self::Scratch(_) => Ok(()),
        }
    }
    fn allocate(&self, at: Sector, sectors: u64) -> io::Result<()> {
        self.backing_file().allocate(at, sectors)
    }
    fn discard(&self, at: Sector, sectors: u64) -> io::Result<()> {
        self.backing_file().discard(at, sectors)
    }
}
