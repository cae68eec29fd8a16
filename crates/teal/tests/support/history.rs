//! The history that the server of a volume remembers, read from its data while it is not served.

use std::path::Path;
use std::sync::Arc;
use teal_chunk::{AccessMode, ChunkStore, ChunkStoreOptions, DirectoryShelf};
use teal_env::{Clock, SystemClock, SystemEntropy};
use teal_meta::{MetaStore, Sqlite};
use teal_proto::{ClientRequest, ContentAnswer, REPLY_BYTES, ServerReply, VersionNote};
use teal_server::{Peer, Server};
use teal_types::{CommitSeq, ObjectNo};

/// A server without a listener.
pub(crate) struct History {
    server: Server,
    peer: Peer,
    _runtime: tokio::runtime::Runtime,
}

impl History {
    /// Opens the data in `STORE.d/server`.
    pub(crate) fn open(data: &Path) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let entropy = Arc::new(SystemEntropy);
        let meta: Arc<dyn MetaStore> = Arc::new(Sqlite::open(&data.join("meta.db")).unwrap());
        let domain = teal_server::load_domain(&*meta, &*entropy).unwrap();
        let shelf = DirectoryShelf::open(
            &data.join("chunks"),
            AccessMode::Write,
            runtime.handle().clone(),
        )
        .unwrap();
        let (chunks, _) = ChunkStore::open(
            Arc::new(shelf),
            domain,
            ChunkStoreOptions::default(),
            Arc::clone(&clock),
            entropy.clone(),
        )
        .unwrap();
        let server = Server::open(meta, chunks, clock, entropy).unwrap();
        let volume = server.volumes().unwrap()[0].volume;
        let peer = server.local_replica(volume, "nas").unwrap();
        Self {
            server,
            peer,
            _runtime: runtime,
        }
    }

    pub(crate) fn server(&self) -> &Server {
        &self.server
    }

    pub(crate) fn peer(&self) -> Peer {
        self.peer
    }

    /// Every version of an object, the oldest first.
    pub(crate) fn versions(&self, object: u64) -> Vec<VersionNote> {
        let object = ObjectNo::new(object);
        let mut found: Vec<VersionNote> = Vec::new();
        loop {
            let after = found.last().map_or(CommitSeq::new(0), |note| note.seq);
            match self
                .server
                .handle(self.peer, ClientRequest::History { object, after })
            {
                ServerReply::History(more) if more.is_empty() => return found,
                ServerReply::History(more) => found.extend(more),
                reply => panic!("{reply:?}"),
            }
        }
    }

    /// The content an object had after a commit.
    pub(crate) fn content(&self, object: u64, at: CommitSeq, size: u64) -> Vec<u8> {
        let mut bytes = vec![0; usize::try_from(size).unwrap()];
        let mut offset = 0;
        while offset < size {
            let len = (size - offset).min(REPLY_BYTES as u64);
            let request = ClientRequest::ReadPast {
                object: ObjectNo::new(object),
                at,
                offset,
                len,
            };
            let ServerReply::Past {
                got: ContentAnswer::Is { len, pieces },
                ..
            } = self.server.handle(self.peer, request)
            else {
                panic!("object {object} cannot be read at {at:?}");
            };
            for piece in pieces {
                let from = usize::try_from(piece.offset).unwrap();
                bytes[from..from + piece.bytes.len()].copy_from_slice(&piece.bytes);
            }
            assert!(len > 0);
            offset += len;
        }
        bytes
    }
}
