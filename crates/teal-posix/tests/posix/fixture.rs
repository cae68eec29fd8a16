//! A volume of 64 MiB in memory, and short words for what tests do with it.

use rustix::io::Errno;
use std::ops::ControlFlow;
use std::sync::Arc;
use teal_env::MemDisk;
use teal_log::{MkfsOptions, OpenOptions, Store};
use teal_posix::{Caller, FileSystem, FileSystemOptions, FsError, WriteFlags};
use teal_testkit::{SeededEntropy, SimClock};
use teal_types::{Attr, ObjectNo};

pub(crate) const ROOT: ObjectNo = ObjectNo::ROOT;
pub(crate) const CALLER: Caller = Caller {
    uid: 0,
    gid: 0,
    pid: 1,
    umask: 0,
};
const DISK: u64 = 64 << 20;

pub(crate) struct Volume {
    pub(crate) disk: Arc<MemDisk>,
    pub(crate) clock: SimClock,
    pub(crate) client: Arc<FileSystem>,
}

fn open(disk: &Arc<MemDisk>, clock: &SimClock) -> Arc<FileSystem> {
    let options = OpenOptions::default();
    let (store, _) = Store::open(Arc::clone(disk) as _, Arc::new(clock.clone()), options).unwrap();
    FileSystem::new(
        store,
        Arc::new(clock.clone()),
        FileSystemOptions {
            reclaim_step: 1 << 20,
            ..FileSystemOptions::default()
        },
    )
    .unwrap()
}

impl Volume {
    pub(crate) fn new() -> Self {
        let (disk, clock) = (Arc::new(MemDisk::new(DISK / 512)), SimClock::default());
        let entropy = SeededEntropy::new(7);
        Store::mkfs(
            Arc::clone(&disk) as _,
            Arc::new(clock.clone()),
            &entropy,
            &MkfsOptions::default(),
        )
        .unwrap();
        let client = open(&disk, &clock);
        Self {
            disk,
            clock,
            client,
        }
    }

    /// Opens the store again as it lies on the disk: whatever was not committed is gone.
    pub(crate) fn reopen(&mut self) {
        self.client = open(&self.disk, &self.clock);
    }

    pub(crate) fn file(&self, parent: ObjectNo, name: &str) -> ObjectNo {
        self.made(
            self.client
                .create(&CALLER, parent, name.as_bytes(), 0o644, true),
        )
    }

    pub(crate) fn dir(&self, parent: ObjectNo, name: &str) -> ObjectNo {
        self.made(self.client.mkdir(&CALLER, parent, name.as_bytes(), 0o755))
    }

    /// Returns what was made, and no reference to it.
    fn made(&self, attr: Result<Attr, FsError>) -> ObjectNo {
        let no = attr.unwrap().object;
        self.client.release(no, 1);
        no
    }

    pub(crate) fn find(&self, parent: ObjectNo, name: &str) -> Result<ObjectNo, Errno> {
        let attr = self
            .client
            .lookup(parent, name.as_bytes())
            .map_err(|e| errno(&e))?;
        self.client.release(attr.object, 1);
        Ok(attr.object)
    }

    pub(crate) fn attr(&self, no: ObjectNo) -> Attr {
        self.client.getattr(no).unwrap()
    }

    pub(crate) fn write(&self, no: ObjectNo, offset: u64, data: &[u8]) {
        assert_eq!(
            self.client
                .write(no, offset, data, WriteFlags::default())
                .unwrap(),
            data.len()
        );
    }

    pub(crate) fn names(&self, dir: ObjectNo) -> Vec<String> {
        let mut names = Vec::new();
        let visit = &mut |entry: &teal_posix::DirEntry| {
            names.push(String::from_utf8(entry.name.to_vec()).unwrap());
            ControlFlow::Continue(())
        };
        self.client.readdir(dir, 0, visit).unwrap();
        names[2..].sort();
        names
    }
}

pub(crate) fn errno(e: &FsError) -> Errno {
    Errno::from_raw_os_error(e.errno())
}

/// The error number of a refusal.
pub(crate) fn refused<T: std::fmt::Debug>(result: Result<T, FsError>) -> Errno {
    errno(&result.unwrap_err())
}
