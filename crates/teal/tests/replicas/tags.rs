//! The account of what was written: no update is lost.
//!
//! # Guarantees
//! 1. Content is written as a tag of 16 bytes, again and again, at offsets that are multiples of 16; each write has a tag of its own.
//! 2. A tag is excused from being found in the end only if somebody who wrote it, or may have seen it, has since changed that part of an
//!    object it was in, or removed the object (or several have removed all its names, one each); or if its author's power failed before it was durable or at the server.

use crate::tree::Tree;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use teal_proto::{Change, Got, Hello, Reply, Request, Want};
use teal_server::{Peer, Server};
use teal_types::{CommitSeq, FileType, ObjectNo};

pub(crate) const TAG: usize = 16;

/// What is known of one write.
struct Tag {
    author: usize,
    from: u64,
    to: u64,
    /// Objects it has been seen in, or was written to.
    objects: BTreeSet<ObjectNo>,
    /// The first commit with it.
    committed: Option<CommitSeq>,
    is_durable: bool,
    /// Somebody took one of several names away; others may have taken the rest.
    lost_name: bool,
    is_excused: bool,
}

/// The account, and the eyes at the server.
pub(crate) struct Tags {
    tags: BTreeMap<u64, Tag>,
    peer: Peer,
    seen: CommitSeq,
    digest: [u8; 32],
}

fn bytes_of(id: u64) -> [u8; TAG] {
    let mut bytes = *b"<tag:00000000:t>";
    bytes[5..13].copy_from_slice(format!("{id:08}").as_bytes());
    bytes
}

/// The tags in some content.
fn found_in(content: &[u8]) -> BTreeSet<u64> {
    let pieces = content.chunks_exact(TAG);
    pieces
        .filter(|piece| piece.starts_with(b"<tag:"))
        .filter_map(|p| str::from_utf8(&p[5..13]).ok()?.parse().ok())
        .collect()
}

impl Tags {
    pub(crate) fn new(peer: Peer) -> Self {
        Self { tags: BTreeMap::new(), peer, seen: CommitSeq::new(0), digest: [0; 32] }
    }

    /// Content of `len` bytes with a new tag.
    pub(crate) fn write(&mut self, author: usize, object: ObjectNo, from: u64, len: usize) -> Vec<u8> {
        let id = self.tags.len() as u64;
        let objects = BTreeSet::from([object]);
        let to = from + len as u64;
        let tag =
            Tag { author, from, to, objects, committed: None, is_durable: false, lost_name: false, is_excused: false };
        self.tags.insert(id, tag);
        bytes_of(id).into_iter().cycle().take(len).collect()
    }

    /// An object loses one of several names.
    pub(crate) fn loses_name(&mut self, object: ObjectNo) {
        self.tags.values_mut().filter(|tag| tag.objects.contains(&object)).for_each(|tag| tag.lost_name = true);
    }

    /// This content is an object's.
    pub(crate) fn is_in(&mut self, object: ObjectNo, content: &[u8]) {
        for id in found_in(content) {
            self.tags.get_mut(&id).map(|tag| tag.objects.insert(object)).unwrap();
        }
    }

    /// Somebody who has seen history up to `seen` changes or removes a part of an object.
    pub(crate) fn change(&mut self, who: usize, seen: CommitSeq, object: ObjectNo, from: u64, to: u64) {
        for tag in self.tags.values_mut() {
            let knows = tag.author == who || tag.committed.is_some_and(|at| at <= seen);
            tag.is_excused |= knows && tag.from < to && from < tag.to && tag.objects.contains(&object);
        }
    }

    /// What this author has written so far survives a power cut.
    pub(crate) fn synced(&mut self, who: usize) {
        self.tags.values_mut().filter(|tag| tag.author == who).for_each(|tag| tag.is_durable = true);
    }

    pub(crate) fn power_cut(&mut self, who: usize) {
        let lost = |tag: &&mut Tag| tag.author == who && !tag.is_durable && tag.committed.is_none();
        self.tags.values_mut().filter(lost).for_each(|tag| tag.is_excused = true);
    }

    /// Looks at what has come to the server.
    pub(crate) fn look(&mut self, server: &Arc<Server>) {
        let (since, digest, mut after) = (self.seen, self.digest, None);
        let hello = Hello { incarnation: 0, last_batch: 0, seen: since, seen_digest: digest, device: "spy".into() };
        server.handle(self.peer, Request::Hello(hello));
        loop {
            let pull = Request::Pull { incarnation: 0, since, digest, after, wait_ms: 0 };
            let Reply::Pulled(pulled) = server.handle(self.peer, pull) else { panic!() };
            for change in pulled.changes {
                let Change::Is { version, .. } = change else { continue };
                if version.kind != FileType::File || version.size == 0 {
                    continue;
                }
                let want = Want { object: version.object, data_seq: version.data_seq, offset: 0, len: version.size };
                let Reply::Data(got) = server.handle(self.peer, Request::Read { wants: vec![want] }) else { panic!() };
                let Got::Is { pieces, len } = &got[0] else { panic!("{got:?}") };
                let mut content = vec![0; *len as usize];
                for piece in pieces {
                    content[piece.offset as usize..][..piece.bytes.len()].copy_from_slice(&piece.bytes);
                }
                for id in found_in(&content) {
                    let tag = self.tags.get_mut(&id).unwrap();
                    tag.objects.insert(version.object);
                    tag.committed.get_or_insert(pulled.to);
                }
            }
            (self.seen, self.digest) = (pulled.to, pulled.digest);
            let Some(more) = pulled.more else { return };
            after = Some((more, pulled.to));
        }
    }

    /// What should be in the tree and is not.
    pub(crate) fn lost(&self, tree: &Tree) -> Vec<String> {
        let found: BTreeSet<u64> = tree.values().flat_map(|node| found_in(&node.content)).collect();
        let left: BTreeSet<ObjectNo> = tree.values().map(|node| node.no).collect();
        let is_gone = |tag: &Tag| tag.lost_name && tag.objects.is_disjoint(&left);
        let lost = self.tags.iter().filter(|(id, tag)| !tag.is_excused && !is_gone(tag) && !found.contains(id));
        lost.map(|(id, Tag { author, from, to, objects, committed, .. })| {
            format!("tag {id} of machine {author}, {from} to {to} of {objects:?}, committed {committed:?}")
        })
        .collect()
    }
}
