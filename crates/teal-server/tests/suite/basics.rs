//! The requests of every client: say hello, send, pull, list and read.

use crate::fixture::{Device, ROOT, World, link, seq};
use teal_proto::{ClientRequest, HistoryVerdict, PulledObject, RefusalCode, ServerReply};

#[test]
fn what_one_device_commits_another_sees() {
    let mut world = World::new();
    let dir = world.laptop.dir(ROOT, "docs");
    let file = world.laptop.file(dir, "a.txt", b"hello");
    let pulled = world.desk.pull();
    let changed = pulled.changes.iter().map(|change| match change {
        PulledObject::Is { version, ranges } => (version.object, ranges.clone()),
        PulledObject::Gone { object } => panic!("{object}"),
    });
    let changed: Vec<_> = changed.collect();
    assert_eq!(
        changed,
        [
            (ROOT, Some(vec![])),
            (dir, Some(vec![])),
            (file, Some(vec![(0, 5)]))
        ]
    );
    assert_eq!(world.desk.names(dir), ["a.txt"]);
    assert_eq!(world.desk.read(file), b"hello");
    assert_eq!(world.desk.look(file).unwrap().links, [link(dir, "a.txt")]);
    assert_eq!(world.desk.conflicts(), []);
    assert_eq!(world.laptop.pull().acknowledged.get(), 2);
    assert_eq!(world.laptop.hello().verdict, HistoryVerdict::Known);
    assert_eq!(world.laptop.pull().changes, []);
}

#[test]
fn a_removed_file_is_gone_for_everybody() {
    let mut world = World::new();
    let file = world.laptop.file(ROOT, "a", b"1");
    world.sync();
    let ops = [world.desk.remove(file, link(ROOT, "a"))];
    world.desk.commit(&ops);
    let pulled = world.laptop.pull();
    assert!(
        pulled
            .changes
            .contains(&PulledObject::Gone { object: file })
    );
    assert_eq!(
        (world.laptop.look(file), world.laptop.names(ROOT)),
        (None, vec![])
    );
    assert_eq!(world.laptop.conflicts(), []);
}

#[test]
fn a_revoked_device_is_denied() {
    let mut world = World::new();
    world
        .server
        .revoke(world.volume, world.laptop.peer.replica)
        .unwrap();
    assert_eq!(
        world.laptop.refusal(ClientRequest::Bye),
        RefusalCode::Denied
    );
    world.desk.pull();
    world
        .server
        .readmit(world.volume, world.laptop.peer.replica)
        .unwrap();
    world.laptop.pull();
}

#[test]
fn the_serving_machine_cannot_be_shut_out() {
    let world = World::new();
    let local = world.server.local_replica(world.volume, "nas").unwrap();
    let refused = world
        .server
        .revoke(world.volume, local.replica)
        .unwrap_err();
    assert!(
        refused.words.contains("the serving machine itself"),
        "{refused}"
    );
}

#[test]
fn names_of_devices_are_different() {
    let world = World::new();
    let enrol = |name: &str| Device::enrol(&world.server, &world.stores, world.volume, name);
    let long = "x".repeat(teal_proto::DEVICE_NAME_MAX);
    let devices = ["laptop", "laptop", "phone", &long, &long].map(enrol);
    let names = || {
        let notes = world.server.replicas(world.volume).unwrap();
        notes
            .into_iter()
            .map(|note| note.device)
            .collect::<Vec<_>>()
    };
    let expected = [
        "laptop",
        "desk",
        "laptop-2",
        "laptop-3",
        "phone",
        &long,
        &format!("{}-2", &long[2..]),
    ];
    assert_eq!(names(), expected);
    // Each keeps the name it was given, whatever it calls itself again, and may take another.
    for (device, wanted) in [
        (&devices[0], "laptop"),
        (&devices[1], "laptop"),
        (&devices[2], "desk"),
    ] {
        let mut hello = device.hello_request();
        hello.device = wanted.into();
        assert!(matches!(
            device.ask(ClientRequest::Hello(hello)),
            ServerReply::Welcome(_)
        ));
    }
    let expected = [
        "laptop",
        "desk",
        "laptop-2",
        "laptop-3",
        "desk-2",
        &long,
        &format!("{}-2", &long[2..]),
    ];
    assert_eq!(names(), expected);
}

#[test]
fn a_pull_that_waits_ends_with_a_refusal_when_its_device_is_shut_out() {
    let mut world = World::new();
    let ClientRequest::Pull {
        incarnation,
        since,
        digest,
        filter,
        after,
        ..
    } = world.laptop.pull_from(world.laptop.base, None)
    else {
        panic!()
    };
    let pull = ClientRequest::Pull {
        incarnation,
        since,
        digest,
        filter,
        after,
        wait_ms: 3_600_000,
    };
    let (server, peer) = (std::sync::Arc::clone(&world.server), world.laptop.peer);
    let waiting = std::thread::Builder::new()
        .spawn(move || server.handle(peer, pull))
        .unwrap();
    world.server.revoke(world.volume, peer.replica).unwrap();
    world.desk.file(ROOT, "secret", b"1");
    match waiting.join().unwrap() {
        ServerReply::Refused(refused) => assert_eq!(refused.code, RefusalCode::Denied),
        reply => panic!("{reply:?}"),
    }
}

#[test]
fn a_pull_beyond_the_history_is_refused() {
    let world = World::new();
    let pull = world.laptop.pull_from(seq(99), None);
    assert_eq!(world.laptop.refusal(pull), RefusalCode::BadRequest);
    let ServerReply::Refused(_) = world
        .laptop
        .ask(world.laptop.pull_from(seq(1), Some((ROOT, seq(u64::MAX)))))
    else {
        panic!()
    };
}

#[test]
fn a_settled_conflict_is_shown_to_nobody() {
    let mut world = World::new();
    world.laptop.file(ROOT, "a", b"1");
    world.desk.file(ROOT, "a", b"2");
    world.desk.file(ROOT, "a", b"3");
    let notes = world.laptop.conflicts();
    let [first, second] = &notes[..] else {
        panic!()
    };
    assert_eq!(
        world
            .desk
            .ask(ClientRequest::Resolve { conflict: first.id }),
        ServerReply::Done
    );
    assert_eq!(
        world
            .desk
            .ask(ClientRequest::Resolve { conflict: first.id }),
        ServerReply::Done
    );
    assert_eq!(world.laptop.conflicts(), std::slice::from_ref(second));
    let ServerReply::Conflicts(rest) = world
        .laptop
        .ask(ClientRequest::Conflicts { after: second.id })
    else {
        panic!()
    };
    assert_eq!(rest, []);
    // Both states stay.
    assert_eq!(world.laptop.names(ROOT).len(), 3);
}

#[test]
fn what_was_done_is_counted() {
    let mut world = World::new();
    world.laptop.file(ROOT, "a", b"12345");
    world.desk.file(ROOT, "a", b"2");
    world.laptop.read_named(ROOT, "a");
    world.laptop.refusal(ClientRequest::Look {
        objects: vec![ROOT; 9999],
    });
    let counts = world.server.counts();
    assert_eq!(
        (counts.commits, counts.ops, counts.conflicts, counts.refused),
        (2, 6, 1, 1)
    );
    assert_eq!((counts.received_bytes, counts.sent_bytes), (6, 5));
    let commits = teal_proto::REQUEST_KINDS
        .iter()
        .position(|kind| *kind == "commit")
        .unwrap();
    assert_eq!(counts.requests[commits], 2);
}

#[test]
fn many_devices_commit_and_read_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let stores = crate::fixture::Stores::sqlite(dir.path());
    let world = World::on(stores.clone());
    let enrol = |n: u64| {
        crate::fixture::Device::enrol(&world.server, &stores, world.volume, &format!("device {n}"))
    };
    let threads = (0..4_u64).map(|n| {
        let mut device = enrol(n);
        let work = move || {
            for file in 0..25 {
                let object = device.file(ROOT, &format!("{n} {file}"), &[7; 100]);
                assert_eq!(device.read(object), [7; 100]);
                device.pull();
            }
            assert_eq!(device.pull().acknowledged.get(), 25);
        };
        std::thread::Builder::new().spawn(work).unwrap()
    });
    threads
        .collect::<Vec<_>>()
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
    assert_eq!(
        (world.laptop.names(ROOT).len(), world.laptop.conflicts()),
        (100, vec![])
    );
    assert_eq!(world.laptop.ask_pull(seq(0), None).to, seq(101));
}
