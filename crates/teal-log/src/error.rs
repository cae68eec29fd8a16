//! What can go wrong in a store.
//!
//! # Guarantees
//! 1. *Named damage*: the message of a damaged structure says where it lies and, where known, whose
//!    it is.

use std::{io, sync::Arc};

use teal_types::ObjectNo;

/// What can go wrong in a store. A variant exists because a caller branches on it.
///
/// Cloning is cheap: one failed sync answers every caller that waited for it.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// The backing store refused a request.
    #[error("the disk failed to {doing}{}: {source}", at_sector(*.doing, *.at))]
    Io {
        /// What it was asked for.
        doing: DiskRequest,
        /// The first sector of the request; 0 for those of the whole disk.
        at: u64,
        /// What the backing store said.
        #[source]
        source: Arc<io::Error>,
    },
    /// Something that was durable cannot be understood any more.
    #[error("{what} at sector {at}{} is damaged", owned_by(.object.as_ref()))]
    Corrupt {
        /// The structure, as a noun.
        what: &'static str,
        /// Its first sector.
        at: u64,
        /// The object it belongs to, if known.
        object: Option<ObjectNo>,
    },
    /// The object does not exist, or not any more.
    #[error("no such object {0}")]
    NotFound(ObjectNo),
    /// The worst case of the operation does not fit into the free space.
    #[error("no space left")]
    NoSpace,
    /// The store was opened for reading only.
    #[error("the store is read-only")]
    ReadOnly,
    /// A write or sync failed earlier; durable reads go on.
    #[error("the store stopped after an i/o failure; unmount and mount again")]
    Poisoned,
    /// Another opening has written to the store since this one began; this one has written nothing.
    #[error(
        "somebody else has written to the store since it was opened here: nothing was written to it; unmount and mount again"
    )]
    WrittenElsewhere,
    /// A named limit of the format was exceeded.
    #[error("{0} is over its limit")]
    TooBig(&'static str),
}

/// What a disk is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiskRequest {
    /// To read sectors.
    Read,
    /// To write sectors.
    Write,
    /// To make everything written before durable.
    Sync,
    /// To have room for sectors in the file system below.
    Allocate,
    /// Whether the disk as a whole is still there.
    Find,
}

impl std::fmt::Display for DiskRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Sync => "make what was written durable",
            Self::Allocate => "allocate room for a write",
            Self::Find => "answer",
        })
    }
}

fn at_sector(doing: DiskRequest, at: u64) -> String {
    match doing {
        DiskRequest::Sync | DiskRequest::Find => String::new(),
        DiskRequest::Read | DiskRequest::Write | DiskRequest::Allocate => {
            format!(" at sector {at}")
        }
    }
}

fn owned_by(object: Option<&ObjectNo>) -> String {
    object
        .map(|object| format!(" of object {object}"))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn named_damage() {
        let mut error = StoreError::Corrupt {
            what: "a page",
            at: 7,
            object: Some(ObjectNo::new(3)),
        };
        assert_eq!(
            error.to_string(),
            "a page at sector 7 of object #3 is damaged"
        );
        if let StoreError::Corrupt { object, .. } = &mut error {
            *object = None;
        }
        assert_eq!(error.to_string(), "a page at sector 7 is damaged");
    }
}
