//! What a landed batch leaves pending.

use super::super::note::{Dirty, Flying};
use super::*;
use teal_types::{Attributes, FileType, Ranges};

fn seq(seq: u64) -> CommitSeq {
    CommitSeq::new(seq)
}

fn dirty(base: u64) -> Dirty {
    Dirty {
        base: seq(base),
        cut: u64::MAX,
        ranges: Ranges::default(),
        tail: None,
    }
}

/// What is pending when a batch has landed at 5, and another has changed the rest of the object at `other`.
fn left(pending: Part, flown: Part, data_seq: u64, other: u64) -> Part {
    let flying = Some(Flying {
        batch: 1,
        part: flown,
        sent: Vec::new(),
    });
    let mut note = Note {
        pending,
        flying,
        ..Note::default()
    };
    let version = Version {
        object: ObjectNo::new(20),
        kind: FileType::File,
        attributes: Attributes::default(),
        attr_seq: seq(other),
        size: 0,
        data_seq: seq(data_seq),
        target: Vec::new(),
        links: Vec::new(),
        link_seq: seq(5),
        xattrs: Vec::new(),
        xattr_seq: seq(other),
    };
    settle(&mut note, &version, Some((1, seq(5))), None, 100);
    assert!(note.flying.is_none());
    note.pending
}

#[test]
fn what_others_changed_behind_a_batch_meets_the_conflict_though_the_position_has_passed_both() {
    let name = b"user.x".to_vec();
    let pending = Part {
        data: Some(dirty(8)),
        attributes: Some(seq(8)),
        xattrs: vec![(name.clone(), seq(8))],
        ..Part::default()
    };
    let created = Part {
        created: true,
        ..Part::default()
    };
    let set = Part {
        data: Some(dirty(3)),
        attributes: Some(seq(3)),
        xattrs: vec![(name, seq(3))],
        ..Part::default()
    };
    for (flown, least) in [(created, seq(5)), (set, seq(3))] {
        let Part {
            data,
            attributes,
            xattrs,
            ..
        } = left(pending.clone(), flown, 7, 7);
        assert_eq!(
            (data.unwrap().base, attributes, xattrs[0].1),
            (least, Some(least), seq(5))
        );
    }
}

#[test]
fn a_removal_meets_what_others_changed_behind_a_batch_and_nothing_else() {
    let removed = || Part {
        gone: true,
        links: Some((seq(8), Vec::new())),
        ..Part::default()
    };
    let base = |flown, data_seq, other| left(removed(), flown, data_seq, other).links.unwrap().0;
    let data = || Part {
        data: Some(dirty(3)),
        ..Part::default()
    };
    let created = || Part {
        created: true,
        ..Part::default()
    };
    assert_eq!(
        base(data(), 7, 2),
        seq(3),
        "its content, which was held here"
    );
    assert_eq!(
        base(data(), 5, 7),
        seq(8),
        "its attributes, which were installed"
    );
    assert_eq!(base(created(), 5, 7), seq(5));
    assert_eq!(base(created(), 5, 5), seq(8));
}
