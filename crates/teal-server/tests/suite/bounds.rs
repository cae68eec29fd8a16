//! Changes of two devices that exceed a limit together, and the cost of a batch.

use crate::fixture::{Device, ROOT, World, link};
use teal_proto::ConflictKind::{Move, Xattr};
use teal_proto::RefusalCode;
use teal_testkit::Rng;
use teal_types::limits::{LINKS_MAX, NANOS_END, XATTRS_BYTES_MAX, xattr_bytes};
use teal_types::{BatchNo, FileType, HardLink, ObjectNo, Op, Timestamp};

on_both! {
    names_beyond_the_limit_are_conflicts_that_name_them
    extended_attributes_beyond_the_limit_are_conflicts_that_name_them
    a_time_that_is_none_is_refused
    nested_directories_take_steps_in_proportion_to_their_number
}

fn names_beyond_the_limit_are_conflicts_that_name_them(mut world: World) {
    let file = world.laptop.file(ROOT, "file", b"1");
    world.sync();
    let each = LINKS_MAX - 10;
    for (device, who) in [(&mut world.laptop, "laptop"), (&mut world.desk, "desk")] {
        let ops: Vec<Op> = (0..each)
            .map(|n| device.place(file, link(ROOT, &format!("{who}{n}"))))
            .collect();
        device.commit(&ops);
    }
    let version = world.desk.look(file).unwrap();
    assert_eq!(
        (version.links.len(), version.beyond_limits()),
        (LINKS_MAX, None)
    );
    let is_there = |name: String| version.links.contains(&link(ROOT, &name));
    assert!(
        (0..each).all(|n| is_there(format!("laptop{n}"))),
        "the first to commit keeps all its names"
    );
    let notes = world.desk.conflicts();
    assert!(notes.iter().all(|note| note.kind == Move
        && note.object == file
        && note.lost.contains("can have no more")));
    // Each name that is not there is in one of them; an answer has the first of them.
    let lost = (0..each)
        .map(|n| format!("desk{n}"))
        .filter(|name| !is_there(name.clone()));
    let named = lost
        .filter(|name| {
            notes
                .iter()
                .any(|note| note.lost.contains(&format!("the name {name}:")))
        })
        .count();
    assert_eq!((named, notes.len()), (notes.len(), 256));
    assert_eq!(
        world.server.counts().conflicts,
        (2 * each + 1 - LINKS_MAX) as u64
    );
}

fn extended_attributes_beyond_the_limit_are_conflicts_that_name_them(mut world: World) {
    let file = world.laptop.file(ROOT, "file", b"1");
    world.sync();
    let value = "v".repeat(50_000);
    for (device, who) in [(&mut world.laptop, "laptop"), (&mut world.desk, "desk")] {
        let ops = [0, 1].map(|n| device.xattr(file, &format!("user.{who}{n}"), Some(&value)));
        device.commit(&ops);
    }
    let version = world.desk.look(file).unwrap();
    assert_eq!((version.xattrs.len(), version.beyond_limits()), (2, None));
    let notes = world.desk.conflicts();
    assert_eq!(notes.len(), 2);
    for (note, name) in notes.iter().zip(["user.desk0", "user.desk1"]) {
        assert!(
            note.kind == Xattr && note.lost.contains(name) && note.lost.contains("131072 bytes"),
            "{}",
            note.lost
        );
    }
    // There is room for the last byte of a later commit, and not for one more: clients count alike.
    world.sync();
    let left = XATTRS_BYTES_MAX
        - 2 * xattr_bytes("user.laptop0".len(), value.len())
        - xattr_bytes("user.x".len(), 0);
    for (len, conflicts) in [(left + 1, 3), (left, 3)] {
        let ops = [world.desk.xattr(file, "user.x", Some(&"x".repeat(len)))];
        world.desk.commit(&ops);
        assert_eq!(world.desk.conflicts().len(), conflicts);
    }
    assert_eq!(world.desk.look(file).unwrap().xattrs.len(), 3);
}

fn a_time_that_is_none_is_refused(mut world: World) {
    let file = world.laptop.file(ROOT, "file", b"1");
    let never = Timestamp {
        secs: 1,
        nanos: NANOS_END,
    };
    let mut attributes = world.laptop.attributes(0o644);
    attributes.mtime = never;
    let base = world.laptop.base;
    let ops = [
        Op::SetAttributes {
            object: file,
            base,
            attributes,
        },
        Op::Place {
            object: file,
            base,
            link: link(ROOT, "b"),
            time: never,
        },
        Op::Remove {
            object: file,
            base,
            link: link(ROOT, "file"),
            time: never,
        },
    ];
    for op in ops {
        let stage = teal_proto::ClientRequest::Stage {
            incarnation: world.laptop.incarnation,
            batch: BatchNo::new(9),
            part: 0,
            ops: vec![op],
        };
        assert_eq!(world.laptop.refusal(stage), RefusalCode::BadRequest);
    }
}

/// Directories in one another, as operations.
fn nested(device: &mut Device, count: usize) -> (Vec<Op>, Vec<Op>) {
    let numbers: Vec<ObjectNo> = (0..count).map(|_| device.number()).collect();
    let creates = numbers
        .iter()
        .map(|no| device.create(*no, FileType::Dir))
        .collect();
    let above = std::iter::once(ROOT).chain(numbers.iter().copied());
    let links: Vec<(ObjectNo, HardLink)> = numbers
        .iter()
        .zip(above)
        .map(|(no, dir)| (*no, link(dir, "d")))
        .collect();
    let places = links
        .into_iter()
        .map(|(no, link)| device.place(no, link))
        .collect();
    (creates, places)
}

fn nested_directories_take_steps_in_proportion_to_their_number(mut world: World) {
    const COUNT: usize = 400;
    let mut climbed = 0;
    for order in 0..4 {
        let top = world.laptop.dir(ROOT, &format!("order {order}"));
        let (creates, mut places) = nested(&mut world.laptop, COUNT);
        let first = places[0].object();
        places[0] = world.laptop.place(first, link(top, "d"));
        match order {
            0 => {}
            1 => places.reverse(),
            2 => {
                let (odd, even): (Vec<_>, Vec<_>) = places
                    .into_iter()
                    .enumerate()
                    .partition(|(at, _)| at % 2 == 1);
                places = odd.into_iter().chain(even).map(|(_, op)| op).collect();
            }
            _ => {
                let mut rng = Rng::new(7);
                for at in (1..places.len()).rev() {
                    places.swap(at, rng.pick_index(at + 1));
                }
            }
        }
        world.laptop.commit(&[creates, places].concat());
        let now = world.server.counts().ancestor_steps;
        let steps = now - climbed;
        climbed = now;
        // Each walk on its own would be up to 400 long: 80,000 in all.
        assert!(
            steps <= 12 * COUNT as u64,
            "order {order}: {steps} steps for {COUNT} directories"
        );
        // They are where they belong.
        let (mut at, mut depth) = (top, 0);
        while let Some(version) = world.laptop.list(at).unwrap().remove("d") {
            (at, depth) = (version.object, depth + 1);
        }
        assert_eq!(depth, COUNT);
    }
}
