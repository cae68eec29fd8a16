//! The bytes of a note.

use super::*;

fn link(dir: u64, name: &[u8]) -> Link {
    Link { dir: ObjectNo::new(dir), name: Name::new(name).unwrap() }
}

fn full() -> Note {
    let mut ranges = Ranges::default();
    ranges.add(1, 2);
    let seq = CommitSeq::new;
    Note {
        pending: Part {
            gone: true,
            attributes: Some(seq(3)),
            links: Some((seq(4), vec![link(1, b"a")])),
            xattrs: vec![(b"u".to_vec(), seq(5))],
            ..Part::default()
        },
        flying: Some(Flying {
            batch: 6,
            part: Part {
                created: true,
                data: Some(Dirty { base: seq(7), cut: 8, ranges: ranges.clone() }),
                ..Part::default()
            },
            sent: vec![link(9, b"b")],
        }),
        absent: ranges,
        data_seq: seq(10),
        unlisted: false,
        again: true,
    }
}

#[test]
fn the_bytes_of_version_1_are_pinned() {
    let word = |n: u64| n.to_le_bytes().to_vec();
    let pending = [vec![0b10110], word(3), word(4), vec![1, 0], word(1), vec![1, b'a', 1, 0], word(5), vec![1, b'u']];
    let flying = [word(6), vec![0b01001], word(7), word(8), vec![1, 0, 0, 0], word(1), word(2), vec![0, 0]];
    let sent = [vec![1, 0], word(9), vec![1, b'b']];
    let absent = [word(10), vec![1, 0, 0, 0], word(1), word(2)];
    let want = [vec![1, 0b10111], pending.concat(), flying.concat(), sent.concat(), absent.concat()].concat();
    assert_eq!(full().encode(), want);
}

#[test]
fn notes_survive_and_damage_is_noticed() {
    for note in [full(), Note { unlisted: true, ..Note::default() }, Note::default()] {
        let bytes = note.encode();
        assert_eq!(Note::decode(&bytes), Some(note));
        for len in 0..bytes.len() {
            assert_eq!(Note::decode(&bytes[..len]), None, "{len} bytes of {}", bytes.len());
        }
        assert_eq!(Note::decode(&[&bytes[..], &[0]].concat()), None);
    }
    assert_eq!(Note::glance(&full().encode()), (true, true, true));
}

#[test]
fn what_did_not_arrive_is_pending_with_its_first_base() {
    let mut part = Part { attributes: Some(CommitSeq::new(9)), ..Part::default() };
    let flown = Part {
        attributes: Some(CommitSeq::new(3)),
        links: Some((CommitSeq::new(3), vec![link(1, b"old")])),
        ..Part::default()
    };
    part.take_back(flown.clone());
    assert_eq!(part, flown);
    // Removed meanwhile: the position had passed what others changed of it.
    let mut removed = Part { gone: true, links: Some((CommitSeq::new(8), vec![link(1, b"old")])), ..Part::default() };
    removed.take_back(Part { attributes: Some(CommitSeq::new(3)), ..Part::default() });
    assert_eq!(removed.links.unwrap().0, CommitSeq::new(3));
}
