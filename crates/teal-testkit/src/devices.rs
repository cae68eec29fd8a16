//! Devices and mounts that a test makes by itself, and that go with it.

use crate::programs::{find_program, run_program};
use crate::skip::skip_test;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns whether loop devices can be had; if not, records that as the reason why the test is
/// skipped.
pub fn has_loop_devices(test: &str) -> bool {
    let can = find_program("losetup", &[]).is_some()
        && run_program(Command::new("losetup").arg("--find")).code == 0;
    if !can {
        skip_test(test, "no loop devices can be had");
    }
    can
}

/// A loop device over a file. Dropping it detaches the device, which goes when it is no longer in
/// use.
#[derive(Debug)]
pub struct TestLoopDevice(PathBuf);

impl TestLoopDevice {
    /// Attaches a loop device to a file that is there.
    ///
    /// # Panics
    /// If `losetup` refuses.
    #[track_caller]
    pub fn attach_to(image: &Path) -> Self {
        let said = run_program(
            Command::new("losetup")
                .args(["--find", "--show"])
                .arg(image),
        )
        .expect_success();
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
        Self::attach_to(image)
    }

    /// Returns the device.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TestLoopDevice {
    fn drop(&mut self) {
        let _ = Command::new("losetup")
            .arg("--detach")
            .arg(&self.0)
            .status();
    }
}

/// A mount that the test made; dropping this value unmounts it.
#[derive(Debug)]
pub struct TestMount(
    /// The mount point.
    pub PathBuf,
);

impl Drop for TestMount {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(&self.0, rustix::mount::UnmountFlags::DETACH);
    }
}
