//! What SQLite does for a listing of the past, counted in its own steps.

use super::*;
use crate::{MetaError, Sqlite};
use rusqlite::StatementStatus;

#[test]
fn a_listing_of_the_past_steps_over_nothing_that_went_before_its_snapshot() {
    let dir = tempfile::tempdir().unwrap();
    let meta = Sqlite::open(&dir.path().join("meta.db")).unwrap();
    let link = |name: &str| HardLink {
        dir: ObjectNo::ROOT,
        name: Name::new(name.as_bytes()).unwrap(),
    };
    let one = ObjectNo::new(9);
    crate::write::<_, MetaError>(&meta, teal_types::VolumeId::new(7), |txn| {
        for n in 1..20_000 {
            txn.remember_entry(&link(&format!("f{n}")), CommitSeq::new(n), Some(one))?;
            txn.remember_entry(&link(&format!("f{n}")), CommitSeq::new(n + 1), None)?;
        }
        txn.put_entry(
            &link("here"),
            Some(crate::EntryRow {
                object: one,
                seq: CommitSeq::new(1),
            }),
        )?;
        txn.remember_names(ObjectNo::ROOT, CommitSeq::new(20_000))
    })
    .unwrap();
    let writer = meta.writer.lock();
    let txn = SqliteTransaction {
        connection: &writer,
        names: &meta.names,
        volume: 7,
    };
    let past = txn
        .names_at(ObjectNo::ROOT, CommitSeq::new(20_001))
        .unwrap();
    assert_eq!((past.names.len(), past.rows), (1, 1));
    let steps = [SNAPSHOT, SNAPSHOT_NAMES, CHANGED_NAMES].map(|sql| {
        writer
            .prepare_cached(sql)
            .unwrap()
            .get_status(StatementStatus::VmStep)
    });
    assert!(
        steps.iter().all(|steps| (1..100).contains(steps)),
        "{steps:?}"
    );
}
