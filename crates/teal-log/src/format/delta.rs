//! Deltas: the changes of a batch, redone at recovery. The body of a record is a sequence of them.
//!
//! | at | bytes | field |
//! |---:|---:|---|
//! | 0 | 1 | type |
//! | 1 | 1 | flags: 1 may be ignored by a program that does not know the type |
//! | 2 | 2 | zero |
//! | 4 | 4 | bytes of value |
//! | 8 | 4 | `Lsn` minus the record's first |
//! | 12 | 8 | object |
//! | 20 | | value |
//!
//! | type | name | value |
//! |---:|---|---|
//! | 1 | inode | an inode record: this is its home from now on |
//! | 2 | attributes | the core of an inode record; its home stays |
//! | 3 | extent | first block u64, then an extent |
//! | 4 | hole | first block u64, count u64 |
//! | 5 | entry set | cookie u64, child u64, type u8, name |
//! | 6 | entry gone | cookie u64 |
//! | 7 | free | none: the object is gone, its space with it |
//! | 8 | orphan | u8: 1 joins the orphan set, 0 leaves it |
//! | 9 | page | tree kind u8, level u8, first key u64, page pointer (12 bytes); object = owner |
//! | 10 | roots | see [`CheckpointRoots`] |
//! | 11 | head | an inode record without its content items; its home stays |
//! | 16 | shared set | id u64, then a shared extent: from now on it lies here |
//! | 17 | shared gone | id u64: no extent refers to it any more |
//! | 18 | history | block u64, died-at `Lsn` u64, then a history item (reserved) |
//! | 19 | note | piece u16, then its bytes: state that the layers above the store keep of the object |
//! | 20 | note gone | piece u16 |
//! | 21 | shared count | id u64, count u32: how many extents refer to it |
//! | 22 | kept | `Lsn` u64, byte address of its value u64, then a delta of an earlier record, whole: it still waits |

use super::extent::{MappedExtent, SHARED_IDS};
use super::inode::COOKIES;
use super::shared::SharedExtent;
use super::usage::{self, SegmentUse};
use crate::format::codec::{FieldReader, FieldWriter};
use crate::format::note_key::is_key;
use crate::format::page::{PagePtr, TreeKind};
use teal_types::{FileType, Lsn, Name, ObjectNo, UpdateId};

pub(crate) const PREFIX: usize = 20;
/// Bytes of a [`Delta::Kept`] before the delta it repeats.
pub(crate) const KEPT: usize = 16;

/// One change, with borrowed values where they are large.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Delta<'a> {
    Inode(&'a [u8]),
    Attributes(&'a [u8]),
    Head(&'a [u8]),
    Extent {
        block: u64,
        extent: MappedExtent,
    },
    Hole {
        block: u64,
        count: u64,
    },
    EntrySet {
        cookie: u64,
        child: ObjectNo,
        kind: FileType,
        name: Name,
    },
    EntryGone {
        cookie: u64,
    },
    Free,
    Orphan(bool),
    Page {
        kind: TreeKind,
        level: u8,
        first_key: u64,
        ptr: PagePtr,
    },
    Roots(Box<CheckpointRoots>),
    SharedSet {
        id: u64,
        shared: SharedExtent,
    },
    SharedGone {
        id: u64,
    },
    SharedCount {
        id: u64,
        count: u32,
    },
    Note {
        piece: u16,
        value: &'a [u8],
    },
    NoteGone {
        piece: u16,
    },
    /// A change of an object that is not up to date, as a record held it.
    Kept {
        lsn: Lsn,
        /// Byte address of the value on the device, where the record has it.
        byte: u64,
        delta: &'a [u8],
    },
    /// A type this program does not know, marked as ignorable.
    Ignored,
}

/// The state of a store at a checkpoint.
///
/// | at | bytes | field |
/// |---:|---:|---|
/// | 0 | 8 | checkpoint number |
/// | 8 | 8 | next object number |
/// | 16 | 8 | next `Lsn` |
/// | 24 | 16 | next stamp: replica u32, incarnation u32, counter u64 |
/// | 40 | 8 | objects |
/// | 48 | 12 each | page pointers, zero where empty: inode map, usage, orphans, shared extents, history, notes |
/// | 120 | 4 | number of usage overrides |
/// | 124 | 44 each | segment u32, usage item: what the usage tree could not know of its own pages |
/// | behind | 6 each | with second copies: their addresses in that order, zero: there is none |
/// | then | 8 | segment for further copies u32, 2^32 - 1: none; its sectors taken u32 |
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct CheckpointRoots {
    pub(crate) checkpoint: u64,
    pub(crate) next_object: u64,
    pub(crate) next_lsn: Lsn,
    pub(crate) stamp: UpdateId,
    pub(crate) objects: u64,
    pub(crate) imap: Option<PagePtr>,
    pub(crate) usage: Option<PagePtr>,
    pub(crate) orphans: Option<PagePtr>,
    pub(crate) shared: Option<PagePtr>,
    pub(crate) history: Option<PagePtr>,
    pub(crate) notes: Option<PagePtr>,
    pub(crate) overrides: Vec<(u32, SegmentUse)>,
    /// Where further second copies go.
    pub(crate) copies: Option<CopyPosition>,
}

/// Where the next second copy of a page goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CopyPosition {
    pub(crate) segment: u32,
    /// Sectors from the start of the segment.
    pub(crate) sectors: u32,
}

/// The segment number that stands for no segment.
const NO_SEGMENT: u32 = u32::MAX;

impl CheckpointRoots {
    /// Bytes of the encoding without its usage overrides.
    pub(crate) const FIXED: usize = 124 + 6 * PagePtr::SECOND_BYTES + 8;

    /// Returns the bytes of the roots.
    pub(super) fn encoded(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.encode(&mut out);
        out
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.put_u64(self.checkpoint);
        out.put_u64(self.next_object);
        out.put_u64(self.next_lsn.get());
        out.put_stamp(self.stamp);
        out.put_u64(self.objects);
        for root in self.in_order() {
            out.put_bytes(&PagePtr::encode_optional(root));
        }
        out.put_u32(u32::try_from(self.overrides.len()).expect("one for each segment at most"));
        for (segment, usage) in &self.overrides {
            out.put_u32(*segment);
            out.put_bytes(&usage.encode());
        }
        for root in self.in_order() {
            out.put_bytes(&root.map_or([0; PagePtr::SECOND_BYTES], PagePtr::encode_second));
        }
        out.put_u32(self.copies.map_or(NO_SEGMENT, |at| at.segment));
        out.put_u32(self.copies.map_or(0, |at| at.sectors));
    }

    /// Returns the roots in the order that the format fixes.
    fn in_order(&self) -> [Option<PagePtr>; 6] {
        [
            self.imap,
            self.usage,
            self.orphans,
            self.shared,
            self.history,
            self.notes,
        ]
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut t = FieldReader(bytes);
        let mut roots = Self {
            checkpoint: t.counter()?,
            next_object: t.counter()?,
            next_lsn: Lsn::new(t.counter()?),
            stamp: t.stamp()?,
            objects: t.counter()?,
            ..Self::default()
        };
        let mut root = || PagePtr::decode_optional(t.array()?);
        roots.imap = root()?;
        roots.usage = root()?;
        roots.orphans = root()?;
        roots.shared = root()?;
        roots.history = root()?;
        roots.notes = root()?;
        for _ in 0..t.u32()? {
            roots
                .overrides
                .push((t.u32()?, SegmentUse::decode(t.bytes(usage::BYTES)?)?));
        }
        // Roots from before there were second copies end here.
        if t.is_empty() {
            return Some(roots);
        }
        for root in [
            &mut roots.imap,
            &mut roots.usage,
            &mut roots.orphans,
            &mut roots.shared,
            &mut roots.history,
            &mut roots.notes,
        ] {
            let second = t.array()?;
            *root = root.map(|ptr| ptr.with_encoded_second(second));
        }
        let segment = t.u32()?;
        let sectors = t.u32()?;
        roots.copies = (segment != NO_SEGMENT).then_some(CopyPosition { segment, sectors });
        // Bytes beyond the end are damage.
        t.is_empty().then_some(roots)
    }
}

impl Delta<'_> {
    fn code(&self) -> u8 {
        match self {
            Self::Inode(_) => 1,
            Self::Attributes(_) => 2,
            Self::Extent { .. } => 3,
            Self::Hole { .. } => 4,
            Self::EntrySet { .. } => 5,
            Self::EntryGone { .. } => 6,
            Self::Free => 7,
            Self::Orphan(_) => 8,
            Self::Page { .. } => 9,
            Self::Roots(_) => 10,
            Self::Head(_) => 11,
            Self::SharedSet { .. } => 16,
            Self::SharedGone { .. } => 17,
            Self::Note { .. } => 19,
            Self::NoteGone { .. } => 20,
            Self::SharedCount { .. } => 21,
            Self::Kept { .. } => 22,
            Self::Ignored => unreachable!("never made, only read"),
        }
    }

    /// Appends the delta; returns where in `out` its value starts.
    pub(crate) fn encode(&self, object: ObjectNo, lsn_offset: u32, out: &mut Vec<u8>) -> usize {
        let at = out.len();
        out.put_u8(self.code());
        out.put_bytes(&[0; 3]);
        // The length is known when the value is written.
        out.put_u32(0);
        out.put_u32(lsn_offset);
        out.put_u64(object.get());
        let value = out.len();
        match self {
            Self::Inode(bytes) | Self::Attributes(bytes) | Self::Head(bytes) => {
                out.put_bytes(bytes)
            }
            Self::Extent { block, extent } => {
                out.put_u64(*block);
                extent.encode(out);
            }
            Self::Hole { block, count } => {
                out.put_u64(*block);
                out.put_u64(*count);
            }
            Self::EntrySet {
                cookie,
                child,
                kind,
                name,
            } => {
                out.put_u64(*cookie);
                out.put_u64(child.get());
                out.put_u8(kind.code());
                out.put_bytes(name.as_bytes());
            }
            Self::EntryGone { cookie } => out.put_u64(*cookie),
            Self::Free | Self::Ignored => {}
            Self::Orphan(joins) => out.put_u8(u8::from(*joins)),
            Self::Page {
                kind,
                level,
                first_key,
                ptr,
            } => {
                out.put_u8(kind.code());
                out.put_u8(*level);
                out.put_u64(*first_key);
                out.put_bytes(&ptr.encode());
            }
            Self::Roots(roots) => roots.encode(out),
            Self::SharedSet { id, shared } => {
                out.put_u64(*id);
                out.put_bytes(&shared.encode());
            }
            Self::SharedGone { id } => out.put_u64(*id),
            Self::Note { piece, value } => {
                out.put_u16(*piece);
                out.put_bytes(value);
            }
            Self::NoteGone { piece } => out.put_u16(*piece),
            Self::SharedCount { id, count } => {
                out.put_u64(*id);
                out.put_u32(*count);
            }
            Self::Kept { lsn, byte, delta } => {
                out.put_u64(lsn.get());
                out.put_u64(*byte);
                out.put_bytes(delta);
            }
        }
        debug_assert_eq!(value - at, PREFIX, "the prefix has a fixed length");
        let len = u32::try_from(out.len() - value).expect("values are far below 4 GiB");
        out[at + 4..at + 8].copy_from_slice(&len.to_le_bytes());
        value
    }
}

/// A decoded delta with its place.
#[derive(Debug)]
pub(crate) struct PlacedDelta<'a> {
    pub(crate) object: ObjectNo,
    pub(crate) lsn_offset: u32,
    /// Offset of the value in the body.
    pub(crate) at: usize,
    pub(crate) delta: Delta<'a>,
}

/// Reads the deltas of a body one after another; an item that makes no sense is `Err`.
pub(crate) fn decode_body(
    body: &[u8],
    count: u32,
) -> impl Iterator<Item = Result<PlacedDelta<'_>, &'static str>> {
    let mut t = FieldReader(body);
    let mut left = count;
    std::iter::from_fn(move || {
        if left == 0 {
            return None;
        }
        left -= 1;
        let next = decode_one(&mut t, body.len());
        // After damage, nothing behind it can be found.
        if next.is_none() {
            left = 0;
        }
        Some(next.ok_or("a delta in a record"))
    })
}

fn shared_id(v: &mut FieldReader<'_>) -> Option<u64> {
    v.u64().filter(|id| *id < SHARED_IDS)
}

fn decode_one<'a>(t: &mut FieldReader<'a>, total: usize) -> Option<PlacedDelta<'a>> {
    let code = t.u8()?;
    let flags = t.u8()?;
    let zero = t.u16()?;
    let len = t.u32()?;
    let lsn_offset = t.u32()?;
    let object = ObjectNo::new(t.u64()?);
    let at = total - t.0.len();
    let value = t.bytes(len as usize)?;
    // Reserved bytes that are set are of a later format, or damage.
    if zero != 0 {
        return None;
    }
    let mut v = FieldReader(value);
    let delta = match code {
        1 => Delta::Inode(std::mem::take(&mut v.0)),
        2 => Delta::Attributes(std::mem::take(&mut v.0)),
        3 => {
            let block = v.u64()?;
            Delta::Extent {
                block,
                extent: MappedExtent::decode_at(block, std::mem::take(&mut v.0))?,
            }
        }
        4 => Delta::Hole {
            block: v.u64()?,
            count: v.u64()?,
        },
        5 => Delta::EntrySet {
            // Cookies below the first one stand for dots, and must not be stored.
            cookie: v.u64().filter(|cookie| COOKIES.contains(cookie))?,
            child: ObjectNo::new(v.u64()?),
            kind: FileType::from_code(v.u8()?)?,
            name: Name::new(std::mem::take(&mut v.0)).ok()?,
        },
        6 => Delta::EntryGone { cookie: v.u64()? },
        7 => Delta::Free,
        8 => Delta::Orphan(match v.u8()? {
            0 => false,
            1 => true,
            _ => return None,
        }),
        9 => Delta::Page {
            kind: TreeKind::from_code(v.u8()?)?,
            level: v.u8()?,
            first_key: v.u64()?,
            ptr: PagePtr::decode(v.array()?)?,
        },
        10 => Delta::Roots(Box::new(CheckpointRoots::decode(std::mem::take(&mut v.0))?)),
        11 => Delta::Head(std::mem::take(&mut v.0)),
        16 => Delta::SharedSet {
            id: shared_id(&mut v)?,
            shared: SharedExtent::decode(std::mem::take(&mut v.0))?,
        },
        17 => Delta::SharedGone {
            id: shared_id(&mut v)?,
        },
        19 => {
            let piece = v.u16().filter(|piece| is_key(object, *piece))?;
            Delta::Note {
                piece,
                value: std::mem::take(&mut v.0),
            }
        }
        20 => Delta::NoteGone {
            piece: v.u16().filter(|piece| is_key(object, *piece))?,
        },
        22 => Delta::Kept {
            lsn: Lsn::new(v.counter()?),
            byte: v.counter()?,
            delta: std::mem::take(&mut v.0),
        },
        21 => Delta::SharedCount {
            id: shared_id(&mut v)?,
            count: v.u32().filter(|count| *count > 0)?,
        },
        // A program that does not know the type may pass over it.
        _ if flags & 1 != 0 => {
            v.0 = &[];
            Delta::Ignored
        }
        _ => return None,
    };
    // A value longer than its type is damage.
    v.is_empty().then_some(PlacedDelta {
        object,
        lsn_offset,
        at,
        delta,
    })
}
