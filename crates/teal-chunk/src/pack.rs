//! Packs as wholes: put together in memory, and taken apart, also where damaged.
//!
//! # Guarantees
//! 1. *Self-describing*: the table and the headers of the chunks say the same.
//! 2. *Salvage*: of a pack cut short, or damaged anywhere, every chunk that is still whole is
//!    found, and nothing else.

use crate::domain::DedupDomain;
use crate::format::chunk::{self, ChunkHeader};
use crate::format::table::{self, Footer};
use crate::format::{PackId, PackIdentity, TableEntry, header};
use crate::limits::{PACK_CHUNKS_MAX, PACK_MAX, SALVAGE_EXTRA};
use crate::seeded::{ChunkBug, bug};
use teal_types::ChunkId;

/// A pack that is being filled.
#[derive(Debug, Clone)]
pub(crate) struct PackBuilder {
    identity: PackIdentity,
    bytes: Vec<u8>,
    entries: Vec<TableEntry>,
}

impl PackBuilder {
    pub(crate) fn new(domain: &DedupDomain, pack: PackId, made: i64) -> Self {
        let identity = pack_identity(domain, pack);
        Self {
            identity,
            bytes: header::encode(&identity, made),
            entries: Vec::new(),
        }
    }

    /// Returns whether a chunk of this encoded length still fits a pack of about `target` bytes.
    /// Every chunk fits into an empty one.
    pub(crate) fn has_room(&self, encoded: usize, target: usize) -> bool {
        let end =
            self.bytes.len() + encoded + (self.entries.len() + 1) * table::ROW + table::FOOTER;
        self.entries.is_empty()
            || (end <= target && end as u64 <= PACK_MAX && self.entries.len() < PACK_CHUNKS_MAX)
    }

    /// Returns whether all of these still fit, as [`has_room`](Self::has_room).
    pub(crate) fn has_room_for(&self, chunks: &[TableEntry], target: usize) -> bool {
        if self.entries.is_empty() || chunks.is_empty() {
            return true;
        }
        let mut bytes = 0;
        for entry in chunks {
            let range = entry.byte_range();
            bytes += range.end - range.start + table::ROW as u64;
        }
        let is_bounded = self.entries.len() + chunks.len() <= PACK_CHUNKS_MAX;
        is_bounded && self.has_room(bytes as usize, target)
    }

    /// Appends a chunk's header and payload.
    pub(crate) fn append(&mut self, header: &ChunkHeader, encoded: &[u8]) {
        assert_eq!(
            encoded.len(),
            chunk::BYTES + header.stored as usize,
            "header and payload belong together"
        );
        // Known before the bytes are appended: the chunk begins at the present end.
        let offset = u32::try_from(self.bytes.len()).expect("PACK_MAX is below 4 GiB");
        self.entries.push(TableEntry {
            id: header.id,
            offset,
            stored: header.stored,
            bytes: header.bytes,
        });
        self.bytes.extend_from_slice(encoded);
        debug_assert!(self.bytes.len() as u64 <= PACK_MAX, "a pack has a limit");
    }

    pub(crate) fn pack_id(&self) -> PackId {
        self.identity.pack
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Appends the table, and returns the whole pack and its entries.
    pub(crate) fn finish(mut self) -> (Vec<u8>, Vec<TableEntry>) {
        table::append_table(&mut self.bytes, &self.identity, &self.entries);
        (self.bytes, self.entries)
    }
}

/// Returns the identity of a pack of this domain.
pub(crate) fn pack_identity(domain: &DedupDomain, pack: PackId) -> PackIdentity {
    PackIdentity {
        domain: *domain.id().get(),
        key_check: domain.key_check(),
        pack,
    }
}

/// Returns the content of the chunk `id`, which has its header and payload in `encoded`; or the
/// damage in words.
pub(crate) fn verify_chunk(
    domain: &DedupDomain,
    id: &ChunkId,
    encoded: &[u8],
) -> Result<Vec<u8>, &'static str> {
    let header = ChunkHeader::decode(encoded).ok_or("its header is damaged")?;
    // The header is whole but another chunk's: the index or the table is wrong.
    if header.id != *id {
        return Err("another chunk is in its place");
    }
    // The checksum finds decay; the name, below, finds everything else.
    let content = chunk::decode_content(&header, &encoded[chunk::BYTES..])?;
    if domain.name_content(&content) != *id && !bug(ChunkBug::DigestUnverified) {
        return Err("its content does not match its name");
    }
    Ok(content)
}

/// The contents of a pack's end.
pub(crate) enum PackTail {
    /// Footer and table are whole.
    Whole(Footer, Vec<TableEntry>),
    /// The footer is whole and this many bytes of tail are needed to see the table as well.
    More(u64),
    /// Cut short or damaged.
    Damaged,
}

/// Reads the last bytes of a pack of `size` bytes.
pub(crate) fn read_tail(tail: &[u8], size: u64) -> PackTail {
    let Some(footer) = Footer::decode(tail, size) else {
        return PackTail::Damaged;
    };
    // The table ends where the footer begins.
    let needed = footer.table_bytes() + table::FOOTER;
    let Some(start) = tail.len().checked_sub(needed) else {
        return PackTail::More(needed as u64);
    };
    match footer.decode_entries(&tail[start..tail.len() - table::FOOTER]) {
        Some(entries) => PackTail::Whole(footer, entries),
        None => PackTail::Damaged,
    }
}

/// Finds every whole chunk of a pack, without its table. Each is verified up to its name, since the
/// content of a chunk may look like a chunk.
pub(crate) fn salvage_chunks(domain: &DedupDomain, pack: &[u8]) -> Vec<TableEntry> {
    salvage_within(domain, pack, pack.len() * 16 + SALVAGE_EXTRA)
}

/// As [`salvage_chunks`]; gives up after having verified `budget` bytes in vain.
fn salvage_within(domain: &DedupDomain, pack: &[u8], mut budget: usize) -> Vec<TableEntry> {
    let mut found = Vec::new();
    let mut at = header::BYTES;
    while let Some(rest) = pack.get(at..).filter(|rest| rest.len() >= chunk::BYTES) {
        let header = ChunkHeader::decode(rest);
        if let Some(entry) = header.and_then(|header| verified_entry(domain, &header, rest, at)) {
            // The next chunk begins where this one ends, unless there is damage between.
            at += chunk::BYTES + entry.stored as usize;
            found.push(entry);
            continue;
        }
        // Without a limit, content made of headers would have each of them decompress megabytes.
        let cost = header.map_or(0, |header| header.stored as usize + header.bytes as usize);
        let Some(left) = budget.checked_sub(cost) else {
            break;
        };
        budget = left;
        // Damage: the next chunk begins where its magic stands.
        let step = rest[1..]
            .windows(chunk::MAGIC.len())
            .position(|bytes| bytes == chunk::MAGIC);
        at = step.map_or(pack.len(), |step| at + 1 + step);
    }
    found
}

fn verified_entry(
    domain: &DedupDomain,
    header: &ChunkHeader,
    rest: &[u8],
    at: usize,
) -> Option<TableEntry> {
    let encoded = rest.get(..chunk::BYTES + header.stored as usize)?;
    // A whole header alone proves nothing: the content must match the name.
    verify_chunk(domain, &header.id, encoded).ok()?;
    let offset = u32::try_from(at).ok()?;
    Some(TableEntry {
        id: header.id,
        offset,
        stored: header.stored,
        bytes: header.bytes,
    })
}

#[cfg(test)]
mod tests;
