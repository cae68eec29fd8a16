//! What a committed batch leaves dirty.

use super::super::note::{DirtyContent, InFlight};
use super::*;
use teal_types::{Attributes, BatchNo, FileType, Ranges};

fn seq(seq: u64) -> CommitSeq {
    CommitSeq::new(seq)
}

fn dirty_content(base: u64) -> DirtyContent {
    DirtyContent {
        base: seq(base),
        cut: u64::MAX,
        ranges: Ranges::default(),
        tail: None,
    }
}

/// Returns what is dirty when a batch was committed at 5, and another has changed the rest of the
/// object at `other`.
fn left(dirty: Components, in_batch: Components, data_seq: u64, other: u64) -> Components {
    let in_flight = Some(InFlight {
        batch: BatchNo::FIRST,
        part: in_batch,
        sent: Vec::new(),
    });
    let mut note = Note {
        dirty,
        in_flight,
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
    acknowledge(
        &mut note,
        &version,
        Some(CommittedBatch {
            batch: BatchNo::FIRST,
            seq: seq(5),
        }),
        None,
        100,
    );
    assert!(note.in_flight.is_none());
    note.dirty
}

#[test]
fn what_others_changed_behind_a_batch_meets_the_conflict_though_the_position_has_passed_both() {
    let name = b"user.x".to_vec();
    let dirty = Components {
        data: Some(dirty_content(8)),
        attributes: Some(seq(8)),
        xattrs: vec![(name.clone(), seq(8))],
        ..Components::default()
    };
    let created = Components {
        created: true,
        ..Components::default()
    };
    let set = Components {
        data: Some(dirty_content(3)),
        attributes: Some(seq(3)),
        xattrs: vec![(name, seq(3))],
        ..Components::default()
    };
    for (in_batch, least) in [(created, seq(5)), (set, seq(3))] {
        let Components {
            data,
            attributes,
            xattrs,
            ..
        } = left(dirty.clone(), in_batch, 7, 7);
        assert_eq!(
            (data.unwrap().base, attributes, xattrs[0].1),
            (least, Some(least), seq(5))
        );
    }
}

#[test]
fn a_removal_meets_what_others_changed_behind_a_batch_and_nothing_else() {
    let removed = || Components {
        gone: true,
        links: Some((seq(8), Vec::new())),
        ..Components::default()
    };
    let base =
        |in_batch, data_seq, other| left(removed(), in_batch, data_seq, other).links.unwrap().0;
    let data = || Components {
        data: Some(dirty_content(3)),
        ..Components::default()
    };
    let created = || Components {
        created: true,
        ..Components::default()
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
