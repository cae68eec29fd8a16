//! Devices and mounts that a test makes by itself, and that go with it.

use crate::programs::{program, run};
use crate::skip;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns whether loop devices can be had; if not, that is on record as the reason why the test is
/// skipped.
pub fn has_loop_devices(test: &str) -> bool {
    let can =
        program("losetup", &[]).is_some() && run(Command::new("losetup").arg("--find")).code == 0;
    if !can {
        skip(test, "no loop devices can be had");
    }
    can
}

/// A loop device over a file; detached with the test, which is when nobody uses it any more.
#[derive(Debug)]
pub struct LoopDevice(PathBuf);

impl LoopDevice {
    /// Attaches a loop device to a file that is there.
    ///
    /// # Panics
    /// If `losetup` refuses.
    #[track_caller]
    pub fn over(image: &Path) -> Self {
        let said = run(Command::new("losetup")
            .args(["--find", "--show"])
            .arg(image))
        .good();
        Self(said.trim().into())
    }

    /// Attaches a loop device to a new file of so many bytes.
    ///
    /// # Panics
    /// If the file cannot be made, or `losetup` refuses.
    #[track_caller]
    pub fn new(image: &Path, bytes: u64) -> Self {
        let made = std::fs::File::create_new(image).and_then(|file| file.set_len(bytes));
        made.unwrap_or_else(|e| panic!("{}: {e}", image.display()));
        Self::over(image)
    }

    /// Returns the device.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = Command::new("losetup")
            .arg("--detach")
            .arg(&self.0)
            .status();
    }
}

/// A mount that the test made there, gone with it.
#[derive(Debug)]
pub struct Point(
    /// The mount point.
    pub PathBuf,
);

impl Drop for Point {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(&self.0, rustix::mount::UnmountFlags::DETACH);
    }
}
