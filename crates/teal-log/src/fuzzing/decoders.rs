//! One target for each decoder: whatever decodes encodes to something that decodes to the same.

use super::bases::{self, StructureKind};
use super::with_lenient_checksums;
use crate::format::anchor::{self, Anchor};
use crate::format::codec::FieldReader;
use crate::format::delta::{Delta, decode_body};
use crate::format::extent::{EXTENT_BLOCKS, MappedExtent, SHARED_BLOCKS};
use crate::format::future::HistoryItem;
use crate::format::geometry::{Geometry, Segment};
use crate::format::imap::InodeMapItem;
use crate::format::inode::{DirectoryEntry, InodeCore};
use crate::format::page::{ExpectedPage, Node, NodeItems, PAGE_MAX, TreeKind};
use crate::format::record::{HEADER, RecordHeader};
use crate::format::shared::{SharedItem, place_key, place_of};
use crate::format::superblock::{self, Superblock};
use crate::format::usage::SegmentUse;
use crate::object::attributes::attr_of;
use crate::object::state::ObjectState;
use teal_types::{ObjectNo, SECTOR, Sector};

fn resized_to(bytes: &[u8], len: usize) -> Vec<u8> {
    let mut out = bytes.to_vec();
    out.resize(len, 0);
    out
}

fn uuid_of(bytes: &[u8]) -> [u8; 16] {
    bytes
        .get(8..24)
        .and_then(|id| id.try_into().ok())
        .unwrap_or_default()
}

pub(super) fn fuzz_superblock(input: &[u8]) {
    let bytes = resized_to(input, superblock::BYTES);
    let Ok(sb) = with_lenient_checksums(|| Superblock::decode(&bytes)) else {
        // Most inputs are no superblock.
        return;
    };
    assert_eq!(Superblock::decode(&sb.encode()).as_ref(), Ok(&sb));
    let geometry = Geometry::new(&sb);
    let last = sb.segments - 1;
    // The first, an inner and the last segment.
    for segment in [0, 1, last].map(Segment) {
        assert!(
            geometry.holds_run(geometry.usable_run(segment))
                && geometry.usable_bytes(segment) <= geometry.segment_bytes()
        );
    }
    let second = Superblock::second_copy(sb.sectors);
    for at in geometry.anchor_slots() {
        assert!(
            at.get() + geometry.slot_sectors() <= second.get(),
            "anchors lie before the second superblock"
        );
        assert!(geometry.place_near(at) < sb.anchor_places);
    }
    assert!(
        geometry.whole_run(Segment(last)).addr.get() + geometry.segment_bytes() / SECTOR
            <= second.get()
    );
}

pub(super) fn fuzz_anchor(input: &[u8]) {
    let bytes = resized_to(input, anchor::BYTES);
    let uuid = uuid_of(&bytes);
    // The digest is taken from the same bytes, so only the fields matter.
    if let Some(anchor) = with_lenient_checksums(|| Anchor::decode(&bytes, &uuid)) {
        assert_eq!(Anchor::decode(&anchor.encode(&uuid), &uuid), Some(anchor));
        // Opening computes these from the anchor.
        let _ = (
            anchor.addr.byte_offset(),
            anchor.seq + 1,
            anchor.checkpoint + 2,
        );
    }
}

pub(super) fn fuzz_record(input: &[u8]) {
    let bytes = resized_to(input, HEADER);
    let uuid = uuid_of(&bytes);
    if let Some(header) = with_lenient_checksums(|| RecordHeader::decode(&bytes, &uuid)) {
        assert_eq!(
            RecordHeader::decode(&header.encode(&uuid), &uuid),
            Some(header)
        );
        let _ = (
            header.sectors(),
            header.seq + 1,
            header.epoch + 1,
            header.batch + 1,
        );
        let _ = header.lsn.get() + u64::from(u32::MAX) + 1;
    }
}

pub(super) fn fuzz_body(input: &[u8]) {
    let mut t = FieldReader(input);
    // Damage ends a body.
    let Some(count) = t.u32() else { return };
    for placed in decode_body(t.0, count) {
        let Ok(placed) = placed else { return };
        match placed.delta {
            Delta::Ignored => continue,
            Delta::Inode(bytes) | Delta::Head(bytes) => fuzz_inode(bytes),
            Delta::Attributes(bytes) => drop(InodeCore::decode(bytes)),
            _ => {}
        }
        // A delta that decodes must encode to the same.
        let mut again = Vec::new();
        placed
            .delta
            .encode(placed.object, placed.lsn_offset, &mut again);
        let mut same = decode_body(&again, 1);
        let same = same
            .next()
            .expect("one was asked for")
            .expect("what was encoded decodes");
        assert_eq!(
            (same.object, same.lsn_offset, &same.delta),
            (placed.object, placed.lsn_offset, &placed.delta)
        );
    }
}

pub(super) fn fuzz_inode(input: &[u8]) {
    let no = ObjectNo::new(20);
    // Not every input is an inode record.
    let Some(state) = ObjectState::decode(no, None, input) else {
        return;
    };
    // Compared after one round: two encodings of the same state may differ in the order of items.
    let whole = state.encode_whole();
    let again = ObjectState::decode(no, None, &whole).expect("what was encoded decodes");
    assert_eq!(again.encode_whole(), whole);
    let _ = (
        attr_of(no, &state),
        state.fits_whole(),
        state.mem_pages(),
        state.few_extents().count(),
    );
    assert_eq!(InodeCore::decode(&state.core_bytes()), Some(state.core));
}

pub(super) fn fuzz_extent(input: &[u8]) {
    let Some(extent) = MappedExtent::decode(input) else {
        return;
    };
    let mut again = Vec::new();
    extent.encode(&mut again);
    assert_eq!(again, input, "an extent has one form");
    // Every slice of an extent has its blocks and at least one sector. A long one is sampled.
    let step = 1 + extent.blocks() / EXTENT_BLOCKS;
    for from in (0..extent.blocks()).step_by(step as usize) {
        let part = extent.slice(from, extent.blocks() - from);
        assert!((1..=extent.counted_sectors()).contains(&part.counted_sectors()));
        assert_eq!(extent.slice(0, from + 1).blocks(), from + 1);
    }
}

pub(super) fn fuzz_imap(input: &[u8]) {
    if let Some(known) = InodeMapItem::decode(input) {
        assert_eq!(InodeMapItem::decode(&known.encode()), Some(known));
    }
}

pub(super) fn fuzz_usage(input: &[u8]) {
    if let Some(usage) = SegmentUse::decode(input) {
        assert_eq!(SegmentUse::decode(&usage.encode()), Some(usage));
        let _ = usage.touched + 2;
    }
}

pub(super) fn fuzz_page(input: &[u8]) {
    let bytes = resized_to(
        input,
        input
            .len()
            .next_multiple_of(SECTOR as usize)
            .min(2 * PAGE_MAX),
    );
    let Some(kind) = bytes.get(6).and_then(|code| TreeKind::from_code(*code)) else {
        return;
    };
    let owner = ObjectNo::new(FieldReader(&bytes[16..]).u64().unwrap_or(0));
    let Ok(node) = Node::decode(
        &bytes,
        Sector::new(0),
        ExpectedPage {
            kind,
            owner,
            level: None,
        },
    ) else {
        return;
    };
    // A page of an older version is written in today's, if its items fit.
    let again = node.encoded_len(kind);
    let is_older = kind.has_second_copies() && node.level > 0 && bytes[4] == 1;
    assert!(is_older || again <= PAGE_MAX);
    if !is_older {
        assert_eq!(node.encode(kind, owner), bytes, "a page has one form");
    }
    assert!(node.first_key() <= node.last_key());
    // The values of each tree have their own decoder.
    if let NodeItems::Leaf(items) = &node.items {
        for (_, value) in items {
            match kind {
                TreeKind::InodeMap => fuzz_imap(value),
                TreeKind::Extents => fuzz_extent(value),
                TreeKind::Directory => drop(DirectoryEntry::decode_at(200, value)),
                TreeKind::Usage => fuzz_usage(value),
                TreeKind::SharedExtents => fuzz_shared(value),
                _ => fuzz_future(value),
            }
        }
    }
}

pub(super) fn fuzz_shared(input: &[u8]) {
    // Keys at the edges of both ranges.
    for key in [
        0,
        7,
        (1 << 48) - 1,
        1 << 48,
        1 << 63,
        (1 << 63) + 7,
        u64::MAX,
    ] {
        match SharedItem::decode(key, input) {
            Some(SharedItem::Extent { id, shared }) => {
                assert_eq!((id, shared.encode().as_slice()), (key, input));
                assert!(shared.count > 0 && shared.extent.blocks() <= SHARED_BLOCKS);
            }
            Some(SharedItem::Place { addr, id }) => {
                assert_eq!(
                    (place_key(addr), place_of(key), id.to_le_bytes().as_slice()),
                    (key, addr, input)
                );
            }
            None => {}
        }
    }
}

pub(super) fn fuzz_future(input: &[u8]) {
    if let Some(superseded) = HistoryItem::decode(input) {
        assert_eq!(superseded.encode(), input);
    }
}

/// Structures of whole images.
pub(super) fn seeds(target: &str) -> Vec<Vec<u8>> {
    let mut out: Vec<Vec<u8>> = Vec::new();
    for base in bases::base_images() {
        // Structures of the images are better seeds than random bytes.
        for part in base.parts.iter().filter(|part| is_seed(target, part.kind)) {
            let bytes = &base.bytes[part.byte_range()];
            out.push(match target {
                "body" => [&64_u32.to_le_bytes(), bytes].concat(),
                // Values of the future format are made from those of today.
                "future" => [&[0; 16], bytes].concat(),
                _ => bytes.to_vec(),
            });
        }
    }
    if target == "future" {
        out.retain(|item| HistoryItem::decode(item).is_some());
    }
    // A few of each length say as much as all of them.
    out.sort_by(|a, b| (a.len(), a).cmp(&(b.len(), b)));
    out.dedup();
    let every = out.len().div_ceil(40).max(1);
    out.into_iter().step_by(every).collect()
}

/// Returns whether structures of a kind are seeds for a target.
fn is_seed(target: &str, kind: StructureKind) -> bool {
    kind == match target {
        "superblock" => StructureKind::Superblock,
        "anchor" => StructureKind::Anchor,
        "record" => StructureKind::Header,
        "body" => StructureKind::Body,
        "inode" => StructureKind::Inode,
        "page" => StructureKind::Page,
        _ => StructureKind::Item,
    }
}
