//! The small valid images that image targets start from, and where their structures lie.

use super::metered::{ConstantEntropy, FixedClock, MeteredDisk};
use super::oracle::{self, ObservedStore};
use crate::format::anchor;
use crate::format::delta::{Delta, decode_body};
use crate::format::extent::MappedExtent;
use crate::format::geometry::Geometry;
use crate::format::record::{HEADER, RecordHeader};
use crate::format::superblock::{self, Superblock};
use crate::recovery::find_superblock::read_superblock;
use crate::recovery::open::OpenOptions;
use crate::space::cost::Cost;
use crate::store::handle::Store;
use crate::store::locked::NewObject;
use crate::store::mkfs::{MkfsOptions, SMALLEST_STORE};
use std::ops::Range;
use std::sync::{Arc, OnceLock};
use teal_env::{Clock, Disk};
use teal_types::{FileType, Name, ObjectNo, SECTOR, Sector};

/// The kind of an [`ImagePart`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum StructureKind {
    Superblock,
    Anchor,
    Header,
    /// All deltas of a record.
    Body,
    /// One delta with its prefix.
    Delta,
    Inode,
    Page,
    /// The value of an item of a leaf page.
    Item,
    /// File content.
    Data,
}

/// A structure in an image.
#[derive(Debug, Clone, Copy)]
pub(super) struct ImagePart {
    pub(super) kind: StructureKind,
    pub(super) byte: usize,
    pub(super) len: usize,
    seq: u64,
}

impl ImagePart {
    pub(super) fn byte_range(&self) -> Range<usize> {
        self.byte..self.byte + self.len
    }
}

/// An image, its structures (fixed ones first, then the newest first), and what its commits had
/// made of the tree.
pub(super) struct BaseImage {
    pub(super) bytes: Arc<Vec<u8>>,
    pub(super) parts: Vec<ImagePart>,
    pub(super) states: Vec<ObservedStore>,
}

/// Returns all images, which are made once.
pub(super) fn base_images() -> &'static [BaseImage] {
    static BASES: OnceLock<Vec<BaseImage>> = OnceLock::new();
    // Making the images takes seconds.
    BASES.get_or_init(|| {
        let build: [fn(&mut ImageMaker); 6] = [
            small_files,
            big_directory,
            fragmented_files,
            orphaned_files,
            open_tail,
            shared_copies,
        ];
        build.into_iter().map(make_image).collect()
    })
}

struct ImageMaker {
    store: Arc<Store>,
    states: Vec<ObservedStore>,
}

fn numbered_name(text: &str, i: usize) -> Name {
    Name::new(format!("{text}{i}").as_bytes()).expect("a short name is a name")
}

impl ImageMaker {
    fn create_object(&self, dir: ObjectNo, name: &Name, kind: FileType) -> ObjectNo {
        // The fuzzer's images are small, and the cost is generous.
        let op = self.store.begin(Cost::names(2)).expect("there is room");
        let mut locked = op.lock(&[dir]).expect("the directory is there");
        let new = NewObject {
            kind,
            perm: 0o644,
            uid: 1,
            gid: 2,
            rdev: 0,
            now: FixedClock.civil_time(),
        };
        let no = locked.create(new);
        locked
            .insert_entry(dir, name, no)
            .expect("the name is free");
        no
    }

    fn write_pattern(&self, no: ObjectNo, at: u64, len: usize, seed: u8) {
        let data: Vec<u8> = (0..len).map(|i| (i * 31 + i / 256) as u8 ^ seed).collect();
        let op = self
            .store
            .begin(Cost::write(len as u64))
            .expect("there is room");
        op.lock(&[no])
            .and_then(|mut locked| locked.write(no, at, &data))
            .expect("it is written");
    }

    fn share_range(&self, from: (ObjectNo, u64), to: (ObjectNo, u64), len: u64) {
        let sharing = self.store.plan_share(from, to, len).expect("a sound map");
        let op = self.store.begin(sharing.cost).expect("there is room");
        let done = op
            .lock(&[from.0, to.0])
            .and_then(|mut locked| locked.share(from, to, len, &sharing));
        assert!(
            done.is_ok_and(|done| done > 0),
            "whole blocks can be shared"
        );
    }

    fn remove_object(&self, dir: ObjectNo, name: &Name, no: ObjectNo, keep: bool) {
        let op = self
            .store
            .begin(Cost::names(2).freeing())
            .expect("there is room");
        let mut locked = op.lock(&[dir, no]).expect("both are there");
        locked.remove_entry(dir, name).expect("the name is there");
        let done = if keep {
            locked.set_orphan(no, true)
        } else {
            locked.free_object(no)
        };
        done.expect("a sound store takes it");
    }

    fn commit(&mut self) {
        self.store.commit().expect("a sound disk takes it");
        // Each committed state is one that a damaged image may show.
        self.states.push(oracle::observe_store(&self.store));
    }

    fn checkpoint(&mut self) {
        self.commit();
        self.store.checkpoint().expect("a sound disk takes it");
    }
}

/// Makes many small files in a few directories, with every type, links and extended attributes.
fn small_files(m: &mut ImageMaker) {
    for d in 0..3 {
        // Contents of all sizes up to beyond the inline limit.
        let dir = m.create_object(ObjectNo::ROOT, &numbered_name("dir", d), FileType::Dir);
        for i in 0..30 {
            let file = m.create_object(dir, &numbered_name("file", i), FileType::File);
            m.write_pattern(file, 0, i * 97, i as u8);
        }
        m.commit();
    }
    let link = m.create_object(ObjectNo::ROOT, &numbered_name("link", 0), FileType::Symlink);
    let fifo = m.create_object(ObjectNo::ROOT, &numbered_name("fifo", 0), FileType::Fifo);
    let op = m.store.begin(Cost::names(4)).expect("there is room");
    let mut locked = op
        .lock(&[ObjectNo::ROOT, link, fifo])
        .expect("all are there");
    locked.set_target(link, b"dir0/file3");
    // One object with several names.
    for i in 0..3 {
        locked
            .insert_entry(ObjectNo::ROOT, &numbered_name("hard", i), fifo)
            .expect("the name is free");
        locked
            // More extended attributes than a small record.
            .set_xattr(fifo, numbered_name("user.x", i).as_bytes(), Some(&[7; 300]))
            .expect("it is small");
    }
    drop(locked);
    drop(op);
    m.checkpoint();
}

/// Makes a directory with a tree of its own, entries removed.
fn big_directory(m: &mut ImageMaker) {
    let dir = m.create_object(ObjectNo::ROOT, &numbered_name("big", 0), FileType::Dir);
    // Enough entries for a tree of several pages.
    let made: Vec<_> = (0..700)
        .map(|i| {
            m.create_object(
                dir,
                &numbered_name("a-name-of-some-length-", i),
                FileType::File,
            )
        })
        .collect();
    m.checkpoint();
    // Every ninth is removed, so that pages become sparse.
    for (i, no) in made.iter().enumerate().step_by(9) {
        m.remove_object(dir, &numbered_name("a-name-of-some-length-", i), *no, false);
    }
    m.checkpoint();
    // One entry in the tail of the log.
    m.create_object(dir, &numbered_name("late", 0), FileType::Dir);
    m.commit();
}

/// Makes a file with an extent tree, holes, and another with few extents.
fn fragmented_files(m: &mut ImageMaker) {
    let tree = m.create_object(ObjectNo::ROOT, &numbered_name("tree", 0), FileType::File);
    let few = m.create_object(ObjectNo::ROOT, &numbered_name("few", 0), FileType::File);
    for i in 0..120 {
        // Gaps between the pieces make many extents.
        m.write_pattern(tree, i * 12_288, 5000, i as u8);
        if i % 40 == 0 {
            m.write_pattern(few, i * 50_000, 9000, i as u8);
            m.commit();
        }
    }
    m.checkpoint();
    let op = m.store.begin(Cost::write(1 << 16)).expect("there is room");
    let mut locked = op.lock(&[tree]).expect("it is there");
    // A hole in the middle, and a cut in the middle of a block.
    locked.punch(tree, 100_000, 300_000).expect("a sound map");
    locked.truncate(tree, 1_400_001).expect("a sound map");
    drop(locked);
    drop(op);
    m.checkpoint();
}

/// Makes objects without names, some with content in blocks.
fn orphaned_files(m: &mut ImageMaker) {
    for i in 0..12 {
        let file = m.create_object(ObjectNo::ROOT, &numbered_name("gone", i), FileType::File);
        m.write_pattern(file, 0, i * 3000, i as u8);
        // Each state is committed, so that orphans exist in some of them.
        m.commit();
        if i % 2 == 0 {
            // Half of them stay orphans, the other half are freed.
            m.remove_object(ObjectNo::ROOT, &numbered_name("gone", i), file, i % 4 == 0);
        }
    }
    m.checkpoint();
}

/// Leaves everything since the first checkpoint in the tail of the log.
fn open_tail(m: &mut ImageMaker) {
    let dir = m.create_object(ObjectNo::ROOT, &numbered_name("dir", 0), FileType::Dir);
    let old = m.create_object(dir, &numbered_name("old", 0), FileType::File);
    m.write_pattern(old, 0, 30_000, 1);
    m.checkpoint();
    // Everything from here on is in the tail.
    for i in 0..60 {
        let file = m.create_object(
            dir,
            &numbered_name("a-longer-name-so-that-it-outgrows-", i),
            FileType::File,
        );
        m.write_pattern(file, 0, i * 700, i as u8);
        m.write_pattern(old, i as u64 * 20_000, 3000, i as u8);
        if i % 10 == 0 {
            m.commit();
        }
        if i % 7 == 3 {
            m.remove_object(
                dir,
                &numbered_name("a-longer-name-so-that-it-outgrows-", i),
                file,
                i % 2 == 0,
            );
        }
    }
    m.commit();
}

/// Makes files that share content, in the last checkpoint and in the tail of the log.
fn shared_copies(m: &mut ImageMaker) {
    let files: Vec<_> = (0..6)
        .map(|i| m.create_object(ObjectNo::ROOT, &numbered_name("copy", i), FileType::File))
        .collect();
    m.write_pattern(files[0], 0, 900_000, 9);
    m.write_pattern(files[1], 40_960, 70_001, 8);
    m.commit();
    // Copies at several offsets, of whole files and of parts.
    for (from, to, at, len) in [
        (0, 2, 0, 900_000),
        (0, 3, 8192, 400_000),
        (1, 4, 0, 110_961),
        (2, 4, 200_704, 300_000),
    ] {
        m.share_range((files[from], 0), (files[to], at), len);
    }
    // Writing into a copy splits its reference.
    m.write_pattern(files[2], 300_000, 5000, 7);
    m.checkpoint();
    // Sharing in the tail, of a copy and within one file.
    m.share_range((files[3], 8192), (files[5], 0), 300_000);
    m.share_range((files[5], 0), (files[5], 409_600), 200_000);
    m.write_pattern(files[0], 100_000, 3, 6);
    m.commit();
    // A copy is freed, another one stays an orphan.
    m.remove_object(ObjectNo::ROOT, &numbered_name("copy", 3), files[3], false);
    m.remove_object(ObjectNo::ROOT, &numbered_name("copy", 4), files[4], true);
    m.commit();
}

fn make_image(fill: fn(&mut ImageMaker)) -> BaseImage {
    let disk = Arc::new(MeteredDisk::new(
        Arc::new(vec![0; SMALLEST_STORE as usize]),
        u64::MAX,
    ));
    let (dynamic, clock): (Arc<dyn Disk>, Arc<dyn Clock>) = (disk.clone(), Arc::new(FixedClock));
    let options = MkfsOptions {
        label: "fuzz".into(),
        owner: (0, 0),
        ..MkfsOptions::default()
    };
    Store::mkfs(
        Arc::clone(&dynamic),
        Arc::clone(&clock),
        &ConstantEntropy,
        &options,
    )
    .expect("a store fits");
    let (store, _) =
        Store::open(dynamic, clock, OpenOptions::default()).expect("a new store opens");
    let mut maker = ImageMaker {
        states: vec![oracle::observe_store(&store)],
        store,
    };
    fill(&mut maker);
    let bytes = disk.snapshot();
    BaseImage {
        parts: find_parts(&disk, &bytes),
        bytes: Arc::new(bytes),
        states: maker.states,
    }
}

/// Finds the structures of a whole image.
fn find_parts(disk: &MeteredDisk, bytes: &[u8]) -> Vec<ImagePart> {
    // The parts of an image: fixed structures first, then those that records lead to.
    let sb = read_superblock(disk).expect("a whole image");
    let geometry = Geometry::new(&sb);
    let mut out = Vec::new();
    let fixed = |kind, at: Sector, len| ImagePart {
        kind,
        byte: at.byte_offset() as usize,
        len,
        seq: u64::MAX,
    };
    out.push(fixed(
        StructureKind::Superblock,
        Sector::new(0),
        superblock::BYTES,
    ));
    out.push(fixed(
        StructureKind::Superblock,
        Superblock::second_copy(sb.sectors),
        superblock::BYTES,
    ));
    out.extend(
        geometry
            .anchor_slots()
            .map(|at| fixed(StructureKind::Anchor, at, anchor::BYTES)),
    );
    // Slots that were never written are no targets.
    out.retain(|part| bytes[part.byte_range()].iter().any(|b| *b != 0));
    // Every sector may begin a record.
    for (i, sector) in bytes.chunks_exact(SECTOR as usize).enumerate() {
        if let Some(header) = RecordHeader::decode(sector, &sb.uuid) {
            record_parts(bytes, i * HEADER, &header, &mut out);
        }
    }
    // The newest first: a change there matters most.
    out.sort_by_key(|part| std::cmp::Reverse(part.seq));
    out
}

/// Finds a record, and the structures that its deltas lead to.
fn record_parts(bytes: &[u8], byte: usize, header: &RecordHeader, out: &mut Vec<ImagePart>) {
    let mut add = |kind, byte, len| {
        out.push(ImagePart {
            kind,
            byte,
            len,
            seq: header.seq,
        })
    };
    add(StructureKind::Header, byte, HEADER);
    let body = byte + HEADER + header.payload as usize * SECTOR as usize;
    let len = header.body as usize;
    add(StructureKind::Body, body, len);
    for placed in decode_body(&bytes[body..body + len], header.deltas).flatten() {
        let at = body + placed.at;
        let len = [
            bytes[at - 16],
            bytes[at - 15],
            bytes[at - 14],
            bytes[at - 13],
        ];
        let len = u32::from_le_bytes(len) as usize;
        add(StructureKind::Delta, at - 20, len + 20);
        match placed.delta {
            Delta::Inode(inode) | Delta::Head(inode) => add(StructureKind::Inode, at, inode.len()),
            Delta::Page { ptr, .. } => {
                let page = ptr.addr().byte_offset() as usize;
                add(StructureKind::Page, page, ptr.stored_bytes());
                for (item, len) in page_items(bytes, page, usize::from(ptr.bytes())) {
                    add(StructureKind::Item, item, len);
                }
            }
            Delta::Extent {
                extent: MappedExtent::Own(extent),
                ..
            } => {
                let content = extent.addr.byte_offset() as usize;
                add(StructureKind::Data, content, extent.bytes() as usize);
            }
            _ => {}
        }
    }
}

/// Returns the places and lengths of the values in a page of `len` bytes: only leaves have values
/// worth changing.
fn page_items(bytes: &[u8], page: usize, len: usize) -> Vec<(usize, usize)> {
    let mut items = Vec::new();
    if bytes[page + 7] != 0 {
        return items;
    }
    let mut item = page + 24;
    while item < page + len {
        let value = usize::from(u16::from_le_bytes([bytes[item + 8], bytes[item + 9]]));
        items.push((item + 10, value));
        item += 10 + value;
    }
    items
}
