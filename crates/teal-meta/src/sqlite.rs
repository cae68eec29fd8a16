//! Metadata in a SQLite database.
//!
//! # Guarantees
//! 1. *Durable*: write-ahead log with `synchronous=FULL`; a transaction that may wait does without
//!    its own sync, and the next full one, which syncs the same log, covers it.
//! 2. *Ours*: a database of another program or of a newer version is refused before anything is
//!    written to it.
//!
//! | lock | guards | under it |
//! |---|---|---|
//! | `writer` | the one connection that writes | a whole transaction with its I/O: SQLite has one writer at a time anyway |
//! | `readers` | connections that nobody reads with at the moment, and how many do | nothing; waiting lets it go |

mod codec;
mod fault;
mod open;
mod read;
mod write;

use crate::error::Result;
use crate::meta::{CommitDurability, MetaStore, ReadTransaction, WriteTransaction};
use fault::DatabaseName;
use parking_lot::{Condvar, Mutex};
use rusqlite::{Connection, TransactionBehavior};
use std::path::{Path, PathBuf};
use teal_types::VolumeId;

/// Connections that read at the same time; who comes then waits. A connection more would cost more
/// than that: it has to learn the schema, and has statements and pages of its own.
const READERS: usize = 8;

/// A database of metadata. One process at a time should serve it; SQLite keeps others from harm.
#[derive(Debug)]
pub struct Sqlite {
    path: PathBuf,
    names: DatabaseName,
    writer: Mutex<Connection>,
    readers: Mutex<ReaderPool>,
    /// Told when a connection is free.
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
        readers.idle.extend(self.connection.take());
        readers.busy -= 1;
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
        while readers.busy == READERS {
            self.free.wait(&mut readers);
        }
        readers.busy += 1;
        PooledReader {
            sqlite: self,
            connection: readers.idle.pop(),
        }
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
        let level = if durability == CommitDurability::Now {
            "FULL"
        } else {
            "NORMAL"
        };
        self.name_error(writer.pragma_update(None, "synchronous", level))?;
        // Dropped without a commit, it is rolled back.
        let transaction =
            self.name_error(writer.transaction_with_behavior(TransactionBehavior::Immediate))?;
        if work(&mut SqliteTransaction {
            connection: &transaction,
            names: &self.names,
            volume: volume.get().into(),
        }) {
            self.name_error(transaction.commit())
        } else {
            self.name_error(transaction.rollback())
        }
    }

    fn read(&self, volume: VolumeId, work: &mut dyn FnMut(&dyn ReadTransaction)) -> Result<()> {
        let mut reader = self.take_reader();
        let connection = match reader.connection.take() {
            Some(connection) => connection,
            None => open::open_reader(&self.path, &self.names)?,
        };
        let transaction = self.name_error(
            reader
                .connection
                .insert(connection)
                .transaction_with_behavior(TransactionBehavior::Deferred),
        )?;
        work(&SqliteTransaction {
            connection: &transaction,
            names: &self.names,
            volume: volume.get().into(),
        });
        self.name_error(transaction.rollback())
    }
}
