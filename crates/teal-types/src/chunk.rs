//! The name of a chunk: a piece of content at a server.

use serde::{Deserialize, Serialize};

/// Names a chunk by its content: BLAKE3 keyed with the key of its deduplication domain. Equal in
/// one domain means equal content.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ChunkId([u8; 32]);

impl ChunkId {
    /// Wraps the digest.
    pub const fn new(raw: [u8; 32]) -> Self {
        Self(raw)
    }
    /// Returns the digest, as stored.
    pub const fn get(&self) -> &[u8; 32] {
        &self.0
    }
}

impl std::fmt::Display for ChunkId {
    /// 64 hexadecimal digits.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl std::fmt::Debug for ChunkId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ChunkId({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_is_shown_as_its_digest() {
        let mut raw = [0; 32];
        (raw[0], raw[31]) = (0xab, 1);
        let shown = ChunkId::new(raw).to_string();
        assert_eq!((shown.len(), &shown[..4], &shown[62..]), (64, "ab00", "01"));
    }
}
