//! Two devices append to one file, and neither has seen the other's: lines are put one behind the
//! other, anything else is a file beside.

use crate::fixture::{Device, ROOT, World, link};
use teal_proto::ConflictKind::Content;
use teal_proto::{RefusalCode, ServerReply};
use teal_types::{CommitSeq, ContentChange, ObjectNo, Op};

on_both! {
    lines_that_two_append_are_in_one_file_each_tail_a_run
    a_batch_that_comes_again_appends_nothing_again
    the_same_line_of_two_is_there_twice
    a_half_line_on_either_side_is_a_conflict
    binary_content_on_either_side_is_a_conflict
    what_was_rewritten_meanwhile_is_not_appended_to
    what_grew_by_an_ordinary_write_is_not_appended_to
    many_flushes_of_one_author_are_put_behind_the_others
    the_nearest_attribute_rules
    others_are_told_of_the_end_only
    a_tail_that_begins_before_its_end_makes_no_sense
    a_tail_for_what_was_saved_over_is_beside_it
}

const COPY: &str = "log (conflict desk 2026-11-22)";

/// Content behind what its author has seen, `start` bytes.
fn append_from(
    device: &mut Device,
    object: ObjectNo,
    base: CommitSeq,
    start: usize,
    content: &[u8],
) -> Op {
    let start = start as u64;
    let (size, pieces) = (
        start + content.len() as u64,
        vec![device.piece(start, content)],
    );
    Op::Append {
        object,
        base,
        change: ContentChange {
            cut: start,
            size,
            mtime: device.now(),
            pieces,
        },
    }
}

fn append(device: &mut Device, object: ObjectNo, start: usize, content: &[u8]) -> CommitSeq {
    let base = device.base;
    let op = append_from(device, object, base, start, content);
    device.commit(&[op])
}

fn log(world: &mut World, content: &[u8]) -> ObjectNo {
    let file = world.laptop.file(ROOT, "log", content);
    world.sync();
    file
}

/// Returns what is in the log, and in the copy if there is one.
fn found(world: &World) -> (Vec<u8>, Option<Vec<u8>>) {
    let is_copied = world.desk.names(ROOT).contains(&COPY.to_owned());
    (
        world.desk.read_named(ROOT, "log"),
        is_copied.then(|| world.desk.read_named(ROOT, COPY)),
    )
}

/// Both append to `base` without having seen the other: what becomes of it.
fn both(world: &mut World, base: &[u8], first: &[u8], later: &[u8]) -> (Vec<u8>, Option<Vec<u8>>) {
    let file = log(world, base);
    append(&mut world.laptop, file, base.len(), first);
    append(&mut world.desk, file, base.len(), later);
    found(world)
}

fn lines_that_two_append_are_in_one_file_each_tail_a_run(mut world: World) {
    let merged = both(&mut world, b"0\n", b"1\n2\n", b"a\nb\n");
    assert_eq!(
        (merged, world.desk.conflicts()),
        ((b"0\n1\n2\na\nb\n".to_vec(), None), vec![])
    );
}

fn a_batch_that_comes_again_appends_nothing_again(mut world: World) {
    let file = log(&mut world, b"0\n");
    append(&mut world.laptop, file, 2, b"1\n");
    let base = world.desk.base;
    let op = append_from(&mut world.desk, file, base, 2, b"a\n");
    let at = world.desk.commit(std::slice::from_ref(&op));
    for _ in 0..2 {
        let again = world
            .desk
            .ask_commit(world.desk.batch, std::slice::from_ref(&op));
        assert_eq!(again, ServerReply::Committed { seq: at });
    }
    assert_eq!(found(&world), (b"0\n1\na\n".to_vec(), None));
}

fn the_same_line_of_two_is_there_twice(mut world: World) {
    assert_eq!(
        both(&mut world, b"", b"tick\n", b"tick\n"),
        (b"tick\ntick\n".to_vec(), None)
    );
}

fn a_half_line_on_either_side_is_a_conflict(mut world: World) {
    for (base, first, later) in [
        ("0", "1\n", "a\n"),
        ("0\n", "1", "a\n"),
        ("0\n", "1\n", "a"),
    ] {
        let (base, first, later) = (base.as_bytes(), first.as_bytes(), later.as_bytes());
        let conflicts = world.desk.conflicts().len();
        let found = both(&mut world, base, first, later);
        assert_eq!(
            found,
            ([base, first].concat(), Some([base, later].concat()))
        );
        assert_eq!(world.desk.conflicts().len(), conflicts + 1);
        clear(&mut world);
    }
    assert_eq!(world.desk.conflict_kinds(), [Content; 3]);
}

fn binary_content_on_either_side_is_a_conflict(mut world: World) {
    for binary in [&b"\0\x01\n"[..], b"\xff\xfe\n"] {
        for (first, later) in [(binary, &b"a\n"[..]), (b"1\n", binary)] {
            let found = both(&mut world, b"0\n", first, later);
            assert_eq!(
                found,
                ([b"0\n", first].concat(), Some([b"0\n", later].concat()))
            );
            clear(&mut world);
        }
    }
}

/// The next case begins with an empty directory.
fn clear(world: &mut World) {
    let list = world.desk.list(ROOT).unwrap();
    world.sync();
    let ops: Vec<Op> = list
        .iter()
        .map(|(name, version)| world.laptop.remove(version.object, link(ROOT, name)))
        .collect();
    world.laptop.commit(&ops);
    world.sync();
    assert_eq!(world.desk.names(ROOT), [""; 0]);
}

fn what_was_rewritten_meanwhile_is_not_appended_to(mut world: World) {
    let file = log(&mut world, b"0\n1\n");
    let ops = [world.laptop.overwrite(file, 4, 0, b"x")];
    world.laptop.commit(&ops);
    world.laptop.pull();
    append(&mut world.laptop, file, 4, b"2\n");
    append(&mut world.desk, file, 4, b"a\n");
    assert_eq!(
        found(&world),
        (b"x\n1\n2\n".to_vec(), Some(b"0\n1\na\n".to_vec()))
    );
    // Seen, it is a base like any other.
    world.sync();
    append(&mut world.laptop, file, 6, b"3\n");
    append(&mut world.desk, file, 6, b"b\n");
    assert_eq!(world.desk.read_named(ROOT, "log"), b"x\n1\n2\n3\nb\n");
}

fn what_grew_by_an_ordinary_write_is_not_appended_to(mut world: World) {
    let file = log(&mut world, b"0\n");
    let piece = world.laptop.piece(2, b"1\n");
    let change = ContentChange {
        cut: 2,
        size: 4,
        mtime: world.laptop.now(),
        pieces: vec![piece],
    };
    let op = Op::SetContent {
        object: file,
        base: world.laptop.base,
        change,
    };
    world.laptop.commit(&[op]);
    append(&mut world.desk, file, 2, b"a\n");
    assert_eq!(
        found(&world),
        (b"0\n1\n".to_vec(), Some(b"0\na\n".to_vec()))
    );
}

fn many_flushes_of_one_author_are_put_behind_the_others(mut world: World) {
    let file = log(&mut world, b"0\n");
    for n in 0..50 {
        append(&mut world.laptop, file, 2 + 4 * n, b"1\n");
        world.laptop.pull();
        // The desk has seen nothing since; what it sent has landed behind.
        append(&mut world.desk, file, 2, b"a\n");
        world.laptop.pull();
        let size = world.laptop.look(file).unwrap().size;
        assert_eq!(size, 2 + 4 * (n as u64 + 1));
    }
    let content = world.desk.read_named(ROOT, "log");
    let count = |byte| content.iter().filter(|of| **of == byte).count();
    assert_eq!(
        (count(b'1'), count(b'a'), world.desk.conflicts().len()),
        (50, 50, 0)
    );
}

fn the_nearest_attribute_rules(mut world: World) {
    let attribute = "user.teal.merge-appends";
    let dir = world.laptop.dir(ROOT, "dir");
    let file = world.laptop.file(dir, "log", b"0");
    let set = |device: &mut Device, object, value| {
        let op = device.xattr(object, attribute, value);
        device.commit(&[op]);
    };
    set(&mut world.laptop, dir, Some("always"));
    world.sync();
    append(&mut world.laptop, file, 1, b"\0");
    append(&mut world.desk, file, 1, b"\xff");
    assert_eq!(world.desk.read_named(dir, "log"), b"0\0\xff");
    set(&mut world.laptop, file, Some("never"));
    world.sync();
    append(&mut world.laptop, file, 3, b"\n");
    append(&mut world.desk, file, 3, b"\n");
    assert_eq!(
        (
            world.desk.read_named(dir, COPY),
            world.desk.conflict_kinds()
        ),
        (b"0\0\xff\n".to_vec(), vec![Content])
    );
    // The rule passes over values of the attribute that it does not know.
    set(&mut world.laptop, file, Some("sometimes"));
    world.sync();
    append(&mut world.laptop, file, 4, b"1");
    append(&mut world.desk, file, 4, b"2");
    assert_eq!(world.desk.read_named(dir, "log"), b"0\0\xff\n12");
}

fn others_are_told_of_the_end_only(mut world: World) {
    let file = log(&mut world, b"0\n");
    append(&mut world.laptop, file, 2, b"1\n");
    world.laptop.pull();
    append(&mut world.desk, file, 2, b"a\n");
    let pulled = world.laptop.pull();
    let ranges = pulled.changes.iter().find_map(|change| match change {
        teal_proto::PulledObject::Is { version, ranges } if version.object == file => {
            Some(ranges.clone())
        }
        _ => None,
    });
    assert_eq!(ranges, Some(Some(vec![(4, 2)])));
}

fn a_tail_that_begins_before_its_end_makes_no_sense(mut world: World) {
    let file = log(&mut world, b"0\n");
    let piece = world.desk.piece(1, b"a\n");
    let change = ContentChange {
        cut: 2,
        size: 3,
        mtime: world.desk.now(),
        pieces: vec![piece],
    };
    let op = Op::Append {
        object: file,
        base: world.desk.base,
        change,
    };
    let refused = world.desk.stage(world.desk.batch.next(), 0, &[op]);
    assert!(
        matches!(refused, ServerReply::Refused(refused) if refused.code == RefusalCode::BadRequest)
    );
    // One that its author says to have seen more of than there was then is late content like any
    // other.
    append(&mut world.laptop, file, 2, b"1\n");
    append(&mut world.desk, file, 1, b"a\n");
    assert_eq!(world.desk.read_named(ROOT, "log"), b"0\n1\n");
}

fn a_tail_for_what_was_saved_over_is_beside_it(mut world: World) {
    let file = log(&mut world, b"0\n");
    let new = world.laptop.number();
    let laptop = &mut world.laptop;
    let ops = [
        laptop.create(new, teal_types::FileType::File),
        laptop.remove(file, link(ROOT, "log")),
        laptop.place(new, link(ROOT, "log")),
        laptop.write(new, b"saved\n"),
    ];
    laptop.commit(&ops);
    append(&mut world.desk, file, 2, b"a\n");
    assert_eq!(
        found(&world),
        (b"saved\n".to_vec(), Some(b"0\na\n".to_vec()))
    );
}
