//! Places for packs: named objects that are put once, read and removed, never changed.

use std::error::Error;
use std::ops::Range;
use std::sync::Arc;

pub(crate) mod directory;
pub(crate) mod memory;
mod objects;

/// The prefix of all objects. Other objects beside it are not even looked at.
pub(crate) const PACKS: &str = "packs";

/// An object on a shelf.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ShelfObject {
    /// Name: parts separated by `/`.
    pub name: String,
    /// Length.
    pub bytes: u64,
}

/// A place for objects. The contract is the fault model.
///
/// 1. After a [`put`](Shelf::put) that returned `Ok`, the object is there, whole, whatever happens.
/// 2. After a `put` that failed, or that a crash interrupted, the object is there whole, or not at
///    all.
/// 3. A removed object may be back after a crash. Until then it is gone.
/// 4. The objects that a shelf shows when it has been opened stay: they are durable.
pub trait Shelf: Send + Sync {
    /// Returns the place, for messages to people.
    fn place(&self) -> String;

    /// Puts an object. The caller sees to it that none of this name is there yet.
    ///
    /// # Errors
    /// [`ShelfError`]; see the contract.
    fn put(&self, name: &str, bytes: Vec<u8>) -> Result<(), ShelfError>;

    /// Reads these bytes of an object, fewer if it ends earlier.
    ///
    /// # Errors
    /// [`ShelfError::NotFound`] if there is no such object.
    fn read(&self, name: &str, range: Range<u64>) -> Result<Vec<u8>, ShelfError>;

    /// Returns the bytes that there is room for; `None` if the place cannot tell.
    fn free_bytes(&self) -> Option<u64> {
        None
    }

    /// Lists every object under `packs/`, sorted by name.
    ///
    /// # Errors
    /// [`ShelfError`]; a part of the objects is never passed for all.
    fn list_objects(&self) -> Result<Vec<ShelfObject>, ShelfError>;

    /// Removes an object; one that is not there is no error.
    ///
    /// # Errors
    /// [`ShelfError`]; the object may be there or not.
    fn remove(&self, name: &str) -> Result<(), ShelfError>;
}

/// The cause of a [`ShelfError`], shared by all batches that waited for the same object.
pub type ShelfErrorCause = Arc<dyn Error + Send + Sync>;

/// The reason for which a shelf has refused a request.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ShelfError {
    /// There is no such object. The shelf itself answered: this is not a shelf out of reach.
    #[error("{name} is not there")]
    NotFound {
        /// The object.
        name: String,
    },
    /// No room for the object.
    #[error("no space left for {name}; make room there, then try again")]
    NoSpace {
        /// The object, with the place.
        name: String,
        /// The system's error.
        #[source]
        source: ShelfErrorCause,
    },
    /// The place may only be read.
    #[error("{name} cannot be written: make the place writable, or open it for reading only")]
    ReadOnly {
        /// The object or place.
        name: String,
        /// The system's error.
        #[source]
        source: ShelfErrorCause,
    },
    /// Another process has the place open.
    #[error("{place} is in use by another process; one process at a time may write to it")]
    InUse {
        /// The place.
        place: String,
    },
    /// Anything else: the shelf is out of reach, or broken.
    #[error("{name}: {source}")]
    Unreachable {
        /// The object or place.
        name: String,
        /// The system's error.
        #[source]
        source: ShelfErrorCause,
    },
}

impl ShelfError {
    /// Sorts out the error of a system about `name`, by the first I/O error among the causes.
    fn from_cause(name: String, source: ShelfErrorCause) -> Self {
        use std::io::ErrorKind::{
            PermissionDenied, QuotaExceeded, ReadOnlyFilesystem, StorageFull,
        };
        let mut cause: Option<&(dyn Error + 'static)> = Some(&*source);
        // Libraries wrap the system's error: the whole chain of causes is searched.
        while let Some(error) = cause {
            match error
                .downcast_ref::<std::io::Error>()
                .map(std::io::Error::kind)
            {
                Some(StorageFull | QuotaExceeded) => return Self::NoSpace { name, source },
                Some(ReadOnlyFilesystem | PermissionDenied) => {
                    return Self::ReadOnly { name, source };
                }
                Some(_) | None => cause = error.source(),
            }
        }
        Self::Unreachable { name, source }
    }
}

#[cfg(test)]
mod tests;
