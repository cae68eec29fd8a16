//! One client: it speaks the protocol as the program does, and keeps nothing.

use anyhow::{Result, bail};
use std::sync::Arc;
use std::time::Duration;
use teal_chunk::{DedupDomain, DomainId};
use teal_net::{Channel, ChannelOptions, ClientIdentity, NetError};
use teal_proto::{
    ClientRequest, ContentAnswer, Hello, MESSAGE_MAX, ServerReply, WantedRange, batch_digest,
    decode_reply, encode_ops, encode_request,
};
use teal_testkit::Rng;
use teal_types::{
    BatchNo, CommitSeq, ContentChange, ContentPiece, FileType, HardLink, Incarnation, Name,
    ObjectNo, Op, PieceSource, ReplicatedAttributes, ServerIncarnation, Timestamp,
};
use tokio::runtime::Handle;

/// Bytes of every file.
pub(crate) const FILE: u64 = 16 << 10;
const DEADLINE: Duration = Duration::from_secs(60);

/// A file with content that can be read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Known {
    pub(crate) object: ObjectNo,
    pub(crate) seq: CommitSeq,
}

/// One machine with its connection.
pub(crate) struct Machine {
    channel: Arc<Channel>,
    domain: DedupDomain,
    incarnation: Incarnation,
    batch: BatchNo,
    next: u64,
    /// The directory of its files.
    dir: ObjectNo,
    /// The filter that the server knows; 0: none.
    filter: u64,
}

/// Asks; what the transport itself refuses is an error of the caller's to count.
pub(crate) fn ask(channel: &Channel, request: &ClientRequest) -> Result<ServerReply, NetError> {
    let bytes = encode_request(request).map_err(|e| NetError::Protocol(e.to_string()))?;
    let answer = channel.call(&bytes, DEADLINE)?;
    decode_reply(&answer).map_err(|e| NetError::Protocol(e.to_string()))
}

/// A channel as the program makes it.
pub(crate) fn channel(runtime: &Handle, address: &str, identity: &ClientIdentity) -> Arc<Channel> {
    let options = ChannelOptions {
        message_bytes: MESSAGE_MAX,
        ..ChannelOptions::default()
    };
    Arc::new(Channel::new(
        runtime,
        address.to_owned(),
        identity.clone(),
        options,
    ))
}

impl Machine {
    /// Says hello and gets a life.
    pub(crate) fn begin(channel: Arc<Channel>, device: &str) -> Result<Self> {
        let (seen, seen_digest) = (CommitSeq::new(0), [0; 32]);
        let hello = Hello {
            incarnation: Incarnation::NONE,
            last_batch: BatchNo::NONE,
            seen,
            seen_digest,
            earlier: Vec::new(),
            server_incarnation: ServerIncarnation::NONE,
            device: device.to_owned(),
        };
        let key = match ask(&channel, &ClientRequest::Hello(hello))? {
            ServerReply::Welcome(welcome) => welcome.domain,
            reply => bail!("to a hello: {reply:?}"),
        };
        let domain = DedupDomain::new(DomainId::new([0; 16]), key);
        match ask(&channel, &ClientRequest::Incarnate)? {
            ServerReply::Incarnated { incarnation, lease } => {
                let (dir, filter) = (ObjectNo::ROOT, 0);
                Ok(Self {
                    channel,
                    domain,
                    incarnation,
                    batch: BatchNo::NONE,
                    next: lease.object_numbers().start,
                    dir,
                    filter,
                })
            }
            reply => bail!("to an incarnation: {reply:?}"),
        }
    }

    /// Its connection, for waiting beside.
    pub(crate) fn channel(&self) -> Arc<Channel> {
        Arc::clone(&self.channel)
    }

    pub(crate) fn ask(&self, request: &ClientRequest) -> Result<ServerReply, NetError> {
        ask(&self.channel, request)
    }

    /// Makes a directory, in which its files are from then on.
    pub(crate) fn settle(&mut self, name: &str) -> Result<()> {
        let (object, base) = (ObjectNo::new(self.next), CommitSeq::new(1));
        self.next += 1;
        let attributes = ReplicatedAttributes {
            perm: 0o755,
            ..ReplicatedAttributes::default()
        };
        let link = HardLink {
            dir: ObjectNo::ROOT,
            name: Name::new(name.as_bytes())?,
        };
        let ops = vec![
            Op::Create {
                object,
                kind: FileType::Dir,
                attributes,
                target: Vec::new(),
            },
            Op::Place {
                object,
                base,
                link,
                time: Timestamp::default(),
            },
        ];
        for request in self.batch(ops)? {
            if let ServerReply::Refused(refused) = self.ask(&request)? {
                bail!(refused);
            }
        }
        self.dir = object;
        Ok(())
    }

    /// Tells the server that it has listed the root and its directory.
    pub(crate) fn keep(&mut self) -> Result<()> {
        for objects in [Vec::new(), vec![ObjectNo::ROOT, self.dir]] {
            let is_last = !objects.is_empty();
            match self.ask(&ClientRequest::Keep {
                filter: self.filter,
                objects,
                is_last,
            })? {
                ServerReply::Kept { filter } => self.filter = filter,
                reply => bail!("to what is kept: {reply:?}"),
            }
        }
        Ok(())
    }

    pub(crate) fn filter(&self) -> u64 {
        self.filter
    }

    /// The operations that make one file, and its content.
    fn file(&mut self, rng: &mut Rng, with_content: bool) -> Result<(Vec<Op>, Vec<u8>)> {
        let object = ObjectNo::new(self.next);
        self.next += 1;
        let base = CommitSeq::new(1);
        let attributes = ReplicatedAttributes {
            perm: 0o644,
            ..ReplicatedAttributes::default()
        };
        let time = Timestamp::default();
        let link = HardLink {
            dir: self.dir,
            name: Name::new(format!("file-{object:?}").as_bytes())?,
        };
        let mut ops = vec![
            Op::Create {
                object,
                kind: FileType::File,
                attributes,
                target: Vec::new(),
            },
            Op::Place {
                object,
                base,
                link,
                time,
            },
        ];
        let mut content = Vec::new();
        if with_content {
            content.resize(FILE as usize, 0);
            rng.fill(&mut content);
            let source = PieceSource::Chunk {
                id: self.domain.name_content(&content),
                offset: 0,
            };
            let pieces = vec![ContentPiece {
                offset: 0,
                len: FILE,
                source,
            }];
            ops.push(Op::SetContent {
                object,
                base,
                change: ContentChange {
                    cut: 0,
                    size: FILE,
                    mtime: time,
                    pieces,
                },
            });
        }
        Ok((ops, content))
    }

    /// The requests of a flush of `files` new files, and where the first of them will be.
    pub(crate) fn flush(
        &mut self,
        rng: &mut Rng,
        files: usize,
        with_content: bool,
    ) -> Result<(Vec<ClientRequest>, ObjectNo)> {
        let first = ObjectNo::new(self.next);
        let (mut ops, mut contents) = (Vec::new(), Vec::new());
        for _ in 0..files {
            let (of_file, content) = self.file(rng, with_content)?;
            ops.extend(of_file);
            contents.push(content);
        }
        let mut requests = Vec::new();
        if with_content {
            // As the program does: at most 3 MiB at once.
            for part in contents.chunks(192) {
                requests.push(ClientRequest::Have {
                    chunks: part
                        .iter()
                        .map(|content| self.domain.name_content(content))
                        .collect(),
                });
                requests.push(ClientRequest::Put {
                    chunks: part.iter().map(|content| content.clone().into()).collect(),
                });
            }
        }
        requests.extend(self.batch(ops)?);
        Ok((requests, first))
    }

    fn batch(&mut self, ops: Vec<Op>) -> Result<[ClientRequest; 2]> {
        self.batch = self.batch.next();
        let (incarnation, batch) = (self.incarnation, self.batch);
        let digest = batch_digest([&encode_ops(&ops)?[..]]);
        let stage = ClientRequest::Stage {
            incarnation,
            batch,
            part: 0,
            ops,
        };
        Ok([
            stage,
            ClientRequest::Commit {
                incarnation,
                batch,
                parts: 1,
                digest,
            },
        ])
    }

    /// Flushes, and says which files can be read now.
    pub(crate) fn make(&mut self, rng: &mut Rng, files: usize) -> Result<Vec<Known>> {
        let (requests, first) = self.flush(rng, files, true)?;
        let mut committed = None;
        for request in &requests {
            match self.ask(request)? {
                ServerReply::Committed { seq } => committed = Some(seq),
                ServerReply::Refused(refused) => bail!(refused),
                _ => {}
            }
        }
        let Some(seq) = committed else {
            bail!("nothing was committed")
        };
        Ok((0..files as u64)
            .map(|n| Known {
                object: ObjectNo::new(first.get() + n),
                seq,
            })
            .collect())
    }

    /// Reads one file; whether its content came.
    pub(crate) fn read(&self, known: Known) -> Result<bool, NetError> {
        let want = WantedRange {
            object: known.object,
            data_seq: known.seq,
            offset: 0,
            len: FILE,
        };
        let reply = self.ask(&ClientRequest::Read { wants: vec![want] })?;
        Ok(
            matches!(reply, ServerReply::Data(got) if matches!(got[..], [ContentAnswer::Is { len: FILE, .. }])),
        )
    }
}
