//! A chunk inside a pack: a header, then its payload.
//!
//! | at | bytes | field |
//! |---:|---:|---|
//! | 0 | 4 | magic `TCHK` |
//! | 4 | 1 | codec: 0 as it is, 1 zstd (one frame) |
//! | 5 | 3 | zero |
//! | 8 | 32 | name: BLAKE3 of the content, keyed with the domain's key |
//! | 40 | 4 | bytes of the content, 1 to 4 MiB |
//! | 44 | 4 | bytes of the payload: fewer than of the content, as many with codec 0 |
//! | 48 | 4 | CRC32C of the payload |
//! | 52 | 4 | CRC32C of the bytes before |

use crate::codec::{LittleEndianReader, append_checksum, checksum, ends_with_checksum};
use crate::limits::CHUNK_MAX;
use teal_types::ChunkId;

pub(crate) const BYTES: usize = 56;
pub(crate) const MAGIC: &[u8; 4] = b"TCHK";
/// The level of zstd: its default, a few hundred MB/s on one core.
const LEVEL: i32 = 3;

/// The form in which a payload is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Codec {
    Raw = 0,
    Zstd = 1,
}

/// The header in front of a payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ChunkHeader {
    pub(crate) codec: Codec,
    pub(crate) id: ChunkId,
    pub(crate) bytes: u32,
    pub(crate) stored: u32,
    pub(crate) payload_crc: u32,
}

impl ChunkHeader {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(BYTES);
        out.extend(MAGIC);
        out.extend([self.codec as u8, 0, 0, 0]);
        out.extend(self.id.get());
        out.extend(self.bytes.to_le_bytes());
        out.extend(self.stored.to_le_bytes());
        out.extend(self.payload_crc.to_le_bytes());
        append_checksum(&mut out, 0);
        out
    }

    /// Reads the header at the front of `bytes`, if it is whole and its fields fit each other.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let sealed = bytes.get(..BYTES)?;
        if !ends_with_checksum(sealed) {
            return None;
        }
        let mut reader = LittleEndianReader(sealed);
        reader.expect_bytes(MAGIC)?;
        let codec = match reader.take_array::<1>()? {
            [0] => Codec::Raw,
            [1] => Codec::Zstd,
            _ => return None,
        };
        reader.expect_zeros::<3>()?;
        let header = Self {
            codec,
            id: ChunkId::new(reader.take_array()?),
            bytes: reader.take_u32()?,
            stored: reader.take_u32()?,
            payload_crc: reader.take_u32()?,
        };
        // A compressed payload that is no smaller is never written, so it is damage.
        let is_raw_length = header.bytes == header.stored;
        let is_possible =
            lengths_fit(header.bytes, header.stored) && (codec == Codec::Raw) == is_raw_length;
        is_possible.then_some(header)
    }
}

/// Returns whether a chunk can have these lengths.
pub(crate) fn lengths_fit(bytes: u32, stored: u32) -> bool {
    stored > 0 && stored <= bytes && bytes as usize <= CHUNK_MAX
}

/// Returns header and payload of this content, compressed if that makes it smaller.
///
/// # Panics
/// If the content is empty or over [`CHUNK_MAX`]: the store has checked.
pub(crate) fn encode_chunk(id: ChunkId, content: &[u8]) -> Vec<u8> {
    assert!(
        !content.is_empty() && content.len() <= CHUNK_MAX,
        "a chunk has 1 to {CHUNK_MAX} bytes"
    );
    // Into a buffer one byte smaller than the content: a result that does not fit is not worth
    // storing, and the content is stored as it is.
    let mut packed = vec![0; content.len() - 1];
    let smaller = zstd::bulk::compress_to_buffer(content, &mut packed, LEVEL).ok();
    let (codec, payload) =
        smaller.map_or((Codec::Raw, content), |len| (Codec::Zstd, &packed[..len]));
    let (bytes, stored) = (content.len() as u32, payload.len() as u32);
    let mut out = ChunkHeader {
        codec,
        id,
        bytes,
        stored,
        payload_crc: checksum(payload),
    }
    .encode();
    out.extend_from_slice(payload);
    out
}

/// Returns the content of a payload, or the damage in words. Allocates no more than the header
/// declares, which is at most [`CHUNK_MAX`].
pub(crate) fn decode_content(
    header: &ChunkHeader,
    payload: &[u8],
) -> Result<Vec<u8>, &'static str> {
    // Cheap checks first: nothing is decompressed that the checksum refuses.
    if payload.len() != header.stored as usize {
        return Err("it is cut short");
    }
    if checksum(payload) != header.payload_crc {
        return Err("its payload does not match its checksum");
    }
    let content = match header.codec {
        Codec::Raw => payload.to_vec(),
        Codec::Zstd => {
            // The header's length, which is bounded, and not the length that the frame claims.
            let mut content = vec![0; header.bytes as usize];
            let len = zstd::bulk::decompress_to_buffer(payload, &mut content)
                .map_err(|_| "it does not decompress")?;
            content.truncate(len);
            content
        }
    };
    // A frame may hold less than the header says; more would not have fit.
    if content.len() != header.bytes as usize {
        return Err("it decompresses to another length");
    }
    Ok(content)
}
