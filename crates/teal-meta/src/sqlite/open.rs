//! Opening a database, making an empty one, and bringing an older one up to date.
//!
//! # Guarantees
//! 1. *Older ones go on*: the tables of every version before are brought up in one transaction at
//!    opening; nothing in them is lost.

use super::fault::DatabaseName;
use crate::error::{MetaError, Result};
use rusqlite::{Connection, OpenFlags, TransactionBehavior};
use std::path::Path;
use std::time::Duration;

/// Marks a database as ours: "teal".
const APPLICATION: i32 = 0x7465_616c;
/// The statements that make each version of the tables from the one before, beginning with nothing;
/// `docs/format-meta.md` describes the tables.
const SCHEMAS: [&str; 3] = [
    include_str!("schema.sql"),
    include_str!("schema_2.sql"),
    include_str!("schema_3.sql"),
];
/// The version of the tables.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    reason = "a few"
)]
const VERSION: i32 = SCHEMAS.len() as i32;
/// The time that a transaction waits for another process.
const BUSY: Duration = Duration::from_secs(5);
/// Prepared statements kept for each connection: more than there are.
const STATEMENTS: usize = 128;
/// Pages the log may have before it is moved into the database.
const CHECKPOINT_PAGES: i64 = 4000;

pub(super) fn open_writer(path: &Path, names: &DatabaseName) -> Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = connect(path, flags, names)?;
    let sorted =
        |outcome: rusqlite::Result<()>| outcome.map_err(|error| names.classify_error(error));
    let pragma = |name: &str| {
        connection
            .pragma_query_value(None, name, |row| row.get::<_, i32>(0))
            .map_err(|error| names.classify_error(error))
    };
    let tables: i64 = connection
        .query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))
        .map_err(|error| names.classify_error(error))?;
    let (application, version) = (pragma("application_id")?, pragma("user_version")?);
    let foreign = |what: String| {
        Err(MetaError::Foreign {
            file: names.file_name().to_owned(),
            what,
        })
    };
    // An empty database may become ours; one with tables of another program must not be touched.
    if tables > 0 && application != APPLICATION {
        return foreign("is the database of another program; name another file".into());
    }
    // A newer program may have tables that this one would break.
    if version > VERSION {
        return foreign(format!(
            "has format {version} and this program knows {VERSION}: update the program"
        ));
    }
    // Readers do not wait for the writer with a write-ahead log.
    sorted(connection.pragma_update(None, "journal_mode", "WAL"))?;
    sorted(connection.pragma_update(None, "wal_autocheckpoint", CHECKPOINT_PAGES))?;
    if version < VERSION {
        sorted(bring_up(&mut connection))?;
    }
    Ok(connection)
}

/// Brings the tables up to the newest version, from those that are there, if any.
fn bring_up(connection: &mut Connection) -> rusqlite::Result<()> {
    connection.pragma_update(None, "synchronous", "FULL")?;
    // All steps are one transaction: a crash leaves the old version, whole.
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    // The version is read again under the lock: another process may have been faster.
    let version: usize = transaction.pragma_query_value(None, "user_version", |row| row.get(0))?;
    for schema in SCHEMAS.iter().skip(version) {
        transaction.execute_batch(schema)?;
    }
    transaction.pragma_update(None, "application_id", APPLICATION)?;
    transaction.pragma_update(None, "user_version", VERSION)?;
    transaction.commit()
}

pub(super) fn open_reader(path: &Path, names: &DatabaseName) -> Result<Connection> {
    // A reader of a write-ahead log writes to its index, so it opens for writing and is told not
    // to.
    let connection = connect(
        path,
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX,
        names,
    )?;
    connection
        .pragma_update(None, "query_only", true)
        .map_err(|error| names.classify_error(error))?;
    Ok(connection)
}

fn connect(path: &Path, flags: OpenFlags, names: &DatabaseName) -> Result<Connection> {
    let connection =
        Connection::open_with_flags(path, flags).map_err(|error| names.classify_error(error))?;
    connection
        .busy_timeout(BUSY)
        .map_err(|error| names.classify_error(error))?;
    // The cache must be larger than the number of statements, or it would prepare some of them
    // again and again.
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    Ok(connection)
}

#[cfg(test)]
mod tests;
