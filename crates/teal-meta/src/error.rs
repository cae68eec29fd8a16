//! The errors of stored metadata.
//!
//! # Guarantees
//! 1. *Named*: the message says which file, and the way out.

use std::error::Error;

/// The error below, as SQLite reported it.
pub(crate) type Cause = Box<dyn Error + Send + Sync>;

/// An error of stored metadata. After any of them the transaction has not happened.
#[derive(Debug, thiserror::Error)]
pub enum MetaError {
    /// The disk has no room.
    #[error("no space left for {file}; make room on its disk, then it goes on by itself")]
    NoSpace {
        /// The database.
        file: String,
        /// The error of SQLite.
        #[source]
        source: Cause,
    },
    /// The database may only be read.
    #[error("{file} cannot be written; make it and its directory writable for this user")]
    ReadOnly {
        /// The database.
        file: String,
        /// The error of SQLite.
        #[source]
        source: Cause,
    },
    /// The stored data makes no sense.
    #[error(
        "{file} is damaged ({source}); stop the server and put back a copy of it, clients then \
            offer again what they have"
    )]
    Damaged {
        /// The database.
        file: String,
        /// The error of SQLite.
        #[source]
        source: Cause,
    },
    /// Another process holds the database.
    #[error("{file} is in use by another process; end that one, or wait for it")]
    Busy {
        /// The database.
        file: String,
        /// The error of SQLite.
        #[source]
        source: Cause,
    },
    /// The file is of another program, or of a newer version.
    #[error("{file} {what}")]
    Foreign {
        /// The database.
        file: String,
        /// A description of the file, and the way out.
        what: String,
    },
    /// Anything else: the disk is out of reach, or broken.
    #[error("{file}: {source}; look at its disk, then start the server again")]
    Io {
        /// The database.
        file: String,
        /// The error of SQLite.
        #[source]
        source: Cause,
    },
}

/// Shorthand of this crate.
pub(crate) type Result<T> = std::result::Result<T, MetaError>;
