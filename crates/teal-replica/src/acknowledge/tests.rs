//! What a committed batch leaves dirty.

use super::super::note::{ComponentsInFlight, DirtyContent};
use super::*;
use teal_types::{BatchNo, ByteRanges, FileType, ReplicatedAttributes};

fn seq(seq: u64) -> CommitSeq {
    CommitSeq::new(seq)
}

fn dirty_content(base: u64) -> DirtyContent {
    DirtyContent {
        base: seq(base),
        least_size: u64::MAX,
        ranges: ByteRanges::default(),
        tail: None,
    }
}

/// Returns what is dirty when a batch was committed at 5, and another has changed the rest of the
/// object at `other`.
fn left(
    dirty: UnsentComponents,
    in_batch: UnsentComponents,
    data_seq: u64,
    other: u64,
) -> UnsentComponents {
    let in_flight = Some(ComponentsInFlight {
        batch: BatchNo::FIRST,
        components: in_batch,
        sent_names: Vec::new(),
    });
    let mut note = ObjectNote {
        dirty,
        in_flight,
        ..ObjectNote::default()
    };
    let version = ObjectVersion {
        object: ObjectNo::new(20),
        kind: FileType::File,
        attributes: ReplicatedAttributes::default(),
        attr_seq: seq(other),
        size: 0,
        data_seq: seq(data_seq),
        target: Vec::new(),
        links: Vec::new(),
        link_seq: seq(5),
        xattrs: Vec::new(),
        xattr_seq: seq(other),
    };
    acknowledge_components(
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
    let dirty = UnsentComponents {
        data: Some(dirty_content(8)),
        attributes: Some(seq(8)),
        xattrs: vec![(name.clone(), seq(8))],
        ..UnsentComponents::default()
    };
    let created = UnsentComponents {
        created: true,
        ..UnsentComponents::default()
    };
    let set = UnsentComponents {
        data: Some(dirty_content(3)),
        attributes: Some(seq(3)),
        xattrs: vec![(name, seq(3))],
        ..UnsentComponents::default()
    };
    for (in_batch, least) in [(created, seq(5)), (set, seq(3))] {
        let UnsentComponents {
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
    let removed = || UnsentComponents {
        gone: true,
        links: Some((seq(8), Vec::new())),
        ..UnsentComponents::default()
    };
    let base =
        |in_batch, data_seq, other| left(removed(), in_batch, data_seq, other).links.unwrap().0;
    let data = || UnsentComponents {
        data: Some(dirty_content(3)),
        ..UnsentComponents::default()
    };
    let created = || UnsentComponents {
        created: true,
        ..UnsentComponents::default()
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
