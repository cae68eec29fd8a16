//! Directories for tests: plain ones, and an ext4 whose power can be cut.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use teal_chunk::{
    AccessMode, ChunkError, ChunkStore, ChunkStoreOptions, DedupDomain, DirectoryShelf, DomainId,
    ShelfScanReport,
};
use teal_env::{SystemClock, SystemEntropy};
use teal_testkit::skip_test;
use tempfile::TempDir;
use tokio::runtime::Runtime;

pub(crate) fn dir() -> TempDir {
    tempfile::tempdir_in(std::env::var_os("CARGO_TARGET_TMPDIR").unwrap_or("/var/tmp".into()))
        .unwrap()
}

pub(crate) fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap()
}

pub(crate) fn open_store(
    dir: &Path,
    access: AccessMode,
    runtime: &Runtime,
) -> Result<(ChunkStore, ShelfScanReport), ChunkError> {
    let shelf = DirectoryShelf::open(dir, access, runtime.handle().clone())?;
    let options = ChunkStoreOptions {
        access,
        ..ChunkStoreOptions::default()
    };
    let domain = DedupDomain::new(DomainId::new([1; 16]), [2; 32]);
    ChunkStore::open(
        Arc::new(shelf),
        domain,
        options,
        Arc::new(SystemClock),
        Arc::new(SystemEntropy),
    )
}

/// Every file below.
pub(crate) fn files(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    entries
        .flat_map(|path| {
            if path.is_dir() {
                files(&path)
            } else {
                vec![path]
            }
        })
        .collect()
}

pub(crate) fn run(program: &str, args: &[&str]) -> Result<(), String> {
    let out = Command::new(program)
        .args(args)
        .output()
        .map_err(|e| format!("{program}: {e}"))?;
    if out.status.success() {
        Ok(())
    } else {
        Err(String::from_utf8_lossy(&out.stderr).into_owned())
    }
}

/// A mount that goes away with the value.
pub(crate) struct Mount(pub(crate) PathBuf);

impl Drop for Mount {
    fn drop(&mut self) {
        if let Err(why) = run("umount", &[self.0.to_str().unwrap()]) {
            eprintln!("umount: {why}");
        }
    }
}

/// An ext4 in a file through a loop device.
pub(crate) struct Ext4 {
    _mount: Mount,
    dir: TempDir,
}

impl Ext4 {
    /// An empty one; `None` where nothing can be mounted: the test is skipped.
    pub(crate) fn new(test: &str) -> Option<Self> {
        let dir = dir();
        let image = dir.path().join("image");
        std::fs::write(&image, vec![0; 8 << 20]).unwrap();
        let made = run("mkfs.ext4", &["-q", "-F", image.to_str().unwrap()])
            .and_then(|()| Self::mounted(dir));
        match made {
            Ok(made) => {
                std::fs::create_dir(made.store()).unwrap();
                run("sync", &["-f", made.store().to_str().unwrap()]).unwrap();
                Some(made)
            }
            Err(why) => {
                skip_test(test, &why);
                None
            }
        }
    }

    fn mounted(dir: TempDir) -> Result<Self, String> {
        let (image, at) = (dir.path().join("image"), dir.path().join("mount"));
        std::fs::create_dir(&at).unwrap();
        // A long commit interval: what nobody syncs stays off the device for as long as a test
        // lasts.
        run(
            "mount",
            &[
                "-o",
                "loop,commit=300",
                image.to_str().unwrap(),
                at.to_str().unwrap(),
            ],
        )?;
        Ok(Self {
            _mount: Mount(at),
            dir,
        })
    }

    /// A directory for a store.
    pub(crate) fn store(&self) -> PathBuf {
        self.dir.path().join("mount/store")
    }

    /// The file system that would be found if the power went now: what has reached the device, and
    /// nothing else.
    pub(crate) fn power_cut(&self) -> Self {
        let dir = dir();
        std::fs::copy(self.dir.path().join("image"), dir.path().join("image")).unwrap();
        Self::mounted(dir).unwrap()
    }
}
