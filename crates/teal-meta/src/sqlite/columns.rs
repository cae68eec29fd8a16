//! Values of several tables as columns, which reading and writing need alike.

use crate::row::ReplicaRow;
use rusqlite::Row;
use teal_types::{BatchId, BatchNo, CommitSeq, Incarnation, ReplicaNo, Timestamp};

/// Returns a number as SQLite keeps it.
pub(super) fn sql_integer(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Returns the commit in a column.
pub(super) fn column_seq(row: &Row<'_>, at: usize) -> rusqlite::Result<CommitSeq> {
    row.get(at).map(CommitSeq::new)
}

/// Returns the time in two columns, of which `at` is the first.
pub(super) fn column_time(row: &Row<'_>, at: usize) -> rusqlite::Result<Timestamp> {
    Ok(Timestamp::new(row.get(at)?, row.get(at + 1)?))
}

/// Returns the values of the columns that name a batch, in their order.
pub(super) fn batch_key(batch: BatchId) -> (u32, u32, i64) {
    (
        batch.replica.get(),
        batch.incarnation.get(),
        sql_integer(batch.batch.get()),
    )
}

/// Returns the batch that three columns name, of which `at` is the first.
pub(super) fn batch_id(row: &Row<'_>, at: usize) -> rusqlite::Result<BatchId> {
    Ok(BatchId {
        replica: row.get(at).map(ReplicaNo::new)?,
        incarnation: row.get(at + 1).map(Incarnation::new)?,
        batch: row.get(at + 2).map(BatchNo::new)?,
    })
}

/// Returns a row of the table of replicas.
pub(super) fn replica_row(row: &Row<'_>) -> rusqlite::Result<(ReplicaNo, ReplicaRow)> {
    let replica = ReplicaRow {
        device: row.get(1)?,
        incarnation: row.get(2).map(Incarnation::new)?,
        last_batch: row.get(3).map(BatchNo::new)?,
        position: column_seq(row, 4)?,
        is_revoked: row.get(5)?,
        is_local: row.get(6)?,
        seen: column_time(row, 7)?,
    };
    Ok((row.get(0).map(ReplicaNo::new)?, replica))
}
