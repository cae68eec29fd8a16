//! The changes of a transaction: one prepared statement each.

use super::SqliteTransaction;
use super::codec::{encode_ranges, encode_state, kind_code};
use super::column::{batch_key, sql_integer};
use crate::error::Result;
use crate::meta::WriteTransaction;
use crate::row::{
    BatchRow, CommitRow, ConflictRow, EntryRow, ExtentRow, NameTally, ObjectRow, PastExtent,
    Ranges, ReplicaRow, TokenRow, VolumeRow, XattrRow,
};
use rusqlite::params;
use teal_types::{BatchId, CommitSeq, HardLink, LeaseNo, ObjectNo, ReplicaNo};

impl WriteTransaction for SqliteTransaction<'_> {
    fn put_volume(&mut self, row: &VolumeRow) -> Result<()> {
        let sql =
            "INSERT OR REPLACE INTO volumes VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)";
        self.run(
            sql,
            params![
                self.volume,
                row.label,
                row.incarnation.get(),
                sql_integer(row.head.get()),
                row.digest,
                row.time.secs,
                row.time.nanos,
                row.next_replica.get(),
                sql_integer(row.next_conflict),
                sql_integer(row.own_next),
                sql_integer(row.own_end)
            ],
        )
    }

    fn put_setting(&mut self, key: &str, value: &[u8]) -> Result<()> {
        self.run(
            "INSERT OR REPLACE INTO settings VALUES(?1, ?2, ?3)",
            params![self.volume, key, value],
        )
    }

    fn put_object(&mut self, object: ObjectNo, row: Option<&ObjectRow>) -> Result<()> {
        let object = sql_integer(object.get());
        match row {
            Some(row) => self.run(
                "INSERT OR REPLACE INTO objects VALUES(?1, ?2, ?3)",
                params![self.volume, object, encode_state(row)],
            ),
            None => self.run(
                "DELETE FROM objects WHERE volume = ?1 AND object = ?2",
                params![self.volume, object],
            ),
        }
    }

    fn put_entry(&mut self, link: &HardLink, row: Option<EntryRow>) -> Result<()> {
        let (dir, name) = (sql_integer(link.dir.get()), link.name.as_bytes());
        match row {
            Some(row) => self.run(
                "INSERT OR REPLACE INTO entries VALUES(?1, ?2, ?3, ?4, ?5)",
                params![
                    self.volume,
                    dir,
                    name,
                    sql_integer(row.object.get()),
                    sql_integer(row.seq.get())
                ],
            ),
            None => self.run(
                "DELETE FROM entries WHERE volume = ?1 AND dir = ?2 AND name = ?3",
                params![self.volume, dir, name],
            ),
        }
    }

    fn put_xattr(&mut self, object: ObjectNo, name: &[u8], row: Option<&XattrRow>) -> Result<()> {
        let object = sql_integer(object.get());
        match row {
            Some(row) => self.run(
                "INSERT OR REPLACE INTO xattrs VALUES(?1, ?2, ?3, ?4, ?5)",
                params![
                    self.volume,
                    object,
                    name,
                    row.value,
                    sql_integer(row.seq.get())
                ],
            ),
            None => self.run(
                "DELETE FROM xattrs WHERE volume = ?1 AND object = ?2 AND name = ?3",
                params![self.volume, object, name],
            ),
        }
    }

    fn put_extent(&mut self, object: ObjectNo, extent: &ExtentRow) -> Result<()> {
        let ExtentRow {
            offset,
            len,
            chunk,
            start,
        } = extent;
        self.run(
            "INSERT OR REPLACE INTO extents VALUES(?1, ?2, ?3, ?4, ?5, ?6)",
            params![
                self.volume,
                sql_integer(object.get()),
                sql_integer(*offset),
                sql_integer(*len),
                chunk.get(),
                start
            ],
        )
    }

    fn drop_extent(&mut self, object: ObjectNo, offset: u64) -> Result<()> {
        self.run(
            "DELETE FROM extents WHERE volume = ?1 AND object = ?2 AND offset = ?3",
            params![self.volume, sql_integer(object.get()), sql_integer(offset)],
        )
    }

    fn drop_content(&mut self, object: ObjectNo) -> Result<()> {
        // Both tables are keyed by volume and object.
        let params = (self.volume, sql_integer(object.get()));
        self.run(
            "DELETE FROM extents WHERE volume = ?1 AND object = ?2",
            params,
        )?;
        self.run(
            "DELETE FROM xattrs WHERE volume = ?1 AND object = ?2",
            params,
        )
    }

    fn remember_object(
        &mut self,
        object: ObjectNo,
        seq: CommitSeq,
        row: Option<&ObjectRow>,
    ) -> Result<()> {
        self.run(
            "INSERT INTO past_objects VALUES(?1, ?2, ?3, ?4)",
            params![
                self.volume,
                sql_integer(object.get()),
                sql_integer(seq.get()),
                row.map(encode_state)
            ],
        )
    }

    fn remember_entry(
        &mut self,
        link: &HardLink,
        seq: CommitSeq,
        object: Option<ObjectNo>,
    ) -> Result<()> {
        let (dir, name, object) = (
            sql_integer(link.dir.get()),
            link.name.as_bytes(),
            object.map(|object| sql_integer(object.get())),
        );
        self.run(
            "INSERT INTO past_entries VALUES(?1, ?2, ?3, ?4, ?5)",
            params![self.volume, dir, name, sql_integer(seq.get()), object],
        )
    }

    fn remember_names(&mut self, dir: ObjectNo, seq: CommitSeq) -> Result<()> {
        let params = (self.volume, sql_integer(dir.get()), sql_integer(seq.get()));
        self.run("INSERT INTO snapshots VALUES(?1, ?2, ?3)", params)?;
        // The live names are copied within SQLite.
        let sql = "INSERT INTO snapshot_names SELECT volume, dir, ?3, name, object \
            FROM entries WHERE volume = ?1 AND dir = ?2";
        self.run(sql, params)
    }

    fn put_tally(&mut self, dir: ObjectNo, tally: NameTally) -> Result<()> {
        self.run(
            "INSERT OR REPLACE INTO tallies VALUES(?1, ?2, ?3, ?4)",
            params![
                self.volume,
                sql_integer(dir.get()),
                sql_integer(tally.names),
                sql_integer(tally.changes)
            ],
        )
    }

    fn remember_xattr(
        &mut self,
        object: ObjectNo,
        name: &[u8],
        seq: CommitSeq,
        value: Option<&[u8]>,
    ) -> Result<()> {
        self.run(
            "INSERT INTO past_xattrs VALUES(?1, ?2, ?3, ?4, ?5)",
            params![
                self.volume,
                sql_integer(object.get()),
                name,
                sql_integer(seq.get()),
                value
            ],
        )
    }

    fn remember_extent(&mut self, object: ObjectNo, extent: &PastExtent) -> Result<()> {
        let (object, seq) = (sql_integer(object.get()), sql_integer(extent.seq.get()));
        let (offset, len) = (sql_integer(extent.offset), sql_integer(extent.len));
        match extent.source {
            Some((chunk, start)) => self.run(
                "INSERT INTO past_extents VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7)",
                params![self.volume, object, offset, seq, len, chunk.get(), start],
            ),
            None => self.run(
                "INSERT INTO past_holes VALUES(?1, ?2, ?3, ?4, ?5)",
                params![self.volume, object, seq, offset, len],
            ),
        }
    }

    fn add_commit(&mut self, seq: CommitSeq, row: &CommitRow) -> Result<()> {
        let CommitRow {
            batch,
            time,
            digest,
        } = row;
        let (replica, incarnation, no) = batch_key(*batch);
        self.run(
            "INSERT INTO commits VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
            params![
                self.volume,
                sql_integer(seq.get()),
                replica,
                incarnation,
                no,
                time.secs,
                time.nanos,
                digest
            ],
        )
    }

    fn add_change(&mut self, seq: CommitSeq, object: ObjectNo, ranges: &Ranges) -> Result<()> {
        self.run(
            "INSERT INTO changes VALUES(?1, ?2, ?3, ?4)",
            params![
                self.volume,
                sql_integer(seq.get()),
                sql_integer(object.get()),
                encode_ranges(ranges)
            ],
        )
    }

    fn add_batch(&mut self, batch: BatchId, row: &BatchRow) -> Result<()> {
        let (replica, incarnation, no) = batch_key(batch);
        self.run(
            "INSERT INTO batches VALUES(?1, ?2, ?3, ?4, ?5, ?6)",
            params![
                self.volume,
                replica,
                incarnation,
                no,
                row.digest,
                sql_integer(row.seq.get())
            ],
        )
    }

    fn stage_part(&mut self, batch: BatchId, part: u32, bytes: &[u8]) -> Result<()> {
        let (replica, incarnation, no) = batch_key(batch);
        self.run(
            "INSERT OR REPLACE INTO staged VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            params![
                self.volume,
                replica,
                incarnation,
                no,
                part,
                sql_integer(bytes.len() as u64),
                bytes
            ],
        )
    }

    fn drop_staged(&mut self, batch: BatchId) -> Result<()> {
        let (replica, incarnation, no) = batch_key(batch);
        self.run(
            "DELETE FROM staged WHERE volume = ?1 AND replica = ?2 AND (incarnation <> ?3 OR \
                batch <= ?4)",
            params![self.volume, replica, incarnation, no],
        )
    }

    fn put_replica(&mut self, replica: ReplicaNo, row: &ReplicaRow) -> Result<()> {
        self.run(
            "INSERT OR REPLACE INTO replicas VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
            params![
                self.volume,
                replica.get(),
                row.device,
                row.incarnation.get(),
                sql_integer(row.last_batch.get()),
                sql_integer(row.position.get()),
                row.is_revoked,
                row.is_local,
                row.seen.secs,
                row.seen.nanos
            ],
        )
    }

    fn put_token(&mut self, hash: &[u8; 32], row: &TokenRow) -> Result<()> {
        self.run(
            "INSERT OR REPLACE INTO tokens VALUES(?1, ?2, ?3, ?4, ?5)",
            params![
                self.volume,
                hash,
                row.expires.secs,
                row.expires.nanos,
                row.is_used
            ],
        )
    }

    fn put_lease(&mut self, lease: LeaseNo, replica: ReplicaNo) -> Result<()> {
        self.run(
            "INSERT INTO leases VALUES(?1, ?2, ?3)",
            params![self.volume, lease.get(), replica.get()],
        )
    }

    fn put_conflict(&mut self, id: u64, row: Option<&ConflictRow>) -> Result<()> {
        // A resolved conflict leaves the table; history keeps what was done.
        let Some(row) = row else {
            return self.run(
                "DELETE FROM conflicts WHERE volume = ?1 AND id = ?2",
                params![self.volume, sql_integer(id)],
            );
        };
        self.run(
            "INSERT OR REPLACE INTO conflicts VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
            params![
                self.volume,
                sql_integer(id),
                kind_code(row.kind),
                sql_integer(row.seq.get()),
                row.time.secs,
                row.time.nanos,
                row.device,
                sql_integer(row.object.get()),
                row.copy.map(|copy| sql_integer(copy.get())),
                row.lost
            ],
        )
    }
}
