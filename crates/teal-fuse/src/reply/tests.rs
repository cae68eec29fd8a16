//! The exact bytes of answers.

use super::*;
use crate::request::{LockKind, NodeId, Unique};
use crate::transport::{MemoryKernel, ServerMessage, memory_pair};
use teal_types::{FileType, ObjectNo, Timestamp};

const ATTR: Attr = Attr {
    object: ObjectNo::new(0x11),
    kind: FileType::File,
    perm: 0o644,
    nlink: 2,
    uid: 3,
    gid: 4,
    rdev: 0x0080_12ff,
    size: 5,
    sectors: 8,
    atime: Timestamp { secs: -1, nanos: 1 },
    mtime: Timestamp { secs: 2, nanos: 2 },
    ctime: Timestamp { secs: 3, nanos: 3 },
    btime: Timestamp { secs: 4, nanos: 4 },
};

fn pending(opcode: u32) -> (ReplySender, MemoryKernel) {
    let (transport, kernel) = memory_pair();
    let header = RequestHeader {
        unique: Unique::new(8),
        opcode,
        node: NodeId::ROOT,
        uid: 0,
        gid: 0,
        pid: 0,
    };
    (ReplySender::new(Arc::new(transport), &header), kernel)
}

fn sent(opcode: u32, answer: impl FnOnce(ReplySender)) -> ServerMessage {
    let (reply, kernel) = pending(opcode);
    answer(reply);
    kernel.close();
    let message = kernel.receive_message().unwrap();
    assert_eq!(message.unique, 8);
    assert!(kernel.receive_message().is_none(), "one answer");
    message
}

fn body(answer: impl FnOnce(ReplySender)) -> Vec<u8> {
    let message = sent(opcode::FUSE_LOOKUP, answer);
    assert_eq!(message.error, 0);
    message.body
}

/// Little-endian hexadecimal words, as in a dump of the golden bytes.
fn words(bytes: &[u8]) -> Vec<u32> {
    bytes
        .chunks_exact(4)
        .map(|w| u32::from_le_bytes([w[0], w[1], w[2], w[3]]))
        .collect()
}

const ATTR_WORDS: [u32; 22] = [
    0x11,
    0,
    5,
    0,
    8,
    0,
    u32::MAX,
    u32::MAX,
    2,
    0,
    3,
    0,
    1,
    2,
    3,
    0o100_644,
    2,
    3,
    4,
    0x0080_12ff,
    4096,
    0,
];

#[test]
fn an_error_is_negative_and_has_no_body() {
    let message = sent(opcode::FUSE_LOOKUP, |reply| reply.send_error(Errno::NOENT));
    assert_eq!((message.error, message.body), (-2, Vec::new()));
}

#[test]
fn a_dropped_reply_says_eio_and_a_dropped_forget_nothing() {
    assert_eq!(sent(opcode::FUSE_READ, drop).error, -5);
    for silent in [
        opcode::FUSE_FORGET,
        opcode::FUSE_BATCH_FORGET,
        opcode::FUSE_NOTIFY_REPLY,
    ] {
        for answer in [drop, ReplySender::send_ok] {
            let (reply, kernel) = pending(silent);
            assert!(!reply.is_due());
            answer(reply);
            kernel.close();
            assert!(kernel.receive_message().is_none());
        }
    }
    let (reply, kernel) = pending(opcode::FUSE_INTERRUPT);
    drop(reply);
    kernel.close();
    assert!(kernel.receive_message().is_none());
    assert_eq!(
        sent(opcode::FUSE_INTERRUPT, |reply| reply
            .send_error(Errno::NOSYS))
        .error,
        -38
    );
}

#[test]
fn golden_entries_and_attributes() {
    let entry = LookupEntry {
        node: NodeId::new(9),
        generation: 1,
        attr: ATTR,
        attr_ttl: Duration::new(1, 7),
        entry_ttl: Duration::MAX,
    };
    let head = [9, 0, 1, 0, u32::MAX, u32::MAX, 1, 0, 999_999_999, 7];
    assert_eq!(
        words(&body(|r| assert!(r.send_entry(&entry).is_delivered()))),
        [&head[..], &ATTR_WORDS].concat()
    );
    let negative = words(&body(|r| r.send_negative_entry(Duration::new(3, 4))));
    assert_eq!(
        (negative.len(), negative[0], negative[4], negative[8]),
        (32, 0, 3, 4)
    );
    assert_eq!(
        words(&body(|r| r.send_attr(&ATTR, Duration::ZERO))),
        [&[0; 4][..], &ATTR_WORDS].concat()
    );
    let create = body(|r| {
        assert!(
            r.send_create(&entry, Handle::new(5), OpenFlags::KEEP_CACHE)
                .is_delivered()
        )
    });
    assert_eq!(
        words(&create),
        [&head[..], &ATTR_WORDS, &[5, 0, 2, 0]].concat()
    );
    let statx = words(&body(|r| r.send_statx(&ATTR, Duration::new(1, 2))));
    assert_eq!(statx.len(), 72);
    assert_eq!(
        &statx[..18],
        [
            1, 0, 2, 0, 0, 0, 0, 0, 0xfff, 4096, 0, 0, 2, 3, 4, 0o100_644, 0x11, 0
        ]
    );
    assert_eq!(
        &statx[24..40],
        [u32::MAX, u32::MAX, 1, 0, 4, 0, 4, 0, 3, 0, 3, 0, 2, 0, 2, 0]
    );
    assert_eq!(&statx[40..42], [0x12, 0x8ff], "major and minor");
}

#[test]
fn golden_small_answers() {
    assert_eq!(body(ReplySender::send_ok), b"");
    assert_eq!(body(|r| r.send_data(b"abc")), b"abc");
    assert_eq!(body(|r| r.send_data_vectored(&[b"ab", b"", b"c"])), b"abc");
    let open = body(|r| {
        assert!(
            r.send_open(Handle::new(5), OpenFlags::NOFLUSH | OpenFlags::DIRECT_IO)
                .is_delivered()
        )
    });
    assert_eq!(words(&open), [5, 0, 0x21, 0]);
    assert_eq!(words(&body(|r| r.send_written(6))), [6, 0]);
    assert_eq!(words(&body(|r| r.send_xattr_size(6))), [6, 0]);
    assert_eq!(words(&body(|r| r.send_offset(1 << 32))), [0, 1]);
    assert_eq!(words(&body(|r| r.send_block(7))), [7, 0]);
    assert_eq!(words(&body(|r| r.send_events(1))), [1, 0]);
    assert_eq!(
        body(|r| r.send_ioctl(-1, b"out")),
        [&[0xff; 4][..], &[0; 12], b"out"].concat()
    );
    let lock = FileLock {
        start: 1,
        end: 2,
        kind: LockKind::Unlock,
        pid: 3,
    };
    assert_eq!(words(&body(|r| r.send_lock(&lock))), [1, 0, 2, 0, 2, 3]);
    let statfs = StatfsReply {
        block_size: 4096,
        blocks: 1,
        free: 2,
        available: 3,
        files: 4,
        files_free: 5,
        name_max: 255,
    };
    let expected = [
        1, 0, 2, 0, 3, 0, 4, 0, 5, 0, 4096, 255, 4096, 0, 0, 0, 0, 0, 0, 0,
    ];
    assert_eq!(words(&body(|r| r.send_statfs(&statfs))), expected);
}

#[test]
fn copied_answers_each_form_of_the_request() {
    let many = u64::from(u32::MAX) + 2;
    let old = sent(opcode::FUSE_COPY_FILE_RANGE, |r| r.send_copied(many)).body;
    assert_eq!(words(&old), [u32::MAX, 0]);
    let new = sent(opcode::FUSE_COPY_FILE_RANGE_64, |r| r.send_copied(many)).body;
    assert_eq!(words(&new), [1, 1]);
}

#[test]
fn golden_listings_never_exceed_the_size_asked_for() {
    let mut plain = DirBuffer::new(64);
    assert!(plain.is_empty());
    assert!(!plain.push(ObjectNo::new(7), 1, FileType::Dir, b"ab"));
    assert!(!plain.push(ObjectNo::new(8), 2, FileType::File, b"12345678"));
    assert!(
        plain.push(ObjectNo::new(9), 3, FileType::File, b"c"),
        "full"
    );
    let expected = [
        &words(b"\x07\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x02\0\0\0\x04\0\0\0ab\0\0\0\0\0\0")[..],
        &[8, 0, 2, 0, 8, 8],
    ]
    .concat();
    let listing = body(|r| r.send_directory(&plain));
    assert_eq!(words(&listing[..56]), expected);
    assert_eq!(&listing[56..], b"12345678");

    let entry = LookupEntry {
        node: NodeId::new(9),
        generation: 0,
        attr: ATTR,
        attr_ttl: Duration::ZERO,
        entry_ttl: Duration::ZERO,
    };
    let mut plus = DirBuffer::new(2 * 160);
    assert!(!plus.push_plus(None, ObjectNo::ROOT, 1, FileType::Dir, b"."));
    assert!(!plus.push_plus(Some(&entry), ATTR.object, 2, FileType::File, b"a"));
    assert!(
        plus.push_plus(Some(&entry), ATTR.object, 3, FileType::File, b"b"),
        "full"
    );
    let listing = body(|r| r.send_directory(&plus));
    assert_eq!(listing.len(), 320);
    assert_eq!(words(&listing[..8]), [0, 0], "no node: nothing to look up");
    assert_eq!(words(&listing[160..168]), [9, 0]);
}

#[test]
fn who_watches_is_told_the_answer_once() {
    let watched = |opcode, answer: &dyn Fn(ReplySender)| {
        let (reply, kernel) = pending(opcode);
        let seen = Arc::new(std::sync::Mutex::new(Vec::new()));
        let into = Arc::clone(&seen);
        answer(reply.with_watcher(Box::new(move |answer| {
            into.lock().unwrap().push((answer.errno, answer.value))
        })));
        kernel.close();
        let told = std::mem::take(&mut *seen.lock().unwrap());
        assert_eq!(
            kernel.receive_message().is_some(),
            !told.is_empty(),
            "told exactly when an answer is sent"
        );
        told
    };
    let entry = LookupEntry {
        node: NodeId::new(0x0102_0304_0506_0708),
        generation: 9,
        attr: ATTR,
        attr_ttl: Duration::ZERO,
        entry_ttl: Duration::ZERO,
    };
    use opcode::*;
    for code in [FUSE_LOOKUP, FUSE_MKNOD, FUSE_LINK] {
        assert_eq!(
            watched(code, &|r| assert!(r.send_entry(&entry).is_delivered())),
            [(None, 0x0102_0304_0506_0708)]
        );
    }
    assert_eq!(
        watched(FUSE_LOOKUP, &|r| r.send_negative_entry(Duration::ZERO)),
        [(None, 0)]
    );
    let create = |r: ReplySender| {
        assert!(
            r.send_create(&entry, Handle::new(0), OpenFlags::empty())
                .is_delivered()
        )
    };
    assert_eq!(
        watched(FUSE_TMPFILE, &create),
        [(None, 0x0102_0304_0506_0708)]
    );
    assert_eq!(
        watched(FUSE_READ, &|r| r.send_data_vectored(&[b"abc", b"de"])),
        [(None, 5)]
    );
    assert_eq!(
        watched(FUSE_WRITE, &|r| r.send_written(0x0001_0203)),
        [(None, 0x0001_0203)]
    );
    for code in [FUSE_COPY_FILE_RANGE, FUSE_COPY_FILE_RANGE_64] {
        assert_eq!(watched(code, &|r| r.send_copied(77)), [(None, 77)]);
    }
    assert_eq!(
        watched(FUSE_LSEEK, &|r| r.send_offset(1 << 40)),
        [(None, 1 << 40)]
    );
    assert_eq!(
        watched(FUSE_GETATTR, &|r| r.send_attr(&ATTR, Duration::ZERO)),
        [(None, 0)]
    );
    assert_eq!(
        watched(FUSE_UNLINK, &|r| r.send_error(Errno::NOENT)),
        [(Some(Errno::NOENT), 0)]
    );
    assert_eq!(
        watched(FUSE_UNLINK, &drop),
        [(Some(Errno::IO), 0)],
        "dropped without an answer"
    );
    assert_eq!(watched(FUSE_FORGET, &drop), []);
}
