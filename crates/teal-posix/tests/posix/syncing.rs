//! Many who wait for durability share a barrier.

use crate::fixture::{CALLER, ROOT};
use std::io::{self, IoSlice};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use teal_env::{Disk, DiskShape, MemDisk};
use teal_log::{MkfsOptions, OpenOptions, Store};
use teal_posix::{FileSystem, FileSystemOptions, WriteFlags};
use teal_testkit::{SeededEntropy, SimClock};
use teal_types::Sector;

/// A disk whose barriers wait until they are let through.
struct Gated {
    disk: MemDisk,
    barriers: AtomicU64,
    closed: Mutex<bool>,
    changed: Condvar,
}

impl Gated {
    fn close(&self, closed: bool) {
        *self.closed.lock().unwrap() = closed;
        self.changed.notify_all();
    }
}

impl Disk for Gated {
    fn shape(&self) -> DiskShape {
        self.disk.shape()
    }
    fn read_at(&self, at: Sector, buf: &mut [u8]) -> io::Result<()> {
        self.disk.read_at(at, buf)
    }
    fn write_at(&self, at: Sector, parts: &[IoSlice<'_>]) -> io::Result<()> {
        self.disk.write_at(at, parts)
    }
    fn sync(&self) -> io::Result<()> {
        self.barriers.fetch_add(1, Ordering::SeqCst);
        drop(
            self.changed
                .wait_while(self.closed.lock().unwrap(), |closed| *closed)
                .unwrap(),
        );
        self.disk.sync()
    }
    fn allocate(&self, at: Sector, sectors: u64) -> io::Result<()> {
        self.disk.allocate(at, sectors)
    }
    fn discard(&self, at: Sector, sectors: u64) -> io::Result<()> {
        self.disk.discard(at, sectors)
    }
}

#[test]
fn forty_who_sync_while_the_disk_is_busy_share_one_barrier() {
    let disk = Arc::new(Gated {
        disk: MemDisk::new(64 << 11),
        barriers: AtomicU64::new(0),
        closed: Mutex::new(false),
        changed: Condvar::new(),
    });
    let clock = Arc::new(SimClock::default());
    let entropy = SeededEntropy::new(3);
    Store::mkfs(
        Arc::clone(&disk) as _,
        clock.clone(),
        &entropy,
        &MkfsOptions::default(),
    )
    .unwrap();
    let (store, _) = Store::open(
        Arc::clone(&disk) as _,
        clock.clone(),
        OpenOptions::default(),
    )
    .unwrap();
    let client = FileSystem::new(store, clock, FileSystemOptions::default()).unwrap();
    client.start().unwrap();

    let (told, answers) = mpsc::channel();
    let sync = || {
        let told = told.clone();
        client.sync_then(move |result| told.send(result).unwrap());
    };
    let file = client
        .create(&CALLER, ROOT, b"f", 0o644, true)
        .unwrap()
        .object;
    sync();
    answers.recv().unwrap().unwrap();
    let before = disk.barriers.load(Ordering::SeqCst);
    disk.close(true);
    for i in 0..40 {
        client
            .write(file, i * 4096, &[7; 4096], WriteFlags::default())
            .unwrap();
        sync();
    }
    assert!(
        answers.try_recv().is_err(),
        "nobody is answered before the disk is"
    );
    disk.close(false);
    for _ in 0..40 {
        answers.recv().unwrap().unwrap();
    }
    let barriers = disk.barriers.load(Ordering::SeqCst) - before;
    // One for those who came before the thread looked, one for those who came while it waited for
    // the disk.
    assert!(barriers <= 2, "{barriers} barriers for 40 syncs");
    client.shutdown().unwrap();
}
