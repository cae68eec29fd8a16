//! Operations that make no sense are found, and the fault is named.

use super::*;
use teal_types::{ChunkId, CommitSeq, ContentPiece, Timestamp};

fn content(cut: u64, size: u64, pieces: &[(u64, u64, Option<u32>)]) -> Option<&'static str> {
    let source = |offset: Option<u32>| {
        offset.map_or(PieceSource::Hole, |offset| PieceSource::Chunk {
            id: ChunkId::new([0; 32]),
            offset,
        })
    };
    let pieces = pieces.iter().map(|(offset, len, from)| ContentPiece {
        offset: *offset,
        len: *len,
        source: source(*from),
    });
    content_fault(&ContentChange {
        cut,
        size,
        mtime: Timestamp::new(0, 0),
        pieces: pieces.collect(),
    })
}

#[test]
fn pieces_are_ascending_and_inside() {
    assert_eq!(content(0, 10, &[(0, 4, Some(0)), (4, 6, None)]), None);
    assert_eq!(content(0, 0, &[]), None);
    for bad in [
        &[(0, 0, None)][..],
        &[(5, 6, None)],
        &[(4, 2, None), (5, 1, None)],
        &[(u64::MAX, 2, None)],
    ] {
        assert!(content(0, 10, bad).is_some(), "{bad:?}");
    }
    assert!(content(0, 1 << 30, &[(0, CHUNK_MAX as u64, Some(1))]).is_some());
    assert!(content(0, 1 << 30, &[(0, 1, Some(u32::MAX))]).is_some());
    assert!(content(11, 10, &[]).is_some());
    assert!(content(0, FILE_MAX + 1, &[]).is_some());
}

#[test]
fn names_and_numbers_are_checked() {
    let create = |object| Op::Create {
        object: ObjectNo::new(object),
        kind: teal_types::FileType::File,
        attributes: ReplicatedAttributes::default(),
        target: vec![],
    };
    assert_eq!(find_fault(&create(16)), None);
    for bad in [0, 1, 15, REPLICATED_LIMIT, u64::MAX] {
        assert!(
            find_fault(&create(bad)).is_some_and(|words| words.contains("object")),
            "{bad}"
        );
    }
    let xattr = |name: &[u8], len| Op::SetXattr {
        object: ObjectNo::ROOT,
        base: CommitSeq::new(0),
        name: name.to_vec(),
        value: Some(vec![0; len]),
    };
    assert_eq!(find_fault(&xattr(b"user.a", XATTR_VALUE_MAX)), None);
    assert!(find_fault(&xattr(b"user.a", XATTR_VALUE_MAX + 1)).is_some());
    assert!(
        find_fault(&xattr(b"", 0)).is_some()
            && find_fault(&xattr(&[b'x'; 256], 0)).is_some()
            && find_fault(&xattr(b"a\0", 0)).is_some()
    );
}
