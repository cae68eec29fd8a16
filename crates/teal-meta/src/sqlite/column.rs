//! The columns of SQLite's rows, as values of this crate.

use super::codec::{decode_state, kind_from_code};
use crate::row::{ConflictRow, ObjectRow, ReplicaRow};
use rusqlite::Row;
use rusqlite::types::{FromSqlError, Type};
use teal_types::{
    BatchId, BatchNo, ChunkId, CommitSeq, Incarnation, Name, ObjectNo, ReplicaNo, Timestamp,
};

/// Returns a number as SQLite keeps it.
pub(super) fn sql_integer(number: u64) -> i64 {
    // Numbers are below 2^63; a larger one to look for is found nowhere.
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Returns a number of rows as SQLite keeps it.
pub(super) fn sql_limit(rows: usize) -> i64 {
    i64::try_from(rows).unwrap_or(i64::MAX)
}

/// Returns the error of a stored value that no version of this crate wrote.
fn invalid_value(at: usize, what: &'static str) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(
        at,
        Type::Blob,
        Box::new(FromSqlError::Other(what.into())),
    )
}

/// Reads the commit in column `at`.
pub(super) fn column_seq(row: &Row<'_>, at: usize) -> rusqlite::Result<CommitSeq> {
    row.get(at).map(CommitSeq::new)
}

/// Reads the object in column `at`.
pub(super) fn column_object(row: &Row<'_>, at: usize) -> rusqlite::Result<ObjectNo> {
    row.get(at).map(ObjectNo::new)
}

/// Reads the time in column `at` (seconds) and the next one (nanoseconds).
pub(super) fn column_time(row: &Row<'_>, at: usize) -> rusqlite::Result<Timestamp> {
    Ok(Timestamp::new(row.get(at)?, row.get(at + 1)?))
}

/// Reads the name in column `at`.
pub(super) fn column_name(row: &Row<'_>, at: usize) -> rusqlite::Result<Name> {
    Name::new(row.get_ref(at)?.as_blob()?).map_err(|_| invalid_value(at, "a name that is none"))
}

/// Reads an object's state in column `at`.
pub(super) fn column_state(row: &Row<'_>, at: usize) -> rusqlite::Result<ObjectRow> {
    decode_state(row.get_ref(at)?.as_blob()?)
        .ok_or_else(|| invalid_value(at, "the state of an object that is none"))
}

/// Reads an object's state in column `at`; `None` if the object was gone.
pub(super) fn column_state_if_any(row: &Row<'_>, at: usize) -> rusqlite::Result<Option<ObjectRow>> {
    if row.get_ref(at)?.as_blob_or_null()?.is_none() {
        Ok(None)
    } else {
        column_state(row, at).map(Some)
    }
}

/// Reads the chunk in column `at`.
pub(super) fn column_chunk(row: &Row<'_>, at: usize) -> rusqlite::Result<ChunkId> {
    row.get(at).map(ChunkId::new)
}

/// Returns the values of the columns that name a batch, in their order.
pub(super) fn batch_key(batch: BatchId) -> (u32, u32, i64) {
    (
        batch.replica.get(),
        batch.incarnation.get(),
        sql_integer(batch.batch.get()),
    )
}

/// Reads the batch that three columns name, of which `at` is the first.
pub(super) fn column_batch(row: &Row<'_>, at: usize) -> rusqlite::Result<BatchId> {
    Ok(BatchId {
        replica: row.get(at).map(ReplicaNo::new)?,
        incarnation: row.get(at + 1).map(Incarnation::new)?,
        batch: row.get(at + 2).map(BatchNo::new)?,
    })
}

/// Reads a row of `replicas` with its number.
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

/// Reads a row of `conflicts` with its number.
pub(super) fn conflict_row(row: &Row<'_>) -> rusqlite::Result<(u64, ConflictRow)> {
    let conflict = ConflictRow {
        kind: kind_from_code(row.get(1)?)
            .ok_or_else(|| invalid_value(1, "a kind of conflict that is none"))?,
        seq: column_seq(row, 2)?,
        time: column_time(row, 3)?,
        device: row.get(5)?,
        object: column_object(row, 6)?,
        copy: row.get::<_, Option<u64>>(7)?.map(ObjectNo::new),
        lost: row.get(8)?,
    };
    Ok((row.get(0)?, conflict))
}
