//! A deduplication domain: within it, equal content has one name and is stored once.

use std::fmt;
use teal_types::ChunkId;

/// The text whose keyed hash is kept in every pack, to recognise the key without knowing any chunk.
const KEY_CHECK_TEXT: &[u8] = b"teal-chunk key check 1";

/// Names a deduplication domain; a volume by default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DomainId([u8; 16]);

impl DomainId {
    /// Wraps the raw bytes.
    pub const fn new(raw: [u8; 16]) -> Self {
        Self(raw)
    }
    /// Returns the raw bytes, as stored.
    pub const fn get(&self) -> &[u8; 16] {
        &self.0
    }
}

/// A domain and its key. With the key one can tell whether the domain has some content; without it
/// the names say nothing.
#[derive(Clone, PartialEq, Eq)]
pub struct DedupDomain {
    id: DomainId,
    key: [u8; 32],
}

impl DedupDomain {
    /// Makes the domain of this id and key.
    pub const fn new(id: DomainId, key: [u8; 32]) -> Self {
        Self { id, key }
    }

    /// Returns the id.
    pub const fn id(&self) -> DomainId {
        self.id
    }

    /// Returns the name of this content in the domain.
    pub fn name_content(&self, content: &[u8]) -> ChunkId {
        ChunkId::new(*blake3::keyed_hash(&self.key, content).as_bytes())
    }

    /// Returns eight bytes by which a pack shows that it was written with this key.
    pub(crate) fn key_check(&self) -> [u8; 8] {
        // Eight bytes tell keys apart, and are too few to help find one.
        let digest = blake3::keyed_hash(&self.key, KEY_CHECK_TEXT);
        std::array::from_fn(|at| digest.as_bytes()[at])
    }
}

impl fmt::Debug for DedupDomain {
    /// Leaves the key out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Domain")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_decides_about_the_name() {
        let (one, two) = (
            DedupDomain::new(DomainId::new([1; 16]), [1; 32]),
            DedupDomain::new(DomainId::new([1; 16]), [2; 32]),
        );
        assert_ne!(one.name_content(b"same"), two.name_content(b"same"));
        assert_ne!(one.name_content(b"same"), one.name_content(b"other"));
        assert_ne!(one.key_check(), two.key_check());
        // From the test vectors of BLAKE3.
        let friend = DedupDomain::new(DomainId::new([1; 16]), *b"whats the Elvish word for friend");
        let name = friend.name_content(b"").to_string();
        assert_eq!(
            name,
            "92b2b75604ed3c761f9d6f62392c8a9227ad0ea3f09573e783f1498a4ed60d26"
        );
    }

    #[test]
    fn the_key_is_not_shown() {
        let shown = format!("{:?}", DedupDomain::new(DomainId::new([1; 16]), [0xee; 32]));
        assert!(
            shown.contains("DomainId") && !shown.contains("238"),
            "{shown}"
        );
    }
}
