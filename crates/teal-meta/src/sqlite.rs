//! Metadata in a SQLite database.
//!
//! # Guarantees
//! 1. *Durable*: write-ahead log with `synchronous=FULL`; a transaction that may wait has no sync
//!    of its own, and the next full one, which syncs the same log, covers it.
//! 2. *Ours*: a database of another program or of a newer version is refused before anything is
//!    written to it.
//!
//! | lock | guards | under it |
//! |---|---|---|
//! | `writer` | the one connection that writes | a whole transaction with its I/O |
//! | `readers` | idle connections, and the number of busy ones | nothing; waiting releases it |
//!
//! SQLite has one writer at a time anyway, so that `writer` costs no concurrency.

mod codec;
mod column;
mod fault;
mod open;
mod read;
mod statement;
mod write;

use crate::error::Result;
use crate::meta::{CommitDurability, MetaStore, ReadTransaction, WriteTransaction};
use fault::DatabaseName;
use parking_lot::{Condvar, Mutex};
use rusqlite::{Connection, TransactionBehavior};
use std::path::{Path, PathBuf};
use teal_types::VolumeId;

/// The number of connections that read at the same time; a further reader waits. One more
/// connection would cost more than the wait: it has to learn the schema, and has statements and
/// pages of its own.
const READERS: usize = 8;

/// A database of metadata. One process at a time should serve it; SQLite keeps others from harm.
#[derive(Debug)]
pub struct Sqlite {
    path: PathBuf,
    names: DatabaseName,
    writer: Mutex<Connection>,
    readers: Mutex<ReaderPool>,
    /// Notified when a connection is free.
    free: Condvar,
}

#[derive(Debug, Default)]
struct ReaderPool {
    idle: Vec<Connection>,
    busy: usize,
}

/// A connection for one reader; given back when dropped.
struct PooledReader<'a> {
    sqlite: &'a Sqlite,
    connection: Option<Connection>,
}

impl Drop for PooledReader<'_> {
    fn drop(&mut self) {
        let mut readers = self.sqlite.readers.lock();
        // A reader that failed before it had a connection gives none back.
        readers.idle.extend(self.connection.take());
        debug_assert!(readers.busy > 0, "this reader was counted");
        readers.busy -= 1;
        debug_assert!(
            readers.idle.len() <= READERS,
            "no more connections than readers"
        );
        self.sqlite.free.notify_one();
    }
}

/// One transaction.
struct SqliteTransaction<'a> {
    connection: &'a Connection,
    names: &'a DatabaseName,
    volume: i64,
}

impl Sqlite {
    /// Opens the database, or makes an empty one.
    ///
    /// # Errors
    /// [`MetaError`](crate::MetaError), naming the file.
    pub fn open(path: &Path) -> Result<Self> {
        let names = DatabaseName::new(path);
        let writer = open::open_writer(path, &names)?;
        Ok(Self {
            path: path.to_owned(),
            names,
            writer: Mutex::new(writer),
            readers: Mutex::default(),
            free: Condvar::new(),
        })
    }

    fn take_reader(&self) -> PooledReader<'_> {
        let mut readers = self.readers.lock();
        // The wait releases the lock, so that a reader can give its connection back.
        while readers.busy == READERS {
            self.free.wait(&mut readers);
        }
        debug_assert!(readers.busy < READERS, "a connection is free");
        readers.busy += 1;
        PooledReader {
            sqlite: self,
            connection: readers.idle.pop(),
        }
    }

    /// Returns the connection of a reader; connections are made when they are first needed.
    fn connect_reader<'a>(&self, reader: &'a mut PooledReader<'_>) -> Result<&'a mut Connection> {
        let connection = match reader.connection.take() {
            Some(connection) => connection,
            None => open::open_reader(&self.path, &self.names)?,
        };
        Ok(reader.connection.insert(connection))
    }

    fn name_error<T>(&self, outcome: rusqlite::Result<T>) -> Result<T> {
        outcome.map_err(|error| self.names.classify_error(error))
    }
}

impl MetaStore for Sqlite {
    fn volumes(&self) -> Result<Vec<VolumeId>> {
        let writer = self.writer.lock();
        let rows = || {
            let mut select = writer.prepare_cached("SELECT volume FROM volumes ORDER BY volume")?;
            select
                .query_map([], |row| row.get(0).map(VolumeId::new))?
                .collect()
        };
        self.name_error(rows())
    }

    fn write(
        &self,
        volume: VolumeId,
        durability: CommitDurability,
        work: &mut dyn FnMut(&mut dyn WriteTransaction) -> bool,
    ) -> Result<()> {
        let mut writer = self.writer.lock();
        // SQLite keeps the level for each connection: it is set before every transaction.
        let level = if durability == CommitDurability::Now {
            "FULL"
        } else {
            "NORMAL"
        };
        self.name_error(writer.pragma_update(None, "synchronous", level))?;
        // A transaction that is dropped without a commit is rolled back.
        let transaction =
            self.name_error(writer.transaction_with_behavior(TransactionBehavior::Immediate))?;
        if work(&mut SqliteTransaction {
            connection: &transaction,
            names: &self.names,
            volume: volume.get().into(),
        }) {
            self.name_error(transaction.commit())
        } else {
            // A transaction that read has nothing to commit.
            self.name_error(transaction.rollback())
        }
    }

    fn read(&self, volume: VolumeId, work: &mut dyn FnMut(&dyn ReadTransaction)) -> Result<()> {
        let mut reader = self.take_reader();
        let connection = self.connect_reader(&mut reader)?;
        let transaction =
            self.name_error(connection.transaction_with_behavior(TransactionBehavior::Deferred))?;
        work(&SqliteTransaction {
            connection: &transaction,
            names: &self.names,
            volume: volume.get().into(),
        });
        // Rolling back ends the read without touching the log.
        self.name_error(transaction.rollback())
    }

    fn check_integrity(&self) -> Result<Vec<String>> {
        let mut reader = self.take_reader();
        let connection = self.connect_reader(&mut reader)?;
        // One statement is one read transaction: writers go on meanwhile.
        let mut statement = self.name_error(connection.prepare("PRAGMA integrity_check"))?;
        let mut rows = self.name_error(statement.query([]))?;
        let mut problems = Vec::new();
        while let Some(row) = self.name_error(rows.next())? {
            problems.push(self.name_error(row.get(0))?);
        }
        // SQLite answers with this one word if it has found nothing.
        problems.retain(|problem: &String| problem != "ok");
        Ok(problems)
    }
}
