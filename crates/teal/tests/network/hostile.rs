//! A machine that was let in and means ill: it uses the protocol as it is, without end. The others
//! go on meanwhile, and nothing is stuck afterwards.
//!
//! With `TEAL_LONG`, each misuse lasts ten minutes, and the flush and first read of the other
//! machines are measured against those before it; `TEAL_MISUSE=words` takes only those with these
//! words in their names.

use super::Volume;
use super::support::stranger::{DEADLINE, Stranger, days_ago, yield_processors};
use super::support::{PATIENCE, flush, is_long, run_program, seeded, wait_until};
use std::fs;
use std::io::Write as _;
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use teal_env::{Clock as _, SystemClock};
use teal_net::Channel;
use teal_proto::{
    CHUNKS_MAX, ClientRequest, ServerReply, batch_digest, decode_reply, encode_ops, encode_request,
};
use teal_testkit::Rng;
use teal_types::{
    BatchNo, ChunkId, CommitSeq, ContentChange, ContentPiece, FileType, HardLink, Incarnation,
    Name, ObjectNo, Op, PieceSource, ReplicatedAttributes,
};

/// Connections over which it does the same at a time.
const AT_ONCE: usize = 8;
/// Rounds of the others in the short form.
const ROUNDS: usize = 3;
const LONG: Duration = Duration::from_secs(600);

/// One connection of the hostile machine.
struct Hostile {
    channel: Channel,
    incarnation: Incarnation,
    /// An object number that no other machine uses.
    number: u64,
    /// Batches that it may use.
    batch: u64,
    rng: Rng,
}

impl Hostile {
    fn bytes(&mut self, bytes: usize) -> Vec<u8> {
        let mut out = vec![0; bytes];
        self.rng.fill(&mut out);
        out
    }

    fn chunk(&mut self) -> ChunkId {
        let mut id = [0; 32];
        self.rng.fill(&mut id);
        ChunkId::new(id)
    }

    /// Returns what the server says, if it says anything: a refusal is as good as anything else.
    fn ask(&self, request: &ClientRequest) -> Option<ServerReply> {
        let answer = self
            .channel
            .call(&encode_request(request).unwrap(), DEADLINE);
        answer.ok().map(|bytes| decode_reply(&bytes).unwrap())
    }

    fn link(&self, name: &str) -> HardLink {
        let name = format!("hostile {} {name}", self.number);
        HardLink {
            dir: ObjectNo::ROOT,
            name: Name::new(name.as_bytes()).unwrap(),
        }
    }

    /// Operations that make its file.
    fn create(&self) -> Vec<Op> {
        let object = ObjectNo::new(self.number);
        let attributes = ReplicatedAttributes {
            perm: 0o644,
            ..ReplicatedAttributes::default()
        };
        let place = Op::Place {
            object,
            base: CommitSeq::new(0),
            link: self.link("a"),
            time: days_ago(0),
        };
        vec![
            Op::Create {
                object,
                kind: FileType::File,
                attributes,
                target: Vec::new(),
            },
            place,
        ]
    }
}

/// One turn of a misuse.
type Turn = fn(&mut Hostile, u64);

/// The misuses of the server, each repeated again and again.
const MISUSES: [(&str, Turn); 9] = [
    ("content that is never committed", |hostile, _| {
        let chunks = (0..8).map(|_| hostile.bytes(256 << 10).into()).collect();
        hostile.ask(&ClientRequest::Put { chunks });
    }),
    ("operations that are never committed", |hostile, turn| {
        let link = |n: u64| HardLink {
            dir: ObjectNo::ROOT,
            name: Name::new(format!("{n:0200}").as_bytes()).unwrap(),
        };
        let object = ObjectNo::new(hostile.number);
        let place = |n| Op::Place {
            object,
            base: CommitSeq::new(0),
            link: link(n),
            time: days_ago(0),
        };
        let (incarnation, batch) = (hostile.incarnation, hostile.batch + turn / 64);
        hostile.ask(&ClientRequest::Stage {
            incarnation,
            batch: BatchNo::new(batch),
            part: (turn % 64) as u32,
            ops: (0..2000).map(place).collect(),
        });
    }),
    ("pulls without end", |hostile, _| {
        let (incarnation, since, digest) = (hostile.incarnation, CommitSeq::new(0), [0; 32]);
        hostile.ask(&ClientRequest::Pull {
            incarnation,
            since,
            digest,
            filter: 0,
            after: None,
            wait_ms: 0,
        });
    }),
    ("questions for chunks that nobody has", |hostile, _| {
        let chunks = (0..CHUNKS_MAX).map(|_| hostile.chunk()).collect();
        hostile.ask(&ClientRequest::Have { chunks });
    }),
    ("operations that make no sense", |hostile, turn| {
        let object = ObjectNo::new(hostile.number);
        let source = PieceSource::Chunk {
            id: hostile.chunk(),
            offset: u32::MAX,
        };
        let piece = ContentPiece {
            offset: u64::MAX - 5,
            len: 10,
            source,
        };
        let change = ContentChange {
            cut: 0,
            size: u64::MAX,
            mtime: days_ago(0),
            pieces: vec![piece],
        };
        let ops = vec![Op::SetContent {
            object,
            base: CommitSeq::new(turn << 40),
            change,
        }];
        hostile.ask(&ClientRequest::Stage {
            incarnation: hostile.incarnation,
            batch: BatchNo::new(hostile.batch),
            part: 0,
            ops,
        });
    }),
    ("messages that are cut short", |hostile, turn| {
        let whole = encode_request(&ClientRequest::Have {
            chunks: vec![hostile.chunk(); 20],
        })
        .unwrap();
        let _ = hostile
            .channel
            .call(&whole[..turn as usize % whole.len()], DEADLINE);
    }),
    ("a storm of renames", |hostile, turn| {
        let (incarnation, object) = (hostile.incarnation, ObjectNo::new(hostile.number));
        let names = ["a", "b"].map(|name| hostile.link(name));
        let (from, to) = (&names[turn as usize % 2], &names[(turn as usize + 1) % 2]);
        let rename = Op::Move {
            object,
            base: CommitSeq::new(1 << 40),
            from: from.clone(),
            to: to.clone(),
            time: days_ago(0),
        };
        let ops = if turn == 0 {
            hostile.create()
        } else {
            vec![rename]
        };
        let digest = batch_digest([&encode_ops(&ops).unwrap()[..]]);
        let batch = hostile.batch;
        hostile.ask(&ClientRequest::Stage {
            incarnation,
            batch: BatchNo::new(batch),
            part: 0,
            ops,
        });
        if let Some(ServerReply::Committed { .. }) = hostile.ask(&ClientRequest::Commit {
            incarnation,
            batch: BatchNo::new(batch),
            parts: 1,
            digest,
        }) {
            hostile.batch += 1;
        }
    }),
    ("commits of parts that are not there", |hostile, turn| {
        let (incarnation, batch) = (hostile.incarnation, hostile.batch + turn);
        hostile.ask(&ClientRequest::Commit {
            incarnation,
            batch: BatchNo::new(batch),
            parts: 1000,
            digest: [7; 32],
        });
    }),
    ("lives without end", |hostile, _| {
        hostile.ask(&ClientRequest::Incarnate);
    }),
];

/// Measures how long the other machines take for a flush, and for the first read of what it
/// brought, each the median of so many rounds.
fn measured(volume: &Volume, name: &str, until: &dyn Fn(usize) -> bool) -> [Duration; 2] {
    let mut all = [Vec::new(), Vec::new()];
    for round in 0.. {
        let file = format!("{name} {round}");
        fs::write(volume.laptop.path(&file), seeded(round as u64, 100_000)).unwrap();
        let begun = SystemClock.monotonic_time();
        flush(&volume.laptop);
        let flushed = SystemClock.monotonic_time();
        let is_there = || {
            fs::read(volume.nas.0.path(&file))
                .is_ok_and(|bytes| bytes == seeded(round as u64, 100_000))
        };
        assert!(
            wait_until(PATIENCE, is_there),
            "{file}: {:?}; {}; {}",
            fs::read(volume.nas.0.path(&file)).map(|bytes| bytes.len()),
            volume.nas.0.status(),
            volume.laptop.status()
        );
        all[0].push(flushed - begun);
        all[1].push(SystemClock.monotonic_time() - flushed);
        if until(round + 1) {
            break;
        }
    }
    all.map(|mut times| {
        times.sort_unstable();
        times[times.len() / 2]
    })
}

/// Has a machine misuse the server while the others go on.
fn suffer(volume: &mut Volume, stranger: &Stranger, name: &str, turn: Turn) {
    let calm = measured(volume, &format!("before {name}"), &|rounds| {
        rounds >= if is_long() { 30 } else { 1 }
    });
    let begun = SystemClock.monotonic_time();
    let (ends, turns) = (AtomicBool::new(false), AtomicU64::new(0));
    let (incarnation, first) = Stranger::begin(&stranger.channel());
    let troubled = std::thread::scope(|scope| {
        for n in 0..AT_ONCE as u64 {
            let (ends, turns) = (&ends, &turns);
            let channel = stranger.channel();
            let rng = Rng::new(n);
            // Each with a file of its own; batches of one machine are in order, so that only one
            // commits many.
            let mut hostile = Hostile {
                channel,
                incarnation,
                number: first + n,
                batch: 1 + n * 1000,
                rng,
            };
            let misuse = move || {
                yield_processors();
                for at in 0.. {
                    if ends.load(Ordering::Relaxed) {
                        return;
                    }
                    turn(&mut hostile, at);
                    turns.fetch_add(1, Ordering::Relaxed);
                }
            };
            std::thread::Builder::new()
                .spawn_scoped(scope, misuse)
                .unwrap();
        }
        let is_over = |rounds| {
            if is_long() {
                SystemClock.monotonic_time() - begun > LONG
            } else {
                rounds >= ROUNDS
            }
        };
        let troubled = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            assert!(
                wait_until(PATIENCE, || turns.load(Ordering::Relaxed) > 0),
                "it has begun"
            );
            measured(volume, name, &is_over)
        }));
        ends.store(true, Ordering::Relaxed);
        troubled.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    let times = turns.load(Ordering::Relaxed);
    println!("{name}: {times} times; flush and first read take {troubled:?}, and {calm:?} before");
    if is_long() {
        for (during, before) in troubled.iter().zip(calm) {
            // A tenth of a second is not noticed.
            assert!(
                *during <= before * 2 + Duration::from_millis(100),
                "{name}: {troubled:?}, and {calm:?} before"
            );
        }
    }
    volume.is_undisturbed();
}

#[test]
fn a_machine_that_misuses_the_protocol_keeps_no_other_waiting() {
    let test = "a_machine_that_misuses_the_protocol_keeps_no_other_waiting";
    let Some(mut volume) = Volume::new(test) else {
        return;
    };
    let stranger = Stranger::new(&mut volume.nas);
    let only = std::env::var("TEAL_MISUSE").unwrap_or_default();
    for (name, turn) in MISUSES.into_iter().filter(|(name, _)| name.contains(&only)) {
        suffer(&mut volume, &stranger, name, turn);
    }
    volume.end();
}

/// A connection through TLS that says nothing then, as long as it lives.
struct Silent(std::process::Child);

impl Drop for Silent {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn silent_connections_hold_back_neither_machines_nor_newcomers() {
    let test = "silent_connections_hold_back_neither_machines_nor_newcomers";
    let is_there = Command::new("openssl")
        .arg("version")
        .stdout(Stdio::null())
        .status()
        .is_ok_and(|s| s.success());
    if !is_there {
        teal_testkit::skip_test(test, "openssl is missing");
        return;
    }
    let Some(mut volume) = Volume::new(test) else {
        return;
    };
    let with = volume.nas.serve();
    // More than there are places: some that never begin, some that stop within the handshake, some
    // that have gone through it.
    let mut raw: Vec<TcpStream> = (0..100)
        .map(|_| TcpStream::connect(&with.0).unwrap())
        .collect();
    for tcp in raw.iter_mut().take(50) {
        let _ = tcp.write_all(b"\x16\x03\x01\x02\x00\x01\x00");
    }
    let connect = [
        "s_client",
        "-connect",
        &with.0,
        "-alpn",
        "h2",
        "-quiet",
        "-verify_quiet",
    ];
    let silent: Vec<Silent> = (0..80)
        .map(|_| {
            let mut command = Command::new("openssl");
            command
                .args(connect)
                .stdin(Stdio::piped())
                .stdout(Stdio::null())
                .stderr(Stdio::null());
            Silent(command.spawn().unwrap())
        })
        .collect();
    let port = with.0.rsplit_once(':').unwrap().1;
    let established = || {
        let said = run_program(Command::new("ss").args([
            "-Htn",
            "state",
            "established",
            "dport",
            "=",
            &format!(":{port}"),
        ]));
        said.stdout.lines().count()
    };
    assert!(
        wait_until(PATIENCE, || established() >= 64),
        "{}",
        established()
    );
    let world = super::support::World::new(test).unwrap();
    super::support::try_join(&world, &with).expect_success();
    let store = world.path("store.teal");
    let newcomer = super::support::Mounted::found(world, store);
    assert_eq!(
        fs::read(newcomer.path("known")).unwrap(),
        seeded(1, 200_000)
    );
    volume.is_undisturbed();
    drop((silent, raw));
    super::support::end(vec![newcomer]);
    volume.end();
}
