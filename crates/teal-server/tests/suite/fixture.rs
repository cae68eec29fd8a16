//! A server in memory and scripted devices that talk to it.

use std::collections::BTreeMap;
use std::sync::Arc;
use teal_chunk::{ChunkStore, ChunkStoreOptions, DedupDomain, MemoryShelf};
use teal_meta::{MemoryMeta, MetaStore};
use teal_proto::{
    ClientRequest, ConflictKind, ConflictNote, ContentAnswer, EARLIER_MAX, Hello, HistoryVerdict,
    PulledChanges, RefusalCode, ServerReply, VersionNote, WantedRange, Welcome, batch_digest,
    encode_ops,
};
use teal_server::{Peer, Server};
use teal_testkit::{SeededEntropy, SimClock};
use teal_types::{
    BatchNo, ChunkId, CommitSeq, ContentChange, ContentPiece, FileType, HardLink, Incarnation,
    Name, ObjectNo, ObjectVersion, Op, PieceSource, ReplicatedAttributes, ServerIncarnation,
    Timestamp, VolumeId,
};

/// Runs each test on both kinds of metadata.
macro_rules! on_both {
    ($($name:ident)*) => {
        mod memory { $(#[test] fn $name() { super::$name($crate::fixture::World::new()); })* }
        mod sqlite { $(#[test] fn $name() {
            let dir = tempfile::tempdir().unwrap();
            super::$name($crate::fixture::World::on($crate::fixture::Stores::sqlite(dir.path())));
        })* }
    };
}

pub(crate) const ROOT: ObjectNo = ObjectNo::ROOT;

pub(crate) fn seq(raw: u64) -> CommitSeq {
    CommitSeq::new(raw)
}

pub(crate) fn link(dir: ObjectNo, name: &str) -> HardLink {
    HardLink {
        dir,
        name: Name::new(name.as_bytes()).unwrap(),
    }
}

/// The stores that survive a power cut, and the clock.
#[derive(Clone)]
pub(crate) struct Stores {
    pub(crate) meta: Arc<dyn MetaStore>,
    pub(crate) shelf: MemoryShelf,
    pub(crate) clock: SimClock,
    pub(crate) entropy: Arc<SeededEntropy>,
}

impl Stores {
    /// Noon of 2026-11-22.
    pub(crate) fn new(meta: Arc<dyn MetaStore>) -> Self {
        let clock = SimClock::new(Timestamp::new(1_795_348_800, 0));
        Self {
            meta,
            shelf: MemoryShelf::new(),
            clock,
            entropy: Arc::new(SeededEntropy::new(1)),
        }
    }

    pub(crate) fn memory() -> Self {
        Self::new(Arc::new(MemoryMeta::new()))
    }

    pub(crate) fn sqlite(dir: &std::path::Path) -> Self {
        Self::new(Arc::new(
            teal_meta::Sqlite::open(&dir.join("meta.db")).unwrap(),
        ))
    }

    pub(crate) fn domain(&self) -> DedupDomain {
        teal_server::load_domain(&*self.meta, &*self.entropy).unwrap()
    }

    pub(crate) fn open(&self) -> Arc<Server> {
        let (clock, entropy) = (Arc::new(self.clock.clone()), Arc::clone(&self.entropy));
        let shelf = Arc::new(self.shelf.clone());
        let chunks = ChunkStore::open(
            shelf,
            self.domain(),
            ChunkStoreOptions::default(),
            clock.clone(),
            entropy.clone(),
        )
        .unwrap()
        .0;
        Arc::new(Server::open(Arc::clone(&self.meta), chunks, clock, entropy).unwrap())
    }
}

/// A server with one volume and two devices, `laptop` and `desk`, which both have seen the
/// beginning.
pub(crate) struct World {
    pub(crate) stores: Stores,
    pub(crate) server: Arc<Server>,
    pub(crate) volume: VolumeId,
    pub(crate) laptop: Device,
    pub(crate) desk: Device,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::on(Stores::memory())
    }

    pub(crate) fn on(stores: Stores) -> Self {
        let server = stores.open();
        let volume = server.create_volume("home").unwrap();
        let [laptop, desk] =
            ["laptop", "desk"].map(|name| Device::enrol(&server, &stores, volume, name));
        Self {
            stores,
            server,
            volume,
            laptop,
            desk,
        }
    }

    /// Both see everything.
    pub(crate) fn sync(&mut self) {
        self.laptop.pull();
        self.desk.pull();
    }
}

/// A device that remembers what it has seen.
pub(crate) struct Device {
    pub(crate) server: Arc<Server>,
    pub(crate) domain: DedupDomain,
    pub(crate) meta: Arc<dyn MetaStore>,
    pub(crate) peer: Peer,
    pub(crate) incarnation: Incarnation,
    pub(crate) next: u64,
    pub(crate) batch: BatchNo,
    pub(crate) base: CommitSeq,
    pub(crate) digest: [u8; 32],
    pub(crate) earlier: Vec<(CommitSeq, [u8; 32])>,
    pub(crate) server_incarnation: ServerIncarnation,
    pub(crate) filter: u64,
    pub(crate) time: i64,
}

impl Device {
    pub(crate) fn enrol(
        server: &Arc<Server>,
        stores: &Stores,
        volume: VolumeId,
        name: &str,
    ) -> Self {
        let token = server
            .make_token(volume, std::time::Duration::from_secs(60))
            .unwrap();
        let peer = server.enrol(&token, name).unwrap();
        let mut device = Self {
            server: Arc::clone(server),
            domain: stores.domain(),
            meta: Arc::clone(&stores.meta),
            peer,
            incarnation: Incarnation::NONE,
            next: 0,
            batch: BatchNo::NONE,
            base: seq(0),
            digest: [0; 32],
            earlier: vec![],
            server_incarnation: ServerIncarnation::NONE,
            filter: 0,
            time: 1_000,
        };
        assert_eq!(device.hello().verdict, HistoryVerdict::Incarnate);
        device.incarnate();
        device.pull();
        device
    }

    pub(crate) fn ask(&self, request: ClientRequest) -> ServerReply {
        self.server.handle(self.peer, request)
    }

    pub(crate) fn refusal(&self, request: ClientRequest) -> RefusalCode {
        match self.ask(request) {
            ServerReply::Refused(refused) => refused.code,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn hello_request(&self) -> Hello {
        Hello {
            incarnation: self.incarnation,
            last_batch: self.batch,
            seen: self.base,
            seen_digest: self.digest,
            server_incarnation: self.server_incarnation,
            earlier: self.earlier[self.earlier.len().saturating_sub(EARLIER_MAX)..].to_vec(),
            device: String::new(),
        }
    }

    pub(crate) fn hello(&self) -> Welcome {
        match self.ask(ClientRequest::Hello(self.hello_request())) {
            ServerReply::Welcome(welcome) => welcome,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn incarnate(&mut self) {
        let ServerReply::Incarnated { incarnation, lease } = self.ask(ClientRequest::Incarnate)
        else {
            panic!()
        };
        (self.incarnation, self.next, self.batch) =
            (incarnation, lease.object_numbers().start, BatchNo::NONE);
    }

    pub(crate) fn number(&mut self) -> ObjectNo {
        self.next += 1;
        ObjectNo::new(self.next - 1)
    }

    pub(crate) fn now(&mut self) -> Timestamp {
        self.time += 1;
        Timestamp::new(self.time, 0)
    }

    // Operations.

    pub(crate) fn attributes(&mut self, perm: u16) -> ReplicatedAttributes {
        let now = self.now();
        ReplicatedAttributes {
            perm,
            uid: 1000,
            gid: 1000,
            rdev: 0,
            mtime: now,
            ctime: now,
            btime: now,
        }
    }

    pub(crate) fn create(&mut self, object: ObjectNo, kind: FileType) -> Op {
        Op::Create {
            object,
            kind,
            attributes: self.attributes(0o644),
            target: vec![],
        }
    }
    pub(crate) fn place(&mut self, object: ObjectNo, to: HardLink) -> Op {
        Op::Place {
            object,
            base: self.base,
            link: to,
            time: self.now(),
        }
    }
    pub(crate) fn remove(&mut self, object: ObjectNo, from: HardLink) -> Op {
        Op::Remove {
            object,
            base: self.base,
            link: from,
            time: self.now(),
        }
    }
    pub(crate) fn rename(&mut self, object: ObjectNo, from: HardLink, to: HardLink) -> Op {
        Op::Move {
            object,
            base: self.base,
            from,
            to,
            time: self.now(),
        }
    }
    pub(crate) fn chmod(&mut self, object: ObjectNo, perm: u16) -> Op {
        Op::SetAttributes {
            object,
            base: self.base,
            attributes: self.attributes(perm),
        }
    }
    pub(crate) fn xattr(&self, object: ObjectNo, name: &str, value: Option<&str>) -> Op {
        let value = value.map(|value| value.as_bytes().to_vec());
        Op::SetXattr {
            object,
            base: self.base,
            name: name.as_bytes().to_vec(),
            value,
        }
    }
    /// Replaces all content.
    pub(crate) fn write(&mut self, object: ObjectNo, content: &[u8]) -> Op {
        let pieces = if content.is_empty() {
            vec![]
        } else {
            vec![self.piece(0, content)]
        };
        let change = ContentChange {
            cut: 0,
            size: content.len() as u64,
            mtime: self.now(),
            pieces,
        };
        Op::SetContent {
            object,
            base: self.base,
            change,
        }
    }
    /// Overwrites a part; the file was and stays `size` long.
    pub(crate) fn overwrite(
        &mut self,
        object: ObjectNo,
        size: u64,
        offset: u64,
        content: &[u8],
    ) -> Op {
        let change = ContentChange {
            cut: size,
            size,
            mtime: self.now(),
            pieces: vec![self.piece(offset, content)],
        };
        Op::SetContent {
            object,
            base: self.base,
            change,
        }
    }
    pub(crate) fn piece(&self, offset: u64, content: &[u8]) -> ContentPiece {
        ContentPiece {
            offset,
            len: content.len() as u64,
            source: PieceSource::Chunk {
                id: self.put(content),
                offset: 0,
            },
        }
    }
    pub(crate) fn put(&self, content: &[u8]) -> ChunkId {
        let chunks = vec![serde_bytes::ByteBuf::from(content.to_vec())];
        assert_eq!(self.ask(ClientRequest::Put { chunks }), ServerReply::Done);
        self.domain.name_content(content)
    }

    // Batches.

    pub(crate) fn stage(&self, batch: BatchNo, part: u32, ops: &[Op]) -> ServerReply {
        self.ask(ClientRequest::Stage {
            incarnation: self.incarnation,
            batch,
            part,
            ops: ops.to_vec(),
        })
    }

    pub(crate) fn ask_commit(&self, batch: BatchNo, ops: &[Op]) -> ServerReply {
        let bytes = encode_ops(ops).unwrap();
        let digest = batch_digest([&bytes[..]]);
        self.ask(ClientRequest::Commit {
            incarnation: self.incarnation,
            batch,
            parts: 1,
            digest,
        })
    }

    pub(crate) fn send(&self, batch: BatchNo, ops: &[Op]) -> ServerReply {
        match self.stage(batch, 0, ops) {
            ServerReply::Done => self.ask_commit(batch, ops),
            other => other,
        }
    }

    /// Commits, and sees nothing of it yet.
    pub(crate) fn commit(&mut self, ops: &[Op]) -> CommitSeq {
        self.batch = self.batch.next();
        match self.send(self.batch, ops) {
            ServerReply::Committed { seq } => seq,
            other => panic!("{other:?}"),
        }
    }

    /// A new file with content.
    pub(crate) fn file(&mut self, dir: ObjectNo, name: &str, content: &[u8]) -> ObjectNo {
        let object = self.number();
        let ops = [
            self.create(object, FileType::File),
            self.place(object, link(dir, name)),
            self.write(object, content),
        ];
        self.commit(&ops);
        object
    }

    pub(crate) fn dir(&mut self, dir: ObjectNo, name: &str) -> ObjectNo {
        let object = self.number();
        let ops = [
            self.create(object, FileType::Dir),
            self.place(object, link(dir, name)),
        ];
        self.commit(&ops);
        object
    }

    // Looking.

    pub(crate) fn ask_pull(
        &self,
        since: CommitSeq,
        after: Option<(ObjectNo, CommitSeq)>,
    ) -> PulledChanges {
        match self.ask(self.pull_from(since, after)) {
            ServerReply::Pulled(pulled) => pulled,
            other => panic!("{other:?}"),
        }
    }

    /// The request, with the digest that the history it knows has there.
    pub(crate) fn pull_from(
        &self,
        since: CommitSeq,
        after: Option<(ObjectNo, CommitSeq)>,
    ) -> ClientRequest {
        let commit =
            teal_meta::read::<_, teal_meta::MetaError>(&*self.meta, self.peer.volume, |txn| {
                txn.commit(since)
            });
        let digest = commit.unwrap().map_or([0; 32], |commit| commit.digest);
        ClientRequest::Pull {
            incarnation: self.incarnation,
            since,
            digest,
            filter: self.filter,
            after,
            wait_ms: 0,
        }
    }

    /// Sees everything.
    pub(crate) fn pull(&mut self) -> PulledChanges {
        let pulled = self.ask_pull(self.base, None);
        assert_eq!(pulled.more, None, "use ask_pull for long answers");
        (self.base, self.digest) = (pulled.to, pulled.digest);
        self.earlier.push((self.base, self.digest));
        pulled
    }

    pub(crate) fn list(&self, dir: ObjectNo) -> Option<BTreeMap<String, ObjectVersion>> {
        let ServerReply::Listings { dirs, .. } = self.ask(ClientRequest::List {
            dirs: vec![(dir, None)],
            ahead: 0,
        }) else {
            panic!()
        };
        assert!(!dirs[0].more);
        let entries = dirs[0].entries.clone()?;
        Some(
            entries
                .into_iter()
                .map(|(name, version)| (name.to_string(), version))
                .collect(),
        )
    }

    pub(crate) fn names(&self, dir: ObjectNo) -> Vec<String> {
        self.list(dir).unwrap().into_keys().collect()
    }

    pub(crate) fn look(&self, object: ObjectNo) -> Option<ObjectVersion> {
        let ServerReply::Versions { versions, .. } = self.ask(ClientRequest::Look {
            objects: vec![object],
        }) else {
            panic!()
        };
        versions.into_iter().next().unwrap()
    }

    pub(crate) fn read(&self, object: ObjectNo) -> Vec<u8> {
        let version = self.look(object).unwrap();
        let want = WantedRange {
            object,
            data_seq: version.data_seq,
            offset: 0,
            len: u64::MAX,
        };
        let ServerReply::Data(got) = self.ask(ClientRequest::Read { wants: vec![want] }) else {
            panic!()
        };
        bytes(&got[0], 0)
    }

    pub(crate) fn read_named(&self, dir: ObjectNo, name: &str) -> Vec<u8> {
        self.read(self.list(dir).unwrap()[name].object)
    }

    pub(crate) fn past(&self, object: ObjectNo, at: CommitSeq) -> Option<(ObjectVersion, Vec<u8>)> {
        match self.ask(ClientRequest::ReadPast {
            object,
            at,
            offset: 0,
            len: 1 << 20,
        }) {
            ServerReply::Past { version, got } => version.map(|version| (version, bytes(&got, 0))),
            other => panic!("{other:?}"),
        }
    }

    /// The names of a directory of the past, asked for until there are no more.
    pub(crate) fn past_names(&self, dir: ObjectNo, at: CommitSeq) -> Option<Vec<(Name, ObjectNo)>> {
        let mut all: Vec<(Name, ObjectNo)> = Vec::new();
        loop {
            let after = all.last().map(|(name, _)| name.clone());
            match self.ask(ClientRequest::ListPast { dir, at, after }) {
                ServerReply::PastNames { names, more } => {
                    all.extend(names?);
                    if !more {
                        return Some(all);
                    }
                }
                other => panic!("{other:?}"),
            }
        }
    }

    pub(crate) fn history(&self, object: ObjectNo) -> Vec<VersionNote> {
        let ServerReply::History(notes) = self.ask(ClientRequest::History {
            object,
            after: seq(0),
        }) else {
            panic!()
        };
        notes
    }

    pub(crate) fn conflicts(&self) -> Vec<ConflictNote> {
        let ServerReply::Conflicts(notes) = self.ask(ClientRequest::Conflicts { after: 0 }) else {
            panic!()
        };
        notes
    }

    pub(crate) fn conflict_kinds(&self) -> Vec<ConflictKind> {
        self.conflicts().into_iter().map(|note| note.kind).collect()
    }
}

/// The bytes of an answer to a want at `offset`.
pub(crate) fn bytes(got: &ContentAnswer, offset: u64) -> Vec<u8> {
    let ContentAnswer::Is { len, pieces } = got else {
        panic!("{got:?}")
    };
    let mut out = vec![0; usize::try_from(*len).unwrap()];
    for piece in pieces {
        let at = usize::try_from(piece.offset - offset).unwrap();
        out[at..at + piece.bytes.len()].copy_from_slice(&piece.bytes);
    }
    out
}
