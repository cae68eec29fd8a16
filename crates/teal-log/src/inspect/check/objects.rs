//! Every object: its record, its attributes, its content, its pages.

use super::{CheckPhase, CheckProgress, ObjectFacts, RangeUse, Severity, StoreChecker};
use crate::format::extent::{Extent, MappedExtent};
use crate::format::imap::RecordHome;
use crate::format::inode::DirectoryEntry;
use crate::format::page::{Node, NodeItems, PagePtr, STORE_WIDE};
use crate::object::directory::{DirectoryContent, DirectoryEntries, NameHash};
use crate::object::extents::FileExtents;
use crate::object::gather::{ReadPiece, ReadStretch};
use crate::object::state::{BlockContent, ObjectContent, ObjectState};
use crate::tree::Tree;
use crate::tree::inode_map::InodeMap;
use std::collections::BTreeMap;
use teal_types::{BLOCK, FileType, Name, ObjectNo, SECTOR};

/// Objects between two reports of progress.
const STEP: u64 = 256;

/// Returns the fingerprint of a name in a directory.
fn name_fingerprint(names: NameHash, dir: ObjectNo, name: &Name) -> u64 {
    // A mix of directory and name: sums of these tell sets apart, with high probability.
    let mixed =
        (names.first_cookie(name) ^ dir.get().rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) | 1
}

impl StoreChecker<'_> {
    pub(super) fn check_objects(&mut self, progress: &mut dyn FnMut(CheckProgress)) {
        // The trees of the store come first: they say which objects there are.
        let homes = self.inode_map();
        self.orphan_set();
        self.note_pages();
        self.usage_pages();
        self.shared_table();
        let total = homes.len() as u64;
        for (done, (no, home)) in (0..).zip(homes) {
            if done % STEP == 0 {
                progress(CheckProgress {
                    phase: CheckPhase::Objects,
                    done,
                    total,
                });
            }
            self.check_object(no, home);
        }
        // References are counted by now.
        self.shared_counts();
        self.check_counters();
    }

    /// Notes the pages of a tree and shows its items.
    pub(super) fn walk_tree(
        &mut self,
        tree: &Tree,
        owner: ObjectNo,
        item: &mut dyn FnMut(&mut Self, u64, &[u8]),
    ) {
        let store = self.store;
        let mut nodes = Vec::new();
        let mut errors = Vec::new();
        // Pages in memory have no place yet; the others are live.
        let mut visit = |page: Option<PagePtr>, node: &Node| {
            if let Some(ptr) = page {
                self.report.pages += 1;
                let of = RangeUse::Page(tree.kind());
                let bytes = ptr.sectors() * SECTOR;
                self.add_live_range(ptr.addr().byte_offset(), bytes, of, owner);
                self.check_copies(ptr, tree, node);
            }
            if let NodeItems::Leaf(items) = &node.items {
                // Copied, because the callback may change the checker.
                nodes.clear();
                nodes.extend(items.iter().cloned());
                for (key, value) in &nodes {
                    item(self, *key, value);
                }
            }
        };
        tree.walk_nodes(&store.reader, &mut visit, &mut |_, error| {
            errors.push(error)
        });
        for error in errors {
            self.add_damage((owner != STORE_WIDE).then_some(owner), &error);
        }
        // Pages that were replaced since the last fold are live until then.
        for ptr in tree.freed() {
            let bytes = ptr.sectors() * SECTOR;
            for at in ptr.places() {
                self.add_live_range(at.byte_offset(), bytes, RangeUse::Leaving, owner);
            }
        }
    }

    fn inode_map(&mut self) -> BTreeMap<ObjectNo, Option<RecordHome>> {
        let store = self.store;
        let imap = store.inode_map.read();
        let mut homes = BTreeMap::new();
        self.walk_tree(
            &imap.tree,
            STORE_WIDE,
            &mut |this, no, value| match InodeMap::decode(no, value) {
                Ok(Some(home)) => drop(homes.insert(ObjectNo::new(no), Some(home))),
                Ok(None) => {}
                Err(e) => this.add_damage(None, &e),
            },
        );
        // Changes since the last fold are newer than the tree.
        for (no, home) in imap.newer_than_tree() {
            match home {
                Some(home) => drop(homes.insert(no, Some(home))),
                None => drop(homes.remove(&no)),
            }
        }
        drop(imap);
        // Objects that so far only deltas or the open batch know.
        let open = store.open.object_numbers();
        let unfolded = store.unfolded.numbers();
        // And those that could not be brought up to date, which was said already.
        let deferred = store.deferred.numbers(ObjectNo::new(0));
        for no in open.into_iter().chain(unfolded).chain(deferred) {
            homes.entry(no).or_insert(None);
        }
        homes
    }

    fn orphan_set(&mut self) {
        let store = self.store;
        let tree = store.orphans.lock();
        self.walk_tree(&tree, STORE_WIDE, &mut |this, no, _| {
            this.facts.entry(ObjectNo::new(no)).or_default().orphan = true;
        });
    }

    fn note_pages(&mut self) {
        let store = self.store;
        let tree = store.notes.lock();
        self.walk_tree(&tree, STORE_WIDE, &mut |_, _, _| {});
    }

    fn usage_pages(&mut self) {
        let tree = self.usage_tree.lock();
        self.walk_tree(&tree, STORE_WIDE, &mut |_, _, _| {});
    }

    fn check_object(&mut self, no: ObjectNo, home: Option<RecordHome>) {
        let store = self.store;
        if let Some(home) = home {
            self.check_record(no, home);
        }
        let object = match store.load_object(no) {
            Ok(object) => object,
            // Reported above already, if it has a home.
            Err(e) if home.is_none() => return self.add_damage(Some(no), &e),
            // The object counts as there, so that its names are not reported as well.
            Err(_) => {
                let facts = self.facts.entry(no).or_default();
                facts.kind.get_or_insert(FileType::File);
                return;
            }
        };
        let state = object.state.read();
        // Removed, and not sealed yet.
        if state.gone {
            return;
        }
        // The newest home is the one in the map.
        if state.home != home {
            self.add_contradiction(no, "the inode map and the object disagree about its home");
        }
        self.report.objects += 1;
        self.check_state(no, &state);
    }

    /// Reads an inode record on the disk: memory may have a newer state.
    fn check_record(&mut self, no: ObjectNo, home: RecordHome) {
        self.add_live_range(home.byte, u64::from(home.len), RangeUse::Inode, no);
        let read = self.store.reader.read_checked(
            home.byte,
            home.len as usize,
            home.crc,
            "an inode record",
            Some(no),
        );
        match read.map(|bytes| ObjectState::decode(no, Some(home), &bytes)) {
            Ok(Some(_)) => {}
            Ok(None) => self.add_problem(
                Severity::Damage,
                Some(no),
                Some(home.byte / SECTOR),
                "an inode record makes no sense",
            ),
            Err(e) => self.add_damage(Some(no), &e),
        }
    }

    fn check_state(&mut self, no: ObjectNo, state: &ObjectState) {
        let core = &state.core;
        self.highest_lsn = self.highest_lsn.max(core.lsn.get());
        let names = self.store.name_hash;
        let facts: &mut ObjectFacts = self.facts.entry(no).or_default();
        facts.kind = Some(core.kind);
        facts.links = state.links.len() as u32;
        // Names add up; the entries for them subtract: a sum of zero means that both agree.
        for link in &state.links {
            facts.fingerprint =
                facts
                    .fingerprint
                    .wrapping_add(name_fingerprint(names, link.parent, &link.name));
        }
        if core.kind.is_dir() && state.links.len() > 1 {
            self.add_contradiction(no, "a directory has more than one name");
        }
        match &state.content {
            ObjectContent::None => {}
            ObjectContent::Inline(data) if data.len() as u64 != core.size => {
                self.add_contradiction(
                    no,
                    format!("{} bytes are stored of {}", data.len(), core.size),
                );
            }
            ObjectContent::Inline(_) => self.check_sectors(no, core.sectors, 0),
            ObjectContent::Blocks(blocks) => self.check_blocks(no, state, blocks),
            ObjectContent::Dir(dir) => self.check_directory(no, state, dir),
        }
    }

    fn check_sectors(&mut self, no: ObjectNo, claimed: u64, found: u64) {
        if claimed != found {
            self.add_contradiction(
                no,
                format!("it is said to take {claimed} sectors and takes {found}"),
            );
        }
    }

    fn check_directory(&mut self, no: ObjectNo, state: &ObjectState, dir: &DirectoryContent) {
        let mut count = 0;
        let mut subdirs = 0;
        let mut one = |this: &mut Self, cookie: u64, entry: Option<DirectoryEntry>| {
            let Some(entry) = entry else {
                return this.add_contradiction(no, "a directory entry makes no sense");
            };
            count += 1;
            subdirs += u32::from(entry.kind.is_dir());
            this.check_entry(no, cookie, &entry);
        };
        match &dir.entries {
            DirectoryEntries::Few(map) => {
                for (cookie, entry) in map {
                    one(self, *cookie, Some(entry.clone()));
                }
            }
            DirectoryEntries::Tree(tree) => self.walk_tree(tree, no, &mut |this, key, value| {
                one(this, key, DirectoryEntry::decode_at(key, value))
            }),
        }
        if (count, subdirs) != (state.core.size, state.core.subdirs) {
            let size = state.core.size;
            let dirs = state.core.subdirs;
            self.add_contradiction(
                no,
                format!(
                    "it is said to have {size} entries, {dirs} directories, and has {count}, \
                     {subdirs}"
                ),
            );
        }
    }

    fn check_entry(&mut self, dir: ObjectNo, cookie: u64, entry: &DirectoryEntry) {
        self.report.entries += 1;
        let names = self.store.name_hash;
        // The upper bits of a cookie are the hash of the name.
        if cookie >> 7 != names.first_cookie(&entry.name) >> 7 {
            self.add_contradiction(
                dir,
                format!("the entry {:?} is not where its name leads", entry.name),
            );
        }
        let facts = self.facts.entry(entry.child).or_default();
        // The counterpart of the sum over the object's own names.
        facts.fingerprint =
            facts
                .fingerprint
                .wrapping_sub(name_fingerprint(names, dir, &entry.name));
        facts.named += 1;
        facts.in_dir = dir.get();
    }

    fn check_blocks(&mut self, no: ObjectNo, state: &ObjectState, blocks: &BlockContent) {
        let mut sectors = 0;
        let mut end = 0;
        let mut one = |this: &mut Self, block: u64, extent: Option<MappedExtent>| {
            let Some(extent) = extent else {
                return this.add_contradiction(no, "an extent makes no sense");
            };
            // Extents ascend and must not overlap.
            if block < end {
                this.add_contradiction(no, format!("two extents hold block {block}"));
            }
            end = block + extent.blocks();
            sectors += extent.counted_sectors();
            this.check_extent(no, state.core.size, block, &extent, blocks);
        };
        match &blocks.extents {
            FileExtents::Few(map) => {
                for (block, extent) in map {
                    one(self, *block, Some(extent.clone()));
                }
            }
            FileExtents::Tree(tree) => self.walk_tree(tree, no, &mut |this, key, value| {
                one(this, key, MappedExtent::decode_at(key, value))
            }),
        }
        self.check_sectors(no, state.core.sectors, sectors);
    }

    fn check_extent(
        &mut self,
        no: ObjectNo,
        size: u64,
        block: u64,
        mapped: &MappedExtent,
        blocks: &BlockContent,
    ) {
        self.report.extents += 1;
        self.highest_lsn = self.highest_lsn.max(mapped.born().get());
        let extent = &match mapped {
            MappedExtent::Own(extent) => {
                self.add_live_range(
                    extent.addr.byte_offset(),
                    extent.bytes(),
                    RangeUse::Content,
                    no,
                );
                extent.clone()
            }
            MappedExtent::Shared(slice) => match self.shared_part(no, slice) {
                Some(extent) => extent,
                None => return,
            },
            // It may lie behind the end of the file.
            MappedExtent::Unwritten(_) => {
                self.unwritten_blocks += mapped.blocks();
                return;
            }
        };
        let stop = (block + extent.blocks()) * BLOCK;
        // At most the last block reaches behind the end.
        if block * BLOCK >= size || stop >= size + BLOCK {
            self.add_contradiction(
                no,
                format!("blocks up to byte {stop} are stored of a file of {size} bytes"),
            );
        }
        // Shared content was read with the table; here only blocks behind the end of this file
        // matter.
        if self.options.verify_data && (mapped.as_own().is_some() || stop > size) {
            // A dirty block in memory replaces this one before a reader can see the bytes behind
            // the end.
            let is_last = stop > size && !blocks.dirty.contains_key(&(size / BLOCK));
            // Bytes behind the end would show up when the file grows.
            let zeros_from = is_last.then(|| size.saturating_sub(block * BLOCK) as usize);
            self.verify_extent(no, mapped, extent, zeros_from);
        }
    }

    /// Reads an extent of an object. From the byte `zeros_from` on, it must be zero.
    fn verify_extent(
        &mut self,
        no: ObjectNo,
        mapped: &MappedExtent,
        extent: &Extent,
        zeros_from: Option<usize>,
    ) {
        let len = (extent.blocks() * BLOCK) as usize;
        let piece = ReadPiece::Disk {
            addr: extent.addr,
            stored: u64::from(extent.stored),
            crcs: extent.crcs.to_vec(),
            from: 0,
        };
        let stretches = [ReadStretch { len, piece }];
        let bytes = match self.store.reader.gather_stretches(no, &stretches) {
            Ok(parts) => parts.to_vec(),
            Err(e) => return self.add_damage(Some(no), &e),
        };
        self.report.verified += mapped.as_own().map_or(0, Extent::bytes);
        let Some(from) = zeros_from else { return };
        if bytes[from.min(len)..].iter().any(|b| *b != 0) {
            self.add_problem(
                Severity::Inconsistent,
                Some(no),
                Some(extent.addr.get()),
                "bytes behind the end of the file are not zero",
            );
        }
    }

    fn check_counters(&mut self) {
        let next = self.store.numbers.next_object();
        let mut highest = 0;
        for (no, facts) in &self.facts {
            if facts.kind.is_some() {
                highest = highest.max(no.get());
            }
        }
        // A number that is given twice would join two objects.
        if highest >= next {
            self.add_contradiction(
                ObjectNo::new(highest),
                format!("the next object would be #{next}"),
            );
        }
        let next = self.store.numbers.next_lsn().get();
        if self.highest_lsn >= next {
            let what = format!(
                "the next operation would have number {next}, and {} is taken",
                self.highest_lsn
            );
            self.add_problem(Severity::Inconsistent, None, None, what);
        }
        let counted = self.store.numbers.object_count();
        if counted != self.report.objects {
            let what = format!(
                "{counted} objects are counted and {} are there",
                self.report.objects
            );
            self.add_problem(Severity::Space, None, None, what);
        }
        let found = self.unwritten_blocks;
        let counted = self.store.ledger.unwritten_blocks();
        if counted != found {
            let what = format!("room is set aside for {counted} blocks and files have {found}");
            self.add_problem(Severity::Space, None, None, what);
        }
    }
}
