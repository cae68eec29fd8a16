//! The parts that the command lines of the two programs `teal` and `teal-lab` share: messages and
//! sizes for people, the places of files, the table of mounts, and the search for the other
//! program.
//!
//! # Guarantees
//! 1. Both programs say the same thing in the same words, and agree where sockets, logs and
//!    modelled disks lie.
//! 2. A program of another version is never started in place of the one that was built with this
//!    one.

pub mod logging;
pub mod mount_table;
pub mod path_context;
pub mod paths;
pub mod place_text;
pub mod profile;
pub mod program;
pub mod say;
pub mod size;

/// The line that a background process prints on standard output once it serves.
pub const READY: &str = "ready";

/// Returns whether the kernel offers FUSE here.
pub fn fuse_is_there() -> bool {
    std::path::Path::new("/dev/fuse").exists()
}
