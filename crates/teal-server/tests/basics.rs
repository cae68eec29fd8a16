//! What every client does: say hello, send, pull, list and read.
#![allow(clippy::unwrap_used, reason = "tests panic where they fail")]

#[path = "kit/kit.rs"]
mod kit;

use kit::{ROOT, World, link, seq};
use teal_proto::{Change, RefusalCode, Reply, Request, Told};

#[test]
fn what_one_device_commits_another_sees() {
    let mut world = World::new();
    let dir = world.laptop.dir(ROOT, "docs");
    let file = world.laptop.file(dir, "a.txt", b"hello");
    let pulled = world.desk.pull();
    let changed = pulled.changes.iter().map(|change| match change {
        Change::Is { version, ranges } => (version.object, ranges.clone()),
        Change::Gone { object } => panic!("{object}"),
    });
    let changed: Vec<_> = changed.collect();
    assert_eq!(changed, [(ROOT, Some(vec![])), (dir, Some(vec![])), (file, Some(vec![(0, 5)]))]);
    assert_eq!(world.desk.names(dir), ["a.txt"]);
    assert_eq!(world.desk.read(file), b"hello");
    assert_eq!(world.desk.look(file).unwrap().links, [link(dir, "a.txt")]);
    assert_eq!(world.desk.conflicts(), []);
    assert_eq!(world.laptop.pull().acknowledged, 2);
    assert_eq!(world.laptop.hello().told, Told::Known);
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
    assert!(pulled.changes.contains(&Change::Gone { object: file }));
    assert_eq!((world.laptop.look(file), world.laptop.names(ROOT)), (None, vec![]));
    assert_eq!(world.laptop.conflicts(), []);
}

#[test]
fn a_revoked_device_is_denied() {
    let mut world = World::new();
    world.server.revoke(world.volume, world.laptop.peer.replica).unwrap();
    assert_eq!(world.laptop.refusal(Request::Bye), RefusalCode::Denied);
    world.desk.pull();
}

#[test]
fn a_pull_beyond_the_history_is_refused() {
    let world = World::new();
    let pull = Request::Pull { since: seq(99), after: None, wait_ms: 0 };
    assert_eq!(world.laptop.refusal(pull), RefusalCode::BadRequest);
    let Reply::Refused(_) =
        world.laptop.ask(Request::Pull { since: seq(1), after: Some((ROOT, seq(u64::MAX))), wait_ms: 0 })
    else {
        panic!()
    };
}
