//! What can go wrong with stored metadata.
//!
//! # Guarantees
//! 1. *Named*: the message says which file, and the way out.

use std::error::Error;

/// Why something was written down before it became an error.
pub(crate) type Cause = Box<dyn Error + Send + Sync>;

/// What can go wrong with stored metadata. After any of them the transaction has not happened.
#[derive(Debug, thiserror::Error)]
pub enum MetaError {
    /// No room for it.
    #[error("no space left for {file}; make room on its disk, then it goes on by itself")]
    NoSpace {
        /// The database.
        file: String,
        /// What was said.
        #[source]
        source: Cause,
    },
    /// It may only be read.
    #[error("{file} cannot be written; make it and its directory writable for this user")]
    ReadOnly {
        /// The database.
        file: String,
        /// What was said.
        #[source]
        source: Cause,
    },
    /// What is stored makes no sense.
    #[error(
        "{file} is damaged ({source}); stop the server and put back a copy of it, clients then offer again what they have"
    )]
    Damaged {
        /// The database.
        file: String,
        /// What is wrong.
        #[source]
        source: Cause,
    },
    /// Another process holds it.
    #[error("{file} is in use by another process; end that one, or wait for it")]
    Busy {
        /// The database.
        file: String,
        /// What was said.
        #[source]
        source: Cause,
    },
    /// Not ours, or of a newer program.
    #[error("{file} {what}")]
    Foreign {
        /// The database.
        file: String,
        /// What it is, and the way out.
        what: String,
    },
    /// Anything else: the disk is out of reach, or broken.
    #[error("{file}: {source}; look at its disk, then start the server again")]
    Io {
        /// The database.
        file: String,
        /// What was said.
        #[source]
        source: Cause,
    },
}

/// Shorthand of this crate.
pub(crate) type Result<T> = std::result::Result<T, MetaError>;
