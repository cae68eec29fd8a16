//! The result of reading content from a drive.

use teal_types::ByteRanges;

/// An offset in a file, and the bytes there.
pub type DataPiece = (u64, Vec<u8>);

/// The content that was found: a part of it may be absent, and a part damaged.
#[derive(Debug, Default)]
pub struct FoundContent {
    /// The ranges that are here and were read.
    pub present: ByteRanges,
    /// The pieces of them that are not zeros, ascending.
    pub pieces: Vec<DataPiece>,
    /// The ranges that should be here and are damaged.
    pub damaged: ByteRanges,
}
