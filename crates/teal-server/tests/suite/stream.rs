//! Long answers come in pages, long polls wait, and whatever bytes come are answered.

use crate::fixture::{Device, ROOT, World, bytes, link, seq};
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use teal_proto::{
    ClientRequest, ContentAnswer, PulledObject, REPLY_BYTES, RefusalCode, ServerReply, WANTS_MAX,
    WantedRange, decode_reply, encode_reply, encode_request,
};
use teal_types::{
    BatchNo, CommitSeq, ContentChange, ContentPiece, FileType, Incarnation, ObjectNo, Op,
    PieceSource,
};

on_both! {
    a_long_pull_comes_in_pages_that_add_up
    a_long_listing_goes_on_behind_a_name
    whole_directories_come_ahead_as_far_as_asked_for
    content_is_answered_in_pieces_until_all_is_there
    content_of_another_state_is_stale
}

/// Many files, with names as long as they can be.
fn many(device: &mut Device, dir: ObjectNo, count: usize) -> Vec<ObjectNo> {
    let mut ops = Vec::new();
    let objects: Vec<ObjectNo> = (0..count).map(|_| device.number()).collect();
    for object in &objects {
        ops.push(device.create(*object, FileType::File));
        ops.push(device.place(*object, link(dir, &format!("{:0250}", object.get()))));
    }
    device.commit(&ops);
    objects
}

fn all_pages(device: &Device, since: CommitSeq) -> Vec<PulledObject> {
    let mut first = device.ask_pull(since, None);
    let mut changes = std::mem::take(&mut first.changes);
    let (to, mut more, mut pages) = (first.to, first.more, 1);
    while let Some(behind) = more {
        let page = device.ask_pull(since, Some((behind, to)));
        assert_eq!((page.to, page.digest), (to, first.digest));
        assert!(
            encode_reply(&ServerReply::Pulled(page.clone()))
                .unwrap()
                .len()
                <= REPLY_BYTES + (1 << 17)
        );
        changes.extend(page.changes);
        (more, pages) = (page.more, pages + 1);
    }
    assert!(pages > 2);
    changes
}

fn a_long_pull_comes_in_pages_that_add_up(mut world: World) {
    let base = world.desk.base;
    let objects = many(&mut world.laptop, ROOT, 9000);
    world.laptop.base = seq(base.get() + 1);
    let ops = [world.laptop.remove(
        objects[7],
        link(ROOT, &format!("{:0250}", objects[7].get())),
    )];
    world.laptop.commit(&ops);
    for since in [base, seq(0)] {
        let changes = all_pages(&world.desk, since);
        let number = |change: &PulledObject| match change {
            PulledObject::Is { version, .. } => version.object,
            PulledObject::Gone { object } => *object,
        };
        let numbers: Vec<ObjectNo> = changes.iter().map(number).collect();
        assert!(numbers.is_sorted(), "ascending");
        let mut wanted: BTreeSet<ObjectNo> = objects.iter().copied().chain([ROOT]).collect();
        if since == seq(0) {
            wanted.remove(&objects[7]);
        } else {
            assert!(changes.contains(&PulledObject::Gone { object: objects[7] }));
        }
        assert_eq!(numbers.into_iter().collect::<BTreeSet<_>>(), wanted);
    }
}

fn a_long_listing_goes_on_behind_a_name(mut world: World) {
    let dir = world.laptop.dir(ROOT, "d");
    let objects = many(&mut world.laptop, dir, 6000);
    let (mut after, mut found) = (None, Vec::new());
    loop {
        let dirs = vec![
            (dir, after.clone()),
            (ROOT, None),
            (ObjectNo::new(99), None),
        ];
        let ServerReply::Listings { dirs, .. } =
            world.laptop.ask(ClientRequest::List { dirs, ahead: 9 })
        else {
            panic!()
        };
        let entries = dirs[0].entries.clone().unwrap();
        assert!(!entries.is_empty());
        after = entries.last().map(|(name, _)| name.clone());
        found.extend(entries.into_iter().map(|(_, version)| version.object));
        if !dirs[0].more {
            assert_eq!(dirs.len(), 3);
            assert_eq!(dirs[2].entries, None, "there is no such directory");
            break;
        }
        assert_eq!(dirs.len(), 1);
    }
    assert_eq!(found, objects);
}

fn whole_directories_come_ahead_as_far_as_asked_for(mut world: World) {
    let laptop = &mut world.laptop;
    let [a, b, c] = ["a", "b", "c"].map(|name| laptop.dir(ROOT, name));
    many(laptop, b, 10);
    let below = laptop.dir(a, "below");
    let deep = laptop.dir(below, "deep");
    let answered = |dirs: &[ObjectNo], ahead| {
        let dirs = dirs.iter().map(|dir| (*dir, None)).collect();
        let ServerReply::Listings { dirs, .. } = laptop.ask(ClientRequest::List { dirs, ahead })
        else {
            panic!()
        };
        assert!(
            dirs.iter()
                .all(|listing| !listing.more && listing.entries.is_some())
        );
        dirs.into_iter()
            .map(|listing| listing.dir)
            .collect::<Vec<_>>()
    };
    assert_eq!(answered(&[ROOT], 0), [ROOT]);
    assert_eq!(
        answered(&[ROOT], 100),
        [ROOT, a, b, c, below, deep],
        "level by level"
    );
    // One entry in `a`, ten in `b`: not a part of them, and what remains is halved, which is enough
    // for `c` and what is below `a`.
    assert_eq!(answered(&[ROOT], 8), [ROOT, a, c, below, deep]);
    assert_eq!(
        answered(&[below, a, ROOT, b], 100),
        [below, deep, a, ROOT, b, c],
        "each with what is below it, none twice"
    );
}

fn content_is_answered_in_pieces_until_all_is_there(mut world: World) {
    let chunks: Vec<Vec<u8>> = (0..5_u8).map(|n| vec![n + 1; 700_000]).collect();
    let file = world.laptop.file(ROOT, "a", b"");
    world.laptop.pull();
    let piece = |n: usize, chunk: &[u8]| ContentPiece {
        offset: n as u64 * 1_000_000,
        ..world.laptop.piece(0, chunk)
    };
    let pieces: Vec<ContentPiece> = chunks
        .iter()
        .enumerate()
        .map(|(n, chunk)| piece(n, chunk))
        .collect();
    let change = ContentChange {
        cut: 0,
        size: 1 << 40,
        mtime: world.laptop.now(),
        pieces,
    };
    let op = Op::SetContent {
        object: file,
        base: world.laptop.base,
        change,
    };
    let data_seq = world.laptop.commit(&[op]);
    let mut offset = 500_000;
    while offset < 5_000_000 {
        let wants = vec![WantedRange {
            object: file,
            data_seq,
            offset,
            len: 5_000_000 - offset,
        }];
        let ServerReply::Data(got) = world.laptop.ask(ClientRequest::Read { wants }) else {
            panic!()
        };
        for byte in bytes(&got[0], offset) {
            let at = offset as usize;
            let wanted = if at % 1_000_000 < 700_000 {
                at / 1_000_000 + 1
            } else {
                0
            };
            assert_eq!(usize::from(byte), wanted, "at {at}");
            offset += 1;
        }
    }
    // Holes cost nothing, and nothing is behind the end.
    let want = |offset, len| WantedRange {
        object: file,
        data_seq,
        offset,
        len,
    };
    let wants = vec![
        want(1 << 39, 1 << 20),
        want(1 << 40, 5),
        want(u64::MAX, u64::MAX),
        want((1 << 40) - 1, 9),
    ];
    let ServerReply::Data(got) = world.laptop.ask(ClientRequest::Read { wants }) else {
        panic!()
    };
    let lens = [1 << 20, 0, 0, 1].map(|len| ContentAnswer::Is {
        len,
        pieces: vec![],
    });
    assert_eq!(got, lens);
}

fn content_of_another_state_is_stale(mut world: World) {
    let file = world.laptop.file(ROOT, "a", b"1");
    let want = |data_seq| WantedRange {
        object: file,
        data_seq,
        offset: 0,
        len: 1,
    };
    let old = world.laptop.look(file).unwrap().data_seq;
    world.laptop.pull();
    let ops = [world.laptop.write(file, b"2")];
    world.laptop.commit(&ops);
    let gone = WantedRange {
        object: ObjectNo::new(999),
        ..want(old)
    };
    let ServerReply::Data(got) = world.laptop.ask(ClientRequest::Read {
        wants: vec![want(old), gone],
    }) else {
        panic!()
    };
    assert_eq!(got, [ContentAnswer::Stale, ContentAnswer::Stale]);
}

#[test]
fn a_damaged_chunk_is_said_to_be() {
    let mut world = World::new();
    let file = world.laptop.file(ROOT, "a", b"1234");
    for name in world.stores.shelf.snapshot().into_keys() {
        world
            .stores
            .shelf
            .damage_object(&name, |bytes| bytes.iter_mut().for_each(|byte| *byte ^= 1));
    }
    let want = WantedRange {
        object: file,
        data_seq: world.laptop.look(file).unwrap().data_seq,
        offset: 0,
        len: 4,
    };
    let ServerReply::Data(got) = world.laptop.ask(ClientRequest::Read { wants: vec![want] }) else {
        panic!()
    };
    assert_eq!(got, [ContentAnswer::Damaged]);
    // An extent that goes beyond its chunk is no reason to invent bytes.
    let id = world.laptop.put(b"short");
    world.laptop.pull();
    let piece = ContentPiece {
        offset: 0,
        len: 9,
        source: PieceSource::Chunk { id, offset: 0 },
    };
    let change = ContentChange {
        cut: 0,
        size: 9,
        mtime: world.laptop.now(),
        pieces: vec![piece],
    };
    let op = Op::SetContent {
        object: file,
        base: world.laptop.base,
        change,
    };
    let data_seq = world.laptop.commit(&[op]);
    let want = WantedRange {
        object: file,
        data_seq,
        offset: 0,
        len: 9,
    };
    let ServerReply::Data(got) = world.laptop.ask(ClientRequest::Read { wants: vec![want] }) else {
        panic!()
    };
    assert_eq!(got, [ContentAnswer::Damaged]);
}

#[test]
fn a_long_poll_ends_with_a_commit_or_with_the_server() {
    let mut world = World::new();
    let (server, peer, since) = (Arc::clone(&world.server), world.desk.peer, world.desk.base);
    let (incarnation, digest) = (world.desk.incarnation, world.desk.digest);
    let pull = move || {
        server.handle(
            peer,
            ClientRequest::Pull {
                incarnation,
                since,
                digest,
                filter: 0,
                after: None,
                wait_ms: 250_000,
            },
        )
    };
    let waiting = std::thread::Builder::new().spawn(pull.clone()).unwrap();
    world.laptop.file(ROOT, "a", b"1");
    let ServerReply::Pulled(pulled) = waiting.join().unwrap() else {
        panic!()
    };
    assert!(pulled.to > since && pulled.is_live);
    world.sync();
    let (since, digest) = (world.desk.base, world.desk.digest);
    let server = Arc::clone(&world.server);
    let waiting = std::thread::Builder::new()
        .spawn(move || {
            server.handle(
                peer,
                ClientRequest::Pull {
                    incarnation,
                    since,
                    digest,
                    filter: 0,
                    after: None,
                    wait_ms: 250_000,
                },
            )
        })
        .unwrap();
    world.server.stop();
    let ServerReply::Refused(refused) = waiting.join().unwrap() else {
        panic!()
    };
    assert_eq!(refused.code, RefusalCode::Stopping);
    assert_eq!(
        world.laptop.refusal(ClientRequest::Bye),
        RefusalCode::Stopping
    );
}

#[test]
fn a_long_poll_ends_when_another_machine_comes_and_when_its_own_goes() {
    let world = World::new();
    let (server, peer, since) = (Arc::clone(&world.server), world.desk.peer, world.desk.base);
    let (incarnation, digest) = (world.desk.incarnation, world.desk.digest);
    world.laptop.ask(ClientRequest::Bye);
    let pull = || {
        let server = Arc::clone(&server);
        let request = ClientRequest::Pull {
            incarnation,
            since,
            digest,
            filter: 0,
            after: None,
            wait_ms: 250_000,
        };
        let pull = move || server.handle(peer, request);
        std::thread::Builder::new().spawn(pull).unwrap()
    };
    let is_live = |of: usize| world.server.replicas(world.volume).unwrap()[of].is_live;
    assert!(is_live(1) && !is_live(0));
    let waiting = pull();
    while !waiting.is_finished() {
        world.laptop.ask(ClientRequest::Bye);
        // The poll that waits sees that nobody is there.
        std::thread::park_timeout(Duration::from_millis(20));
        world.laptop.ask(ClientRequest::Look {
            objects: vec![ROOT],
        });
        // The answer says who is there when it is made: the machine stays until then. If the poll
        // had not begun to wait when it came, it has to come again.
        for _ in 0..100 {
            if !waiting.is_finished() {
                std::thread::park_timeout(Duration::from_millis(10));
            }
        }
    }
    let ServerReply::Pulled(pulled) = waiting.join().unwrap() else {
        panic!()
    };
    assert!(pulled.to == since && pulled.is_live);
    // From now on there is company, and it waits for more than that.
    let waiting = pull();
    while !waiting.is_finished() {
        world.desk.ask(ClientRequest::Bye);
    }
    assert!(matches!(waiting.join().unwrap(), ServerReply::Pulled(_)));
    world.desk.ask(ClientRequest::Bye);
    assert!(!is_live(1), "what it held does not make it come back");
}

#[test]
fn who_holds_a_pull_is_live() {
    let world = World::new();
    let (server, peer, since) = (Arc::clone(&world.server), world.desk.peer, world.desk.base);
    let (incarnation, digest) = (world.desk.incarnation, world.desk.digest);
    let pull = move || {
        server.handle(
            peer,
            ClientRequest::Pull {
                incarnation,
                since,
                digest,
                filter: 0,
                after: None,
                wait_ms: 250_000,
            },
        )
    };
    let waiting = std::thread::Builder::new().spawn(pull).unwrap();
    // Once it waits, time alone does not end its presence.
    let is_live = || {
        world.stores.clock.advance(Duration::from_secs(3600));
        world.server.replicas(world.volume).unwrap()[1].is_live
    };
    let held = (0..10_000_000).any(|_| {
        std::thread::yield_now();
        is_live() && is_live()
    });
    world.server.stop();
    waiting.join().unwrap();
    assert!(held && !is_live());
}

#[test]
fn what_is_too_much_at_once_is_refused() {
    let world = World::new();
    let want = WantedRange {
        object: ROOT,
        data_seq: seq(0),
        offset: 0,
        len: 1,
    };
    for request in [
        ClientRequest::Look {
            objects: vec![ROOT; WANTS_MAX + 1],
        },
        ClientRequest::List {
            dirs: vec![(ROOT, None); WANTS_MAX + 1],
            ahead: 0,
        },
        ClientRequest::Read {
            wants: vec![want; WANTS_MAX + 1],
        },
        ClientRequest::ReadPast {
            object: ROOT,
            at: seq(1),
            offset: 0,
            len: u64::MAX,
        },
        ClientRequest::Have {
            chunks: vec![world.laptop.domain.name_content(b""); teal_proto::CHUNKS_MAX + 1],
        },
        ClientRequest::Keep {
            filter: 0,
            objects: vec![ROOT; teal_proto::KEPT_MAX + 1],
            is_last: true,
        },
    ] {
        assert_eq!(world.laptop.refusal(request), RefusalCode::BadRequest);
    }
}

#[test]
fn another_protocol_is_refused_by_name() {
    let world = World::new();
    let mut bytes = encode_request(&ClientRequest::Bye).unwrap();
    bytes[0] = 9;
    let Ok(ServerReply::Refused(refused)) =
        decode_reply(&world.server.handle_bytes(world.laptop.peer, &bytes))
    else {
        panic!()
    };
    assert!(refused.words.contains("protocol 9"), "{}", refused.words);
}

fn object() -> impl Strategy<Value = ObjectNo> {
    prop_oneof![
        Just(0),
        1_u64..40,
        (2_u64 << 30)..(2 << 30) + 8,
        any::<u64>()
    ]
    .prop_map(ObjectNo::new)
}

fn request() -> impl Strategy<Value = ClientRequest> {
    let any_seq = || prop_oneof![0_u64..9, any::<u64>()].prop_map(seq);
    prop_oneof![
        Just(ClientRequest::Incarnate),
        (any_seq(), prop::option::of((object(), any_seq()))).prop_map(|(since, after)| {
            ClientRequest::Pull {
                incarnation: Incarnation::new(1),
                digest: [0; 32],
                since,
                filter: since.get(),
                after,
                wait_ms: 0,
            }
        }),
        (any::<u32>(), any::<u64>(), any::<u32>()).prop_map(|(incarnation, batch, part)| {
            ClientRequest::Stage {
                incarnation: Incarnation::new(incarnation),
                batch: BatchNo::new(batch),
                part,
                ops: vec![],
            }
        }),
        (any::<u32>(), any::<u64>(), any::<u32>()).prop_map(|(incarnation, batch, parts)| {
            ClientRequest::Commit {
                incarnation: Incarnation::new(incarnation),
                batch: BatchNo::new(batch),
                parts,
                digest: [0; 32],
            }
        }),
        (object(), any_seq(), any::<u64>(), any::<u64>()).prop_map(
            |(object, data_seq, offset, len)| ClientRequest::Read {
                wants: vec![WantedRange {
                    object,
                    data_seq,
                    offset,
                    len
                }]
            }
        ),
        (object(), any_seq(), any::<u64>(), 0_u64..1 << 20).prop_map(
            |(object, at, offset, len)| ClientRequest::ReadPast {
                object,
                at,
                offset,
                len
            }
        ),
        (object(), any_seq()).prop_map(|(object, after)| ClientRequest::History { object, after }),
        (object(), any_seq()).prop_map(|(dir, at)| ClientRequest::ListPast {
            dir,
            at,
            after: None
        }),
        any::<u64>().prop_map(|after| ClientRequest::Conflicts { after }),
        any::<u64>().prop_map(|conflict| ClientRequest::Resolve { conflict }),
        prop::collection::vec(object(), 0..4).prop_map(|objects| ClientRequest::Look { objects }),
        (
            prop::collection::vec(object(), 0..4),
            0_u64..2,
            any::<bool>()
        )
            .prop_map(|(objects, filter, is_last)| {
                ClientRequest::Keep {
                    filter,
                    objects,
                    is_last,
                }
            }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_bytes_come_there_is_an_answer(bytes in prop::collection::vec(any::<u8>(), 0..64), request in request(), flip in any::<u16>()) {
        let world = World::new();
        decode_reply(&world.server.handle_bytes(world.laptop.peer, &bytes)).unwrap();
        let mut bytes = encode_request(&request).unwrap();
        decode_reply(&world.server.handle_bytes(world.laptop.peer, &bytes)).unwrap();
        let at = usize::from(flip) % bytes.len();
        bytes[at] ^= 1 << (flip % 8);
        decode_reply(&world.server.handle_bytes(world.laptop.peer, &bytes)).unwrap();
        world.laptop.ask_pull(seq(0), None);
    }
}

#[test]
fn numbers_at_their_limits_are_answered_by_the_database() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::on(crate::fixture::Stores::sqlite(dir.path()));
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    for _ in 0..300 {
        let request = request().new_tree(&mut runner).unwrap().current();
        if let ServerReply::Refused(refused) = world.laptop.ask(request.clone()) {
            assert_ne!(
                refused.code,
                RefusalCode::Damaged,
                "{request:?}: {}",
                refused.words
            );
        }
    }
}
