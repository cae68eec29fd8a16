//! A reference file system in memory: what POSIX and Linux say, as plainly as possible.
//!
//! # Guarantees
//! 1. Every operation gives the result and the error that Linux gives to root with umask 0, names
//!    and attributes included.
//! 2. An object without names lives on until it is [forgotten](Model::forget) as often as it was
//!    [opened](Model::open).
//! 3. Cloning is cheap: contents are shared until changed.
//!
//! # How
//! Objects are addressed as a FUSE server would: by number, and by parent and name. Paths are in
//! [`crate::ops`]. Times are known only where an operation set them: nothing here reads a clock.

mod attributes;
mod bytes;
mod inodes;
mod namespace;
mod paths;

pub use attributes::{ObjectStat, XattrFlag};
pub use inodes::{Ino, ROOT, ReferenceModel};
pub use namespace::RenameKind;
pub(crate) use paths::parent_and_name;

#[cfg(test)]
mod tests;
