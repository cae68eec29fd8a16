//! The errors of this crate, divided by what a caller can do about them.

use std::io;
use std::path::PathBuf;

/// The reasons for which a request has got no answer. Every text is made for the person that has to
/// act on it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NetError {
    /// The server does not answer, or not in time. It is not known if a request that was sent took
    /// effect. Try again later.
    #[error("the server at {address} cannot be reached: {why}")]
    Unreachable {
        /// The address of the server.
        address: String,
        /// The failure in words.
        why: String,
    },
    /// The server knows the machine and says no: revoked, or the token is wrong or used. Trying
    /// again changes nothing.
    #[error("the server refuses: {0}")]
    Refused(String),
    /// The server is at one of its limits; the request had no effect. Try again later.
    #[error("the server is busy: {0}")]
    Busy(String),
    /// The request or its answer is larger than the limit; send less at a time.
    #[error("too large: {0}")]
    TooLarge(String),
    /// The server proves another identity than the one expected, or does not accept this machine's
    /// certificate. If [`crate::Channel::renew_if_due`] does not help, the machine is to be
    /// enrolled again.
    #[error("{0}")]
    Certificate(String),
    /// The other side does not speak this protocol, or broke down at this request.
    #[error("{0}")]
    Protocol(String),
}

/// Why an identity cannot be kept or loaded.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// The file cannot be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Others than its owner may read the file with the private key.
    #[error(
        "{} holds a private key and others may read it (mode {mode:o}): chmod 600 it, and if \
         others could have read it, replace it",
        path.display()
    )]
    Exposed {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// The file is not what was once written there.
    #[error(
        "{} is damaged ({why}): restore it from a backup, or remove it and enrol again",
        path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The kind of damage.
        why: String,
    },
}
