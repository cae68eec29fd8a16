//! What a store should hold: plain maps, cheap to keep one of for every batch.

#![allow(clippy::unwrap_used, reason = "all of it is test code")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use teal_log::{Store, StoreError};
use teal_types::{FileType, Name, ObjectNo, Timestamp};

const BLOCK: u64 = 4096;

/// A file's bytes; blocks that are missing are zero.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Bytes {
    pub(crate) size: u64,
    pub(crate) blocks: BTreeMap<u64, Arc<Vec<u8>>>,
}

impl Bytes {
    pub(crate) fn write(&mut self, at: u64, data: &[u8]) {
        let mut from = 0;
        while from < data.len() {
            let byte = at + from as u64;
            let inside = (byte % BLOCK) as usize;
            let len = (BLOCK as usize - inside).min(data.len() - from);
            let block = self
                .blocks
                .entry(byte / BLOCK)
                .or_insert_with(|| Arc::new(vec![0; BLOCK as usize]));
            Arc::make_mut(block)[inside..inside + len].copy_from_slice(&data[from..from + len]);
            from += len;
        }
        self.size = self.size.max(at + data.len() as u64);
    }

    pub(crate) fn zero(&mut self, from: u64, to: u64) {
        let touched: Vec<u64> = self
            .blocks
            .range(from / BLOCK..to.div_ceil(BLOCK))
            .map(|(b, _)| *b)
            .collect();
        for block in touched {
            let (start, end) = (from.max(block * BLOCK), to.min((block + 1) * BLOCK));
            if end - start == BLOCK {
                self.blocks.remove(&block);
            } else if let Some(bytes) = self.blocks.get_mut(&block) {
                Arc::make_mut(bytes)
                    [(start - block * BLOCK) as usize..(end - block * BLOCK) as usize]
                    .fill(0);
            }
        }
    }

    /// Takes over whole blocks; the end of the last one only when both end there.
    pub(crate) fn copy_blocks(&mut self, source: &Self, from: u64, to: u64, len: u64) {
        let count = len.div_ceil(BLOCK);
        let blocks: Vec<_> = source
            .blocks
            .range(from..from + count)
            .map(|(b, data)| (*b, Arc::clone(data)))
            .collect();
        let mut behind = self.blocks.split_off(&to);
        self.blocks.append(&mut behind.split_off(&(to + count)));
        self.blocks.extend(
            blocks
                .into_iter()
                .map(|(block, data)| (block - from + to, data)),
        );
        self.size = self.size.max(to * BLOCK + len);
    }

    pub(crate) fn truncate(&mut self, size: u64) {
        if size < self.size {
            self.zero(size, self.size.next_multiple_of(BLOCK));
        }
        self.size = size;
    }

    fn differs(&self, store: &Store, no: ObjectNo) -> Result<(), String> {
        // Holes between what is there are looked at where they border on data, not for terabytes.
        let mut wanted: BTreeSet<u64> = self
            .blocks
            .keys()
            .flat_map(|b| [b.saturating_sub(1), *b, b + 1])
            .collect();
        wanted.extend([0, self.size.saturating_sub(1) / BLOCK]);
        let mut runs: Vec<(u64, u64)> = Vec::new();
        for block in wanted {
            match runs.last_mut() {
                Some((from, count)) if *from + *count == block => *count += 1,
                _ => runs.push((block, 1)),
            }
        }
        let zeros = [0; BLOCK as usize];
        for (from, count) in runs {
            let got = store
                .read(no, from * BLOCK, (count * BLOCK) as usize)
                .map_err(|e| e.to_string())?;
            let want = self.size.saturating_sub(from * BLOCK).min(count * BLOCK);
            if got.len() as u64 != want {
                return Err(format!(
                    "{} bytes at block {from} instead of {want}",
                    got.len()
                ));
            }
            for (i, part) in (from..).zip(got.chunks(BLOCK as usize)) {
                let want = self.blocks.get(&i).map_or(&zeros[..], |b| &b[..]);
                if part != &want[..part.len()] {
                    let at = part.iter().zip(want).position(|(a, b)| a != b).unwrap();
                    return Err(format!(
                        "block {i} differs from byte {at}: {} for {}",
                        part[at], want[at]
                    ));
                }
            }
        }
        Ok(())
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Content {
    None,
    File(Bytes),
    Target(Vec<u8>),
    Dir(BTreeMap<Name, ObjectNo>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Object {
    pub(crate) kind: FileType,
    pub(crate) perm: u16,
    pub(crate) owner: (u32, u32),
    pub(crate) rdev: u32,
    pub(crate) times: [Timestamp; 4],
    pub(crate) links: BTreeSet<(ObjectNo, Name)>,
    pub(crate) xattrs: BTreeMap<Vec<u8>, Arc<Vec<u8>>>,
    pub(crate) content: Content,
    pub(crate) orphan: bool,
}

/// The state of a whole store.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Model {
    pub(crate) objects: BTreeMap<ObjectNo, Arc<Object>>,
    pub(crate) notes: BTreeMap<ObjectNo, Arc<Vec<u8>>>,
}

impl Model {
    pub(crate) fn object(&mut self, no: ObjectNo) -> &mut Object {
        Arc::make_mut(
            self.objects
                .get_mut(&no)
                .expect("the workload uses what is there"),
        )
    }

    pub(crate) fn dir(&mut self, no: ObjectNo) -> &mut BTreeMap<Name, ObjectNo> {
        match &mut self.object(no).content {
            Content::Dir(map) => map,
            _ => panic!("{no} is no directory"),
        }
    }

    pub(crate) fn bytes(&mut self, no: ObjectNo) -> &mut Bytes {
        match &mut self.object(no).content {
            Content::File(bytes) => bytes,
            _ => panic!("{no} is no file"),
        }
    }

    pub(crate) fn of_kind(&self, kind: FileType) -> Vec<ObjectNo> {
        self.objects
            .iter()
            .filter(|(_, o)| o.kind == kind)
            .map(|(no, _)| *no)
            .collect()
    }

    /// Every entry: directory, name, child.
    pub(crate) fn entries(&self) -> Vec<(ObjectNo, Name, ObjectNo)> {
        let of = |(no, o): (&ObjectNo, &Arc<Object>)| match &o.content {
            Content::Dir(map) => map.iter().map(|(n, c)| (*no, n.clone(), *c)).collect(),
            _ => Vec::new(),
        };
        self.objects.iter().flat_map(of).collect()
    }

    /// Returns whether `dir` is `below` or one of the directories above it.
    pub(crate) fn is_above(&self, dir: ObjectNo, below: ObjectNo) -> bool {
        let mut at = below;
        loop {
            if at == dir {
                return true;
            }
            match self.objects.get(&at).and_then(|o| o.links.first()) {
                Some((parent, _)) => at = *parent,
                None => return false,
            }
        }
    }

    /// Says where a store differs from this state.
    pub(crate) fn differs(&self, store: &Store, with_content: bool) -> Result<(), String> {
        let there = store.space().objects;
        if there != self.objects.len() as u64 {
            return Err(format!("{there} objects instead of {}", self.objects.len()));
        }
        for (no, object) in &self.objects {
            object
                .heads_differ(store, *no)
                .map_err(|what| format!("object {no}: {what}"))?;
        }
        let orphans: Vec<_> = self
            .objects
            .iter()
            .filter(|(_, o)| o.orphan)
            .map(|(no, _)| *no)
            .collect();
        let found = store.orphans().map_err(|e| e.to_string())?;
        if found != orphans {
            return Err(format!("orphans {found:?} instead of {orphans:?}"));
        }
        let mut noted = Vec::new();
        let mut visit = |no, _: &[u8]| {
            noted.push(no);
            std::ops::ControlFlow::Continue(())
        };
        store
            .each_note(ObjectNo::new(0), &mut visit)
            .map_err(|e| e.to_string())?;
        if !noted.iter().eq(self.notes.keys()) {
            return Err(format!(
                "notes of {noted:?} instead of {:?}",
                self.notes.keys()
            ));
        }
        for (no, note) in &self.notes {
            if store.note(*no).map_err(|e| e.to_string())?.as_ref() != Some(&**note) {
                return Err(format!("the note of {no}"));
            }
        }
        if with_content {
            for (no, object) in &self.objects {
                object
                    .content_differs(store, *no)
                    .map_err(|what| format!("object {no}: {what}"))?;
            }
        }
        Ok(())
    }
}

impl Object {
    fn heads_differ(&self, store: &Store, no: ObjectNo) -> Result<(), String> {
        let say = |e: StoreError| e.to_string();
        let a = store.attr(no).map_err(say)?;
        let size = match &self.content {
            Content::None => 0,
            Content::File(bytes) => bytes.size,
            Content::Target(target) => target.len() as u64,
            Content::Dir(map) => map.len() as u64 * 32,
        };
        let want = (
            self.kind, self.perm, self.owner, self.rdev, self.times, size,
        );
        let have = (
            a.kind,
            a.perm,
            (a.uid, a.gid),
            a.rdev,
            [a.atime, a.mtime, a.ctime, a.btime],
            a.size,
        );
        if have != want {
            return Err(format!("attributes {have:?} instead of {want:?}"));
        }
        let names: BTreeSet<_> = store.names(no).map_err(say)?.into_iter().collect();
        if names != self.links {
            return Err(format!("names {names:?} instead of {:?}", self.links));
        }
        if !self.kind.is_dir() && a.nlink as usize != self.links.len() {
            return Err(format!("{} links instead of {}", a.nlink, self.links.len()));
        }
        let xattrs = store.xattr_names(no).map_err(say)?;
        if !xattrs.iter().eq(self.xattrs.keys()) {
            return Err(format!(
                "{} extended attributes instead of {}",
                xattrs.len(),
                self.xattrs.len()
            ));
        }
        for (name, value) in &self.xattrs {
            if store.xattr(no, name).map_err(say)?.as_ref() != Some(&**value) {
                return Err(format!("extended attribute {name:?}"));
            }
        }
        if let Content::Dir(map) = &self.content {
            let mut found = BTreeMap::new();
            let mut visit = |_, child, _, name: &Name| {
                found.insert(name.clone(), child);
                std::ops::ControlFlow::Continue(())
            };
            store.each_entry(no, 0, &mut visit).map_err(say)?;
            if found != *map {
                return Err(format!("entries {found:?} instead of {map:?}"));
            }
        }
        Ok(())
    }

    fn content_differs(&self, store: &Store, no: ObjectNo) -> Result<(), String> {
        match &self.content {
            Content::File(bytes) => bytes.differs(store, no),
            Content::Target(target) => {
                let got = store.read(no, 0, 5000).map_err(|e| e.to_string())?;
                if got == *target {
                    Ok(())
                } else {
                    Err("target".into())
                }
            }
            Content::None | Content::Dir(_) => Ok(()),
        }
    }
}
