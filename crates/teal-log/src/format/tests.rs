//! Golden bytes: what version 1 writes is fixed for ever; and hostile bytes never panic.

use super::anchor::Anchor;
use super::delta::{CheckpointRoots, CopyPosition, Delta, decode_body};
use super::extent::{Extent, MappedExtent, UnwrittenRun};
use super::future::HistoryItem;
use super::imap::{InodeMapItem, RecordHome};
use super::inode::{self, DirectoryEntry, InodeCore, InodeItem, ParentLink};
use super::record::{self, BatchSums, RecordHeader, SectorRun};
use super::root_copy::RootCopy;
use super::shared::SharedExtent;
use super::superblock::{Superblock, SuperblockRefusal};
use super::usage::SegmentUse;
use crate::format::owner::StoreOwner;
use crate::format::page::PagePtr;
use proptest::prelude::*;
use teal_types::{
    FileType, Incarnation, Lsn, Name, ObjectNo, ReplicaNo, Sector, Timestamp, UpdateId,
};

const UUID: [u8; 16] = *b"0123456789abcdef";

/// Length and CRC32C stand for long encodings, the bytes themselves for short ones.
fn pin(bytes: &[u8]) -> String {
    if bytes.len() > 64 {
        return format!(
            "{} bytes, crc {:08x}",
            bytes.len(),
            super::checksum::crc(bytes)
        );
    }
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn superblock() -> Superblock {
    Superblock {
        uuid: UUID,
        compatible: 1,
        read_only_compatible: 2,
        incompatible: 0,
        sectors: 1 << 16,
        segment_sectors: 1024,
        segments: 63,
        commit_align: 4096,
        anchor_places: 4,
        volume: 7,
        rotational: true,
        created: Timestamp::new(1_700_000_000, 5),
        hash_seed: *b"fedcba9876543210",
        label: "golden".into(),
    }
}

fn header() -> RecordHeader {
    RecordHeader {
        flags: record::COMMIT,
        epoch: 2,
        seq: 3,
        batch: 4,
        watermark: 2,
        previous: 0x0102_0304_0506_0708,
        next_a: SectorRun {
            addr: Sector::new(100),
            sectors: 50,
        },
        gap: 8,
        next_b: SectorRun {
            addr: Sector::new(2048),
            sectors: 1024,
        },
        payload: 16,
        body: 300,
        deltas: 5,
        lsn: Lsn::new(77),
        stamp: UpdateId {
            replica: ReplicaNo::new(1),
            incarnation: Incarnation::new(2),
            counter: 77,
        },
        time: Timestamp::new(-1, 999_999_999),
        payload_crc: 0xdead_beef,
        body_crc: 0xfeed_face,
        sums: BatchSums {
            objects: 12,
            live: 345_678,
            unfolded: 9000,
            unwritten: 0,
        },
        owner: StoreOwner::new(*b"this very machin", *b"its present life", "workshop"),
    }
}

fn extent() -> Extent {
    Extent {
        addr: Sector::new(0x0001_0203_0405),
        stored: 13,
        born: Lsn::new(9),
        crcs: [1, 0x0a0b_0c0d].into(),
    }
}

fn core() -> InodeCore {
    InodeCore {
        kind: FileType::File,
        perm: 0o4755,
        uid: 1000,
        gid: 100,
        rdev: 0,
        size: 6000,
        subdirs: 0,
        generation: 0,
        atime: Timestamp::new(1, 2),
        mtime: Timestamp::new(3, 4),
        ctime: Timestamp::new(5, 6),
        btime: Timestamp::new(7, 8),
        lsn: Lsn::new(9),
        data_stamp: UpdateId {
            replica: ReplicaNo::new(1),
            incarnation: Incarnation::new(1),
            counter: 9,
        },
        attr_stamp: UpdateId {
            replica: ReplicaNo::new(1),
            incarnation: Incarnation::new(1),
            counter: 8,
        },
        sectors: 13,
    }
}

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).expect("a test's name")
}

fn roots() -> CheckpointRoots {
    let page = PagePtr::decode([8, 0, 0, 0, 0, 0, 60, 0, 1, 2, 3, 4]);
    assert!(page.is_some());
    CheckpointRoots {
        checkpoint: 12,
        next_object: 34,
        next_lsn: Lsn::new(56),
        stamp: UpdateId {
            replica: ReplicaNo::new(1),
            incarnation: Incarnation::new(2),
            counter: 3,
        },
        objects: 18,
        imap: page,
        overrides: vec![(3, usage())],
        ..CheckpointRoots::default()
    }
}

fn usage() -> SegmentUse {
    SegmentUse {
        live: 1000,
        retained: 0,
        first: 24,
        used: true,
        holds_copies: false,
        first_seq: 7,
        touched: 2,
        born: Lsn::new(1_700_000_000),
    }
}

#[test]
fn golden_superblock() {
    let bytes = superblock().encode();
    assert_eq!(pin(&bytes), "4096 bytes, crc 48674bc7");
    assert_eq!(Superblock::decode(&bytes), Ok(superblock()));
    let mut torn = bytes.clone();
    torn[200] ^= 1;
    assert_eq!(Superblock::decode(&torn), Err(SuperblockRefusal::Damaged));
    let unknown = Superblock {
        incompatible: 8,
        ..superblock()
    }
    .encode();
    assert_eq!(
        Superblock::decode(&unknown),
        Err(SuperblockRefusal::Features(8))
    );
    assert_eq!(
        Superblock::decode(&[0; 4096]),
        Err(SuperblockRefusal::NotTeal)
    );
}

#[test]
fn golden_anchor() {
    let anchor = Anchor {
        checkpoint: 1,
        addr: Sector::new(24),
        seq: 2,
        watermark: 3,
        secs: 4,
    };
    let bytes = anchor.encode(&UUID);
    assert_eq!(pin(&bytes), "512 bytes, crc 48674bc7");
    assert_eq!(Anchor::decode(&bytes, &UUID), Some(anchor));
    assert_eq!(Anchor::decode(&bytes, b"another store's!"), None);
}

#[test]
fn golden_record_header() {
    let bytes = header().encode(&UUID);
    assert_eq!(pin(&bytes), "512 bytes, crc 48674bc7");
    assert_eq!(RecordHeader::decode(&bytes, &UUID), Some(header()));
    assert_eq!(
        format!("{:016x}", record::header_digest(&bytes, &UUID)),
        "d5c023b97cab61bb"
    );
    // As records were before they named their writer: zeros there, which are no mark.
    let unmarked = RecordHeader {
        owner: StoreOwner::default(),
        ..header()
    };
    let bytes = unmarked.encode(&UUID);
    assert_eq!(bytes[172..508], [0; 336]);
    assert_eq!(RecordHeader::decode(&bytes, &UUID), Some(unmarked));
    assert_eq!(
        format!("{:016x}", record::header_digest(&bytes, &UUID)),
        "2eb44f3dd8671b2e"
    );
    assert_eq!(unmarked.open_owner(), None);
    assert_eq!(header().open_owner(), Some(header().owner));
    assert_eq!(
        RecordHeader {
            flags: record::CLEAN,
            ..header()
        }
        .open_owner(),
        None
    );
}

#[test]
fn golden_unwritten_extent() {
    let run = MappedExtent::Unwritten(UnwrittenRun {
        blocks: 0x1234,
        born: Lsn::new(9),
    });
    let mut bytes = Vec::new();
    run.encode(&mut bytes);
    assert_eq!(pin(&bytes), "0000000000003412000000020900000000000000");
    assert_eq!(MappedExtent::decode(&bytes), Some(run.clone()));
    assert_eq!(bytes.len() + 16, run.item_len());
    // An address, stored sectors, a codec, checksums, no blocks or too many make no sense.
    for at in [0, 5, 8, 9, 10] {
        let mut wrong = bytes.clone();
        wrong[at] = 1;
        assert_eq!(MappedExtent::decode(&wrong), None, "byte {at}");
    }
    assert_eq!(MappedExtent::decode(&[&bytes[..], &[0]].concat()), None);
    for blocks in [[0, 0], [1, 0x80]] {
        let mut wrong = bytes.clone();
        wrong[6..8].copy_from_slice(&blocks);
        assert_eq!(MappedExtent::decode(&wrong), None, "{blocks:?} blocks");
    }
    let mut largest = bytes.clone();
    largest[6..8].copy_from_slice(&[0, 0x80]);
    assert!(MappedExtent::decode(&largest).is_some_and(|run| run.blocks() == 32768));
}

#[test]
fn golden_record_header_with_unwritten_blocks() {
    let header = RecordHeader {
        sums: BatchSums {
            unwritten: 0x0102_0304,
            ..header().sums
        },
        ..header()
    };
    let bytes = header.encode(&UUID);
    assert_eq!(bytes[268..276], [4, 3, 2, 1, 0, 0, 0, 0]);
    assert_eq!(bytes[276..508], [0; 232]);
    assert_eq!(RecordHeader::decode(&bytes, &UUID), Some(header));
}

#[test]
fn golden_deltas() {
    let mut body = Vec::new();
    let object = ObjectNo::new(17);
    let all = [
        Delta::Inode(b"whole"),
        Delta::Attributes(b"core"),
        Delta::Extent {
            block: 5,
            extent: extent().into(),
        },
        Delta::Hole { block: 6, count: 7 },
        Delta::EntrySet {
            cookie: 128,
            child: ObjectNo::new(18),
            kind: FileType::Dir,
            name: name("sub"),
        },
        Delta::EntryGone { cookie: 128 },
        Delta::Free,
        Delta::Orphan(true),
        Delta::Roots(Box::new(roots())),
        Delta::Head(b"head"),
        Delta::SharedSet {
            id: 5,
            shared: SharedExtent {
                count: 3,
                extent: extent(),
            },
        },
        Delta::SharedGone { id: 6 },
        Delta::SharedCount { id: 7, count: 8 },
        Delta::Kept {
            lsn: Lsn::new(9),
            byte: 10,
            delta: b"as it was",
        },
    ];
    for (i, delta) in all.iter().enumerate() {
        delta.encode(object, i as u32, &mut body);
    }
    assert_eq!(pin(&body), "671 bytes, crc 077a7b34");
    let back: Vec<_> = decode_body(&body, all.len() as u32)
        .map(Result::unwrap)
        .collect();
    assert_eq!(back.len(), all.len());
    for (i, (placed, delta)) in back.iter().zip(&all).enumerate() {
        assert_eq!(
            (placed.object, placed.lsn_offset as usize, &placed.delta),
            (object, i, delta)
        );
    }
}

#[test]
fn roots_name_second_copies_and_older_ones_end_before() {
    let plain = roots();
    let copied = CheckpointRoots {
        imap: plain
            .imap
            .map(|ptr| ptr.with_second_copy(Some(Sector::new(0x605_0403_0201)))),
        copies: Some(CopyPosition {
            segment: 7,
            sectors: 9,
        }),
        ..roots()
    };
    let mut body = Vec::new();
    let at = Delta::Roots(Box::new(copied.clone())).encode(ObjectNo::new(0), 0, &mut body);
    let tail = [&[1, 2, 3, 4, 5, 6][..], &[0; 30], &[7, 0, 0, 0, 9, 0, 0, 0]].concat();
    assert_eq!(body[at..].len(), CheckpointRoots::FIXED + 44);
    assert!(body.ends_with(&tail));
    let read = |body: &[u8]| match decode_body(body, 1).next().unwrap().unwrap().delta {
        Delta::Roots(roots) => *roots,
        other => panic!("{other:?}"),
    };
    assert_eq!(read(&body), copied);
    // The length of the value is at 4.
    body.truncate(body.len() - tail.len());
    let len = (body.len() - at) as u32;
    body[4..8].copy_from_slice(&len.to_le_bytes());
    assert_eq!(read(&body), plain);
}

#[test]
fn golden_inode() {
    let mut bytes = Vec::new();
    core().encode(&mut bytes);
    let entry = DirectoryEntry {
        child: ObjectNo::new(3),
        kind: FileType::Fifo,
        name: name("pipe"),
    };
    let ptr = PagePtr::decode([8, 0, 0, 0, 0, 0, 60, 0, 1, 2, 3, 4]).unwrap();
    let items = [
        InodeItem::Link(ParentLink {
            parent: ObjectNo::ROOT,
            name: name("file"),
        }),
        InodeItem::Data(b"data"),
        InodeItem::Extent {
            block: 0,
            extent: extent().into(),
        },
        InodeItem::ExtentTree(ptr),
        InodeItem::Entry { cookie: 256, entry },
        InodeItem::DirTree(ptr),
        InodeItem::Xattr {
            name: b"user.a",
            value: b"b",
        },
    ];
    for item in &items {
        item.encode(&mut bytes);
    }
    assert_eq!(pin(&bytes), "289 bytes, crc fbbd48bf");
    assert_eq!(inode::decode(&bytes), Some((core(), items.to_vec())));
}

#[test]
fn golden_items() {
    let mut bytes = Vec::new();
    extent().encode(&mut bytes);
    assert_eq!(
        pin(&bytes),
        "05040302010002000d0000000900000000000000010000000d0c0b0a"
    );
    assert_eq!(Extent::decode(&bytes), Some(extent()));

    let shared = SharedExtent {
        count: 3,
        extent: extent(),
    };
    assert_eq!(
        pin(&shared.encode()),
        "0300000005040302010002000d0000000900000000000000010000000d0c0b0a"
    );
    assert_eq!(SharedExtent::decode(&shared.encode()), Some(shared));

    let home = InodeMapItem::At(RecordHome {
        byte: 0x1234,
        len: 200,
        crc: 5,
        lsn: Lsn::new(6),
    });
    assert_eq!(
        pin(&home.encode()),
        "3412000000000000c800000005000000060000000000000000"
    );
    assert_eq!(InodeMapItem::decode(&home.encode()), Some(home));
    let gone = InodeMapItem::Gone(Lsn::new(6));
    assert_eq!(InodeMapItem::decode(&gone.encode()), Some(gone));

    assert_eq!(
        pin(&usage().encode()),
        "e80300000000000018000000010000000700000000000000020000000000000000f1536500000000"
    );
    assert_eq!(SegmentUse::decode(&usage().encode()), Some(usage()));
}

#[test]
fn golden_items_of_later() {
    let old = HistoryItem {
        born: Lsn::new(1),
        died_secs: 2,
        extent: extent(),
    };
    assert_eq!(
        pin(&old.encode()),
        "0100000000000000020000000000000005040302010002000d0000000900000000000000010000000d0c0b0a"
    );
    assert_eq!(HistoryItem::decode(&old.encode()), Some(old));
}

proptest! {
    #[test]
    fn noise_is_refused_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..600), count in 0u32..9) {
        let _ = Superblock::decode(&bytes);
        let _ = Anchor::decode(&bytes, &UUID);
        let _ = RecordHeader::decode(&bytes, &UUID);
        let _ = inode::decode(&bytes);
        let _ = Extent::decode(&bytes);
        let _ = InodeMapItem::decode(&bytes);
        let _ = SegmentUse::decode(&bytes);
        let _ = SharedExtent::decode(&bytes);
        let _ = HistoryItem::decode(&bytes);
        let _ = decode_body(&bytes, count).count();
    }
}

#[test]
fn checksums_of_pieces_make_that_of_the_whole() {
    let bytes: Vec<u8> = (0..40_960u32).map(|i| (i * i / 7) as u8).collect();
    for (first, second) in [
        (0, 4096),
        (512, 4096),
        (4096, 512),
        (700, 3584),
        (4096, 36_864),
        (100, 9 * 512),
        (9, 0),
    ] {
        let (a, b) = bytes[..first + second].split_at(first);
        assert_eq!(
            super::checksum::crc_joined(
                super::checksum::crc(a),
                super::checksum::crc(b),
                second as u64 / 512
            ),
            super::checksum::crc(&bytes[..first + second])
        );
    }
}

#[test]
fn golden_root_copy() {
    let uuid = superblock().uuid;
    let header = RecordHeader {
        flags: record::CHECKPOINT | record::COMMIT,
        ..header()
    };
    let copy = RootCopy {
        checkpoint: 12,
        at: Sector::new(0x605_0403_0201),
        header: header.encode(&uuid).try_into().unwrap(),
        roots: roots(),
    };
    let bytes = copy.encode(&uuid).unwrap();
    assert_eq!(pin(&bytes[..bytes.len() - 4]), "768 bytes, crc 34d60556");
    assert_eq!(RootCopy::decode(&bytes, &uuid), Some(copy.clone()));
    assert!(copy.record_header(&uuid).is_some());
    assert_eq!(RootCopy::decode(&bytes, &[1; 16]), None);
    for at in [0, 30, 100, 600, bytes.len() - 1] {
        let mut torn = bytes.clone();
        torn[at] ^= 1;
        assert_eq!(RootCopy::decode(&torn, &uuid), None, "byte {at}");
    }
    let long = CheckpointRoots {
        overrides: vec![(3, usage()); 100],
        ..roots()
    };
    let long = RootCopy {
        roots: long,
        ..copy
    };
    assert_eq!(long.encode(&uuid), None, "it does not fit a slot");
}
