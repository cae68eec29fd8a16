//! What the table says and what the chunks say is the same.

use super::*;
use crate::domain::DomainId;
use crate::limits::CHUNK_MAX;

fn domain() -> DedupDomain {
    DedupDomain::new(DomainId::new([1; 16]), [2; 32])
}

fn append(builder: &mut PackBuilder, content: &[u8]) {
    let encoded = chunk::encode_chunk(domain().name_content(content), content);
    builder.append(&ChunkHeader::decode(&encoded).unwrap(), &encoded);
}

#[test]
fn self_describing() {
    let mut builder = PackBuilder::new(&domain(), PackId::new([3; 16]), 0);
    assert!(builder.is_empty());
    (0..2000_u32).for_each(|at| append(&mut builder, &at.to_le_bytes()));
    let (bytes, entries) = builder.finish();
    let size = bytes.len() as u64;
    let PackTail::Whole(footer, told) = read_tail(&bytes, size) else {
        panic!("the tail is whole")
    };
    assert_eq!(
        (footer.identity, &told),
        (pack_identity(&domain(), PackId::new([3; 16])), &entries)
    );
    assert_eq!(salvage_chunks(&domain(), &bytes), entries);
    // A tail too short for the table says how much is needed.
    let PackTail::More(needed) = read_tail(&bytes[bytes.len() - 16_384..], size) else {
        panic!("the table is longer")
    };
    assert!(
        matches!(read_tail(&bytes[bytes.len() - needed as usize..], size), PackTail::Whole(_, rows) if rows == told)
    );
    assert!(
        matches!(read_tail(&bytes, size + 1), PackTail::Damaged),
        "a pack that has grown"
    );
}

#[test]
fn content_that_looks_like_a_chunk_is_not_taken_for_one() {
    // A client stores what looks like a damaged copy of somebody's chunk, and the pack is damaged
    // so that only the magic leads on.
    let mut forged = chunk::encode_chunk(domain().name_content(b"precious"), b"precious");
    *forged.last_mut().unwrap() ^= 1;
    let payload = crate::codec::checksum(&forged[chunk::BYTES..]);
    let forged_header = ChunkHeader {
        payload_crc: payload,
        ..ChunkHeader::decode(&forged).unwrap()
    };
    let mut inner = forged_header.encode();
    inner.extend_from_slice(&forged[chunk::BYTES..]);

    let mut builder = PackBuilder::new(&domain(), PackId::new([3; 16]), 0);
    append(&mut builder, &inner);
    append(&mut builder, b"after");
    let (mut bytes, entries) = builder.finish();
    bytes[header::BYTES] ^= 1;
    assert_eq!(salvage_chunks(&domain(), &bytes), entries[1..]);
}

#[test]
fn a_pack_is_full_at_its_target_and_takes_one_chunk_of_any_size() {
    let mut builder = PackBuilder::new(&domain(), PackId::new([3; 16]), 0);
    assert!(
        builder.has_room(chunk::BYTES + CHUNK_MAX, 1),
        "an empty pack takes any chunk"
    );
    append(&mut builder, b"1");
    let whole = builder.clone().finish().0.len();
    let next = chunk::BYTES + 1;
    assert!(builder.has_room(next, whole + next + table::ROW));
    assert!(!builder.has_room(next, whole + next + table::ROW - 1));
    (1..PACK_CHUNKS_MAX as u32).for_each(|at| append(&mut builder, &at.to_le_bytes()));
    assert!(
        !builder.has_room(1, usize::MAX),
        "a pack has at most {PACK_CHUNKS_MAX} chunks"
    );
    let (bytes, entries) = builder.finish();
    assert!(
        matches!(read_tail(&bytes, bytes.len() as u64), PackTail::Whole(_, rows) if rows == entries)
    );
}

#[test]
fn salvage_does_not_verify_for_ever() {
    let mut builder = PackBuilder::new(&domain(), PackId::new([3; 16]), 0);
    (0..4_u8).for_each(|n| append(&mut builder, &[n; 3]));
    let (mut bytes, entries) = builder.finish();
    // Two payloads are damaged: each costs three bytes stored and three of content.
    for entry in &entries[..2] {
        bytes[entry.offset as usize + chunk::BYTES] ^= 1;
    }
    assert_eq!(salvage_within(&domain(), &bytes, 12), entries[2..]);
    assert_eq!(salvage_within(&domain(), &bytes, 11), []);
    assert_eq!(salvage_chunks(&domain(), &bytes), entries[2..]);
}
