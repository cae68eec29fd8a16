//! Identities: batches known by their stamps, copied stores, restored servers, enrolment.

use crate::fixture::{Device, ROOT, Stores, World, link, seq};
use std::time::Duration;
use teal_proto::{ClientRequest, HistoryVerdict, RefusalCode, ServerReply};
use teal_server::{EnrolError, GUESS_WINDOW, GUESSES_MAX, LIVE_FOR, Server, ServerOpenError};
use teal_types::limits::BATCH_BYTES_MAX;
use teal_types::{BatchNo, CommitSeq, Incarnation, LEASE};

on_both! {
    the_same_batch_again_is_answered_as_before
    another_batch_of_the_same_number_is_a_clone
    a_life_that_is_over_is_a_clone
    a_batch_needs_its_parts_and_its_digest
    parts_may_come_again_and_in_any_order
    hello_tells_a_copied_store
    every_life_has_a_lease_of_its_own
    the_servers_own_replica_has_the_first_lease
    an_empty_batch_is_acknowledged
    a_token_enrols_once_and_for_a_while
    devices_are_shown_with_name_position_and_presence
}

fn the_same_batch_again_is_answered_as_before(mut world: World) {
    let file = world.laptop.number();
    let ops = [
        world.laptop.create(file, teal_types::FileType::File),
        world.laptop.place(file, link(ROOT, "a")),
    ];
    let first = world.laptop.send(BatchNo::new(1), &ops);
    world.desk.file(ROOT, "b", b"1");
    assert_eq!(world.laptop.send(BatchNo::new(1), &ops), first);
    assert_eq!(
        world.laptop.ask_commit(BatchNo::new(1), &ops),
        first,
        "without its parts too"
    );
    assert_eq!(world.laptop.names(ROOT), ["a", "b"]);
}

fn another_batch_of_the_same_number_is_a_clone(mut world: World) {
    world.laptop.file(ROOT, "a", b"1");
    world.laptop.batch = BatchNo::new(4);
    world.laptop.file(ROOT, "b", b"1");
    let ops = [world.laptop.xattr(ROOT, "user.x", Some("1"))];
    for batch in [1, 5, 3].map(BatchNo::new) {
        let ServerReply::Refused(refused) = world.laptop.send(batch, &ops) else {
            panic!("{batch}")
        };
        assert_eq!(refused.code, RefusalCode::Cloned, "{batch}");
    }
    assert!(matches!(
        world.laptop.send(BatchNo::new(6), &ops),
        ServerReply::Committed { .. }
    ));
}

fn a_life_that_is_over_is_a_clone(mut world: World) {
    world.laptop.file(ROOT, "a", b"1");
    let old = world.laptop.incarnation;
    world.laptop.incarnate();
    let next = old.next().unwrap();
    assert_eq!(
        (world.laptop.incarnation, world.laptop.pull().acknowledged),
        (next, BatchNo::NONE)
    );
    let stage = |incarnation| ClientRequest::Stage {
        incarnation,
        batch: BatchNo::new(9),
        part: 0,
        ops: vec![],
    };
    assert_eq!(world.laptop.refusal(stage(old)), RefusalCode::Cloned);
    assert_eq!(
        world.laptop.refusal(stage(next.next().unwrap())),
        RefusalCode::Cloned
    );
    assert_eq!(
        world.laptop.refusal(stage(Incarnation::NONE)),
        RefusalCode::Cloned
    );
    let commit = ClientRequest::Commit {
        incarnation: old,
        batch: BatchNo::new(1),
        parts: 1,
        digest: [0; 32],
    };
    assert_eq!(world.laptop.refusal(commit), RefusalCode::Cloned);
    world.laptop.file(ROOT, "b", b"1");
    assert_eq!(world.laptop.pull().acknowledged.get(), 1);
}

fn a_batch_needs_its_parts_and_its_digest(world: World) {
    let ops = [world.laptop.xattr(ROOT, "user.x", Some("1"))];
    assert_eq!(
        world.laptop.stage(BatchNo::new(1), 1, &ops),
        ServerReply::Done
    );
    let commit = |parts, digest| ClientRequest::Commit {
        incarnation: world.laptop.incarnation,
        batch: BatchNo::new(1),
        parts,
        digest,
    };
    assert_eq!(
        world.laptop.refusal(commit(2, [0; 32])),
        RefusalCode::NeedsParts
    );
    assert_eq!(
        world.laptop.stage(BatchNo::new(1), 0, &ops),
        ServerReply::Done
    );
    assert_eq!(
        world.laptop.refusal(commit(2, [0; 32])),
        RefusalCode::NeedsParts
    );
    assert_eq!(
        world.laptop.refusal(commit(u32::MAX, [0; 32])),
        RefusalCode::BadRequest
    );
    assert_eq!(world.laptop.look(ROOT).unwrap().xattrs, []);
}

fn parts_may_come_again_and_in_any_order(world: World) {
    let ops = |n: u8| [world.laptop.xattr(ROOT, &format!("user.{n}"), Some("1"))];
    for (part, n) in [(1, 9), (0, 0), (1, 1), (0, 0)] {
        assert_eq!(
            world.laptop.stage(BatchNo::new(1), part, &ops(n)),
            ServerReply::Done
        );
    }
    let parts = [0, 1].map(|n| teal_proto::encode_ops(&ops(n)).unwrap());
    let digest = teal_proto::batch_digest(parts.iter().map(|part| &part[..]));
    let commit = ClientRequest::Commit {
        incarnation: world.laptop.incarnation,
        batch: BatchNo::new(1),
        parts: 2,
        digest,
    };
    assert!(matches!(
        world.laptop.ask(commit),
        ServerReply::Committed { .. }
    ));
    assert_eq!(world.laptop.look(ROOT).unwrap().xattrs.len(), 2);
}

fn hello_tells_a_copied_store(mut world: World) {
    assert_eq!(world.laptop.hello().verdict, HistoryVerdict::Known);
    let old = (world.laptop.batch, world.laptop.base, world.laptop.digest);
    world.laptop.file(ROOT, "a", b"1");
    world.laptop.pull();
    assert_eq!(world.laptop.hello().verdict, HistoryVerdict::Known);
    // Batches not sent yet are no reason.
    world.laptop.batch = BatchNo::new(world.laptop.batch.get() + 5);
    assert_eq!(world.laptop.hello().verdict, HistoryVerdict::Known);
    (world.laptop.batch, world.laptop.base, world.laptop.digest) = old;
    assert_eq!(world.laptop.hello().verdict, HistoryVerdict::Incarnate);
    world.laptop.incarnation = world.laptop.incarnation.next().unwrap();
    assert_eq!(world.laptop.hello().verdict, HistoryVerdict::Incarnate);
}

fn every_life_has_a_lease_of_its_own(mut world: World) {
    let mut leases = vec![world.laptop.next / LEASE, world.desk.next / LEASE];
    for _ in 0..3 {
        world.laptop.incarnate();
        leases.push(world.laptop.next / LEASE);
    }
    let mut distinct = leases.clone();
    distinct.sort_unstable();
    distinct.dedup();
    assert_eq!(distinct.len(), leases.len());
    // A lost answer to Incarnate costs a lease, nothing else; older leases of the same device stay
    // good.
    world.laptop.next = leases[0] * LEASE + 7;
    world.laptop.file(ROOT, "a", b"1");
}

fn the_servers_own_replica_has_the_first_lease(mut world: World) {
    let peer = world.server.local_replica(world.volume, "server").unwrap();
    assert_eq!(
        world.server.local_replica(world.volume, "server").unwrap(),
        peer
    );
    (world.laptop.peer, world.laptop.incarnation) = (peer, Incarnation::NONE);
    assert_eq!(world.laptop.hello().verdict, HistoryVerdict::Incarnate);
    world.laptop.incarnate();
    world.laptop.next = 16;
    world.laptop.file(ROOT, "a", b"1");
    assert_eq!(world.desk.list(ROOT).unwrap()["a"].object.get(), 16);
    assert!(
        world
            .server
            .replicas(world.volume)
            .unwrap()
            .iter()
            .any(|note| note.is_local && note.replica == peer.replica)
    );
}

fn an_empty_batch_is_acknowledged(mut world: World) {
    let before = world.laptop.base;
    let at = world.laptop.commit(&[]);
    assert_eq!(at, seq(before.get() + 1));
    let pulled = world.laptop.pull();
    assert_eq!(
        (pulled.to, pulled.acknowledged, pulled.changes),
        (at, BatchNo::FIRST, vec![])
    );
}

fn a_token_enrols_once_and_for_a_while(world: World) {
    let server = &world.server;
    let token = server
        .make_token(world.volume, Duration::from_secs(60))
        .unwrap();
    assert!(matches!(
        server.enrol(&token, "a/b"),
        Err(EnrolError::Device { .. })
    ));
    assert!(matches!(
        server.enrol(&token, &"x".repeat(64)),
        Err(EnrolError::Device { .. })
    ));
    let peer = server.enrol(&format!(" {token}\n"), "phone").unwrap();
    assert_eq!(
        server.welcome_enrolled(peer).unwrap().verdict,
        HistoryVerdict::Incarnate
    );
    assert!(matches!(
        server.enrol(&token, "other"),
        Err(EnrolError::Used)
    ));
    let late = server
        .make_token(world.volume, Duration::from_secs(60))
        .unwrap();
    world.stores.clock.advance(Duration::from_secs(61));
    assert!(matches!(
        server.enrol(&late, "other"),
        Err(EnrolError::Expired)
    ));
    for wrong in [
        "",
        "-",
        "12345678-",
        &token[..40],
        &token.replace('-', "_"),
        "00000001-00000000000000000000000000000000",
    ] {
        assert!(
            matches!(server.enrol(wrong, "other"), Err(EnrolError::Wrong)),
            "{wrong}"
        );
    }
    assert!(
        server
            .make_token(teal_types::VolumeId::new(5), Duration::ZERO)
            .is_err()
    );
}

fn devices_are_shown_with_name_position_and_presence(mut world: World) {
    world.laptop.file(ROOT, "a", b"1");
    world.sync();
    world.sync();
    let notes = world.server.replicas(world.volume).unwrap();
    let shown: Vec<_> = notes
        .iter()
        .map(|note| (&note.device[..], note.is_live, note.position))
        .collect();
    assert_eq!(
        shown,
        [
            ("laptop", true, world.laptop.base),
            ("desk", true, world.laptop.base)
        ]
    );
    assert!(world.laptop.pull().is_live);
    world.desk.ask(ClientRequest::Bye);
    assert!(!world.laptop.pull().is_live);
    world.desk.pull();
    assert!(world.laptop.pull().is_live);
    world.stores.clock.advance(LIVE_FOR);
    assert!(!world.laptop.pull().is_live);
    assert_eq!(world.server.volumes().unwrap()[0].label, "home");
}

#[test]
fn guessing_tokens_ends_soon() {
    let world = World::new();
    let good = world
        .server
        .make_token(world.volume, Duration::from_secs(3600))
        .unwrap();
    for _ in 0..GUESSES_MAX {
        assert!(matches!(
            world.server.enrol("00000000-0", "x"),
            Err(EnrolError::Wrong)
        ));
    }
    assert!(matches!(
        world.server.enrol(&good, "x"),
        Err(EnrolError::TooManyWrong)
    ));
    world.stores.clock.advance(GUESS_WINDOW);
    world.server.enrol(&good, "x").unwrap();
}

#[test]
fn what_waits_for_its_commit_is_bounded() {
    let world = World::new();
    let value = "x".repeat(64 << 10);
    let ops: Vec<_> = (0..48)
        .map(|n| world.laptop.xattr(ROOT, &format!("user.{n}"), Some(&value)))
        .collect();
    let parts = u32::try_from(BATCH_BYTES_MAX / (48 * (64 << 10)) + 1).unwrap();
    let refused =
        (0..parts).find_map(
            |part| match world.laptop.stage(BatchNo::new(1), part, &ops) {
                ServerReply::Done => None,
                ServerReply::Refused(refused) => Some((part, refused.code)),
                other => panic!("{other:?}"),
            },
        );
    assert_eq!(refused, Some((parts - 1, RefusalCode::Busy)));
    assert_eq!(
        world.laptop.stage(BatchNo::new(1), 0, &ops),
        ServerReply::Done,
        "in the place of the same part"
    );
    assert!(
        matches!(
            world.laptop.send(BatchNo::new(2), &ops),
            ServerReply::Refused(_)
        ),
        "no room for another batch"
    );
    world.laptop.ask(ClientRequest::Incarnate);
    let next = Device {
        incarnation: world.laptop.incarnation.next().unwrap(),
        ..world.laptop
    };
    assert_eq!(
        next.stage(BatchNo::new(1), 0, &ops),
        ServerReply::Done,
        "a new life starts without what the old one had staged"
    );
}

#[test]
fn history_is_given_and_taken_only_after_a_hello() {
    let mut world = World::new();
    world.laptop.file(ROOT, "a", b"1");
    world.laptop.server = world.stores.open();
    let incarnation = world.laptop.incarnation;
    let stage = ClientRequest::Stage {
        incarnation,
        batch: BatchNo::new(9),
        part: 0,
        ops: Vec::new(),
    };
    let commit = ClientRequest::Commit {
        incarnation,
        batch: BatchNo::new(9),
        parts: 1,
        digest: [0; 32],
    };
    for request in [
        world.laptop.pull_from(world.laptop.base, None),
        stage,
        commit,
    ] {
        assert_eq!(world.laptop.refusal(request), RefusalCode::Stopping);
    }
    assert_eq!(world.laptop.hello().verdict, HistoryVerdict::Known);
    world.laptop.pull();
}

#[test]
fn a_pull_tells_each_life_which_batches_are_its_own() {
    let mut world = World::new();
    let (old, before) = (
        world.laptop.incarnation,
        world.laptop.ask_pull(seq(1), None).acknowledged,
    );
    world.laptop.file(ROOT, "a", b"1");
    world.laptop.incarnate();
    world.laptop.file(ROOT, "b", b"2");
    world.laptop.file(ROOT, "c", b"3");
    assert_eq!(world.laptop.ask_pull(seq(1), None).acknowledged.get(), 2);
    // A copy of the store as it was at first sees that there is one batch more than it has made.
    world.laptop.incarnation = old;
    assert_eq!(
        world.laptop.ask_pull(seq(1), None).acknowledged,
        before.next()
    );
}

/// A server put back from a copy does not have what came after; it says so, and never that both
/// have more than they do.
#[test]
fn a_restored_server_tells_what_is_lost() {
    let (dir, copy) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut world = World::on(Stores::sqlite(dir.path()));
    world.laptop.file(ROOT, "a", b"1");
    world.sync();
    world.sync();
    let (common, digest) = (world.laptop.base, world.laptop.digest);
    for file in std::fs::read_dir(dir.path()).unwrap() {
        let file = file.unwrap();
        std::fs::copy(file.path(), copy.path().join(file.file_name())).unwrap();
    }
    world.laptop.file(ROOT, "b", b"2");
    world.sync();
    world.sync();
    let seen = world.laptop.base;
    let stores = Stores {
        meta: Stores::sqlite(copy.path()).meta,
        ..world.stores.clone()
    };
    let server = stores.open();
    for device in [&mut world.laptop, &mut world.desk] {
        device.server = server.clone();
        assert_eq!(
            device.hello().verdict,
            HistoryVerdict::Lost { common, digest }
        );
    }
    // Also when the new history has become as long as the old one.
    let mut fresh = Device::enrol(&server, &stores, world.volume, "fresh");
    while fresh.pull().to <= seen {
        fresh.file(ROOT, "c", b"3");
    }
    for device in [&mut world.laptop, &mut world.desk] {
        assert_eq!(
            device.refusal(device.pull_from(seen, None)),
            RefusalCode::BadRequest
        );
        assert_eq!(
            device.hello().verdict,
            HistoryVerdict::Lost { common, digest }
        );
        device.base = common;
        device.digest = [0; 32];
        assert_eq!(
            device.hello().verdict,
            HistoryVerdict::Lost { common, digest }
        );
        device.base = CommitSeq::new(0);
        let welcome = device.hello();
        assert_eq!(
            welcome.verdict,
            HistoryVerdict::Incarnate,
            "its store may be a copy that nobody knows of any more"
        );
        device.server_incarnation = welcome.server_incarnation;
        assert_eq!(device.hello().verdict, HistoryVerdict::Known);
    }
}

#[test]
fn stores_that_do_not_belong_together_are_refused() {
    let [one, two] = [Stores::memory(), Stores::memory()];
    one.open();
    let domain = teal_chunk::DedupDomain::new(teal_chunk::DomainId::new([1; 16]), [2; 32]);
    let (clock, entropy) = (std::sync::Arc::new(two.clock.clone()), two.entropy.clone());
    let shelf = std::sync::Arc::new(two.shelf.clone());
    let options = teal_chunk::ChunkStoreOptions::default();
    let chunks =
        teal_chunk::ChunkStore::open(shelf, domain, options, clock.clone(), entropy.clone())
            .unwrap()
            .0;
    let error = Server::open(one.meta, chunks, clock, entropy).unwrap_err();
    assert!(matches!(error, ServerOpenError::OtherDomain), "{error}");
}
