//! Loop devices: files as block devices, for `fuseblk` mounts and for emulated disks.
//!
//! # How
//! 1. The device is made with *autoclear*: it goes with its last user. That is this value until the
//!    mount holds it, and the mount then.
//! 2. This crate reads and writes nothing through it. Other programs may look at it (`blkid` does);
//!    they see the file.

use crate::ioctl;
use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

const CONTROL: &str = "/dev/loop-control";
/// Other programs take free devices, too: a free device is asked for at most so often.
const TRIES: usize = 64;

/// A loop device over a file, held until dropped.
#[derive(Debug)]
pub struct LoopDevice {
    path: PathBuf,
    _held: OwnedFd,
}

impl LoopDevice {
    /// Makes a device over `file`, which must be a regular file of at least one block.
    ///
    /// # Errors
    /// Fails if the kernel has no loop devices, if all are taken, or if the caller is not root.
    pub fn attach_file(file: &Path, read_only: bool) -> io::Result<Self> {
        Self::configure_free_device(file, read_only, None)
    }

    /// Makes a device over `file` that passes every request on as it is, past the page cache of the
    /// file, in whole blocks of `logical` bytes.
    ///
    /// # Errors
    /// As [`LoopDevice::attach_file`]; also if the file's file system has no direct I/O.
    pub fn attach_file_direct(file: &Path, logical: u32) -> io::Result<Self> {
        let this = Self::configure_free_device(file, false, Some(logical))?;
        if read_attribute(&this.path, "loop/dio").as_deref() != Some("1") {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "the kernel refuses direct I/O on the file",
            ));
        }
        Ok(this)
    }

    /// Asks for a free device until one could be configured: between the two steps, another program
    /// may take it.
    fn configure_free_device(
        file: &Path,
        read_only: bool,
        direct: Option<u32>,
    ) -> io::Result<Self> {
        let access = if read_only {
            OFlags::RDONLY
        } else {
            OFlags::RDWR
        };
        let backing = open(file, access | OFlags::CLOEXEC, Mode::empty())?;
        // The file stays open in the device; this descriptor is only needed to name it.
        let control = open(CONTROL, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
        let name = file.as_os_str().as_encoded_bytes();
        for _ in 0..TRIES {
            let number = ioctl::free_loop(control.as_fd())?;
            let path = PathBuf::from(format!("/dev/loop{number}"));
            let device = open(&path, access | OFlags::CLOEXEC, Mode::empty())?;
            match ioctl::configure_loop(device.as_fd(), backing.as_fd(), name, read_only, direct) {
                Ok(()) => {}
                Err(Errno::BUSY) => continue,
                Err(errno) => return Err(errno.into()),
            }
            // The mark that an earlier user set (`blockdev --setro`) outlives that user's file.
            if !read_only {
                ioctl::allow_writes(device.as_fd())?;
            }
            return Ok(Self {
                path,
                _held: device,
            });
        }
        Err(Errno::BUSY.into())
    }

    /// Returns the path of the device file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Changes a setting of the device's queue, a file in `/sys/block/loopN/queue`.
    ///
    /// # Errors
    /// Fails if the kernel does not know the setting or refuses the value.
    pub fn set_queue(&self, setting: &str, value: &str) -> io::Result<()> {
        std::fs::write(
            attribute_path(&self.path, &format!("queue/{setting}")),
            value,
        )
    }

    /// Returns the devices that lie over `file`, also when the file can no longer be read.
    pub fn find_over(file: &Path) -> Vec<PathBuf> {
        let Ok(blocks) = std::fs::read_dir("/sys/block") else {
            return Vec::new();
        };
        let mut found = Vec::new();
        // Devices may come and go while the directory is read: those are passed over.
        for block in blocks.flatten() {
            let device = Path::new("/dev").join(block.file_name());
            let backing = read_attribute(&device, "loop/backing_file");
            if backing.as_deref().map(Path::new) == Some(file) {
                found.push(device);
            }
        }
        found
    }

    /// Detaches a device from its file, now or when its last user is gone.
    ///
    /// # Errors
    /// Fails if `device` is no loop device, or if the caller is not root.
    pub fn detach_file(device: &Path) -> io::Result<()> {
        let device = open(device, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        match ioctl::clear_loop(device.as_fd()) {
            // The device may have gone with its last user meanwhile.
            Ok(()) | Err(Errno::NXIO) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }
}

fn attribute_path(device: &Path, name: &str) -> PathBuf {
    Path::new("/sys/block")
        .join(device.file_name().unwrap_or_default())
        .join(name)
}

fn read_attribute(device: &Path, name: &str) -> Option<String> {
    let text = std::fs::read_to_string(attribute_path(device, name)).ok()?;
    Some(text.trim_end().to_owned())
}
