//! A machine is told of what it can have, and of nothing else; and woken for nothing else.

use crate::fixture::{Device, ROOT, World, link};
use std::sync::Arc;
use teal_proto::{ClientRequest, PulledChanges, PulledObject, ServerReply};
use teal_types::{FileType, ObjectNo};

on_both! {
    what_lies_in_directories_that_nobody_listed_here_is_not_told
    what_moves_away_is_told_and_followed
    what_moves_in_is_told
    a_file_with_several_names_is_told_wherever_it_changes
    what_was_removed_is_told_to_whoever_had_it
    a_directory_that_was_made_here_is_kept
    a_machine_with_nothing_yet_is_told_what_it_keeps
    history_tells_what_is_not_remembered_any_more
    a_server_that_has_begun_anew_tells_everything_until_it_is_told
}

/// Says what it keeps.
fn keep(device: &mut Device, objects: &[ObjectNo]) {
    let ask = |filter, objects: &[ObjectNo], is_last| match device.ask(ClientRequest::Keep {
        filter,
        objects: objects.to_vec(),
        is_last,
    }) {
        ServerReply::Kept { filter } => filter,
        other => panic!("{other:?}"),
    };
    let filter = ask(0, &[], false);
    assert_eq!(ask(filter, objects, true), filter);
    device.filter = filter;
}

/// Sees everything; what it was told of.
fn told(device: &mut Device) -> Vec<ObjectNo> {
    let PulledChanges {
        changes, filter, ..
    } = device.pull();
    assert_eq!(filter, device.filter);
    let number = |change: &PulledObject| match change {
        PulledObject::Is { version, .. } => version.object,
        PulledObject::Gone { object } => *object,
    };
    changes.iter().map(number).collect()
}

/// Directories `a` and `b`, each with a file `x`; `desk` has listed the root and `a`.
fn two_dirs(world: &mut World) -> [ObjectNo; 4] {
    let [a, b] = ["a", "b"].map(|name| world.laptop.dir(ROOT, name));
    let files = [a, b].map(|dir| world.laptop.file(dir, "x", b"1"));
    world.sync();
    keep(&mut world.desk, &[]);
    world.desk.list(ROOT);
    world.desk.list(a);
    [a, b, files[0], files[1]]
}

fn change(world: &mut World, object: ObjectNo) {
    let ops = [world.laptop.write(object, b"changed")];
    world.laptop.commit(&ops);
    world.laptop.pull();
}

fn what_lies_in_directories_that_nobody_listed_here_is_not_told(mut world: World) {
    let [a, b, in_a, in_b] = two_dirs(&mut world);
    change(&mut world, in_b);
    assert_eq!(
        (told(&mut world.desk), world.desk.base),
        (vec![], world.laptop.base),
        "the position passes over it"
    );
    change(&mut world, in_a);
    assert_eq!(told(&mut world.desk), [in_a]);
    // The directory itself is an entry of the root: its times are told.
    world.laptop.file(b, "y", b"1");
    assert_eq!(told(&mut world.desk), [b]);
    // Now it lists it.
    world.desk.list(b);
    let more = world.laptop.file(b, "z", b"1");
    assert_eq!(told(&mut world.desk), [b, more]);
    change(&mut world, in_b);
    assert_eq!(told(&mut world.desk), [in_b]);
    assert_eq!(world.desk.list(a).unwrap().len(), 1);
}

fn what_moves_away_is_told_and_followed(mut world: World) {
    let [a, b, in_a, in_b] = two_dirs(&mut world);
    let ops = [world.laptop.rename(in_a, link(a, "x"), link(b, "from a"))];
    world.laptop.commit(&ops);
    world.laptop.pull();
    assert_eq!(told(&mut world.desk), [a, b, in_a]);
    change(&mut world, in_a);
    assert_eq!(
        told(&mut world.desk),
        [in_a],
        "it is known there, wherever it lies"
    );
    // From a directory that came in by that.
    let c = world.laptop.dir(ROOT, "c");
    let ops = [world.laptop.rename(in_b, link(b, "x"), link(c, "x"))];
    world.laptop.commit(&ops);
    world.laptop.pull();
    told(&mut world.desk);
    change(&mut world, in_b);
    assert_eq!(told(&mut world.desk), [in_b]);
}

fn what_moves_in_is_told(mut world: World) {
    let [a, b, _, in_b] = two_dirs(&mut world);
    let ops = [world.laptop.rename(in_b, link(b, "x"), link(a, "from b"))];
    world.laptop.commit(&ops);
    assert_eq!(told(&mut world.desk), [a, b, in_b]);
    // With a directory comes nothing of what is in it.
    world.laptop.pull();
    let inner = world.laptop.dir(b, "inner");
    let file = world.laptop.file(inner, "x", b"1");
    told(&mut world.desk);
    let ops = [world
        .laptop
        .rename(inner, link(b, "inner"), link(a, "inner"))];
    world.laptop.commit(&ops);
    world.laptop.pull();
    assert!(told(&mut world.desk).contains(&inner));
    change(&mut world, file);
    assert_eq!(told(&mut world.desk), []);
}

fn a_file_with_several_names_is_told_wherever_it_changes(mut world: World) {
    let [a, b, in_a, _] = two_dirs(&mut world);
    let c = world.laptop.dir(ROOT, "c");
    let ops = [world.laptop.place(in_a, link(c, "too"))];
    world.laptop.commit(&ops);
    world.sync();
    told(&mut world.desk);
    for gone in [link(a, "x"), link(c, "too")] {
        let ops = [
            world.laptop.place(in_a, link(b, "third")),
            world.laptop.remove(in_a, gone),
        ];
        world.laptop.commit(&ops);
        world.laptop.pull();
        assert!(told(&mut world.desk).contains(&in_a));
    }
    change(&mut world, in_a);
    assert_eq!(told(&mut world.desk), [in_a]);
}

fn what_was_removed_is_told_to_whoever_had_it(mut world: World) {
    let [a, b, in_a, in_b] = two_dirs(&mut world);
    for (dir, file) in [(a, in_a), (b, in_b)] {
        let ops = [world.laptop.remove(file, link(dir, "x"))];
        world.laptop.commit(&ops);
    }
    let pulled = world.desk.ask_pull(world.desk.base, None);
    assert!(
        pulled
            .changes
            .contains(&PulledObject::Gone { object: in_a })
    );
    assert!(
        !pulled
            .changes
            .contains(&PulledObject::Gone { object: in_b })
    );
}

fn a_directory_that_was_made_here_is_kept(mut world: World) {
    two_dirs(&mut world);
    let made = world.desk.dir(ROOT, "made");
    world.laptop.pull();
    let inside = world.laptop.file(made, "x", b"1");
    assert_eq!(told(&mut world.desk), [ROOT, made, inside]);
}

fn a_machine_with_nothing_yet_is_told_what_it_keeps(mut world: World) {
    let [a, _, in_a, _] = two_dirs(&mut world);
    let mut fresh = Device::enrol(&world.server, &world.stores, world.volume, "fresh");
    (fresh.base, fresh.digest) = (crate::fixture::seq(0), [0; 32]);
    keep(&mut fresh, &[]);
    let in_root: Vec<ObjectNo> = fresh
        .list(ROOT)
        .unwrap()
        .into_values()
        .map(|version| version.object)
        .collect();
    assert_eq!(told(&mut fresh), [vec![ROOT], in_root].concat());
    (fresh.base, fresh.digest) = (crate::fixture::seq(0), [0; 32]);
    fresh.list(a);
    assert!(told(&mut fresh).contains(&in_a));
}

fn history_tells_what_is_not_remembered_any_more(mut world: World) {
    let [a, b, in_a, in_b] = two_dirs(&mut world);
    let before = (world.desk.base, world.desk.digest);
    let ops = [world.laptop.rename(in_a, link(a, "x"), link(b, "from a"))];
    world.laptop.commit(&ops);
    world.laptop.pull();
    change(&mut world, in_b);
    let at_once = told(&mut world.desk);
    assert_eq!(at_once, [a, b, in_a]);
    // Repeats the pull with a filter that is younger than these commits.
    (world.desk.base, world.desk.digest) = before;
    let server = world.stores.open();
    for device in [&mut world.laptop, &mut world.desk] {
        device.server = Arc::clone(&server);
        device.hello();
    }
    keep(&mut world.desk, &[a]);
    assert_eq!(told(&mut world.desk), [a, b, in_a]);
    change(&mut world, in_a);
    assert_eq!(told(&mut world.desk), [in_a]);
}

fn a_server_that_has_begun_anew_tells_everything_until_it_is_told(mut world: World) {
    let [a, _, in_a, in_b] = two_dirs(&mut world);
    let server = world.stores.open();
    for device in [&mut world.laptop, &mut world.desk] {
        device.server = Arc::clone(&server);
        device.hello();
    }
    change(&mut world, in_b);
    let PulledChanges {
        changes, filter, ..
    } = world.desk.pull();
    assert!(filter == 0 && changes.len() == 1);
    let filter = world.desk.filter;
    let more = ClientRequest::Keep {
        filter,
        objects: vec![a],
        is_last: true,
    };
    assert_eq!(
        world.desk.ask(more),
        ServerReply::Kept { filter: 0 },
        "it is to say everything"
    );
    keep(&mut world.desk, &[a]);
    change(&mut world, in_b);
    change(&mut world, in_a);
    assert_eq!(told(&mut world.desk), [in_a]);
    world.desk.ask(ClientRequest::Bye);
    assert_eq!(world.desk.pull().filter, 0);
}

#[test]
fn a_filter_is_used_when_all_has_been_said_and_by_nobody_else() {
    let mut world = World::new();
    let [_, _, _, in_b] = two_dirs(&mut world);
    let ServerReply::Kept { filter } = world.desk.ask(ClientRequest::Keep {
        filter: 0,
        objects: vec![],
        is_last: false,
    }) else {
        panic!()
    };
    let of_desk = std::mem::replace(&mut world.desk.filter, filter);
    change(&mut world, in_b);
    let half = world.desk.ask_pull(world.desk.base, None);
    assert_eq!((half.filter, half.changes.len()), (0, 1));
    world.laptop.filter = of_desk;
    assert_eq!(world.laptop.pull().filter, 0);
}

#[test]
fn who_waits_is_woken_by_what_concerns_it_and_learns_the_rest_in_the_end() {
    let mut world = World::new();
    let [a, b, _, in_b] = two_dirs(&mut world);
    let wait = |world: &World, wait_ms| {
        let (server, peer, desk) = (Arc::clone(&world.server), world.desk.peer, &world.desk);
        let (incarnation, since, digest, filter) =
            (desk.incarnation, desk.base, desk.digest, desk.filter);
        let request = ClientRequest::Pull {
            incarnation,
            since,
            digest,
            filter,
            after: None,
            wait_ms,
        };
        std::thread::Builder::new()
            .spawn(move || server.handle(peer, request))
            .unwrap()
    };
    let waiting = wait(&world, 250_000);
    for _ in 0..50 {
        change(&mut world, in_b);
        world
            .laptop
            .file(b, &format!("{}", world.laptop.next), b"1");
    }
    assert!(!waiting.is_finished(), "nothing of that concerns it");
    let file = world.laptop.file(a, "y", b"1");
    let ServerReply::Pulled(pulled) = waiting.join().unwrap() else {
        panic!()
    };
    assert_eq!(
        (pulled.to, pulled.more),
        (world.desk.ask_pull(world.desk.base, None).to, None)
    );
    let told: Vec<ObjectNo> = pulled
        .changes
        .iter()
        .filter_map(|change| match change {
            PulledObject::Is { version, .. } => Some(version.object),
            PulledObject::Gone { .. } => None,
        })
        .collect();
    assert_eq!(told, [a, b, file]);
    // When nothing concerns it, the time it waits ends with how far history has come.
    world.sync();
    change(&mut world, in_b);
    let ServerReply::Pulled(pulled) = wait(&world, 1).join().unwrap() else {
        panic!()
    };
    assert_eq!((pulled.to, pulled.changes), (world.laptop.base, vec![]));
}

#[test]
fn what_nobody_waits_for_is_told_when_it_is_asked_for() {
    let mut world = World::new();
    let [_, b, ..] = two_dirs(&mut world);
    let made = world.laptop.number();
    let ops = [
        world.laptop.create(made, FileType::File),
        world.laptop.place(made, link(b, "new")),
    ];
    world.laptop.commit(&ops);
    let digest = world.desk.digest;
    let request = ClientRequest::Pull {
        incarnation: world.desk.incarnation,
        since: world.desk.base,
        digest,
        filter: world.desk.filter,
        after: None,
        wait_ms: 20,
    };
    // Only the times of a directory that it has not listed: it waits for as long as it may, and is
    // told then.
    let ServerReply::Pulled(pulled) = world.desk.ask(request) else {
        panic!()
    };
    assert!(
        matches!(&pulled.changes[..], [PulledObject::Is { version, .. }] if version.object == b)
    );
}
