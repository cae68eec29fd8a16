//! The reads of a transaction: one prepared statement each.

use super::SqliteTransaction;
use super::codec::decode_ranges;
use super::column::{
    batch_key, column_batch, column_chunk, column_name, column_object, column_seq, column_state,
    column_state_if_any, column_time, conflict_row, replica_row, sql_integer, sql_limit,
};
use crate::EXTENT_MAX;
use crate::error::Result;
use crate::meta::ReadTransaction;
use crate::row::{
    BatchRow, CommitRow, ConflictRow, EntryRow, ExtentRow, NameTally, ObjectRow, PastExtent,
    PastNames, PastPlace, PastXattr, Ranges, ReplicaRow, StagedPart, TokenRow, VolumeRow, XattrRow,
};
use rusqlite::{Row, params};
use std::ops::Range;
use teal_types::{
    Author, BatchId, BatchNo, ChunkId, CommitSeq, HardLink, Incarnation, LeaseNo, Name, ObjectNo,
    ReplicaNo, ServerIncarnation,
};

/// The newest snapshot of a directory at or before a commit, its names, and what has changed since.
const SNAPSHOT: &str = "SELECT seq FROM snapshots \
    WHERE volume = ?1 AND dir = ?2 AND seq <= ?3 ORDER BY seq DESC LIMIT 1";
const SNAPSHOT_NAMES: &str =
    "SELECT name, object FROM snapshot_names WHERE volume = ?1 AND dir = ?2 AND seq = ?3";
const CHANGED_NAMES: &str = "SELECT name, object FROM past_entries INDEXED BY past_names
    WHERE volume = ?1 AND dir = ?2 AND seq > ?3 AND seq <= ?4 ORDER BY seq";

impl ReadTransaction for SqliteTransaction<'_> {
    fn volume(&self) -> Result<Option<VolumeRow>> {
        let sql = "SELECT label, incarnation, head, digest, secs, nanos, next_replica, \
            next_conflict, own_next, own_end
            FROM volumes WHERE volume = ?1";
        self.select_row(sql, [self.volume], |row| {
            Ok(VolumeRow {
                label: row.get(0)?,
                incarnation: ServerIncarnation::new(row.get(1)?),
                head: column_seq(row, 2)?,
                digest: row.get(3)?,
                time: column_time(row, 4)?,
                next_replica: ReplicaNo::new(row.get(6)?),
                next_conflict: row.get(7)?,
                own_next: row.get(8)?,
                own_end: row.get(9)?,
            })
        })
    }

    fn setting(&self, key: &str) -> Result<Option<Vec<u8>>> {
        let sql = "SELECT value FROM settings WHERE volume = ?1 AND key = ?2";
        self.select_row(sql, params![self.volume, key], |row| row.get(0))
    }

    fn object(&self, of: ObjectNo) -> Result<Option<ObjectRow>> {
        let sql = "SELECT state FROM objects WHERE volume = ?1 AND object = ?2";
        self.select_row(sql, params![self.volume, sql_integer(of.get())], |row| {
            column_state(row, 0)
        })
    }

    fn objects_after(&self, after: ObjectNo, rows: usize) -> Result<Vec<ObjectNo>> {
        let sql =
            "SELECT object FROM objects WHERE volume = ?1 AND object > ?2 ORDER BY object LIMIT ?3";
        self.select_rows(
            sql,
            params![self.volume, sql_integer(after.get()), sql_limit(rows)],
            |row| column_object(row, 0),
        )
    }

    fn entry(&self, link: &HardLink) -> Result<Option<EntryRow>> {
        let sql = "SELECT object, seq FROM entries WHERE volume = ?1 AND dir = ?2 AND name = ?3";
        let params = params![
            self.volume,
            sql_integer(link.dir.get()),
            link.name.as_bytes()
        ];
        self.select_row(sql, params, |row| {
            Ok(EntryRow {
                object: column_object(row, 0)?,
                seq: column_seq(row, 1)?,
            })
        })
    }

    fn entries_after(
        &self,
        dir: ObjectNo,
        after: Option<&Name>,
        rows: usize,
    ) -> Result<Vec<(Name, EntryRow)>> {
        let sql = "SELECT name, object, seq FROM entries \
            WHERE volume = ?1 AND dir = ?2 AND name > ?3 ORDER BY name LIMIT ?4";
        // The empty name is before every name.
        let after = after.map_or(&[][..], Name::as_bytes);
        self.select_rows(
            sql,
            params![self.volume, sql_integer(dir.get()), after, sql_limit(rows)],
            |row| {
                Ok((
                    column_name(row, 0)?,
                    EntryRow {
                        object: column_object(row, 1)?,
                        seq: column_seq(row, 2)?,
                    },
                ))
            },
        )
    }

    fn links_of(&self, of: ObjectNo) -> Result<Vec<(HardLink, CommitSeq)>> {
        let sql = "SELECT dir, name, seq FROM entries INDEXED BY links \
            WHERE volume = ?1 AND object = ?2 ORDER BY dir, name";
        self.select_rows(sql, params![self.volume, sql_integer(of.get())], |row| {
            Ok((
                HardLink {
                    dir: column_object(row, 0)?,
                    name: column_name(row, 1)?,
                },
                column_seq(row, 2)?,
            ))
        })
    }

    fn xattrs(&self, of: ObjectNo) -> Result<Vec<(Vec<u8>, XattrRow)>> {
        let sql =
            "SELECT name, value, seq FROM xattrs WHERE volume = ?1 AND object = ?2 ORDER BY name";
        self.select_rows(sql, params![self.volume, sql_integer(of.get())], |row| {
            Ok((
                row.get(0)?,
                XattrRow {
                    value: row.get(1)?,
                    seq: column_seq(row, 2)?,
                },
            ))
        })
    }

    fn extents(&self, of: ObjectNo, range: Range<u64>) -> Result<Vec<ExtentRow>> {
        let sql = "SELECT offset, len, chunk, start FROM extents
            WHERE volume = ?1 AND object = ?2 AND offset > ?3 AND offset < ?4 AND offset + len > ?5
            ORDER BY offset";
        // Nothing longer than an extent covers the beginning of the range.
        let first = sql_integer(range.start).saturating_sub(sql_integer(EXTENT_MAX));
        let params = params![
            self.volume,
            sql_integer(of.get()),
            first,
            sql_integer(range.end),
            sql_integer(range.start)
        ];
        self.select_rows(sql, params, |row| {
            Ok(ExtentRow {
                offset: row.get(0)?,
                len: row.get(1)?,
                chunk: column_chunk(row, 2)?,
                start: row.get(3)?,
            })
        })
    }

    fn object_at(
        &self,
        of: ObjectNo,
        at: CommitSeq,
    ) -> Result<Option<(CommitSeq, Option<ObjectRow>)>> {
        let sql = "SELECT seq, state FROM past_objects \
            WHERE volume = ?1 AND object = ?2 AND seq <= ?3 ORDER BY seq DESC LIMIT 1";
        let params = params![self.volume, sql_integer(of.get()), sql_integer(at.get())];
        self.select_row(sql, params, |row| {
            Ok((column_seq(row, 0)?, column_state_if_any(row, 1)?))
        })
    }

    fn object_history(
        &self,
        of: ObjectNo,
        after: CommitSeq,
        rows: usize,
    ) -> Result<Vec<(CommitSeq, Option<ObjectRow>)>> {
        let sql = "SELECT seq, state FROM past_objects \
            WHERE volume = ?1 AND object = ?2 AND seq > ?3 ORDER BY seq LIMIT ?4";
        let params = params![
            self.volume,
            sql_integer(of.get()),
            sql_integer(after.get()),
            sql_limit(rows)
        ];
        self.select_rows(sql, params, |row| {
            Ok((column_seq(row, 0)?, column_state_if_any(row, 1)?))
        })
    }

    fn entry_at(
        &self,
        link: &HardLink,
        at: CommitSeq,
    ) -> Result<Option<(CommitSeq, Option<ObjectNo>)>> {
        let sql = "SELECT seq, object FROM past_entries
            WHERE volume = ?1 AND dir = ?2 AND name = ?3 AND seq <= ?4 ORDER BY seq DESC LIMIT 1";
        let params = params![
            self.volume,
            sql_integer(link.dir.get()),
            link.name.as_bytes(),
            sql_integer(at.get())
        ];
        self.select_row(sql, params, |row| {
            Ok((
                column_seq(row, 0)?,
                row.get::<_, Option<u64>>(1)?.map(ObjectNo::new),
            ))
        })
    }

    fn names_ever(&self, of: ObjectNo, at: CommitSeq) -> Result<Vec<HardLink>> {
        let sql = "SELECT DISTINCT dir, name FROM past_entries INDEXED BY past_links
            WHERE volume = ?1 AND object = ?2 AND object IS NOT NULL AND seq <= ?3
            ORDER BY dir, name";
        let params = params![self.volume, sql_integer(of.get()), sql_integer(at.get())];
        self.select_rows(sql, params, |row| {
            Ok(HardLink {
                dir: column_object(row, 0)?,
                name: column_name(row, 1)?,
            })
        })
    }

    fn names_at(&self, dir: ObjectNo, at: CommitSeq) -> Result<PastNames> {
        let (dir, at) = (sql_integer(dir.get()), sql_integer(at.get()));
        // Without a snapshot all changes since the beginning are read.
        let since = self
            .select_row(SNAPSHOT, params![self.volume, dir, at], |row| {
                row.get::<_, i64>(0)
            })?
            .unwrap_or(0);
        let shape = |row: &Row<'_>| Ok((column_name(row, 0)?, column_object(row, 1)?));
        let names = self.select_rows(SNAPSHOT_NAMES, params![self.volume, dir, since], shape)?;
        let changes =
            self.select_rows(CHANGED_NAMES, params![self.volume, dir, since, at], |row| {
                Ok((
                    column_name(row, 0)?,
                    row.get::<_, Option<u64>>(1)?.map(ObjectNo::new),
                ))
            })?;
        Ok(PastNames::new(names, changes))
    }

    fn name_tally(&self, dir: ObjectNo) -> Result<NameTally> {
        let sql = "SELECT names, changes FROM tallies WHERE volume = ?1 AND dir = ?2";
        let shape = |row: &Row<'_>| {
            Ok(NameTally {
                names: row.get(0)?,
                changes: row.get(1)?,
            })
        };
        Ok(self
            .select_row(sql, params![self.volume, sql_integer(dir.get())], shape)?
            .unwrap_or_default())
    }

    fn xattrs_at(&self, of: ObjectNo, at: CommitSeq) -> Result<Vec<PastXattr>> {
        let sql = "SELECT name, max(seq), value FROM past_xattrs
            WHERE volume = ?1 AND object = ?2 AND seq <= ?3 GROUP BY name ORDER BY name";
        let params = params![self.volume, sql_integer(of.get()), sql_integer(at.get())];
        self.select_rows(sql, params, |row| {
            Ok((row.get(0)?, column_seq(row, 1)?, row.get(2)?))
        })
    }

    fn extents_at(
        &self,
        of: ObjectNo,
        range: Range<u64>,
        at: CommitSeq,
    ) -> Result<Vec<PastExtent>> {
        let of = sql_integer(of.get());
        let (start, end, at) = (
            sql_integer(range.start),
            sql_integer(range.end),
            sql_integer(at.get()),
        );
        let sql = "SELECT seq, offset, len, chunk, start FROM past_extents \
            WHERE volume = ?1 AND object = ?2
            AND offset > ?3 AND offset < ?4 AND offset + len > ?5 AND seq <= ?6";
        // Chunks have a greatest length, holes have none: these are in a table of their own.
        let first = start.saturating_sub(sql_integer(EXTENT_MAX));
        let mut found = self.select_rows(
            sql,
            params![self.volume, of, first, end, start, at],
            |row| {
                let source = Some((column_chunk(row, 3)?, row.get(4)?));
                Ok(PastExtent {
                    seq: column_seq(row, 0)?,
                    offset: row.get(1)?,
                    len: row.get(2)?,
                    source,
                })
            },
        )?;
        let sql = "SELECT seq, offset, len FROM past_holes WHERE volume = ?1 AND object = ?2
            AND seq <= ?3 AND offset < ?4 AND offset + len > ?5";
        found.extend(
            self.select_rows(sql, params![self.volume, of, at, end, start], |row| {
                Ok(PastExtent {
                    seq: column_seq(row, 0)?,
                    offset: row.get(1)?,
                    len: row.get(2)?,
                    source: None,
                })
            })?,
        );
        // Both tables together in the order of commits.
        found.sort_unstable_by_key(|extent| (extent.seq, extent.offset));
        Ok(found)
    }

    fn named_chunks(
        &self,
        after: Option<PastPlace>,
        rows: usize,
    ) -> Result<Vec<(PastPlace, ChunkId)>> {
        let sql = "SELECT object, offset, seq, chunk FROM past_extents
            WHERE volume = ?1 AND (object, offset, seq) > (?2, ?3, ?4)
            ORDER BY object, offset, seq LIMIT ?5";
        // Row values compare from left to right; -1 is before every key.
        let (of, offset, at) = after.map_or((-1, -1, -1), |after| {
            (
                sql_integer(after.object.get()),
                sql_integer(after.offset),
                sql_integer(after.seq.get()),
            )
        });
        self.select_rows(
            sql,
            params![self.volume, of, offset, at, sql_limit(rows)],
            |row| {
                let place = PastPlace {
                    object: column_object(row, 0)?,
                    offset: row.get(1)?,
                    seq: column_seq(row, 2)?,
                };
                Ok((place, column_chunk(row, 3)?))
            },
        )
    }

    fn commit(&self, of: CommitSeq) -> Result<Option<CommitRow>> {
        let sql = "SELECT replica, incarnation, counter, secs, nanos, digest FROM commits \
            WHERE volume = ?1 AND seq = ?2";
        self.select_row(sql, params![self.volume, sql_integer(of.get())], |row| {
            Ok(CommitRow {
                batch: column_batch(row, 0)?,
                time: column_time(row, 3)?,
                digest: row.get(5)?,
            })
        })
    }

    fn visit_changes(
        &self,
        after: CommitSeq,
        to: CommitSeq,
        visit: &mut dyn FnMut(CommitSeq, ObjectNo, Ranges),
    ) -> Result<()> {
        let sql = "SELECT seq, object, ranges FROM changes \
            WHERE volume = ?1 AND seq > ?2 AND seq <= ?3 ORDER BY seq, object";
        // Rows are handed on one by one: history may be long.
        let mut visited = || -> rusqlite::Result<()> {
            let mut select = self.connection.prepare_cached(sql)?;
            let mut rows = select.query(params![
                self.volume,
                sql_integer(after.get()),
                sql_integer(to.get())
            ])?;
            while let Some(row) = rows.next()? {
                visit(
                    column_seq(row, 0)?,
                    column_object(row, 1)?,
                    decode_ranges(row.get_ref(2)?.as_blob_or_null()?),
                );
            }
            Ok(())
        };
        visited().map_err(|error| self.names.classify_error(error))
    }

    fn batch(&self, batch: BatchId) -> Result<Option<BatchRow>> {
        let sql = "SELECT digest, seq FROM batches \
            WHERE volume = ?1 AND replica = ?2 AND incarnation = ?3 AND counter = ?4";
        let (replica, incarnation, no) = batch_key(batch);
        let params = params![self.volume, replica, incarnation, no];
        self.select_row(sql, params, |row| {
            Ok(BatchRow {
                digest: row.get(0)?,
                seq: column_seq(row, 1)?,
            })
        })
    }

    fn last_batch(&self, author: Author, to: CommitSeq) -> Result<BatchNo> {
        let sql = "SELECT counter FROM batches \
            WHERE volume = ?1 AND replica = ?2 AND incarnation = ?3 AND seq <= ?4
            ORDER BY counter DESC LIMIT 1";
        let (replica, incarnation) = (author.replica.get(), author.incarnation.get());
        let params = params![self.volume, replica, incarnation, sql_integer(to.get())];
        let found = self.select_row(sql, params, |row| row.get(0).map(BatchNo::new))?;
        Ok(found.unwrap_or(BatchNo::NONE))
    }

    fn staged_parts(&self, replica: ReplicaNo) -> Result<Vec<StagedPart>> {
        let sql =
            "SELECT incarnation, batch, part, len FROM staged WHERE volume = ?1 AND replica = ?2
            ORDER BY incarnation, batch, part";
        self.select_rows(sql, params![self.volume, replica.get()], |row| {
            Ok(StagedPart {
                incarnation: Incarnation::new(row.get(0)?),
                batch: BatchNo::new(row.get(1)?),
                part: row.get(2)?,
                len: row.get(3)?,
            })
        })
    }

    fn staged_part(&self, batch: BatchId, part: u32) -> Result<Option<Vec<u8>>> {
        let sql = "SELECT bytes FROM staged
            WHERE volume = ?1 AND replica = ?2 AND incarnation = ?3 AND batch = ?4 AND part = ?5";
        let (replica, incarnation, no) = batch_key(batch);
        let params = params![self.volume, replica, incarnation, no, part];
        self.select_row(sql, params, |row| row.get(0))
    }

    fn replica(&self, replica: ReplicaNo) -> Result<Option<ReplicaRow>> {
        let sql = "SELECT replica, device, incarnation, last_batch, position, revoked, local, \
            secs, nanos FROM replicas
            WHERE volume = ?1 AND replica = ?2";
        Ok(self
            .select_row(sql, params![self.volume, replica.get()], replica_row)?
            .map(|(_, row)| row))
    }

    fn replicas(&self) -> Result<Vec<(ReplicaNo, ReplicaRow)>> {
        let sql = "SELECT replica, device, incarnation, last_batch, position, revoked, local, \
            secs, nanos FROM replicas
            WHERE volume = ?1 ORDER BY replica";
        self.select_rows(sql, [self.volume], replica_row)
    }

    fn token(&self, hash: &[u8; 32]) -> Result<Option<TokenRow>> {
        let sql = "SELECT secs, nanos, used FROM tokens WHERE volume = ?1 AND hash = ?2";
        let shape = |row: &Row<'_>| {
            Ok(TokenRow {
                expires: column_time(row, 0)?,
                is_used: row.get(2)?,
            })
        };
        self.select_row(sql, params![self.volume, hash], shape)
    }

    fn lease(&self, lease: LeaseNo) -> Result<Option<ReplicaNo>> {
        let sql = "SELECT replica FROM leases WHERE volume = ?1 AND lease = ?2";
        self.select_row(sql, params![self.volume, lease.get()], |row| {
            row.get(0).map(ReplicaNo::new)
        })
    }

    fn conflict(&self, id: u64) -> Result<Option<ConflictRow>> {
        let sql = "SELECT id, kind, seq, secs, nanos, device, object, copy, lost \
            FROM conflicts WHERE volume = ?1 AND id = ?2";
        Ok(self
            .select_row(sql, params![self.volume, sql_integer(id)], conflict_row)?
            .map(|(_, row)| row))
    }

    fn conflicts_after(&self, after: u64, rows: usize) -> Result<Vec<(u64, ConflictRow)>> {
        let sql = "SELECT id, kind, seq, secs, nanos, device, object, copy, lost FROM conflicts
            WHERE volume = ?1 AND id > ?2 ORDER BY id LIMIT ?3";
        self.select_rows(
            sql,
            params![self.volume, sql_integer(after), sql_limit(rows)],
            conflict_row,
        )
    }
}

#[cfg(test)]
mod tests;
