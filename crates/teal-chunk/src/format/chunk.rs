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

/// How a payload is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Codec {
    Raw = 0,
    Zstd = 1,
}

/// What stands before a payload.
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

    /// The header at the front of `bytes`, if it is whole and says nothing impossible.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut t = LittleEndianReader(
            bytes
                .get(..BYTES)
                .filter(|bytes| ends_with_checksum(bytes))?,
        );
        t.expect_bytes(MAGIC)?;
        let codec = match t.take_array::<1>()? {
            [0] => Codec::Raw,
            [1] => Codec::Zstd,
            _ => return None,
        };
        t.expect_zeros::<3>()?;
        let header = Self {
            codec,
            id: ChunkId::new(t.take_array()?),
            bytes: t.take_u32()?,
            stored: t.take_u32()?,
            payload_crc: t.take_u32()?,
        };
        (lengths_fit(header.bytes, header.stored)
            && (codec == Codec::Raw) == (header.bytes == header.stored))
            .then_some(header)
    }
}

/// Returns whether a chunk can have these lengths.
pub(crate) fn lengths_fit(bytes: u32, stored: u32) -> bool {
    stored > 0 && stored <= bytes && bytes as usize <= CHUNK_MAX
}

/// Header and payload of this content, compressed if that makes it smaller.
///
/// # Panics
/// If the content is empty or over [`CHUNK_MAX`]: the store has checked.
pub(crate) fn encode_chunk(id: ChunkId, content: &[u8]) -> Vec<u8> {
    assert!(
        !content.is_empty() && content.len() <= CHUNK_MAX,
        "a chunk has 1 to {CHUNK_MAX} bytes"
    );
    // Into a buffer one byte too small to be worth nothing: what does not fit is stored as it is.
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

/// The content of a payload, or what is wrong with it. Allocates no more than the header declares,
/// which is at most [`CHUNK_MAX`].
pub(crate) fn decode_content(
    header: &ChunkHeader,
    payload: &[u8],
) -> Result<Vec<u8>, &'static str> {
    if payload.len() != header.stored as usize {
        return Err("it is cut short");
    }
    if checksum(payload) != header.payload_crc {
        return Err("its payload does not match its checksum");
    }
    let content = match header.codec {
        Codec::Raw => payload.to_vec(),
        Codec::Zstd => {
            let mut content = vec![0; header.bytes as usize];
            let len = zstd::bulk::decompress_to_buffer(payload, &mut content)
                .map_err(|_| "it does not decompress")?;
            content.truncate(len);
            content
        }
    };
    if content.len() != header.bytes as usize {
        return Err("it decompresses to another length");
    }
    Ok(content)
}
