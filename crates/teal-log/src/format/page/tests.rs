//! The promises of the page format, and its golden bytes.

use proptest::prelude::*;

use super::*;

const OWNER: ObjectNo = ObjectNo::new(0x0102_0304);
const AT: Sector = Sector::new(9);

fn want(level: u8) -> ExpectedPage {
    ExpectedPage {
        kind: TreeKind::Extents,
        owner: OWNER,
        level: Some(level),
    }
}

fn leaf(items: &[(u64, &[u8])]) -> Node {
    Node {
        level: 0,
        items: NodeItems::Leaf(
            items
                .iter()
                .map(|(key, value)| (*key, (*value).into()))
                .collect(),
        ),
    }
}

fn interior() -> Node {
    let ptr = PagePtr {
        addr: Sector::new(0x0605_0403_0201),
        bytes: 0x0234,
        crc: 0xddcc_bbaa,
        second: Sector::new(0),
    };
    Node {
        level: 2,
        items: NodeItems::Inner(vec![(1, Child::Disk(ptr)), (0x100, Child::Disk(ptr))]),
    }
}

#[test]
fn golden_bytes() {
    let page = leaf(&[(5, b"hi"), (0x0807_0605_0403_0201, b"")]).encode(TreeKind::Extents, OWNER);
    let mut bytes = b"TPAG\x01\0\x02\0\x02\0\x01\0\x2e\0\0\0\x04\x03\x02\x01\0\0\0\0".to_vec();
    bytes.extend(b"\x05\0\0\0\0\0\0\0\x02\0hi\x01\x02\x03\x04\x05\x06\x07\x08\0\0");
    bytes.resize(512, 0);
    assert_eq!(page, bytes);

    let page = interior().encode(TreeKind::Notes, STORE_WIDE);
    let mut bytes = b"TPAG\x01\0\x08\x02\x02\0\x01\0\x40\0\0\0\0\0\0\0\0\0\0\0".to_vec();
    bytes.extend(b"\x01\0\0\0\0\0\0\0\x01\x02\x03\x04\x05\x06\x34\x02\xaa\xbb\xcc\xdd");
    bytes.extend(b"\0\x01\0\0\0\0\0\0\x01\x02\x03\x04\x05\x06\x34\x02\xaa\xbb\xcc\xdd");
    bytes.resize(512, 0);
    assert_eq!(page, bytes);
}

#[test]
fn golden_bytes_of_a_page_that_names_second_copies() {
    let ptr = |at| {
        let raw = [1, 2, 3, 4, 5, 6, 0x34, 2, 0xaa, 0xbb, 0xcc, 0xdd];
        let ptr = PagePtr::decode(raw).unwrap();
        Child::Disk(ptr.with_second_copy(at))
    };
    let second = Sector::new(0x0c0b_0a09_0807);
    let node = Node {
        level: 2,
        items: NodeItems::Inner(vec![(1, ptr(Some(second))), (0x100, ptr(None))]),
    };
    let page = node.encode(TreeKind::InodeMap, STORE_WIDE);
    let mut bytes = b"TPAG\x02\0\x01\x02\x02\0\x01\0\x4c\0\0\0\0\0\0\0\0\0\0\0".to_vec();
    bytes.extend(b"\x01\0\0\0\0\0\0\0\x01\x02\x03\x04\x05\x06\x34\x02\xaa\xbb\xcc\xdd");
    bytes.extend(b"\x07\x08\x09\x0a\x0b\x0c");
    bytes.extend(b"\0\x01\0\0\0\0\0\0\x01\x02\x03\x04\x05\x06\x34\x02\xaa\xbb\xcc\xdd");
    bytes.extend(b"\0\0\0\0\0\0");
    bytes.resize(512, 0);
    assert_eq!(page, bytes);

    let want = ExpectedPage {
        kind: TreeKind::InodeMap,
        owner: STORE_WIDE,
        level: Some(2),
    };
    let read = Node::decode(&page, AT, want).unwrap();
    let NodeItems::Inner(items) = &read.items else {
        panic!("a page above the leaves")
    };
    let copies = items.iter().map(|(_, child)| match child {
        Child::Disk(ptr) => ptr.second_copy(),
        Child::Mem(_) => unreachable!("it was read"),
    });
    assert_eq!(copies.collect::<Vec<_>>(), [Some(second), None]);
    // A page of an older store has no second copies; a tree without them has no such version.
    let mut older = page;
    older[4] = 1;
    older[12] = 0x40;
    older.truncate(24 + 20);
    older.extend(b"\0\x01\0\0\0\0\0\0\x01\x02\x03\x04\x05\x06\x34\x02\xaa\xbb\xcc\xdd");
    older.resize(512, 0);
    let read = Node::decode(&older, AT, want).unwrap();
    assert_eq!(read.len(), 2);
    older[4] = 2;
    older[6] = TreeKind::Notes.code();
    let notes = ExpectedPage {
        kind: TreeKind::Notes,
        ..want
    };
    assert!(Node::decode(&older, AT, notes).is_err());
}

#[test]
fn codes_round_trip() {
    for (kind, code) in TreeKind::ALL.into_iter().zip(1..) {
        assert_eq!((kind.code(), TreeKind::from_code(code)), (code, Some(kind)));
    }
    assert_eq!(
        (TreeKind::from_code(0), TreeKind::from_code(10)),
        (None, None)
    );
}

#[test]
fn a_pointer_has_a_page_or_is_none() {
    let page = leaf(&[(1, &[7; 600])]).encode(TreeKind::Extents, OWNER);
    let ptr = PagePtr::seal(Sector::new((1 << 48) - 1), &page);
    assert_eq!(
        (ptr.bytes(), ptr.sectors(), ptr.stored_bytes()),
        (634, 2, 1024)
    );
    assert_eq!(PagePtr::decode(ptr.encode()), Some(ptr));
    assert_eq!(PagePtr::decode([0; PagePtr::BYTES]), None);
    assert_eq!(PagePtr::decode([0xff; PagePtr::BYTES]), None);
}

#[test]
fn sealed() {
    let mut page = leaf(&[(1, &[7; 600])]).encode(TreeKind::Extents, OWNER);
    let ptr = PagePtr::seal(AT, &page);
    assert!(ptr.matches(&page) && !ptr.matches(&page[..512]));
    for bit in 0..page.len() * 8 {
        page[bit / 8] ^= 1 << (bit % 8);
        assert!(!ptr.matches(&page), "bit {bit}");
        page[bit / 8] ^= 1 << (bit % 8);
    }
}

#[test]
fn distrust_of_another_place() {
    let page = interior().encode(TreeKind::Extents, OWNER);
    assert!(Node::decode(&page, AT, want(2)).is_ok());
    assert!(
        Node::decode(
            &page,
            AT,
            ExpectedPage {
                level: None,
                ..want(0)
            }
        )
        .is_ok()
    );
    let others = [
        ExpectedPage {
            kind: TreeKind::Xattrs,
            ..want(2)
        },
        ExpectedPage {
            owner: STORE_WIDE,
            ..want(2)
        },
        want(1),
        ExpectedPage {
            kind: TreeKind::Usage,
            level: None,
            ..want(2)
        },
    ];
    for other in others {
        assert!(
            matches!(
                Node::decode(&page, AT, other),
                Err(StoreError::Corrupt { at: 9, .. })
            ),
            "{other:?}"
        );
    }
    let error = Node::decode(&page, AT, want(1)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "an extent page at sector 9 of object #16909060 is damaged"
    );
}

#[test]
fn distrust_of_form() {
    let good = leaf(&[(5, b"hi"), (6, b"")]).encode(TreeKind::Extents, OWNER);
    let refused = |page: &[u8]| Node::decode(page, AT, want(0)).is_err();
    assert!(!refused(&good));
    assert!(refused(&[]) && refused(&good[..511]) && refused(&[&good[..], &[0; 512]].concat()));
    // magic, version, count up and down, key words, reserved, length up and down, key order, value
    // length, padding
    for (at, byte) in [
        (0, 0),
        (4, 2),
        (8, 3),
        (8, 1),
        (8, 0),
        (10, 3),
        (11, 1),
        (12, 47),
        (12, 45),
        (13, 9),
        (24, 6),
        (32, 3),
        (511, 1),
    ] {
        let mut page = good.clone();
        page[at] = byte;
        assert!(refused(&page), "byte {at} set to {byte}");
    }
    assert!(!refused(
        &leaf(&[(5, &[1; VALUE_MAX])]).encode(TreeKind::Extents, OWNER)
    ));
    assert!(refused(
        &leaf(&[(5, &[1; VALUE_MAX + 1])]).encode(TreeKind::Extents, OWNER)
    ));
    let mut high = interior().encode(TreeKind::Extents, OWNER);
    high[7] = LEVEL_MAX + 1;
    assert!(
        Node::decode(
            &high,
            AT,
            ExpectedPage {
                level: None,
                ..want(0)
            }
        )
        .is_err()
    );
}

fn any_page() -> impl Strategy<Value = Vec<u8>> {
    let value = prop_oneof![3 => prop::collection::vec(any::<u8>(), 0..40), 1 => prop::collection::vec(any::<u8>(), 300..600)];
    let leaves = prop::collection::btree_map(any::<u64>(), value, 1..6).prop_map(|items| Node {
        level: 0,
        items: NodeItems::Leaf(
            items
                .into_iter()
                .map(|(key, value)| (key, value.into()))
                .collect(),
        ),
    });
    let ptr = (0..Sector::LIMIT.get(), 34..=4096u16, any::<u32>());
    let ptr = ptr.prop_map(|(addr, bytes, crc)| {
        Child::Disk(PagePtr {
            addr: Sector::new(addr),
            bytes,
            crc,
            second: Sector::new(0),
        })
    });
    let inner = (
        1..=LEVEL_MAX,
        prop::collection::btree_map(any::<u64>(), ptr, 1..203),
    )
        .prop_map(|(level, items)| Node {
            level,
            items: NodeItems::Inner(items.into_iter().collect()),
        });
    prop_oneof![leaves, inner].prop_map(|node| node.encode(TreeKind::Extents, OWNER))
}

proptest! {
    #[test]
    fn one_form(page in any_page(), flips in prop::collection::vec(any::<prop::sample::Index>(), 0..3)) {
        let any_level = ExpectedPage { level: None, ..want(0) };
        prop_assert_eq!(&Node::decode(&page, AT, any_level).unwrap().encode(TreeKind::Extents, OWNER), &page);
        let mut flipped = page;
        for flip in flips {
            let bit = flip.index(flipped.len() * 8);
            flipped[bit / 8] ^= 1 << (bit % 8);
        }
        if let Ok(node) = Node::decode(&flipped, AT, any_level) {
            prop_assert_eq!(node.encode(TreeKind::Extents, OWNER), flipped);
        }
    }

    #[test]
    fn distrust_of_noise(noise in prop::collection::vec(any::<u8>(), 0..5000), header in any::<bool>(), level in 0..3u8) {
        let mut page = noise;
        if header && page.len() >= 24 {
            let length = page.len().min(PAGE_MAX);
            page.truncate(length);
            page[..8].copy_from_slice(&[b'T', b'P', b'A', b'G', 1, 0, 2, level]);
            page[10..16].copy_from_slice(&[1, 0, length as u8, (length >> 8) as u8, 0, 0]);
            page[16..24].copy_from_slice(&OWNER.get().to_le_bytes());
            page.resize(padded_len(length), 0);
        }
        if let Ok(node) = Node::decode(&page, AT, ExpectedPage { level: None, ..want(0) }) {
            prop_assert_eq!(node.encode(TreeKind::Extents, OWNER), page);
        }
    }
}
