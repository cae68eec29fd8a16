//! A replica without a file system above it, through what lies below both: what it records, and
//! what it says is here.

#![allow(clippy::unwrap_used, reason = "tests panic where they fail")]

use std::sync::Arc;
use std::time::Duration;
use teal_device::{Upstream, UpstreamError};
use teal_env::MemDisk;
use teal_log::{Cost, MkfsOptions, NewObject, OpenOptions, Store, StoreError};
use teal_proto::{ClientRequest, ServerReply};
use teal_replica::{Replica, ServerConnection, UpstreamOptions};
use teal_testkit::{SeededEntropy, SimClock};
use teal_types::{FileType, Name, ObjectNo, Timestamp};
use teal_volume::{
    ChangeBase, ChangeRecorder, FsError, ObjectChange, ObjectFate, Residency, Volume,
};

const ROOT: ObjectNo = ObjectNo::ROOT;
const RECLAIM_STEP: u64 = 1 << 20;

/// A server that cannot be asked.
#[derive(Debug)]
struct Away;

impl Upstream for Away {
    fn call(&self, _: &ClientRequest, _: Duration) -> Result<ServerReply, UpstreamError> {
        Err(UpstreamError::Unreachable("away".into()))
    }
}

struct Machine {
    disk: Arc<MemDisk>,
    clock: Arc<SimClock>,
}

impl Machine {
    fn new() -> Self {
        let disk = Arc::new(MemDisk::new((64 << 20) / 512));
        let clock = Arc::new(SimClock::default());
        let (entropy, options) = (SeededEntropy::new(7), MkfsOptions::default());
        Store::mkfs(disk.clone(), clock.clone(), &entropy, &options).unwrap();
        Self { disk, clock }
    }

    /// Opens the store as it lies on the disk: what was not committed is gone.
    fn volume(&self) -> Arc<Volume> {
        let (disk, clock) = (self.disk.clone(), self.clock.clone());
        let (store, _) = Store::open(disk, clock.clone(), OpenOptions::default()).unwrap();
        Volume::new(store, clock, RECLAIM_STEP)
    }
}

fn replica(volume: &Arc<Volume>, joins: bool) -> Result<Arc<Replica>, FsError> {
    Replica::of_server(
        volume,
        Arc::new(Away),
        "here",
        UpstreamOptions::default(),
        joins,
    )
}

fn new_file() -> NewObject {
    NewObject {
        kind: FileType::File,
        perm: 0o644,
        uid: 0,
        gid: 0,
        rdev: 0,
        now: Timestamp::new(1, 0),
    }
}

/// Makes a file in the root and writes into it, as POSIX semantics do.
fn make(volume: &Volume, replica: &Replica, name: &[u8], data: &[u8]) -> ObjectNo {
    let op = volume
        .begin_operation(Cost::write(1 << 16), replica)
        .unwrap();
    let mut locked = op.lock(&[ROOT]).unwrap();
    let no = replica.create(&mut locked, new_file()).unwrap();
    locked
        .insert_entry(ROOT, &Name::new(name).unwrap(), no)
        .unwrap();
    drop(locked);
    drop(op);
    write(volume, replica, no, data);
    no
}

fn write(volume: &Volume, replica: &Replica, no: ObjectNo, data: &[u8]) {
    let op = volume
        .begin_operation(Cost::write(1 << 16), replica)
        .unwrap();
    let mut locked = op.lock(&[no]).unwrap();
    locked.write(no, 0, data).unwrap();
    let change = ObjectChange::Data {
        from: 0,
        to: data.len() as u64,
        base: ChangeBase::Position,
    };
    replica.record(&mut locked, no, change).unwrap();
}

#[test]
fn a_change_and_its_record_are_durable_together_or_not_at_all() {
    let machine = Machine::new();
    let volume = machine.volume();
    let first = replica(&volume, false).unwrap();
    let root_alone = first.left_to_send().unwrap().objects;
    make(&volume, &first, b"kept", b"1234");
    volume.sync().unwrap();
    make(&volume, &first, b"lost", b"12345678");
    assert_eq!(first.left_to_send().unwrap().objects, root_alone + 2);
    drop((first, volume));

    let volume = machine.volume();
    let second = replica(&volume, false).unwrap();
    let left = second.left_to_send().unwrap();
    assert_eq!((left.objects, left.bytes), (root_alone + 1, 4));
    let lost = volume.store().lookup(ROOT, &Name::new(b"lost").unwrap());
    assert_eq!(lost.unwrap(), None);
}

#[test]
fn what_comes_and_goes_between_two_flushes_leaves_no_record() {
    let machine = Machine::new();
    let volume = machine.volume();
    let replica = replica(&volume, false).unwrap();
    let before = replica.left_to_send().unwrap();
    let no = make(&volume, &replica, b"short-lived", b"1234");
    let op = volume
        .begin_operation(Cost::names(2).freeing(), &*replica)
        .unwrap();
    let mut locked = op.lock(&[ROOT, no]).unwrap();
    replica
        .record(&mut locked, no, ObjectChange::Names)
        .unwrap();
    let name = Name::new(b"short-lived").unwrap();
    locked.remove_entry(ROOT, &name).unwrap();
    let fate = volume.decide_fate(&mut locked, no, &*replica).unwrap();
    drop(locked);
    drop(op);
    assert_eq!(fate, ObjectFate::Decided);
    assert!(matches!(
        volume.store().attr(no),
        Err(StoreError::NotFound(_))
    ));
    assert_eq!(replica.left_to_send().unwrap(), before);
}

#[test]
fn what_only_the_server_has_is_unreachable_and_not_empty() {
    let machine = Machine::new();
    let volume = machine.volume();
    let replica = replica(&volume, true).unwrap();
    assert!(!Residency::is_listed(&*replica, ROOT).unwrap());
    let listed = Residency::make_listed(&*replica, ROOT);
    assert!(matches!(listed, Err(FsError::Unreachable(_))), "{listed:?}");
    let link = replica.upstream_status().unwrap().connection;
    assert!(matches!(link, ServerConnection::Down { .. }), "{link:?}");
}

#[test]
fn a_store_with_something_in_it_does_not_join() {
    let machine = Machine::new();
    let volume = machine.volume();
    {
        let op = volume.store().begin(Cost::names(2)).unwrap();
        let mut locked = op.lock(&[ROOT]).unwrap();
        let no = locked.create(new_file());
        let name = Name::new(b"f").unwrap();
        locked.insert_entry(ROOT, &name, no).unwrap();
    }
    assert!(matches!(replica(&volume, true), Err(FsError::NotEmpty)));
    assert!(
        replica(&volume, false).is_ok(),
        "but it can get a server of its own"
    );
}

#[test]
fn readers_share_the_content_of_a_file_and_changes_shut_them_out() {
    let machine = Machine::new();
    let volume = machine.volume();
    let replica = replica(&volume, false).unwrap();
    let no = make(&volume, &replica, b"f", b"1234");
    let reading = replica.lock_for_reading(no);
    assert!(reading.is_some());
    let (other, changed) = (Arc::clone(&replica), std::sync::mpsc::channel());
    let changing = std::thread::Builder::new().spawn(move || {
        let _guard = other.lock_for_changing(no);
        changed.0.send(()).unwrap();
    });
    assert!(changed.1.recv_timeout(Duration::from_millis(20)).is_err());
    drop(reading);
    changed.1.recv().unwrap();
    changing.unwrap().join().unwrap();
}
