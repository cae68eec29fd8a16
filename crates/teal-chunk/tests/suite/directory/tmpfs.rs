//! A small tmpfs that can become full and read-only.

use crate::place::{Mount, dir, run};
use std::path::Path;
use teal_testkit::skip_test;
use tempfile::TempDir;

/// A tmpfs of a few MiB.
pub(crate) struct Tmpfs {
    _mount: Mount,
    dir: TempDir,
}

impl Tmpfs {
    /// `None` where nothing can be mounted: the test is skipped.
    pub(crate) fn new(test: &str, mib: u32) -> Option<Self> {
        let dir = dir();
        let path = dir.path().to_str().unwrap();
        match run(
            "mount",
            &["-t", "tmpfs", "-o", &format!("size={mib}m"), "tmpfs", path],
        ) {
            Ok(()) => Some(Self {
                _mount: Mount(dir.path().to_owned()),
                dir,
            }),
            Err(why) => {
                skip_test(test, &why);
                None
            }
        }
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn remount_read_only(&self) {
        run(
            "mount",
            &["-o", "remount,ro", self.dir.path().to_str().unwrap()],
        )
        .unwrap();
    }
}
