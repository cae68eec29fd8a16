//! Every structure on the disk: its byte table, its codec, its golden bytes.
//!
//! All integers are little-endian. An address is a 512-byte sector number. Each structure has its
//! own magic and version, or lies inside one that has. `docs/format.md` is the same in prose;
//! `tests/suite/format_doc.rs` holds the two against each other.
//!
//! | module | structure | magic |
//! |---|---|---|
//! | [`superblock`] | the identity of a store and where its parts are | `TEALFS\0\x01` |
//! | [`anchor`] | where the newest checkpoint is | `TANC` |
//! | [`root_copy`] | the second copy of a checkpoint's roots | `TROO` |
//! | [`record`] | one part of a batch: header, payload, body of deltas | `TREC` |
//! | [`delta`] | what a batch changed | inside a record |
//! | [`inode`] | an object | inside a record's body |
//! | [`extent`] | where blocks of a file are, with checksums | inside inodes, pages, deltas |
//! | [`imap`] | where an object's inode record is | inside pages |
//! | [`usage`] | how much of a segment is in use | inside pages |
//! | [`shared`] | extents that several files refer to | inside pages, deltas |
//! | [`future`] | history: fixed now, used later | inside pages |

pub(crate) mod anchor;
pub(crate) mod checksum;
pub(crate) mod codec;
pub(crate) mod delta;
pub(crate) mod extent;
pub(crate) mod future;
pub(crate) mod geometry;
pub(crate) mod imap;
pub(crate) mod inode;
pub(crate) mod note_key;
pub(crate) mod owner;
pub(crate) mod page;
pub(crate) mod record;
pub(crate) mod root_copy;
pub(crate) mod segment_walk;
pub(crate) mod shared;
pub(crate) mod superblock;
pub(crate) mod usage;

#[cfg(test)]
mod tests;
