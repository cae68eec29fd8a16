//! Why a store is not opened.

use crate::error::StoreError;
use crate::format::owner::StoreOwner;

/// Why a disk cannot be opened as a store.
#[derive(Debug, thiserror::Error)]
pub enum StoreOpenError {
    /// No superblock: something else, or nothing.
    #[error("this is not a TealFS store (no superblock found); make one with `teal mkfs`")]
    NotTeal,
    /// Too short for a superblock.
    #[error("this is not a TealFS store: it has only {0} bytes; make one with `teal mkfs`")]
    TooShort(u64),
    /// Both superblocks are damaged.
    #[error("both superblocks are damaged; the store cannot be opened")]
    Superblocks,
    /// Made by a newer program.
    #[error("this store has format version {0}, newer than this program knows; use a newer teal")]
    Newer(u16),
    /// Made by an older program, before there was a release.
    #[error(
        "this store has format version {0}, which this program does not know any more; copy its \
         files out with the teal that made it"
    )]
    Older(u16),
    /// Uses features this program does not know.
    #[error("this store uses features this program does not know (bits {0:#x}); use a newer teal")]
    Features(u64),
    /// As [`StoreOpenError::Features`], but reading is possible.
    #[error(
        "this store uses features this program can only read (bits {0:#x}); mount it read-only or \
         use a newer teal"
    )]
    ReadOnlyFeatures(u64),
    /// The superblock contradicts itself.
    #[error("the superblock is damaged: its {0} makes no sense")]
    Geometry(&'static str),
    /// The disk is smaller than the store.
    #[error(
        "the disk has {have} bytes but the store has {want}: it was cut short; restore it to its \
         full length"
    )]
    Truncated {
        /// Bytes there are.
        have: u64,
        /// Bytes there should be.
        want: u64,
    },
    /// No anchor is whole.
    #[error(
        "no checkpoint can be found: all anchors are damaged; mount read-only with -o salvage to \
         copy out what the log still leads to, or let `teal repair` make a whole store of it"
    )]
    Anchors,
    /// Not even an older checkpoint can be read.
    #[error(
        "nothing can be salvaged: neither the anchors nor the segments lead to a checkpoint whose \
         map of inodes and root directory can be read. An older copy of the disk, or one made with \
         a tool that reads bad sectors again and again, may still have them"
    )]
    Unsalvageable,
    /// A record that was durable cannot be read.
    #[error(
        "record {seq} at sector {at} was durable and cannot be read now: the disk lost data. \
         Mount read-only with -o salvage to copy out what can be read, before it and behind it, or \
         let `teal repair` make a whole store of that"
    )]
    Lost {
        /// Its sequence number.
        seq: u64,
        /// The place where it should be.
        at: u64,
    },
    /// Another machine has it open for writing, or did not close it.
    #[error(
        "the machine {} has this store open since its last write at {since}: unmount it there. If \
         that machine is gone for good, \
         or surely does not write to it any more, --take-over opens it here", .owner.name()
    )]
    OwnedElsewhere {
        /// The machine that has the store open.
        owner: StoreOwner,
        /// When it wrote last, for people.
        since: String,
    },
    /// A structure the chain leads to is damaged, or the disk failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}
