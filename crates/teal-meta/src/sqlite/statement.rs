//! The prepared statements of a transaction, with their errors sorted.

use super::SqliteTransaction;
use crate::error::Result;
use rusqlite::{OptionalExtension as _, Params, Row};

impl SqliteTransaction<'_> {
    /// Returns the rows that a statement selects, each made by `shape`.
    pub(super) fn select_rows<T>(
        &self,
        sql: &str,
        params: impl Params,
        shape: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>> {
        let rows = || {
            self.connection
                .prepare_cached(sql)?
                .query_map(params, shape)?
                .collect()
        };
        let rows: rusqlite::Result<Vec<T>> = rows();
        rows.map_err(|error| self.names.classify_error(error))
    }

    /// Returns the one row that a statement selects, if any.
    pub(super) fn select_row<T>(
        &self,
        sql: &str,
        params: impl Params,
        shape: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Option<T>> {
        let row = || {
            self.connection
                .prepare_cached(sql)?
                .query_row(params, shape)
                .optional()
        };
        row().map_err(|error| self.names.classify_error(error))
    }

    /// Runs a statement that returns no rows.
    pub(super) fn run(&self, sql: &str, params: impl Params) -> Result<()> {
        let run = || self.connection.prepare_cached(sql)?.execute(params);
        run()
            .map(drop)
            .map_err(|error| self.names.classify_error(error))
    }
}
