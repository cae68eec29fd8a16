//! Devices and mounts that a test makes by itself, and that go with it.

use super::{program, run};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns whether loop devices can be had; if not, that is on record as the reason why the test is
/// skipped.
pub(crate) fn has_loop_devices(test: &str) -> bool {
    let can =
        program("losetup", &[]).is_some() && run(Command::new("losetup").arg("--find")).code == 0;
    if !can {
        teal_testkit::skip(test, "no loop devices can be had");
    }
    can
}

/// A loop device over a file; detached with the test, which is when nobody uses it any more.
#[derive(Debug)]
pub(crate) struct LoopDevice(PathBuf);

impl LoopDevice {
    /// Over a file that is there.
    #[track_caller]
    pub(crate) fn over(image: &Path) -> Self {
        let said = run(Command::new("losetup")
            .args(["--find", "--show"])
            .arg(image))
        .good();
        Self(said.trim().into())
    }

    /// Over a new file of so many bytes.
    #[track_caller]
    pub(crate) fn new(image: &Path, bytes: u64) -> Self {
        std::fs::File::create_new(image)
            .unwrap()
            .set_len(bytes)
            .unwrap();
        Self::over(image)
    }

    pub(crate) fn path(&self) -> &Path {
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
pub(crate) struct Point(pub(crate) PathBuf);

impl Drop for Point {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(&self.0, rustix::mount::UnmountFlags::DETACH);
    }
}
