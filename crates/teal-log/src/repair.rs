//! `repair`: a new store with all that a damaged one still says.
//!
//! # Guarantees
//! 1. *Nothing is written to the damaged store.* It is read as salvage reads it; what is found goes
//!    into another store, through the same operations as everything else. So the new store can be
//!    written, `check` finds it clean, and the old one can be tried again with other means.
//! 2. *Said before it is done*: [`RepairSurvey::open`](survey::RepairSurvey::open) finds out all
//!    that is lost, content included, before anything is written.
//! 3. *The tree is certain*: in the tree are only objects that the inode map and the log lead to,
//!    with names on which the object and its directory agree, or which the object has where the
//!    page of the directory is lost; and files of which every byte was read and matched its
//!    checksum.
//! 4. *What is not certain is in `lost+found`*, in directories that say why: `damaged` has files of
//!    which a part is lost (it is a hole in what is there), `detached` has whole objects whose
//!    directory is lost, `uncertain` what may have been deleted or superseded. Nothing there has
//!    setuid, setgid or `security.capability`, only root can enter, and what only records tell of
//!    is never a device, a socket or a pipe: any user may have made up a record.
//! 5. *Deleted stays deleted*: an object that the map does not have, or that has no names, is not
//!    brought back, however whole its records are.
//! 6. *Can be resumed*: until all is there, the new store has a file
//!    [`UNFINISHED`](plan::UNFINISHED) in its root, which says from which state of which store it
//!    is made, and by which plan: of a failing disk another one may be made the next time. Copying
//!    goes on behind what such a store has. An object gets its names when all of it is there.
//!
//! # How
//! 1. `facts` looks at every object that the readable pages of the inode map and the log behind the
//!    checkpoint lead to. Damaged second copies, usage tables, orphan sets and tables of shared
//!    extents stop nothing.
//! 2. `records` searches all segments for the newest whole records of objects that this does not
//!    reach: their page of the map or their record is lost.
//! 3. `placement` decides where each object goes, and makes the `plan`; `lost_found` names what
//!    goes to `lost+found`.
//! 4. `content` reads every file, to find those that are not whole.
//! 5. `copy` writes the new store, by the plan.
//!
//! Memory grows with the number of objects and the length of their names.

mod content;
pub(crate) mod copy;
mod facts;
pub(crate) mod findings;
mod lost_found;
mod placement;
pub(crate) mod plan;
mod records;
pub(crate) mod survey;
