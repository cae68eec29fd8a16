//! Measures how many operations a server commits: `cargo run --release -p teal-server --example
//! commits [DIR]`.
//!
//! One client in the process, batches of 100 new files (a creation and a placement each), metadata
//! in SQLite in DIR or a directory of its own, every batch durable before the next.

use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use teal_chunk::{ChunkStore, ChunkStoreOptions, MemoryShelf};
use teal_env::{Clock as _, SystemClock, SystemEntropy};
use teal_meta::Sqlite;
use teal_proto::{ClientRequest, ServerReply, batch_digest, encode_ops};
use teal_server::{Server, load_domain};
use teal_types::{
    BatchNo, CommitSeq, FileType, HardLink, Name, ObjectNo, Op, ReplicatedAttributes,
};

const BATCHES: u64 = 300;
const FILES: u64 = 100;

fn batch(first: u64) -> Result<Vec<Op>, Box<dyn Error>> {
    let mut ops = Vec::new();
    for number in first..first + FILES {
        let object = ObjectNo::new(number);
        let attributes = ReplicatedAttributes {
            perm: 0o644,
            ..ReplicatedAttributes::default()
        };
        ops.push(Op::Create {
            object,
            kind: FileType::File,
            attributes,
            target: Vec::new(),
        });
        let link = HardLink {
            dir: ObjectNo::ROOT,
            name: Name::new(format!("file-{number}").as_bytes())?,
        };
        ops.push(Op::Place {
            object,
            base: CommitSeq::new(1),
            link,
            time: attributes.mtime,
        });
    }
    Ok(ops)
}

fn measure(dir: &Path) -> Result<(), Box<dyn Error>> {
    let meta = Arc::new(Sqlite::open(&dir.join("meta.db"))?);
    let (clock, entropy) = (Arc::new(SystemClock), Arc::new(SystemEntropy));
    let domain = load_domain(&*meta, &*entropy)?;
    let shelf = Arc::new(MemoryShelf::new());
    let chunks = ChunkStore::open(
        shelf,
        domain,
        ChunkStoreOptions::default(),
        clock.clone(),
        entropy.clone(),
    )?
    .0;
    let server = Server::open(meta, chunks, clock, entropy)?;
    let peer = server.local_replica(server.create_volume("bench")?, "bench")?;
    let ServerReply::Incarnated { incarnation, lease } =
        server.handle(peer, ClientRequest::Incarnate)
    else {
        return Err("no incarnation".into());
    };
    let first = lease.object_numbers().start;
    let batches = (0..BATCHES)
        .map(|n| batch(first + n * FILES))
        .collect::<Result<Vec<_>, _>>()?;
    let start = SystemClock.monotonic_time();
    for (batch, ops) in (1..).map(BatchNo::new).zip(batches) {
        let digest = batch_digest([&encode_ops(&ops)?[..]]);
        server.handle(
            peer,
            ClientRequest::Stage {
                incarnation,
                batch,
                part: 0,
                ops,
            },
        );
        let reply = server.handle(
            peer,
            ClientRequest::Commit {
                incarnation,
                batch,
                parts: 1,
                digest,
            },
        );
        if !matches!(reply, ServerReply::Committed { .. }) {
            return Err(format!("{reply:?}").into());
        }
    }
    let took = (SystemClock.monotonic_time().saturating_sub(start)).as_secs_f64();
    let (files, batches) = ((BATCHES * FILES) as f64 / took, BATCHES as f64 / took);
    println!(
        "{batches:.0} batches/s, {files:.0} files/s, {:.0} operations/s",
        files * 2.0
    );
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    match std::env::args().nth(1) {
        Some(dir) => measure(Path::new(&dir)),
        None => measure(tempfile::tempdir()?.path()),
    }
}
