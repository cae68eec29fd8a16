//! An inode record: an object's attributes and, while they are few, everything else of it.
//!
//! It starts at any byte of a record's body. The core:
//!
//! | at | bytes | field |
//! |---:|---:|---|
//! | 0 | 1 | version, 1 |
//! | 1 | 1 | file type (`S_IFMT` >> 12) |
//! | 2 | 2 | permission bits |
//! | 4 | 4 | uid |
//! | 8 | 4 | gid |
//! | 12 | 4 | device number |
//! | 16 | 8 | size: bytes of a file or symlink, entries of a directory |
//! | 24 | 4 | subdirectories of a directory |
//! | 28 | 4 | generation |
//! | 32 | 48 | atime, mtime, ctime, btime: seconds i64, nanoseconds u32 each |
//! | 80 | 8 | `Lsn` of the last change |
//! | 88 | 16 | stamp of the data: replica u32, incarnation u32, counter u64 |
//! | 104 | 16 | stamp of the attributes |
//! | 120 | 8 | sectors its content takes (`st_blocks`) |
//!
//! Then items to the end of the record: type u8, flags u8 (1 may be ignored if unknown), zero u16,
//! length u32, value.
//!
//! | type | name | value |
//! |---:|---|---|
//! | 1 | link | parent u64, name: one for each name of the object |
//! | 2 | data | the content of a small file, or a symlink's target |
//! | 3 | extent | first block u64, then an extent |
//! | 4 | extent tree | page pointer |
//! | 5 | entry | cookie u64, child u64, type u8, name |
//! | 6 | directory tree | page pointer |
//! | 7 | xattr | name length u8, name, value |
//! | 8 | succeeds | object u64, stamp: what a replacing rename replaced (reserved) |

use super::extent::MappedExtent;
use crate::format::codec::{FieldReader, FieldWriter};
use crate::format::page::PagePtr;
use teal_types::limits::{LINKS_MAX, TARGET_MAX, XATTRS_BYTES_MAX};
use teal_types::{FileType, Lsn, Name, ObjectNo, SECTOR, Timestamp, UpdateId};

/// Least and most useful cookies of `readdir`: entries have cookies of at least this.
pub const FIRST_COOKIE: u64 = 128;

pub(crate) const CORE: usize = 128;
/// Longest record: all names, all extended attributes and the rest of an object stay below it.
pub(crate) const RECORD_MAX: usize = 448 << 10;
const _: () = assert!(
    CORE + LINKS_MAX * (16 + 255) + XATTRS_BYTES_MAX + 8 + TARGET_MAX <= RECORD_MAX,
    "an object at all of its limits fits"
);
const VERSION: u8 = 1;
/// Encoded bytes of extents or entries an inode record may hold.
pub(crate) const INLINE_CONTENT: usize = 1024;

/// The sectors of the longest file.
const SECTORS_MAX: u64 = i64::MAX as u64 / SECTOR + 1;
/// What the cookie of an entry may be; smaller ones stand for `.`, `..` and "from the start".
pub(crate) const COOKIES: std::ops::Range<u64> = FIRST_COOKIE..1 << 63;

/// The fixed part of an inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct InodeCore {
    pub(crate) kind: FileType,
    pub(crate) perm: u16,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) rdev: u32,
    pub(crate) size: u64,
    pub(crate) subdirs: u32,
    pub(crate) generation: u32,
    pub(crate) atime: Timestamp,
    pub(crate) mtime: Timestamp,
    pub(crate) ctime: Timestamp,
    pub(crate) btime: Timestamp,
    pub(crate) lsn: Lsn,
    pub(crate) data_stamp: UpdateId,
    pub(crate) attr_stamp: UpdateId,
    pub(crate) sectors: u64,
}

impl InodeCore {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.put_u8(VERSION);
        out.put_u8(self.kind.code());
        out.put_u16(self.perm);
        out.put_u32(self.uid);
        out.put_u32(self.gid);
        out.put_u32(self.rdev);
        out.put_u64(self.size);
        out.put_u32(self.subdirs);
        out.put_u32(self.generation);
        for t in [self.atime, self.mtime, self.ctime, self.btime] {
            out.put_time(t);
        }
        out.put_u64(self.lsn.get());
        out.put_stamp(self.data_stamp);
        out.put_stamp(self.attr_stamp);
        out.put_u64(self.sectors);
    }

    fn take(t: &mut FieldReader<'_>) -> Option<Self> {
        if t.u8()? != VERSION {
            return None;
        }
        Some(Self {
            kind: FileType::from_code(t.u8()?)?,
            perm: t.u16().filter(|p| *p <= 0o7777)?,
            uid: t.u32()?,
            gid: t.u32()?,
            rdev: t.u32()?,
            size: t.u64().filter(|s| *s <= i64::MAX as u64)?,
            subdirs: t.u32()?,
            generation: t.u32()?,
            atime: t.time()?,
            mtime: t.time()?,
            ctime: t.time()?,
            btime: t.time()?,
            lsn: Lsn::new(t.u64()?),
            data_stamp: t.stamp()?,
            attr_stamp: t.stamp()?,
            sectors: t.u64().filter(|s| *s <= SECTORS_MAX)?,
        })
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut t = FieldReader(bytes);
        let core = Self::take(&mut t)?;
        t.is_empty().then_some(core)
    }
}

/// One name of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ParentLink {
    pub(crate) parent: ObjectNo,
    pub(crate) name: Name,
}

/// A directory entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DirectoryEntry {
    pub(crate) child: ObjectNo,
    pub(crate) kind: FileType,
    pub(crate) name: Name,
}

impl DirectoryEntry {
    /// The entry without its cookie, as a directory tree's value.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(9 + self.name.as_bytes().len());
        out.put_u64(self.child.get());
        out.put_u8(self.kind.code());
        out.put_bytes(self.name.as_bytes());
        out
    }
    /// The entry stored under a cookie, if an entry may have that.
    pub(crate) fn decode_at(cookie: u64, bytes: &[u8]) -> Option<Self> {
        let mut t = FieldReader(bytes);
        COOKIES.contains(&cookie).then_some(())?;
        Some(Self {
            child: ObjectNo::new(t.u64()?),
            kind: FileType::from_code(t.u8()?)?,
            name: Name::new(t.0).ok()?,
        })
    }
}

/// One item of an inode record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum InodeItem<'a> {
    Link(ParentLink),
    Data(&'a [u8]),
    Extent { block: u64, extent: MappedExtent },
    ExtentTree(PagePtr),
    Entry { cookie: u64, entry: DirectoryEntry },
    DirTree(PagePtr),
    Xattr { name: &'a [u8], value: &'a [u8] },
    Ignored,
}

impl InodeItem<'_> {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let at = out.len();
        out.put_u8(match self {
            Self::Link(_) => 1,
            Self::Data(_) => 2,
            Self::Extent { .. } => 3,
            Self::ExtentTree(_) => 4,
            Self::Entry { .. } => 5,
            Self::DirTree(_) => 6,
            Self::Xattr { .. } => 7,
            Self::Ignored => unreachable!("never made, only read"),
        });
        out.put_bytes(&[0; 7]);
        let value = out.len();
        match self {
            Self::Link(link) => {
                out.put_u64(link.parent.get());
                out.put_bytes(link.name.as_bytes());
            }
            Self::Data(bytes) => out.put_bytes(bytes),
            Self::Extent { block, extent } => {
                out.put_u64(*block);
                extent.encode(out);
            }
            Self::ExtentTree(ptr) | Self::DirTree(ptr) => out.put_bytes(&ptr.encode()),
            Self::Entry { cookie, entry } => {
                out.put_u64(*cookie);
                out.put_bytes(&entry.encode());
            }
            Self::Xattr { name, value } => {
                out.put_u8(u8::try_from(name.len()).expect("xattr names have at most 255 bytes"));
                out.put_bytes(name);
                out.put_bytes(value);
            }
            Self::Ignored => {}
        }
        let len = u32::try_from(out.len() - value).expect("items are far below 4 GiB");
        out[at + 4..at + 8].copy_from_slice(&len.to_le_bytes());
    }

    fn take<'a>(t: &mut FieldReader<'a>) -> Option<InodeItem<'a>> {
        let (code, flags, zero, len) = (t.u8()?, t.u8()?, t.u16()?, t.u32()?);
        let mut v = FieldReader(t.bytes(len as usize)?);
        if zero != 0 {
            return None;
        }
        Some(match code {
            1 => InodeItem::Link(ParentLink {
                parent: ObjectNo::new(v.u64()?),
                name: Name::new(v.0).ok()?,
            }),
            2 => InodeItem::Data(v.0),
            3 => {
                let block = v.u64()?;
                InodeItem::Extent {
                    block,
                    extent: MappedExtent::decode_at(block, v.0)?,
                }
            }
            4 => InodeItem::ExtentTree(PagePtr::decode(v.0.try_into().ok()?)?),
            5 => {
                let cookie = v.u64()?;
                InodeItem::Entry {
                    cookie,
                    entry: DirectoryEntry::decode_at(cookie, v.0)?,
                }
            }
            6 => InodeItem::DirTree(PagePtr::decode(v.0.try_into().ok()?)?),
            7 => {
                let len = usize::from(v.u8()?);
                InodeItem::Xattr {
                    name: v.bytes(len)?,
                    value: v.0,
                }
            }
            _ if flags & 1 != 0 => InodeItem::Ignored,
            _ => return None,
        })
    }
}

/// Splits a record into core and items; an item that makes no sense ends with `Err`.
pub(crate) fn decode(bytes: &[u8]) -> Option<(InodeCore, Vec<InodeItem<'_>>)> {
    let mut t = FieldReader(bytes);
    let core = InodeCore::take(&mut t)?;
    let mut items = Vec::new();
    while !t.is_empty() {
        items.push(InodeItem::take(&mut t)?);
    }
    Some((core, items))
}
