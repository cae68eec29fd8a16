//! One suite for every kind of metadata.
#![allow(clippy::unwrap_used, reason = "tests panic where they fail")]

use teal_meta::{
    BatchRow, CommitRow, ConflictRow, EXTENT_MAX, EntryRow, ExtentRow, MemoryMeta, MetaError,
    MetaStore, NameTally, ObjectRow, PastExtent, ReadTransaction, ReplicaRow, Sqlite, TokenRow,
    VolumeRow, WriteTransaction, XattrRow, read, write, write_soon,
};
use teal_proto::ConflictKind;
use teal_types::{
    BatchId, BatchNo, ChunkId, CommitSeq, FileType, HardLink, Incarnation, LeaseNo, Name, ObjectNo,
    ReplicaNo, ReplicatedAttributes, ServerIncarnation, Timestamp, VolumeId,
};

macro_rules! conforms {
    ($($name:ident)*) => {
        mod memory { $(#[test] fn $name() { super::$name(&teal_meta::MemoryMeta::new()); })* }
        mod sqlite { $(#[test] fn $name() {
            let dir = tempfile::tempdir().unwrap();
            super::$name(&teal_meta::Sqlite::open(&dir.path().join("meta.db")).unwrap());
        })* }
    };
}

conforms! {
    what_fails_has_not_happened
    what_may_wait_is_seen_at_once
    any_number_may_read_at_once_and_after_a_reader_broke_down
    volumes_are_apart
    rows_are_kept_as_they_were_given
    names_are_listed_by_their_bytes_and_behind_a_name
    an_object_has_all_its_names
    live_extents_are_found_by_range
    history_has_the_newest_row_at_or_before
    every_chunk_that_history_names_comes_page_by_page
    names_of_the_past_are_those_of_a_snapshot_and_what_changed_since
    content_history_comes_in_the_order_of_commits
    changes_come_commit_by_commit
    batches_are_found_by_their_place_in_history
    staged_parts_are_replaced_and_dropped
    numbers_beyond_the_limit_are_found_nowhere
}

const V: VolumeId = VolumeId::new(7);
const A: ObjectNo = ObjectNo::new(100);
const B: ObjectNo = ObjectNo::new(101);

fn batch(replica: u32, incarnation: u32, no: u64) -> BatchId {
    BatchId {
        replica: ReplicaNo::new(replica),
        incarnation: Incarnation::new(incarnation),
        batch: BatchNo::new(no),
    }
}

fn seq(raw: u64) -> CommitSeq {
    CommitSeq::new(raw)
}

fn link(dir: u64, name: &[u8]) -> HardLink {
    HardLink {
        dir: ObjectNo::new(dir),
        name: Name::new(name).unwrap(),
    }
}

fn chunk(n: u8) -> ChunkId {
    ChunkId::new([n; 32])
}

fn object(size: u64) -> ObjectRow {
    ObjectRow {
        kind: FileType::File,
        attributes: ReplicatedAttributes {
            perm: 0o640,
            mtime: Timestamp::new(-5, 6),
            ..ReplicatedAttributes::default()
        },
        attr_seq: seq(1),
        size,
        data_seq: seq(2),
        rewritten_seq: seq(1),
        target: vec![0, 255],
        link_seq: seq(3),
        xattr_seq: seq(4),
    }
}

fn put(
    meta: &dyn MetaStore,
    work: impl FnOnce(&mut dyn WriteTransaction) -> Result<(), MetaError>,
) {
    write(meta, V, work).unwrap();
}

fn see<T>(
    meta: &dyn MetaStore,
    work: impl FnOnce(&dyn ReadTransaction) -> Result<T, MetaError>,
) -> T {
    read(meta, V, work).unwrap()
}

fn what_fails_has_not_happened(meta: &dyn MetaStore) {
    put(meta, |txn| txn.put_object(A, Some(&object(1))));
    #[derive(Debug)]
    struct No;
    impl From<MetaError> for No {
        fn from(_: MetaError) -> Self {
            Self
        }
    }
    let outcome: Result<(), No> = write(meta, V, |txn| {
        txn.put_object(A, Some(&object(2)))?;
        txn.put_object(B, Some(&object(3)))?;
        txn.put_entry(
            &link(1, b"a"),
            Some(EntryRow {
                object: A,
                seq: seq(1),
            }),
        )?;
        assert_eq!(txn.object(A)?, Some(object(2)), "it sees itself");
        Err(No)
    });
    assert!(outcome.is_err());
    see(meta, |txn| {
        assert_eq!((txn.object(A)?, txn.object(B)?), (Some(object(1)), None));
        assert_eq!(
            (txn.entry(&link(1, b"a"))?, txn.links_of(A)?),
            (None, vec![])
        );
        Ok(())
    });
}

fn what_may_wait_is_seen_at_once(meta: &dyn MetaStore) {
    put(meta, |txn| txn.put_object(A, Some(&object(1))));
    write_soon::<_, MetaError>(meta, V, |txn| txn.put_object(A, Some(&object(2)))).unwrap();
    assert_eq!(
        see(meta, |txn| txn.object(A)),
        Some(object(2)),
        "seen at once, durable later"
    );
}

fn any_number_may_read_at_once_and_after_a_reader_broke_down(meta: &dyn MetaStore) {
    put(meta, |txn| txn.put_object(A, Some(&object(1))));
    for _ in 0..40 {
        let broken = std::panic::AssertUnwindSafe(|| see::<()>(meta, |_| panic!("on purpose")));
        std::panic::catch_unwind(broken).unwrap_err();
    }
    std::thread::scope(|scope| {
        for _ in 0..40 {
            scope.spawn(|| {
                (0..10).for_each(|_| assert_eq!(see(meta, |txn| txn.object(A)), Some(object(1))))
            });
        }
    });
}

fn volumes_are_apart(meta: &dyn MetaStore) {
    let row = VolumeRow {
        label: "home".into(),
        incarnation: ServerIncarnation::FIRST,
        head: seq(5),
        digest: [9; 32],
        time: Timestamp::new(3, 4),
        next_replica: ReplicaNo::new(2),
        next_conflict: 4,
        own_next: 5,
        own_end: 6,
    };
    let other = VolumeId::new(u32::MAX);
    put(meta, |txn| {
        txn.put_volume(&row)
            .and_then(|()| txn.put_object(A, Some(&object(1))))
    });
    write::<_, MetaError>(meta, other, |txn| {
        txn.put_volume(&VolumeRow {
            label: "b".into(),
            ..row.clone()
        })
    })
    .unwrap();
    assert_eq!(meta.volumes().unwrap(), [V, other]);
    assert_eq!(see(meta, |txn| txn.volume()), Some(row));
    read::<_, MetaError>(meta, other, |txn| {
        assert_eq!(
            (txn.object(A)?, txn.objects_after(ObjectNo::new(0), 9)?),
            (None, vec![])
        );
        assert_eq!(txn.object_at(A, seq(9))?, None);
        Ok(())
    })
    .unwrap();
    let none = read::<_, MetaError>(meta, VolumeId::new(1), |txn| txn.volume()).unwrap();
    assert_eq!(none, None);
}

fn rows_are_kept_as_they_were_given(meta: &dyn MetaStore) {
    let replica = ReplicaRow {
        device: "küche".into(),
        incarnation: Incarnation::new(2),
        last_batch: BatchNo::new(3),
        position: seq(4),
        is_revoked: true,
        is_local: false,
        seen: Timestamp::new(-1, 999_999_999),
    };
    let conflict = ConflictRow {
        kind: ConflictKind::Move,
        seq: seq(8),
        time: Timestamp::new(1, 2),
        device: "d".into(),
        object: A,
        copy: Some(B),
        lost: "it".into(),
    };
    let token = TokenRow {
        expires: Timestamp::new(77, 0),
        is_used: true,
    };
    let commit = CommitRow {
        batch: batch(1, 2, 3),
        time: Timestamp::new(5, 6),
        digest: [7; 32],
    };
    let xattr = XattrRow {
        value: vec![],
        seq: seq(3),
    };
    put(meta, |txn| {
        txn.put_setting("key", b"\0value")?;
        txn.put_replica(ReplicaNo::new(3), &replica)?;
        txn.put_token(&[1; 32], &token)?;
        txn.put_lease(LeaseNo::new(9), ReplicaNo::new(3))?;
        txn.put_conflict(
            1,
            Some(&ConflictRow {
                copy: None,
                ..conflict.clone()
            }),
        )?;
        txn.put_conflict(5, Some(&conflict))?;
        txn.add_commit(seq(8), &commit)?;
        txn.put_xattr(A, b"user.a", Some(&xattr))?;
        txn.put_xattr(A, b"user.b", Some(&xattr))?;
        txn.put_xattr(A, b"user.b", None)
    });
    see(meta, |txn| {
        assert_eq!(txn.setting("key")?, Some(b"\0value".to_vec()));
        assert_eq!(
            (
                txn.replica(ReplicaNo::new(3))?,
                txn.replica(ReplicaNo::new(4))?
            ),
            (Some(replica.clone()), None)
        );
        assert_eq!(txn.replicas()?, [(ReplicaNo::new(3), replica)]);
        assert_eq!(
            (txn.token(&[1; 32])?, txn.token(&[2; 32])?),
            (Some(token), None)
        );
        assert_eq!(
            (txn.lease(LeaseNo::new(9))?, txn.lease(LeaseNo::new(8))?),
            (Some(ReplicaNo::new(3)), None)
        );
        assert_eq!(
            (txn.conflict(5)?, txn.conflict(2)?),
            (Some(conflict.clone()), None)
        );
        assert_eq!(txn.conflicts_after(1, 9)?, [(5, conflict)]);
        assert_eq!(txn.conflicts_after(0, 1)?.len(), 1);
        assert_eq!(
            (txn.commit(seq(8))?, txn.commit(seq(7))?),
            (Some(commit), None)
        );
        assert_eq!(txn.xattrs(A)?, [(b"user.a".to_vec(), xattr)]);
        Ok(())
    });
    put(meta, |txn| {
        txn.put_conflict(5, None).and_then(|()| txn.drop_content(A))
    });
    see(meta, |txn| {
        assert_eq!((txn.conflict(5)?, txn.xattrs(A)?), (None, vec![]));
        Ok(())
    });
}

fn names_are_listed_by_their_bytes_and_behind_a_name(meta: &dyn MetaStore) {
    let names: [&[u8]; 5] = [b"\x01", b"A", b"a", b"aa", b"\xff"];
    put(meta, |txn| {
        for name in names.iter().rev() {
            txn.put_entry(
                &link(1, name),
                Some(EntryRow {
                    object: A,
                    seq: seq(1),
                }),
            )?;
        }
        txn.put_entry(
            &link(2, b"b"),
            Some(EntryRow {
                object: A,
                seq: seq(1),
            }),
        )
    });
    see(meta, |txn| {
        let list = |after: Option<&[u8]>, limit| {
            let after = after.map(|name| Name::new(name).unwrap());
            let found = txn.entries_after(ObjectNo::ROOT, after.as_ref(), limit)?;
            Ok::<_, MetaError>(
                found
                    .into_iter()
                    .map(|(name, _)| name.as_bytes().to_vec())
                    .collect::<Vec<_>>(),
            )
        };
        assert_eq!(list(None, 9)?, names);
        assert_eq!(list(Some(b"A"), 2)?, names[2..4]);
        assert_eq!(list(Some(b"\xff"), 9)?, [b""; 0]);
        Ok(())
    });
}

fn an_object_has_all_its_names(meta: &dyn MetaStore) {
    put(meta, |txn| {
        txn.put_entry(
            &link(2, b"b"),
            Some(EntryRow {
                object: A,
                seq: seq(2),
            }),
        )?;
        txn.put_entry(
            &link(1, b"z"),
            Some(EntryRow {
                object: A,
                seq: seq(1),
            }),
        )?;
        txn.put_entry(
            &link(1, b"y"),
            Some(EntryRow {
                object: A,
                seq: seq(1),
            }),
        )?;
        txn.put_entry(
            &link(1, b"y"),
            Some(EntryRow {
                object: B,
                seq: seq(3),
            }),
        )?;
        txn.put_entry(
            &link(1, b"x"),
            Some(EntryRow {
                object: A,
                seq: seq(1),
            }),
        )?;
        txn.put_entry(&link(1, b"x"), None)
    });
    see(meta, |txn| {
        assert_eq!(
            txn.links_of(A)?,
            [(link(1, b"z"), seq(1)), (link(2, b"b"), seq(2))]
        );
        assert_eq!(txn.links_of(B)?, [(link(1, b"y"), seq(3))]);
        Ok(())
    });
}

fn live_extents_are_found_by_range(meta: &dyn MetaStore) {
    let extent = |offset, len| ExtentRow {
        offset,
        len,
        chunk: chunk(1),
        start: 5,
    };
    let rows = [
        extent(0, 10),
        extent(10, EXTENT_MAX),
        extent(EXTENT_MAX + 100, 1),
    ];
    put(meta, |txn| {
        rows.iter()
            .rev()
            .try_for_each(|row| txn.put_extent(A, row))?;
        txn.put_extent(B, &extent(3, 3))
    });
    see(meta, |txn| {
        assert_eq!(txn.extents(A, 0..u64::MAX)?, rows);
        assert_eq!(txn.extents(A, 9..11)?, rows[..2]);
        assert_eq!(txn.extents(A, EXTENT_MAX + 9..EXTENT_MAX + 10)?, rows[1..2]);
        assert_eq!(txn.extents(A, EXTENT_MAX + 10..EXTENT_MAX + 100)?, []);
        assert_eq!(txn.extents(A, 0..0)?, []);
        Ok(())
    });
    put(meta, |txn| txn.drop_extent(A, 10));
    assert_eq!(
        see(meta, |txn| txn.extents(A, 0..u64::MAX)),
        [rows[0], rows[2]]
    );
    put(meta, |txn| txn.drop_content(A));
    assert_eq!(
        see(meta, |txn| Ok((
            txn.extents(A, 0..u64::MAX)?,
            txn.extents(B, 0..9)?.len()
        ))),
        (vec![], 1)
    );
}

fn history_has_the_newest_row_at_or_before(meta: &dyn MetaStore) {
    put(meta, |txn| {
        txn.remember_object(A, seq(2), Some(&object(1)))?;
        txn.remember_object(A, seq(5), None)?;
        txn.remember_object(A, seq(9), Some(&object(2)))?;
        txn.remember_object(B, seq(1), Some(&object(9)))?;
        txn.remember_entry(&link(1, b"a"), seq(2), Some(A))?;
        txn.remember_entry(&link(1, b"a"), seq(5), None)?;
        txn.remember_entry(&link(1, b"b"), seq(5), Some(A))?;
        txn.remember_entry(&link(1, b"a"), seq(9), Some(B))?;
        txn.remember_xattr(A, b"x", seq(2), Some(b"1"))?;
        txn.remember_xattr(A, b"x", seq(5), None)?;
        txn.remember_xattr(A, b"y", seq(4), Some(b""))
    });
    see(meta, |txn| {
        let sizes = [1, 2, 4, 5, 8, 9, u64::MAX].map(|at| {
            txn.object_at(A, seq(at))
                .unwrap()
                .map(|(seq, row)| (seq.get(), row.map(|row| row.size)))
        });
        assert_eq!(
            sizes,
            [
                None,
                Some((2, Some(1))),
                Some((2, Some(1))),
                Some((5, None)),
                Some((5, None)),
                Some((9, Some(2))),
                Some((9, Some(2)))
            ]
        );
        assert_eq!(
            txn.object_history(A, seq(2), 9)?,
            [(seq(5), None), (seq(9), Some(object(2)))]
        );
        assert_eq!(txn.object_history(A, seq(0), 1)?.len(), 1);
        let led = [1, 2, 5, 9].map(|at| txn.entry_at(&link(1, b"a"), seq(at)).unwrap());
        assert_eq!(
            led,
            [
                None,
                Some((seq(2), Some(A))),
                Some((seq(5), None)),
                Some((seq(9), Some(B)))
            ]
        );
        assert_eq!(txn.names_ever(A, seq(4))?, [link(1, b"a")]);
        assert_eq!(txn.names_ever(A, seq(9))?, [link(1, b"a"), link(1, b"b")]);
        assert_eq!(
            txn.xattrs_at(A, seq(4))?,
            [
                (b"x".to_vec(), seq(2), Some(b"1".to_vec())),
                (b"y".to_vec(), seq(4), Some(vec![]))
            ]
        );
        assert_eq!(txn.xattrs_at(A, seq(5))?[0], (b"x".to_vec(), seq(5), None));
        Ok(())
    });
}

fn names_of_the_past_are_those_of_a_snapshot_and_what_changed_since(meta: &dyn MetaStore) {
    let set = |txn: &mut dyn WriteTransaction, name: &[u8], at, object: Option<ObjectNo>| {
        txn.put_entry(
            &link(1, name),
            object.map(|object| EntryRow {
                object,
                seq: seq(at),
            }),
        )?;
        txn.remember_entry(&link(1, name), seq(at), object)
    };
    put(meta, |txn| {
        set(txn, b"a", 2, Some(A))?;
        set(txn, b"b", 2, Some(A))?;
        set(txn, b"a", 5, None)?;
        set(txn, b"c", 5, Some(B))?;
        txn.remember_names(ObjectNo::ROOT, seq(5))?;
        txn.remember_names(B, seq(4))?;
        txn.put_tally(
            ObjectNo::ROOT,
            NameTally {
                names: 2,
                changes: 0,
            },
        )?;
        set(txn, b"b", 9, Some(B))?;
        set(txn, b"a", 9, Some(B))?;
        set(txn, b"c", 10, None)?;
        txn.remember_entry(&link(2, b"z"), seq(3), Some(A))
    });
    see(meta, |txn| {
        let at = |at| {
            let past = txn.names_at(ObjectNo::ROOT, seq(at)).unwrap();
            let names: Vec<_> = past
                .names
                .iter()
                .map(|(name, object)| (name.to_string(), *object))
                .collect();
            (names, past.rows)
        };
        let names = |names: &[(&str, ObjectNo)]| {
            names
                .iter()
                .map(|(name, of)| ((*name).into(), *of))
                .collect()
        };
        assert_eq!(at(1), (vec![], 0));
        assert_eq!(at(2), (names(&[("a", A), ("b", A)]), 2));
        assert_eq!(at(4), at(2));
        assert_eq!(
            at(5),
            (names(&[("b", A), ("c", B)]), 2),
            "of the snapshot alone"
        );
        assert_eq!(at(9), (names(&[("a", B), ("b", B), ("c", B)]), 4));
        assert_eq!(at(u64::MAX), (names(&[("a", B), ("b", B)]), 5));
        assert_eq!(txn.names_at(B, seq(9))?.names, []);
        assert_eq!(
            (txn.name_tally(ObjectNo::ROOT)?, txn.name_tally(B)?),
            (
                NameTally {
                    names: 2,
                    changes: 0
                },
                NameTally::default()
            )
        );
        Ok(())
    });
}

fn content_history_comes_in_the_order_of_commits(meta: &dyn MetaStore) {
    let row = |at, offset, len, source| PastExtent {
        seq: seq(at),
        offset,
        len,
        source,
    };
    let rows = [
        row(1, 0, 10, Some((chunk(1), 0))),
        row(2, 0, 1 << 40, None),
        row(3, 5, 5, Some((chunk(2), 7))),
        row(3, 10, 2, None),
        row(4, 0, 10, Some((chunk(1), 0))),
    ];
    put(meta, |txn| {
        rows.iter()
            .rev()
            .try_for_each(|row| txn.remember_extent(A, row))
    });
    see(meta, |txn| {
        assert_eq!(txn.extents_at(A, 0..u64::MAX, seq(u64::MAX))?, rows);
        assert_eq!(txn.extents_at(A, 0..5, seq(3))?, rows[..2]);
        assert_eq!(txn.extents_at(A, 1 << 39..1 << 41, seq(9))?, rows[1..2]);
        assert_eq!(txn.extents_at(B, 0..5, seq(3))?, []);
        Ok(())
    });
}

fn every_chunk_that_history_names_comes_page_by_page(meta: &dyn MetaStore) {
    let row = |at, offset, source| PastExtent {
        seq: seq(at),
        offset,
        len: 10,
        source,
    };
    put(meta, |txn| {
        for n in 0..20_u8 {
            txn.remember_extent(
                A,
                &row(u64::from(1 + n % 3), u64::from(n) * 10, Some((chunk(n), 0))),
            )?;
        }
        txn.remember_extent(A, &row(9, 500, None))?;
        txn.remember_extent(B, &row(2, 0, Some((chunk(99), 4))))?;
        txn.remember_extent(B, &row(3, 0, Some((chunk(3), 4))))
    });
    see(meta, |txn| {
        for limit in [1, 7, 100] {
            let (mut found, mut after) = (Vec::new(), None);
            loop {
                let page = txn.named_chunks(after, limit)?;
                assert!(page.len() <= limit);
                let Some((place, _)) = page.last() else { break };
                after = Some(*place);
                found.extend(page.into_iter().map(|(_, chunk)| chunk));
            }
            found.sort_unstable();
            let mut expected: Vec<_> = (0..20_u8).map(chunk).chain([chunk(99), chunk(3)]).collect();
            expected.sort_unstable();
            assert_eq!(found, expected, "{limit} at a time");
        }
        Ok(())
    });
}

fn changes_come_commit_by_commit(meta: &dyn MetaStore) {
    let rows = [
        (seq(2), A, None),
        (seq(2), B, Some(vec![])),
        (seq(3), A, Some(vec![(1, 2), (9, 1 << 40)])),
    ];
    put(meta, |txn| {
        rows.iter()
            .rev()
            .try_for_each(|(at, object, ranges)| txn.add_change(*at, *object, ranges))
    });
    let shown = |after, to| {
        see(meta, |txn| {
            let mut shown = Vec::new();
            txn.visit_changes(seq(after), seq(to), &mut |at, object, ranges| {
                shown.push((at, object, ranges))
            })?;
            Ok(shown)
        })
    };
    assert_eq!(shown(0, 9), rows);
    assert_eq!(shown(2, 3), rows[2..]);
    assert_eq!(shown(1, 2), rows[..2]);
    assert_eq!((shown(3, 3), shown(9, 1)), (vec![], vec![]));
}

fn batches_are_found_by_their_place_in_history(meta: &dyn MetaStore) {
    let row = |at| BatchRow {
        digest: [1; 32],
        seq: seq(at),
    };
    put(meta, |txn| {
        txn.add_batch(batch(1, 1, 1), &row(3))?;
        txn.add_batch(batch(1, 1, 4), &row(7))?;
        txn.add_batch(batch(1, 2, 1), &row(9))?;
        txn.add_batch(batch(2, 1, 9), &row(1))
    });
    see(meta, |txn| {
        assert_eq!(
            (txn.batch(batch(1, 1, 4))?, txn.batch(batch(1, 1, 2))?),
            (Some(row(7)), None)
        );
        assert_eq!(
            [2, 3, 6, 7, 99].map(|to| txn
                .last_batch(batch(1, 1, 0).author(), seq(to))
                .unwrap()
                .get()),
            [0, 1, 1, 4, 4]
        );
        assert_eq!(
            txn.last_batch(batch(1, 2, 0).author(), seq(99))?,
            BatchNo::FIRST
        );
        Ok(())
    });
}

fn staged_parts_are_replaced_and_dropped(meta: &dyn MetaStore) {
    put(meta, |txn| {
        txn.stage_part(batch(1, 2, 3), 0, b"old")?;
        txn.stage_part(batch(1, 2, 3), 0, b"new one")?;
        txn.stage_part(batch(1, 2, 4), 1, b"x")?;
        txn.stage_part(batch(1, 1, 9), 0, b"past life")?;
        txn.stage_part(batch(2, 1, 1), 0, b"another")
    });
    see(meta, |txn| {
        assert_eq!(
            txn.staged_part(batch(1, 2, 3), 0)?,
            Some(b"new one".to_vec())
        );
        let staged: Vec<_> = txn
            .staged_parts(ReplicaNo::new(1))?
            .iter()
            .map(|p| (p.incarnation.get(), p.batch.get(), p.part, p.len))
            .collect();
        assert_eq!(staged, [(1, 9, 0, 9), (2, 3, 0, 7), (2, 4, 1, 1)]);
        Ok(())
    });
    put(meta, |txn| txn.drop_staged(batch(1, 2, 3)));
    see(meta, |txn| {
        assert_eq!(
            (
                txn.staged_parts(ReplicaNo::new(1))?.len(),
                txn.staged_parts(ReplicaNo::new(1))?[0].batch.get(),
                txn.staged_parts(ReplicaNo::new(2))?.len()
            ),
            (1, 4, 1)
        );
        Ok(())
    });
}

fn numbers_beyond_the_limit_are_found_nowhere(meta: &dyn MetaStore) {
    let all = ObjectNo::new(u64::MAX);
    put(meta, |txn| txn.put_object(A, Some(&object(1))));
    see(meta, |txn| {
        assert_eq!(
            (txn.object(all)?, txn.links_of(all)?, txn.xattrs(all)?),
            (None, vec![], vec![])
        );
        assert_eq!(
            (txn.objects_after(all, 9)?, txn.extents(all, 0..u64::MAX)?),
            (vec![], vec![])
        );
        assert_eq!(
            (
                txn.object_history(all, seq(u64::MAX), 9)?,
                txn.commit(seq(u64::MAX))?
            ),
            (vec![], None)
        );
        assert_eq!(
            (
                txn.batch(batch(1, 1, u64::MAX))?,
                txn.conflicts_after(u64::MAX, 9)?
            ),
            (None, vec![])
        );
        assert_eq!(
            (
                txn.xattrs_at(all, seq(1))?,
                txn.names_ever(all, seq(u64::MAX))?
            ),
            (vec![], vec![])
        );
        Ok(())
    });
}

#[test]
fn a_power_cut_leaves_what_was_durable() {
    let meta = MemoryMeta::new();
    put(&meta, |txn| txn.put_object(A, Some(&object(1))));
    write_soon::<_, MetaError>(&meta, V, |txn| txn.put_object(A, Some(&object(2)))).unwrap();
    assert_eq!(
        see(&meta.after_power_cut(), |txn| txn.object(A)),
        Some(object(1))
    );
    put(&meta, |txn| txn.put_object(B, Some(&object(3))));
    let after = meta.after_power_cut();
    put(&meta, |txn| txn.put_object(B, None));
    assert_eq!(
        see(&after, |txn| Ok((txn.object(A)?, txn.object(B)?))),
        (Some(object(2)), Some(object(3)))
    );
}

#[test]
fn a_database_is_there_after_opening_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("meta.db");
    put(&Sqlite::open(&path).unwrap(), |txn| {
        txn.put_object(A, Some(&object(1)))
    });
    let meta = Sqlite::open(&path).unwrap();
    assert_eq!(see(&meta, |txn| txn.object(A)), Some(object(1)));
    // A reader that began before a write does not see it.
    see(&meta, |txn| {
        assert_eq!(txn.object(A)?, Some(object(1)));
        put(&meta, |txn| txn.put_object(A, Some(&object(2))));
        assert_eq!(txn.object(A)?, Some(object(1)));
        Ok(())
    });
    assert_eq!(see(&meta, |txn| txn.object(A)), Some(object(2)));
}
