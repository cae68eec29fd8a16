//! Faults happen when and as they were ordered.

use super::*;
use crate::{CrashPolicy, RecordingDisk, Rng};

fn disk() -> FaultDisk<RecordingDisk> {
    let shape = DiskShape {
        sectors: 64,
        logical: 512,
        physical: 512,
        rotational: false,
        sparse: false,
    };
    FaultDisk::new(RecordingDisk::new(shape))
}

fn write(disk: &impl Disk, at: u64, byte: u8, sectors: usize) -> Result<(), ErrorKind> {
    disk.write_at(Sector::new(at), &[IoSlice::new(&vec![byte; sectors * 512])])
        .map_err(|e| e.kind())
}

fn read(disk: &impl Disk, at: u64) -> io::Result<[u8; 512]> {
    let mut sector = [0; 512];
    disk.read_at(Sector::new(at), &mut sector).map(|()| sector)
}

#[test]
fn the_nth_call_fails_once_or_for_ever() {
    let disk = disk();
    disk.fail_nth(DiskCall::Write, 1, FaultDuration::Once, ErrorKind::TimedOut);
    disk.fail_nth(DiskCall::Sync, 0, FaultDuration::Forever, ErrorKind::Other);
    assert_eq!(
        [0, 1, 2].map(|at| write(&disk, at, 1, 1)),
        [Ok(()), Err(ErrorKind::TimedOut), Ok(())]
    );
    assert!(disk.sync().is_err() && disk.sync().is_err());
    disk.clear_faults();
    disk.sync().unwrap();
    assert_eq!(
        (
            disk.call_count(DiskCall::Write),
            disk.call_count(DiskCall::Sync),
            disk.all_calls()
        ),
        (3, 3, 6)
    );
    assert_eq!(
        (
            disk.inner().counters().writes,
            disk.inner().counters().syncs
        ),
        (2, 1)
    );
}

#[test]
fn any_call_fails_by_its_number() {
    let disk = disk();
    disk.fail_any(2, FaultDuration::Once, ErrorKind::Other);
    write(&disk, 0, 1, 1).unwrap();
    disk.sync().unwrap();
    assert!(read(&disk, 0).is_err());
    read(&disk, 0).unwrap();
}

#[test]
fn a_torn_write_leaves_its_first_half() {
    let disk = disk();
    disk.tear_writes();
    disk.fail_nth(DiskCall::Write, 0, FaultDuration::Once, ErrorKind::Other);
    write(&disk, 0, 7, 5).unwrap_err();
    assert_eq!([0, 1, 2].map(|at| read(&disk, at).unwrap()[0]), [7, 7, 0]);
}

#[test]
fn a_full_host_is_full_until_something_is_given_back() {
    let disk = disk();
    disk.limit_allocation(8);
    disk.allocate(Sector::new(0), 6).unwrap();
    assert_eq!(
        disk.allocate(Sector::new(4), 8).unwrap_err().kind(),
        ErrorKind::StorageFull
    );
    disk.allocate(Sector::new(2), 6).unwrap();
    assert_eq!(
        disk.allocate(Sector::new(8), 1).unwrap_err().kind(),
        ErrorKind::StorageFull
    );
    disk.discard(Sector::new(0), 2).unwrap();
    disk.allocate(Sector::new(8), 2).unwrap();
}

#[test]
fn decay_is_at_rest_or_on_the_way() {
    let disk = disk();
    disk.flip_on_read(Sector::new(3), 8);
    assert_eq!(
        (
            read(&disk, 3).unwrap()[1],
            read(disk.inner(), 3).unwrap()[1]
        ),
        (1, 0)
    );
    disk.flip_at_rest(Sector::new(4), 0).unwrap();
    assert_eq!(
        (
            read(&disk, 4).unwrap()[0],
            read(disk.inner(), 4).unwrap()[0]
        ),
        (1, 1)
    );
    disk.make_unreadable(Sector::new(5));
    assert!(read(&disk, 5).is_err() && read(&disk, 4).is_ok());
    write(&disk, 5, 1, 1).unwrap();
    read(&disk, 5).unwrap();
}

#[test]
fn a_failed_sync_is_known_to_the_crash_explorer() {
    let disk = disk();
    let recording = disk.inner().clone();
    disk.on_failed_sync(move || recording.sync_failed());
    disk.fail_nth(DiskCall::Sync, 0, FaultDuration::Once, ErrorKind::Other);
    write(&disk, 0, 1, 1).unwrap();
    assert!(disk.sync().is_err());
    disk.sync().unwrap();
    let mut last = Vec::new();
    let trace = disk.inner().trace();
    trace.explore(
        &mut Rng::new(1),
        &CrashPolicy {
            unreadable: false,
            ..CrashPolicy::default()
        },
        |image| {
            if image.point == trace.events().len() {
                last.push(image.disk.snapshot()[0]);
            }
        },
    );
    assert_eq!(
        last,
        [0, 1],
        "the second sync does not repair what the first one lost"
    );
}
