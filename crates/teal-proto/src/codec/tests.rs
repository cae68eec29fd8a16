//! Messages survive the way; foreign bytes are refused in words.

use super::*;
use crate::{DeviceRequest, Hello, RefusalCode, RefusalReply, WantedRange};
use serde_bytes::ByteBuf;
use teal_types::{
    BatchNo, ChunkId, CommitSeq, ContentChange, ContentPiece, DriveNo, HardLink, Incarnation, Name,
    ObjectNo, Op, PieceSource, ServerIncarnation, Timestamp,
};

fn remove() -> Op {
    Op::Remove {
        object: ObjectNo::new(300),
        base: CommitSeq::new(7),
        link: HardLink {
            dir: ObjectNo::ROOT,
            name: Name::new(b"a").unwrap(),
        },
        time: Timestamp::new(-1, 5),
    }
}

#[test]
fn the_bytes_of_protocol_3_are_pinned() {
    let stage = ClientRequest::Stage {
        incarnation: Incarnation::new(1),
        batch: BatchNo::new(2),
        part: 0,
        ops: vec![remove()],
    };
    let bytes = encode_request(&stage).unwrap();
    // Protocol, Stage, incarnation, batch, part, one op: Remove of 300, base 7, root, one byte of
    // name, seconds in zigzag, nanoseconds.
    assert_eq!(
        bytes,
        [3, 0, 5, 1, 2, 0, 1, 1, 0xac, 2, 7, 1, 1, b'a', 1, 5]
    );
    let pieces = vec![ContentPiece {
        offset: 10,
        len: 3,
        source: PieceSource::Chunk {
            id: ChunkId::new([7; 32]),
            offset: 1,
        },
    }];
    let change = ContentChange {
        cut: 10,
        size: 13,
        mtime: Timestamp::new(1, 2),
        pieces,
    };
    let append = Op::Append {
        object: ObjectNo::new(300),
        base: CommitSeq::new(7),
        change,
    };
    let bytes = encode_request(&ClientRequest::Stage {
        incarnation: Incarnation::new(1),
        batch: BatchNo::new(2),
        part: 0,
        ops: vec![append],
    })
    .unwrap();
    // One op: Append to 300, base 7, from 10 to 13, time, one piece at 10 of 3 bytes: a chunk, from
    // its second byte on.
    let head = [
        3, 0, 5, 1, 2, 0, 1, 7, 0xac, 2, 7, 10, 13, 2, 2, 1, 10, 3, 0,
    ];
    assert_eq!(bytes, [&head[..], &[7; 32], &[1]].concat());
    let refused = ServerReply::Refused(RefusalReply {
        code: RefusalCode::NoSpace,
        words: "full".into(),
    });
    assert_eq!(
        encode_reply(&refused).unwrap(),
        [3, 0, 12, 2, 4, b'f', b'u', b'l', b'l']
    );
    let read = ClientRequest::Read {
        wants: vec![WantedRange {
            object: ObjectNo::ROOT,
            data_seq: CommitSeq::new(3),
            offset: 0,
            len: 128,
        }],
    };
    assert_eq!(
        encode_request(&read).unwrap(),
        [3, 0, 9, 1, 1, 3, 0, 0x80, 1]
    );
    let keep = ClientRequest::Keep {
        filter: 5,
        objects: vec![ObjectNo::ROOT, ObjectNo::new(300)],
        is_last: true,
    };
    assert_eq!(
        encode_request(&keep).unwrap(),
        [3, 0, 15, 5, 2, 1, 0xac, 2, 1]
    );
    let pull = ClientRequest::Pull {
        incarnation: Incarnation::new(3),
        since: CommitSeq::new(4),
        digest: [7; 32],
        filter: 5,
        after: None,
        wait_ms: 6,
    };
    let bytes = [&[3, 0, 2, 3, 4][..], &[7; 32], &[5, 0, 6]].concat();
    assert_eq!(encode_request(&pull).unwrap(), bytes);
    assert_eq!(
        encode_reply(&ServerReply::Kept { filter: 5 }).unwrap(),
        [3, 0, 13, 5]
    );
    assert_eq!(
        encode_request(&ClientRequest::Devices(DeviceRequest::Detach {
            device: DriveNo::new(300)
        }))
        .unwrap(),
        [3, 0, 16, 3, 0xac, 2]
    );
    assert_eq!(
        encode_reply(&ServerReply::Devices(Vec::new())).unwrap(),
        [3, 0, 14, 0]
    );
    let request = ClientRequest::ListPast {
        dir: ObjectNo::new(1),
        at: CommitSeq::new(300),
        after: None,
    };
    assert_eq!(encode_request(&request).unwrap(), [3, 0, 17, 1, 0xac, 2, 0]);
    assert_eq!(
        encode_reply(&ServerReply::PastNames {
            names: Some(Vec::new()),
            more: true
        })
        .unwrap(),
        [3, 0, 15, 1, 0, 1]
    );
    let list = ClientRequest::List {
        dirs: vec![(ObjectNo::ROOT, Some(Name::new(b"a").unwrap()))],
        ahead: 128,
    };
    assert_eq!(
        encode_request(&list).unwrap(),
        [3, 0, 7, 1, 1, 1, 1, b'a', 0x80, 1]
    );
}

#[test]
fn messages_survive_the_way() {
    let hello = Hello {
        incarnation: Incarnation::new(3),
        last_batch: BatchNo::new(u64::MAX),
        seen: CommitSeq::new(9),
        seen_digest: [7; 32],
        earlier: vec![(CommitSeq::new(8), [6; 32])],
        server_incarnation: ServerIncarnation::FIRST,
        device: "küche".into(),
    };
    for request in [
        ClientRequest::Hello(hello),
        ClientRequest::Put {
            chunks: vec![ByteBuf::from(vec![1; 70_000]), ByteBuf::new()],
        },
        ClientRequest::Pull {
            incarnation: Incarnation::new(3),
            since: CommitSeq::new(1),
            digest: [0; 32],
            filter: u64::MAX,
            after: Some((ObjectNo::ROOT, CommitSeq::new(4))),
            wait_ms: 30_000,
        },
        ClientRequest::Stage {
            incarnation: Incarnation::new(1),
            batch: BatchNo::new(1),
            part: 9,
            ops: vec![remove()],
        },
    ] {
        assert_eq!(
            decode_request(&encode_request(&request).unwrap()).unwrap(),
            request
        );
    }
}

#[test]
fn another_protocol_is_named() {
    let mut bytes = encode_request(&ClientRequest::Bye).unwrap();
    bytes[0] = 9;
    assert_eq!(
        decode_request(&bytes),
        Err(CodecError::Version { theirs: 9 })
    );
    assert!(
        CodecError::Version { theirs: 9 }
            .to_string()
            .contains("protocol 9")
    );
}

#[test]
fn what_is_no_message_is_refused() {
    let good = encode_request(&ClientRequest::Stage {
        incarnation: Incarnation::new(1),
        batch: BatchNo::new(1),
        part: 0,
        ops: vec![remove()],
    })
    .unwrap();
    for len in 0..good.len() {
        assert!(
            matches!(decode_request(&good[..len]), Err(CodecError::Malformed(_))),
            "{len} bytes"
        );
    }
    let long = [&good[..], &[0]].concat();
    assert!(matches!(
        decode_request(&long),
        Err(CodecError::Malformed(_))
    ));
    // A name with a slash in it, and one of no bytes.
    for bad in [b"/", b"\0"] {
        let mut bytes = good.clone();
        let at = bytes.iter().position(|b| *b == b'a').unwrap();
        bytes[at] = bad[0];
        assert!(matches!(
            decode_request(&bytes),
            Err(CodecError::Malformed(_))
        ));
    }
}

#[test]
fn an_announced_length_is_not_believed() {
    // A Put of one chunk that claims to have 2^60 bytes.
    let bytes = [
        3, 0, 4, 1, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x10,
    ];
    assert!(matches!(
        decode_request(&bytes),
        Err(CodecError::Malformed(_))
    ));
    assert_eq!(
        decode_request(&vec![0; MESSAGE_MAX + 1]),
        Err(CodecError::TooLarge {
            bytes: MESSAGE_MAX + 1
        })
    );
    let chunks = vec![ByteBuf::from(vec![0; MESSAGE_MAX])];
    assert!(matches!(
        encode_request(&ClientRequest::Put { chunks }),
        Err(CodecError::TooLarge { .. })
    ));
}
