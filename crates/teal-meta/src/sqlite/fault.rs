//! What SQLite says, sorted by what can be done about it.

use crate::MetaError;
use rusqlite::ErrorCode;
use std::path::Path;

/// The name of the database, for messages.
#[derive(Debug, Clone)]
pub(super) struct Names(String);

impl Names {
    pub(super) fn new(path: &Path) -> Self {
        Self(path.display().to_string())
    }

    pub(super) fn file(&self) -> &str {
        &self.0
    }

    pub(super) fn sort(&self, error: rusqlite::Error) -> MetaError {
        use rusqlite::Error::{FromSqlConversionFailure, IntegralValueOutOfRange, InvalidColumnType};
        let file = self.0.clone();
        let is_nonsense =
            matches!(error, FromSqlConversionFailure(..) | IntegralValueOutOfRange(..) | InvalidColumnType(..));
        let (code, source) = (error.sqlite_error_code(), Box::new(error));
        match code {
            Some(ErrorCode::DiskFull) => MetaError::NoSpace { file, source },
            Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => MetaError::ReadOnly { file, source },
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase | ErrorCode::SchemaChanged) => {
                MetaError::Damaged { file, source }
            }
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => MetaError::Busy { file, source },
            _ if is_nonsense => MetaError::Damaged { file, source },
            _ => MetaError::Io { file, source },
        }
    }
}
