//! The bytes of a note.

use super::*;
use teal_types::Name;

fn link(dir: u64, name: &[u8]) -> HardLink {
    HardLink {
        dir: ObjectNo::new(dir),
        name: Name::new(name).unwrap(),
    }
}

fn full() -> ObjectNote {
    let mut ranges = ByteRanges::default();
    ranges.add(1, 2);
    let seq = CommitSeq::new;
    ObjectNote {
        dirty: UnsentComponents {
            gone: true,
            attributes: Some(seq(3)),
            links: Some((seq(4), vec![link(1, b"a")])),
            xattrs: vec![(b"u".to_vec(), seq(5))],
            ..UnsentComponents::default()
        },
        in_flight: Some(ComponentsInFlight {
            batch: BatchNo::new(6),
            components: UnsentComponents {
                created: true,
                data: Some(DirtyContent {
                    base: seq(7),
                    least_size: 8,
                    ranges: ranges.clone(),
                    tail: None,
                }),
                ..UnsentComponents::default()
            },
            sent_names: vec![link(9, b"b")],
        }),
        absent: ranges,
        data_seq: seq(10),
        unlisted: false,
        needs_look: true,
        lost_name: Some(link(11, b"c")),
        behind_since: None,
    }
}

#[test]
fn an_object_that_is_behind_says_since_when() {
    let note = ObjectNote {
        needs_look: true,
        behind_since: Some(CommitSeq::new(0x0102)),
        ..ObjectNote::default()
    };
    assert_eq!(note.encode(), [2, 0b101_0000, 2, 1, 0, 0, 0, 0, 0, 0]);
    assert_eq!(ObjectNote::decode(&note.encode()), Some(note));
    assert_eq!(
        ObjectNote::decode(&[1, 0b101_0000, 2, 1, 0, 0, 0, 0, 0, 0]),
        None,
        "a flag that version 1 does not have"
    );
}

#[test]
fn the_bytes_of_version_2_are_pinned_and_those_of_version_1_are_read() {
    let word = |n: u64| n.to_le_bytes().to_vec();
    let dirty = [
        vec![0b10110],
        word(3),
        word(4),
        vec![1, 0],
        word(1),
        vec![1, b'a', 1, 0],
        word(5),
        vec![1, b'u'],
    ];
    let in_flight = [
        word(6),
        vec![0b01001],
        word(7),
        word(8),
        vec![1, 0, 0, 0],
        word(1),
        word(2),
        vec![0, 0],
    ];
    let sent = [vec![1, 0], word(9), vec![1, b'b']];
    let absent = [word(10), vec![1, 0, 0, 0], word(1), word(2)];
    let lost = [word(11), vec![1, b'c']];
    let body = [
        dirty.concat(),
        in_flight.concat(),
        sent.concat(),
        absent.concat(),
    ]
    .concat();
    let want = [vec![2, 0b11_0111], body.clone(), lost.concat()].concat();
    assert_eq!(full().encode(), want);
    let old = [vec![1, 0b1_0111], body].concat();
    assert_eq!(
        ObjectNote::decode(&old),
        Some(ObjectNote {
            lost_name: None,
            ..full()
        })
    );
    assert_eq!(
        ObjectNote::decode(&[&[1], &want[1..]].concat()),
        None,
        "version 1 knows no lost names"
    );
    assert_eq!(ObjectNote::decode(&[&[3], &want[1..]].concat()), None);
    let tail = Some(AppendedTail {
        start: 12,
        from: 13,
        to: 14,
    });
    let data = Some(DirtyContent {
        base: CommitSeq::new(7),
        least_size: 8,
        ranges: ByteRanges::default(),
        tail,
    });
    let note = ObjectNote {
        dirty: UnsentComponents {
            data,
            ..UnsentComponents::default()
        },
        ..ObjectNote::default()
    };
    let words = [word(7), word(8), vec![0; 4], word(12), word(13), word(14)].concat();
    let want = [vec![2, 1, 0b10_1000], words, vec![0, 0]].concat();
    assert_eq!(note.encode(), want);
    assert_eq!(ObjectNote::decode(&want), Some(note));
    assert_eq!(
        ObjectNote::decode(&[&[1], &want[1..]].concat()),
        None,
        "version 1 knows no tails"
    );
}

#[test]
fn notes_survive_and_damage_is_noticed() {
    for note in [
        full(),
        ObjectNote {
            unlisted: true,
            ..ObjectNote::default()
        },
        ObjectNote::default(),
        ObjectNote {
            behind_since: Some(CommitSeq::new(3)),
            ..full()
        },
    ] {
        let bytes = note.encode();
        assert_eq!(ObjectNote::decode(&bytes), Some(note));
        for len in 0..bytes.len() {
            assert_eq!(
                ObjectNote::decode(&bytes[..len]),
                None,
                "{len} bytes of {}",
                bytes.len()
            );
        }
        assert_eq!(ObjectNote::decode(&[&bytes[..], &[0]].concat()), None);
    }
    let summary = ObjectNote::summary(&full().encode());
    assert!(summary.is_dirty && summary.is_in_flight && summary.needs_look);
    let none = ObjectNote::summary(&ObjectNote::default().encode());
    assert!(!none.is_ours() && !none.needs_look);
}

#[test]
fn what_did_not_arrive_is_pending_with_its_first_base() {
    let mut part = UnsentComponents {
        attributes: Some(CommitSeq::new(9)),
        ..UnsentComponents::default()
    };
    let in_batch = UnsentComponents {
        attributes: Some(CommitSeq::new(3)),
        links: Some((CommitSeq::new(3), vec![link(1, b"old")])),
        ..UnsentComponents::default()
    };
    part.take_back(in_batch.clone());
    assert_eq!(part, in_batch);
    // Removed meanwhile: the position had passed what others changed of it.
    let mut removed = UnsentComponents {
        gone: true,
        links: Some((CommitSeq::new(8), vec![link(1, b"old")])),
        ..UnsentComponents::default()
    };
    removed.take_back(UnsentComponents {
        attributes: Some(CommitSeq::new(3)),
        ..UnsentComponents::default()
    });
    assert_eq!(removed.links.unwrap().0, CommitSeq::new(3));
}

#[test]
fn what_was_noted_of_a_new_object_on_its_way_is_forgotten_with_the_batch_that_did_not_arrive() {
    let mut part = UnsentComponents {
        attributes: Some(CommitSeq::new(15)),
        data: Some(DirtyContent {
            base: CommitSeq::new(15),
            least_size: u64::MAX,
            ranges: ByteRanges::default(),
            tail: Some(AppendedTail::open(7296, 7296)),
        }),
        xattrs: vec![(b"user.n".to_vec(), CommitSeq::new(15))],
        ..UnsentComponents::default()
    };
    let new = UnsentComponents {
        created: true,
        ..UnsentComponents::default()
    };
    part.take_back(new.clone());
    // A file that is cut from here on is sent as it is then; nothing speaks of a tail any more.
    assert_eq!(part, new);
}

#[test]
fn tails_that_did_not_arrive_are_one_if_both_are() {
    let part = |tail| {
        let data = Some(DirtyContent {
            base: CommitSeq::new(3),
            least_size: u64::MAX,
            ranges: ByteRanges::default(),
            tail,
        });
        UnsentComponents {
            data,
            ..UnsentComponents::default()
        }
    };
    let (in_batch, newer) = (
        AppendedTail {
            start: 10,
            from: 20,
            to: 30,
        },
        AppendedTail::open(30, 30),
    );
    let joined = |mut newer: UnsentComponents, in_batch: UnsentComponents| {
        newer.take_back(in_batch);
        newer.data.unwrap().tail
    };
    let open = Some(AppendedTail::open(10, 20));
    assert_eq!(joined(part(Some(newer)), part(Some(in_batch))), open);
    assert_eq!(
        joined(UnsentComponents::default(), part(Some(in_batch))),
        open
    );
    assert_eq!(joined(part(None), part(Some(in_batch))), None);
    assert_eq!(joined(part(Some(newer)), part(None)), None);
}
