//! Sorts the errors of SQLite by the way out of them.

use crate::MetaError;
use rusqlite::ErrorCode;
use std::path::Path;

/// The name of the database, for messages.
#[derive(Debug, Clone)]
pub(super) struct DatabaseName(String);

impl DatabaseName {
    pub(super) fn new(path: &Path) -> Self {
        Self(path.display().to_string())
    }

    pub(super) fn file_name(&self) -> &str {
        &self.0
    }

    pub(super) fn classify_error(&self, error: rusqlite::Error) -> MetaError {
        use rusqlite::Error::{
            FromSqlConversionFailure, IntegralValueOutOfRange, InvalidColumnType,
        };
        let file = self.0.clone();
        // A value of the wrong type is damage, too: no version of this crate wrote it.
        let is_nonsense = matches!(
            error,
            FromSqlConversionFailure(..) | IntegralValueOutOfRange(..) | InvalidColumnType(..)
        );
        let (code, source) = (error.sqlite_error_code(), Box::new(error));
        // Each variant is a way out for the caller, so that unknown codes become plain errors.
        match code {
            Some(ErrorCode::DiskFull) => MetaError::NoSpace { file, source },
            Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => {
                MetaError::ReadOnly { file, source }
            }
            Some(
                ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase | ErrorCode::SchemaChanged,
            ) => MetaError::Damaged { file, source },
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
                MetaError::Busy { file, source }
            }
            _ if is_nonsense => MetaError::Damaged { file, source },
            _ => MetaError::Io { file, source },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rusqlite::{Error, ffi};

    #[test]
    fn what_can_be_done_about_it_decides() {
        let names = DatabaseName::new(Path::new("/srv/meta.db"));
        let sorted = |code| names.classify_error(Error::SqliteFailure(ffi::Error::new(code), None));
        assert!(matches!(
            sorted(ffi::SQLITE_FULL),
            MetaError::NoSpace { .. }
        ));
        assert!(matches!(
            sorted(ffi::SQLITE_READONLY),
            MetaError::ReadOnly { .. }
        ));
        assert!(matches!(
            sorted(ffi::SQLITE_CORRUPT),
            MetaError::Damaged { .. }
        ));
        assert!(matches!(sorted(ffi::SQLITE_BUSY), MetaError::Busy { .. }));
        assert!(matches!(sorted(ffi::SQLITE_IOERR), MetaError::Io { .. }));
        for code in [
            ffi::SQLITE_FULL,
            ffi::SQLITE_READONLY,
            ffi::SQLITE_CORRUPT,
            ffi::SQLITE_BUSY,
            ffi::SQLITE_IOERR,
        ] {
            assert!(sorted(code).to_string().contains("/srv/meta.db"));
        }
    }

    #[test]
    fn a_full_database_is_no_space_and_goes_on_when_there_is_some() {
        let connection = rusqlite::Connection::open_in_memory().expect("memory");
        let run = |sql: &str| {
            connection
                .execute_batch(sql)
                .map_err(|error| DatabaseName::new(Path::new("db")).classify_error(error))
        };
        run("CREATE TABLE t(x); PRAGMA max_page_count = 3").expect("small");
        let fill = "INSERT INTO t VALUES(zeroblob(100000))";
        assert!(matches!(run(fill), Err(MetaError::NoSpace { .. })));
        run("PRAGMA max_page_count = 1000").expect("larger");
        run(fill).expect("room");
    }
}
