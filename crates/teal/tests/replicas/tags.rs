//! The account of what was written: no update is lost.
//!
//! # Guarantees
//! 1. Content is written as a tag of 16 bytes, again and again; each write has a tag of its own.
//!    What is appended may be lines, and may come to lie anywhere.
//! 2. A tag need not be found in the end in two cases. An author that wrote it, or may have seen
//!    it, has since changed that part of the object, or removed the object (or several have removed
//!    all its names, one each). Or its author's power failed before the tag was durable or at the
//!    server.

use crate::ledger::Eyes;
use crate::tree::Tree;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use teal_proto::{ClientRequest, Hello, PulledObject, ServerReply};
use teal_server::{Peer, Server};
use teal_types::{BatchNo, CommitSeq, Incarnation, ObjectNo, ServerIncarnation};

pub(crate) const TAG: usize = 16;
/// Each begins with this.
pub(crate) const TAG_BEGINS: &[u8] = b"<tag:";
/// And ends with one of these: content that is no line, and a line.
const ENDS: [&str; 2] = ["t>", "t\n"];
/// No author: he knows what was committed only.
pub(crate) const NOBODY: usize = usize::MAX;

/// The knowledge of one write.
struct Tag {
    author: usize,
    from: u64,
    to: u64,
    /// Objects it has been seen in, or was written to.
    objects: BTreeSet<ObjectNo>,
    /// The first commit with it.
    committed: Option<CommitSeq>,
    is_durable: bool,
    /// Machines that had it without having written it, or seen it in history: copies of others, and
    /// all when the server is restored.
    holders: BTreeSet<usize>,
    /// One of several names was taken away; other authors may have taken the rest.
    lost_name: bool,
    is_excused: bool,
}

/// A change or removal of a part of an object, by an author that has seen history up to `seen`.
#[derive(Clone, Copy)]
struct Changed {
    who: usize,
    seen: CommitSeq,
    object: ObjectNo,
    from: u64,
    to: u64,
}

impl Tag {
    /// Excuses the tag if it was in the changed part.
    fn meet(&mut self, of: &Changed) {
        let has_seen = self.committed.is_some_and(|at| at <= of.seen);
        let knows = self.author == of.who || self.holders.contains(&of.who) || has_seen;
        self.is_excused |=
            knows && self.from < of.to && of.from < self.to && self.objects.contains(&of.object);
    }
}

/// The account.
struct Account {
    tags: BTreeMap<u64, Tag>,
    /// Since the last look: what had been committed by then, and in which objects (copies of what
    /// met a conflict), is found at the next one only.
    changes: Vec<Changed>,
    seen: CommitSeq,
    digest: [u8; 32],
}

/// The account of all tags, with the peer that looks at the server. Clones share it.
#[derive(Clone)]
pub(crate) struct Tags {
    account: Arc<Mutex<Account>>,
    peer: Peer,
}

impl Account {
    /// A commit has a tag in an object.
    fn came(&mut self, id: u64, object: ObjectNo, at: CommitSeq) {
        let tag = self.tags.get_mut(&id).unwrap();
        let is_known = tag.committed.is_some() && tag.objects.contains(&object);
        tag.objects.insert(object);
        tag.committed = Some(tag.committed.map_or(at, |before| before.min(at)));
        self.changes
            .iter()
            .filter(|of| !is_known && of.object == object)
            .for_each(|of| tag.meet(of));
    }
}

fn bytes_of(id: u64) -> [u8; TAG] {
    let mut bytes = *b"<tag:00000000:t>";
    bytes[5..13].copy_from_slice(format!("{id:08}").as_bytes());
    bytes
}

/// The tags in some content.
pub(crate) fn found_in(content: &[u8]) -> BTreeSet<u64> {
    let is_tag = |piece: &&[u8]| {
        piece.starts_with(TAG_BEGINS) && ENDS.iter().any(|end| piece.ends_with(end.as_bytes()))
    };
    let pieces = content.windows(TAG).filter(is_tag);
    pieces
        .filter_map(|p| str::from_utf8(&p[5..13]).ok()?.parse().ok())
        .collect()
}

impl Tags {
    pub(crate) fn new(peer: Peer) -> Self {
        let account = Account {
            tags: BTreeMap::new(),
            changes: Vec::new(),
            seen: CommitSeq::new(0),
            digest: [0; 32],
        };
        Self {
            account: Arc::new(Mutex::new(account)),
            peer,
        }
    }

    /// Returns the peer that looks at the server.
    pub(crate) fn peer(&self) -> Peer {
        self.peer
    }

    fn each(&self, mut what: impl FnMut(&u64, &mut Tag)) {
        self.account
            .lock()
            .tags
            .iter_mut()
            .for_each(|(id, tag)| what(id, tag));
    }

    /// Content of `len` bytes with a new tag.
    pub(crate) fn write(&self, author: usize, object: ObjectNo, from: u64, len: usize) -> Vec<u8> {
        let tags = &mut self.account.lock().tags;
        let id = tags.len() as u64;
        let objects = BTreeSet::from([object]);
        let to = from + len as u64;
        let (committed, holders, is_durable, lost_name, is_excused) =
            (None, BTreeSet::new(), false, false, false);
        let tag = Tag {
            author,
            from,
            to,
            objects,
            committed,
            is_durable,
            holders,
            lost_name,
            is_excused,
        };
        tags.insert(id, tag);
        bytes_of(id).into_iter().cycle().take(len).collect()
    }

    /// Content to append, with a new tag and its number.
    pub(crate) fn append(
        &self,
        author: usize,
        object: ObjectNo,
        count: usize,
        is_line: bool,
    ) -> (u64, Vec<u8>) {
        // The place of an append is not known yet.
        self.write(author, object, 0, TAG);
        let account = &mut *self.account.lock();
        let id = account.tags.len() as u64 - 1;
        account.tags.get_mut(&id).unwrap().to = u64::MAX;
        let mut bytes = bytes_of(id);
        bytes[TAG - 2..].copy_from_slice(ENDS[usize::from(is_line)].as_bytes());
        (id, bytes.repeat(count))
    }

    /// The write of a tag was refused.
    pub(crate) fn was_not_written(&self, id: u64) {
        self.account.lock().tags.get_mut(&id).unwrap().is_excused = true;
    }

    /// An object loses one of several names.
    pub(crate) fn loses_name(&self, object: ObjectNo) {
        self.each(|_, tag| tag.lost_name |= tag.objects.contains(&object));
    }

    /// This content is an object's.
    pub(crate) fn is_in(&self, object: ObjectNo, content: &[u8]) {
        let found = found_in(content);
        self.each(|id, tag| tag.objects.extend(found.contains(id).then_some(object)));
    }

    /// Notes that an author which has seen history up to `seen` changes or removes a part of an
    /// object.
    pub(crate) fn change(&self, who: usize, seen: CommitSeq, object: ObjectNo, from: u64, to: u64) {
        let changed = Changed {
            who,
            seen,
            object,
            from,
            to,
        };
        self.each(|_, tag| tag.meet(&changed));
        self.account.lock().changes.push(changed);
    }

    /// A machine's disk was copied: the copy has what is on it.
    pub(crate) fn copied(&self, of: usize, copy: usize) {
        self.each(|_, tag| {
            if tag.author == of || tag.holders.contains(&of) {
                tag.holders.insert(copy);
            }
        });
    }

    /// Notes that all that this author has written so far survives a power cut.
    pub(crate) fn synced(&self, who: usize) {
        self.each(|_, tag| tag.is_durable |= tag.author == who);
    }

    pub(crate) fn power_cut(&self, who: usize) {
        self.each(|_, tag| {
            tag.is_excused |= tag.author == who && !tag.is_durable && tag.committed.is_none()
        });
    }

    /// Which of the tags found on a machine, in a file of which not all is there, were never at the
    /// server.
    pub(crate) fn only_there(&self, found: &mut BTreeSet<u64>) {
        let account = self.account.lock();
        found.retain(|id| account.tags[id].committed.is_none());
    }

    /// The server has history up to `head` only, and what the machines have is what there is
    /// besides: the rest was lost with its disks.
    pub(crate) fn begin_again(
        &self,
        server: &Arc<Server>,
        head: CommitSeq,
        held: &[BTreeSet<u64>],
    ) {
        self.account.lock().seen = CommitSeq::new(0);
        self.each(|_, tag| tag.committed = tag.committed.filter(|at| *at <= head));
        let there = self.look(server);
        self.each(|id, tag| {
            tag.holders = (0..held.len())
                .filter(|who| held[*who].contains(id))
                .collect();
            tag.is_excused |= tag.holders.is_empty() && !there.contains(id);
        });
    }

    /// Looks at what has come to the server since the last look; which tags are in that.
    pub(crate) fn look(&self, server: &Arc<Server>) -> BTreeSet<u64> {
        let (eyes, account) = (
            Eyes {
                server,
                peer: self.peer,
            },
            &mut *self.account.lock(),
        );
        let hello = Hello {
            incarnation: Incarnation::NONE,
            last_batch: BatchNo::NONE,
            seen: account.seen,
            seen_digest: account.digest,
            earlier: Vec::new(),
            server_incarnation: ServerIncarnation::NONE,
            device: "spy".into(),
        };
        assert!(matches!(
            eyes.ask(ClientRequest::Hello(hello)),
            ServerReply::Welcome(_)
        ));
        let (since, digest, mut after, mut all) =
            (account.seen, account.digest, None, BTreeSet::new());
        loop {
            let ServerReply::Pulled(pulled) = eyes.ask(ClientRequest::Pull {
                incarnation: Incarnation::NONE,
                since,
                digest,
                filter: 0,
                after,
                wait_ms: 0,
            }) else {
                panic!()
            };
            for change in pulled.changes {
                let object = match change {
                    PulledObject::Is { version, .. } => version.object,
                    PulledObject::Gone { object } => object,
                };
                // This includes tags that were changed or removed before the check could see them.
                for at in eyes.versions(object, since, pulled.to) {
                    let found = found_in(&eyes.content(object, at).unwrap_or_default());
                    if at == pulled.to
                        || eyes.data_seq(object, pulled.to) == eyes.data_seq(object, at)
                    {
                        all.extend(&found);
                    }
                    found
                        .into_iter()
                        .for_each(|id| account.came(id, object, at));
                }
            }
            (account.seen, account.digest) = (pulled.to, pulled.digest);
            let Some(more) = pulled.more else {
                account.changes.clear();
                return all;
            };
            after = Some((more, pulled.to));
        }
    }

    /// Returns what should be in the tree, and is not.
    pub(crate) fn lost(&self, tree: &Tree) -> Vec<String> {
        let found: BTreeSet<u64> = tree
            .values()
            .flat_map(|node| found_in(&node.content))
            .collect();
        let left: BTreeSet<ObjectNo> = tree.values().map(|node| node.no).collect();
        let is_gone = |tag: &Tag| tag.lost_name && tag.objects.is_disjoint(&left);
        let account = self.account.lock();
        let lost = account
            .tags
            .iter()
            .filter(|(id, tag)| !tag.is_excused && !is_gone(tag) && !found.contains(id));
        lost.map(|(id, Tag { author, from, to, objects, committed, .. })| {
            format!("tag {id} of machine {author}, {from} to {to} of {objects:?}, committed {committed:?}")
        })
        .collect()
    }
}
