//! The recording disk keeps its own contract.

use super::*;

fn shape(logical: u32, physical: u32) -> DiskShape {
    DiskShape {
        sectors: 64,
        logical,
        physical,
        rotational: false,
        sparse: false,
    }
}

fn write(disk: &RecordingDisk, at: u64, byte: u8, sectors: usize) -> io::Result<()> {
    disk.write_at(Sector::new(at), &[IoSlice::new(&vec![byte; sectors * 512])])
}

#[test]
fn what_happens_is_recorded_in_order() {
    let disk = RecordingDisk::new(shape(512, 4096));
    disk.add_mark(1);
    disk.write_at(
        Sector::new(3),
        &[IoSlice::new(&[1; 512]), IoSlice::new(&[2; 1024])],
    )
    .unwrap();
    disk.sync().unwrap();
    disk.allocate(Sector::new(0), 8).unwrap();
    disk.discard(Sector::new(8), 8).unwrap();
    disk.add_mark(2);
    let mut back = [0; 2048];
    disk.read_at(Sector::new(2), &mut back).unwrap();
    assert_eq!((back[0], back[512], back[1024], back[2047]), (0, 1, 2, 2));

    let trace = disk.trace();
    let data: Arc<[u8]> = [&[1; 512][..], &[2; 1024]].concat().into();
    assert_eq!(
        trace.events(),
        [
            DiskEvent::Mark(1),
            DiskEvent::Write {
                at: Sector::new(3),
                data
            },
            DiskEvent::Sync,
            DiskEvent::Allocate {
                at: Sector::new(0),
                sectors: 8
            },
            DiskEvent::Discard {
                at: Sector::new(8),
                sectors: 8
            },
            DiskEvent::Mark(2),
        ]
    );
    assert_eq!(trace.marks_before(5).collect::<Vec<_>>(), [1]);
    assert_eq!(trace.crash_points().collect::<Vec<_>>(), [1, 2, 3, 4, 6]);
    let expected = DiskCounters {
        reads: 1,
        bytes_read: 2048,
        writes: 1,
        bytes_written: 1536,
        syncs: 1,
        allocates: 1,
        discards: 1,
    };
    assert_eq!(disk.counters(), expected);
}

#[test]
fn accesses_are_whole_sectors_inside_the_disk() {
    let disk = RecordingDisk::new(shape(4096, 4096));
    assert_eq!(
        write(&disk, 1, 1, 8).unwrap_err().kind(),
        io::ErrorKind::InvalidInput
    );
    assert_eq!(
        write(&disk, 8, 1, 7).unwrap_err().kind(),
        io::ErrorKind::InvalidInput
    );
    assert_eq!(
        write(&disk, 64, 1, 8).unwrap_err().kind(),
        io::ErrorKind::UnexpectedEof
    );
    assert_eq!(
        disk.read_at(Sector::new(63), &mut [0; 1024])
            .unwrap_err()
            .kind(),
        io::ErrorKind::UnexpectedEof
    );
    assert_eq!(disk.trace().events(), []);
    write(&disk, 56, 1, 8).unwrap();
}

#[test]
#[should_panic(expected = "not allocated")]
fn writing_where_nothing_is_allocated_is_a_breach() {
    let disk = RecordingDisk::new(DiskShape {
        sparse: true,
        ..shape(512, 512)
    });
    disk.allocate(Sector::new(0), 8).unwrap();
    write(&disk, 0, 1, 8).unwrap();
    let _ = write(&disk, 7, 1, 2);
}

#[test]
#[should_panic(expected = "not allocated")]
fn a_discard_gives_the_host_space_back() {
    let disk = RecordingDisk::new(DiskShape {
        sparse: true,
        ..shape(512, 512)
    });
    disk.allocate(Sector::new(0), 8).unwrap();
    disk.discard(Sector::new(0), 8).unwrap();
    assert_eq!(disk.snapshot()[0], JUNK);
    let _ = write(&disk, 0, 1, 1);
}

#[test]
fn a_lenient_disk_takes_writes_anywhere() {
    let disk = RecordingDisk::new(DiskShape {
        sparse: true,
        ..shape(512, 512)
    })
    .allow_unallocated();
    write(&disk, 0, 1, 1).unwrap();
}

#[test]
fn decay_is_seen_by_reads_but_is_no_write() {
    let disk = RecordingDisk::new(shape(512, 4096));
    disk.flip_bit(Sector::new(2), 9);
    assert_eq!(disk.snapshot()[2 * 512 + 1], 2);
    disk.make_unreadable(Sector::new(9));
    assert!(disk.read_at(Sector::new(8), &mut [0; 512]).is_err());
    disk.read_at(Sector::new(7), &mut [0; 512]).unwrap();
    assert_eq!(disk.trace().events(), []);
}

#[test]
fn a_restarted_trace_begins_with_what_is_there() {
    let disk = RecordingDisk::new(shape(512, 512));
    write(&disk, 5, 7, 1).unwrap();
    disk.restart_trace();
    assert_eq!(disk.trace().events(), []);
    assert_eq!(disk.snapshot()[5 * 512], 7);
    assert_eq!(
        RecordingDisk::from_content(disk.shape(), disk.trace().start).snapshot()[5 * 512],
        7
    );
}
