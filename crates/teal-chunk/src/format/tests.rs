//! Golden bytes, and decoders before hostile input.

use super::chunk::{self, ChunkHeader};
use super::table::Footer;
use super::{PackId, header};
use crate::codec::append_checksum;
use crate::domain::{DedupDomain, DomainId};
use crate::limits::CHUNK_MAX;
use crate::pack::{PackBuilder, PackTail, read_tail, verify_chunk};
use proptest::prelude::*;

fn domain() -> DedupDomain {
    DedupDomain::new(DomainId::new([0xd0; 16]), [7; 32])
}

fn pack_of(contents: &[&[u8]]) -> (Vec<u8>, Vec<super::TableEntry>) {
    let mut builder = PackBuilder::new(&domain(), PackId::new([0xaa; 16]), 1_700_000_000);
    for content in contents {
        let encoded = chunk::encode_chunk(domain().name_content(content), content);
        builder.append(&ChunkHeader::decode(&encoded).unwrap(), &encoded);
    }
    builder.finish()
}

/// The bytes from the front as hexadecimal digits, 32 bytes a line.
fn hex(bytes: &[u8]) -> String {
    let lines = bytes.chunks(32).map(|line| {
        line.iter()
            .map(|byte| format!("{byte:02x}"))
            .collect::<String>()
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn golden_bytes_of_a_pack() {
    // Never changes: stores written by released programs look like this. The frame is read only,
    // another zstd may write another.
    let golden: Vec<u8> = include_str!("golden.txt")
        .split_whitespace()
        .flat_map(|line| {
            (0..line.len() / 2).map(|at| u8::from_str_radix(&line[at * 2..at * 2 + 2], 16).unwrap())
        })
        .collect();
    let PackTail::Whole(footer, entries) = read_tail(&golden, golden.len() as u64) else {
        panic!("the golden pack is whole")
    };
    assert_eq!(
        (footer.identity.pack, entries.len()),
        (PackId::new([0xaa; 16]), 2)
    );
    for (entry, content) in entries.iter().zip([&b"teal"[..], &[b'z'; 100]]) {
        let span = entry.byte_range().start as usize..entry.byte_range().end as usize;
        assert_eq!(
            verify_chunk(&domain(), &entry.id, &golden[span]).unwrap(),
            content
        );
    }
    // Everything around the frame is written as it is read.
    let identity = footer.identity;
    let mut written = header::encode(&identity, 1_700_000_000);
    for entry in &entries {
        let encoded = &golden[entry.byte_range().start as usize..entry.byte_range().end as usize];
        written.extend(ChunkHeader::decode(encoded).unwrap().encode());
        written.extend(&encoded[chunk::BYTES..]);
    }
    super::table::append_table(&mut written, &identity, &entries);
    assert_eq!(hex(&written), hex(&golden));
    assert_eq!(
        pack_of(&[b"teal"]).0[..140],
        golden[..140],
        "a chunk that is stored as it is"
    );
}

#[test]
fn an_object_name_is_a_pack_and_back() {
    let id = PackId::new(std::array::from_fn(|at| at as u8 * 17));
    assert_eq!(
        id.object_name(),
        "packs/00/00112233445566778899aabbccddeeff.pack"
    );
    assert_eq!(PackId::from_object_name(&id.object_name()), Some(id));
    for name in [
        "packs/01/00112233445566778899aabbccddeeff.pack",
        "packs/00/00112233445566778899AABBCCDDEEFF.pack",
        "packs/00/00112233445566778899aabbccddeeff.pack#1",
        "packs/00/00112233445566778899aabbccddeef.pack",
        "packs/00/0+112233445566778899aabbccddeeff.pack",
        "packs/\u{e4}/00112233445566778899aabbccddeeff.pack",
        "packs/00/\u{e4}\u{e4}\u{e4}\u{e4}.pack",
        "packs/",
        "",
        "lock",
    ] {
        assert_eq!(PackId::from_object_name(name), None, "{name}");
    }
}

#[test]
fn content_is_compressed_only_where_that_saves_space() {
    let random: Vec<u8> = (0..5000_u32)
        .map(|at| blake3::hash(&at.to_le_bytes()).as_bytes()[0])
        .collect();
    let compressed = |content: &[u8]| {
        let encoded = chunk::encode_chunk(domain().name_content(content), content);
        let header = ChunkHeader::decode(&encoded).unwrap();
        assert_eq!(
            chunk::decode_content(&header, &encoded[chunk::BYTES..]).unwrap(),
            content
        );
        header.codec == chunk::Codec::Zstd
    };
    assert!(compressed(&[9; 5000]) && compressed(&vec![0; CHUNK_MAX]));
    assert!(!compressed(&random) && !compressed(b"1") && !compressed(b"12"));
}

#[test]
fn a_payload_that_would_decompress_to_more_is_refused_without_doing_so() {
    let bomb = zstd::bulk::compress(&vec![0; 64 << 20], 19).unwrap();
    assert!(bomb.len() < 10_000);
    let id = domain().name_content(b"");
    let header = |bytes: u32| ChunkHeader {
        codec: chunk::Codec::Zstd,
        id,
        bytes,
        stored: bomb.len() as u32,
        payload_crc: crc32c::crc32c(&bomb),
    };
    assert_eq!(
        chunk::decode_content(&header(CHUNK_MAX as u32), &bomb),
        Err("it does not decompress")
    );
    // And a header cannot declare more than a chunk may have.
    assert_eq!(
        ChunkHeader::decode(&header(CHUNK_MAX as u32 + 1).encode()),
        None
    );
    assert!(ChunkHeader::decode(&header(CHUNK_MAX as u32).encode()).is_some());
}

#[test]
fn every_flipped_bit_of_a_structure_is_noticed() {
    let (bytes, entries) = pack_of(&[b"teal", &[b'z'; 100]]);
    let size = bytes.len() as u64;
    let footer = Footer::decode(&bytes, size).unwrap();
    for bit in 0..bytes.len() * 8 {
        let (at, mut damaged) = (bit / 8, bytes.clone());
        damaged[at] ^= 1 << (bit % 8);
        let header = header::decode(&damaged);
        let found = Footer::decode(&damaged, size);
        let table = |footer: Footer| {
            footer.decode_entries(&damaged[footer.table as usize..][..footer.table_bytes()])
        };
        let chunks = entries.iter().map(|entry| {
            let span = entry.byte_range();
            verify_chunk(
                &domain(),
                &entry.id,
                &damaged[span.start as usize..span.end as usize],
            )
        });
        let seen = [
            header.is_none(),
            chunks.into_iter().any(|chunk| chunk.is_err()),
            found.is_none(),
        ];
        let seen_in_table = found.is_some_and(|footer| table(footer).is_none());
        assert!(seen.contains(&true) || seen_in_table, "bit {bit}");
    }
    assert!(
        footer
            .decode_entries(&bytes[footer.table as usize..][..footer.table_bytes()])
            .is_some()
    );
}

proptest! {
    #[test]
    fn decoders_take_anything(mut bytes: Vec<u8>, size: u64, sealed: bool) {
        // With a right checksum the fields themselves are met.
        if sealed {
            for magic in [&b"TEALPK\0\x01\x01\0"[..], b"TCHK", b"TEND\x01\0\0\0"] {
                let mut front = magic.to_vec();
                front.extend(&bytes);
                front.resize(if magic == b"TCHK" { chunk::BYTES - 4 } else { header::BYTES - 4 }, 0);
                append_checksum(&mut front, 0);
                exercise(&front, size);
                exercise(&front, front.len() as u64);
            }
        }
        exercise(&bytes, size);
        bytes.truncate(bytes.len() / 2);
        exercise(&bytes, bytes.len() as u64);
    }

    #[test]
    fn damaged_packs_are_read_without_harm(
        contents in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..300), 0..6),
        edits in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..4),
        cut: proptest::sample::Index,
    ) {
        let contents: Vec<&[u8]> = contents.iter().map(Vec::as_slice).collect();
        let (mut bytes, entries) = pack_of(&contents);
        let before = bytes.clone();
        for (at, with) in edits {
            let at = at.index(bytes.len());
            bytes[at] = with;
        }
        bytes.truncate(cut.index(bytes.len()) + 1);
        exercise(&bytes, bytes.len() as u64);
        // Salvage finds exactly the chunks whose bytes are as they were.
        let expected: Vec<_> = entries
            .into_iter()
            .filter(|entry| {
                let span = entry.byte_range().start as usize..entry.byte_range().end as usize;
                bytes.get(span.clone()) == Some(&before[span])
            })
            .collect();
        prop_assert_eq!(crate::pack::salvage_chunks(&domain(), &bytes), expected);
    }
}

fn exercise(bytes: &[u8], size: u64) {
    let _ = header::decode(bytes);
    if let Some(header) = ChunkHeader::decode(bytes) {
        let _ = chunk::decode_content(&header, &bytes[chunk::BYTES..]);
    }
    let _ = read_tail(bytes, size);
    let _ = crate::pack::salvage_chunks(&domain(), bytes);
}
