//! New objects, as tests make them.

use teal_log::NewObject;
use teal_types::{FileType, Timestamp};

/// Returns the attributes of a new file.
pub(crate) fn new_file() -> NewObject {
    new_object(FileType::File)
}

/// Returns the attributes of a new object of a type.
pub(crate) fn new_object(kind: FileType) -> NewObject {
    NewObject {
        kind,
        perm: 0o644,
        uid: 0,
        gid: 0,
        rdev: 0,
        now: Timestamp::default(),
    }
}
