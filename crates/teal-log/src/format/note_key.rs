//! Keys of the tree of notes: an object number and the number of a piece of its note.

use teal_types::{ObjectNo, REPLICATED_LIMIT};

/// Bytes of a piece: an item of a page.
pub(crate) const PIECE: usize = 1000;
pub(crate) const PIECE_BITS: u32 = 12;
pub(crate) fn note_key(no: ObjectNo, piece: u16) -> u64 {
    assert!(
        no.get() < REPLICATED_LIMIT,
        "notes are for replicated volumes, whose numbers are smaller"
    );
    no.get() << PIECE_BITS | u64::from(piece)
}

pub(crate) fn split_key(key: u64) -> (ObjectNo, u16) {
    (
        ObjectNo::new(key >> PIECE_BITS),
        (key & ((1 << PIECE_BITS) - 1)) as u16,
    )
}

/// Returns whether a delta may name this piece of this object.
pub(crate) fn is_key(no: ObjectNo, piece: u16) -> bool {
    no.get() < REPLICATED_LIMIT && piece < 1 << PIECE_BITS
}
