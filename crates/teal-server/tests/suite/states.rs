//! Attributes, extended attributes and content under conflict.

use crate::fixture::{ROOT, World, link};
use teal_proto::ConflictKind::{Attributes, Content, Removal, Xattr};
use teal_proto::{PulledObject, RefusalCode};
use teal_types::{ContentChange, ContentPiece, FileType, LEASE, ObjectNo, Op, PieceSource};

on_both! {
    the_first_to_set_attributes_wins
    the_same_attributes_are_no_conflict
    attributes_and_content_do_not_conflict
    a_directory_has_the_time_of_its_newest_entry_and_no_conflict_from_it
    a_directory_has_the_time_it_was_given_by_who_had_seen_its_entries
    extended_attributes_conflict_by_name
    a_removed_extended_attribute_conflicts_too
    the_later_content_is_a_file_beside
    all_late_changes_of_a_batch_are_in_one_copy
    a_copy_is_what_its_author_had_seen_and_changed
    a_write_to_a_removed_file_brings_it_back
    a_late_write_to_a_changed_and_removed_file_is_a_copy
    attributes_of_a_removed_file_bring_it_back
    two_changes_of_one_batch_do_not_conflict
    content_is_cut_and_grows_with_zeros
    a_created_number_of_another_device_is_refused
    creating_twice_is_nothing
    chunks_that_are_not_there_are_asked_for
}

fn the_first_to_set_attributes_wins(mut world: World) {
    let file = world.laptop.file(ROOT, "a", b"1");
    world.sync();
    for (device, perm) in [(&mut world.laptop, 0o600), (&mut world.desk, 0o640)] {
        let ops = [device.chmod(file, perm)];
        device.commit(&ops);
    }
    assert_eq!(world.desk.look(file).unwrap().attributes.perm, 0o600);
    let notes = world.desk.conflicts();
    assert_eq!((notes.len(), notes[0].kind), (1, Attributes));
    assert!(notes[0].lost.contains("640"), "{}", notes[0].lost);
}

fn the_same_attributes_are_no_conflict(mut world: World) {
    let file = world.laptop.file(ROOT, "a", b"1");
    world.sync();
    let mut same = world.laptop.attributes(0o600);
    for device in [&mut world.laptop, &mut world.desk] {
        same.ctime = device.now();
        let op = Op::SetAttributes {
            object: file,
            base: device.base,
            attributes: same,
        };
        device.commit(&[op]);
    }
    assert_eq!(world.desk.conflicts(), []);
}

fn attributes_and_content_do_not_conflict(mut world: World) {
    let file = world.laptop.file(ROOT, "a", b"1");
    world.sync();
    world.laptop.time = 5_000;
    let ops = [world.laptop.write(file, b"new")];
    world.laptop.commit(&ops);
    let ops = [world.desk.chmod(file, 0o600)];
    world.desk.commit(&ops);
    let version = world.desk.look(file).unwrap();
    assert_eq!(
        (version.attributes.perm, world.desk.read(file)),
        (0o600, b"new".to_vec())
    );
    assert!(
        version.attributes.mtime.secs > 5_000,
        "the time of the content stays"
    );
    assert_eq!(world.desk.conflicts(), []);
}

fn a_directory_has_the_time_of_its_newest_entry_and_no_conflict_from_it(mut world: World) {
    let dir = world.laptop.dir(ROOT, "d");
    world.sync();
    world.laptop.time = 9_000;
    world.laptop.file(dir, "new", b"1");
    world.desk.file(dir, "old", b"1");
    let mtime = world.desk.look(dir).unwrap().attributes.mtime;
    assert!(mtime.secs > 9_000);
    let ops = [world.desk.chmod(dir, 0o700)];
    world.desk.commit(&ops);
    let attributes = world.desk.look(dir).unwrap().attributes;
    assert_eq!((attributes.mtime, attributes.perm), (mtime, 0o700));
    assert_eq!(world.desk.conflicts(), []);
}

fn a_directory_has_the_time_it_was_given_by_who_had_seen_its_entries(mut world: World) {
    world.laptop.time = 9_000;
    let dir = world.laptop.dir(ROOT, "unpacked");
    world.sync();
    world.laptop.file(dir, "file", b"1");
    let unpacked = |device: &mut crate::fixture::Device| {
        let mtime = teal_types::Timestamp::new(77, 7);
        let attributes = teal_types::ReplicatedAttributes {
            mtime,
            ..device.attributes(0o755)
        };
        Op::SetAttributes {
            object: dir,
            base: device.base,
            attributes,
        }
    };
    // The author's own entries, of batches that it has not seen acknowledged yet, are no other
    // author's.
    let op = unpacked(&mut world.laptop);
    world.laptop.commit(&[op]);
    world.sync();
    assert_eq!(world.desk.look(dir).unwrap().attributes.mtime.secs, 77);
    world.desk.time = 10_000;
    world.desk.file(dir, "other", b"1");
    let op = unpacked(&mut world.laptop);
    world.laptop.commit(&[op]);
    assert!(
        world.desk.look(dir).unwrap().attributes.mtime.secs > 9_000,
        "the other's entry is newer"
    );
}

fn extended_attributes_conflict_by_name(mut world: World) {
    let file = world.laptop.file(ROOT, "a", b"1");
    world.sync();
    let ops = [
        world.laptop.xattr(file, "user.x", Some("1")),
        world.laptop.xattr(file, "user.y", Some("1")),
    ];
    world.laptop.commit(&ops);
    let ops = ["user.x", "user.y", "user.z"].map(|name| {
        world
            .desk
            .xattr(file, name, Some(if name == "user.y" { "1" } else { "2" }))
    });
    world.desk.commit(&ops);
    let xattrs = world.desk.look(file).unwrap().xattrs;
    let wanted = [("user.x", "1"), ("user.y", "1"), ("user.z", "2")];
    assert_eq!(
        xattrs,
        wanted.map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec()))
    );
    let notes = world.desk.conflicts();
    assert_eq!(
        (notes.len(), notes[0].kind, &notes[0].lost[..]),
        (1, Xattr, "extended attribute user.x = 2")
    );
}

fn a_removed_extended_attribute_conflicts_too(mut world: World) {
    let file = world.laptop.file(ROOT, "a", b"1");
    let ops = [world.laptop.xattr(file, "user.x", Some("1"))];
    world.laptop.commit(&ops);
    world.sync();
    let ops = [world.laptop.xattr(file, "user.x", None)];
    world.laptop.commit(&ops);
    let ops = [world.desk.xattr(file, "user.x", Some("2"))];
    world.desk.commit(&ops);
    assert_eq!(
        (
            world.desk.look(file).unwrap().xattrs,
            world.desk.conflict_kinds()
        ),
        (vec![], vec![Xattr])
    );
}

fn the_later_content_is_a_file_beside(mut world: World) {
    let dir = world.laptop.dir(ROOT, "d");
    let file = world.laptop.file(dir, "report.txt", b"draft");
    world.sync();
    let ops = [world.laptop.write(file, b"from the laptop")];
    world.laptop.commit(&ops);
    let ops = [
        world.desk.chmod(file, 0o600),
        world.desk.write(file, b"from the desk"),
    ];
    world.desk.commit(&ops);
    assert_eq!(world.desk.read(file), b"from the laptop");
    let copy = world.desk.list(dir).unwrap()["report (conflict desk 2026-11-22).txt"].clone();
    assert_eq!(
        (world.desk.read(copy.object), copy.attributes.perm),
        (b"from the desk".to_vec(), 0o600)
    );
    let note = &world.desk.conflicts()[0];
    assert_eq!(
        (note.kind, note.object, note.copy),
        (Content, file, Some(copy.object))
    );
    assert_eq!(note.copy_path, "/d/report (conflict desk 2026-11-22).txt");
    // The author has its own content under the old name: all of it is to be fetched again.
    let changes = world.desk.pull().changes;
    assert!(changes.iter().any(
        |c| matches!(c, PulledObject::Is { version, ranges: None } if version.object == file)
    ));
    assert!(copy.object.get() >= LEASE, "not a number of anybody's");
}

fn all_late_changes_of_a_batch_are_in_one_copy(mut world: World) {
    let file = world.laptop.file(ROOT, "a", b"0123456789");
    world.sync();
    let ops = [world.laptop.write(file, b"other")];
    world.laptop.commit(&ops);
    let ops = [
        world.desk.overwrite(file, 10, 0, b"AB"),
        world.desk.overwrite(file, 10, 8, b"YZ"),
    ];
    world.desk.commit(&ops);
    assert_eq!(
        world.desk.names(ROOT),
        ["a", "a (conflict desk 2026-11-22)"]
    );
    assert_eq!(
        world.desk.read_named(ROOT, "a (conflict desk 2026-11-22)"),
        b"AB234567YZ"
    );
    assert_eq!(world.desk.conflict_kinds(), [Content]);
}

fn a_copy_is_what_its_author_had_seen_and_changed(mut world: World) {
    let file = world.laptop.file(ROOT, "a", b"0123456789");
    let ops = [world.laptop.xattr(file, "user.a", Some("1"))];
    world.laptop.commit(&ops);
    world.sync();
    for content in [&b"zzz"[..], b"much longer than it was before"] {
        let ops = [world.laptop.write(file, content)];
        world.laptop.commit(&ops);
        world.laptop.pull();
    }
    let ops = [world.desk.overwrite(file, 10, 3, b"XX")];
    world.desk.commit(&ops);
    let copy = world.desk.list(ROOT).unwrap()["a (conflict desk 2026-11-22)"].clone();
    assert_eq!(
        (world.desk.read(copy.object), copy.xattrs.len()),
        (b"012XX56789".to_vec(), 1)
    );
    // The copy has a history like any file.
    world.sync();
    let before = world.desk.base;
    let ops = [world.desk.write(copy.object, b"merged")];
    world.desk.commit(&ops);
    assert_eq!(
        world.desk.past(copy.object, before).unwrap().1,
        b"012XX56789"
    );
    assert_eq!(world.desk.read(copy.object), b"merged");
}

fn a_write_to_a_removed_file_brings_it_back(mut world: World) {
    let dir = world.laptop.dir(ROOT, "d");
    let file = world.laptop.file(dir, "a", b"0123");
    world.sync();
    let ops = [
        world.laptop.remove(file, link(dir, "a")),
        world.laptop.remove(dir, link(ROOT, "d")),
    ];
    world.laptop.commit(&ops);
    let ops = [world.desk.overwrite(file, 4, 1, b"X")];
    world.desk.commit(&ops);
    assert_eq!(world.desk.look(file).unwrap().links, [link(dir, "a")]);
    assert_eq!(
        (world.desk.names(ROOT), world.desk.read(file)),
        (vec!["d".to_owned()], b"0X23".to_vec())
    );
    assert_eq!(world.desk.conflict_kinds(), [Removal, Removal]);
    let changes = world.laptop.pull().changes;
    assert!(changes.iter().any(
        |c| matches!(c, PulledObject::Is { version, ranges: None } if version.object == file)
    ));
}

fn a_late_write_to_a_changed_and_removed_file_is_a_copy(mut world: World) {
    let file = world.laptop.file(ROOT, "a", b"0123");
    world.sync();
    let ops = [world.laptop.write(file, b"other")];
    world.laptop.commit(&ops);
    world.laptop.pull();
    let ops = [world.laptop.remove(file, link(ROOT, "a"))];
    world.laptop.commit(&ops);
    let ops = [world.desk.overwrite(file, 4, 1, b"X")];
    world.desk.commit(&ops);
    assert_eq!(world.desk.read_named(ROOT, "a"), b"other");
    assert_eq!(
        world.desk.read_named(ROOT, "a (conflict desk 2026-11-22)"),
        b"0X23"
    );
    assert_eq!(world.desk.conflict_kinds(), [Removal, Content]);
}

fn attributes_of_a_removed_file_bring_it_back(mut world: World) {
    let file = world.laptop.file(ROOT, "a", b"0123");
    world.sync();
    let ops = [world.laptop.remove(file, link(ROOT, "a"))];
    world.laptop.commit(&ops);
    let ops = [world.desk.chmod(file, 0o600)];
    world.desk.commit(&ops);
    let version = world.desk.look(file).unwrap();
    assert_eq!(
        (version.attributes.perm, world.desk.read(file)),
        (0o600, b"0123".to_vec())
    );
    assert_eq!(world.desk.conflict_kinds(), [Removal]);
}

fn two_changes_of_one_batch_do_not_conflict(mut world: World) {
    let file = world.laptop.file(ROOT, "a", b"0123");
    world.sync();
    let ops = [
        world.desk.chmod(file, 0o600),
        world.desk.chmod(file, 0o640),
        world.desk.xattr(file, "user.a", Some("1")),
        world.desk.xattr(file, "user.a", Some("2")),
        world.desk.write(file, b"one"),
        world.desk.overwrite(file, 3, 0, b"O"),
    ];
    world.desk.commit(&ops);
    let version = world.desk.look(file).unwrap();
    assert_eq!(
        (
            version.attributes.perm,
            &version.xattrs[0].1[..],
            world.desk.read(file)
        ),
        (0o640, &b"2"[..], b"One".to_vec())
    );
    assert_eq!(world.desk.conflicts(), []);
}

fn content_is_cut_and_grows_with_zeros(mut world: World) {
    let file = world.laptop.file(ROOT, "a", b"0123456789");
    world.sync();
    let mtime = world.laptop.now();
    let hole = ContentPiece {
        offset: 1,
        len: 2,
        source: PieceSource::Hole,
    };
    let change = ContentChange {
        cut: 5,
        size: 8,
        mtime,
        pieces: vec![hole],
    };
    let op = Op::SetContent {
        object: file,
        base: world.laptop.base,
        change,
    };
    world.laptop.commit(&[op]);
    assert_eq!(world.laptop.read(file), b"0\0\x0034\0\0\0");
    let changes = world.desk.pull().changes;
    let ranges = changes.iter().find_map(|change| match change {
        PulledObject::Is { version, ranges } if version.object == file => Some(ranges.clone()),
        _ => None,
    });
    assert_eq!(ranges.unwrap(), Some(vec![(1, 2), (5, 5)]));
}

fn a_created_number_of_another_device_is_refused(mut world: World) {
    let theirs = world.desk.number();
    for object in [theirs, ObjectNo::new(20), ObjectNo::new(40 * LEASE)] {
        let ops = [
            world.laptop.create(object, FileType::File),
            world.laptop.place(object, link(ROOT, "a")),
        ];
        world.laptop.batch = world.laptop.batch.next();
        let teal_proto::ServerReply::Refused(refused) = world.laptop.send(world.laptop.batch, &ops)
        else {
            panic!()
        };
        assert_eq!(refused.code, RefusalCode::BadRequest);
    }
    assert_eq!(world.laptop.names(ROOT), [""; 0]);
}

fn creating_twice_is_nothing(mut world: World) {
    let file = world.laptop.file(ROOT, "a", b"1");
    let ops = [world.laptop.create(file, FileType::Dir)];
    world.laptop.commit(&ops);
    assert_eq!(world.laptop.look(file).unwrap().kind, FileType::File);
    assert_eq!(world.laptop.read(file), b"1");
}

fn chunks_that_are_not_there_are_asked_for(mut world: World) {
    let file = world.laptop.file(ROOT, "a", b"1");
    let id = world.laptop.domain.name_content(b"not sent");
    let piece = ContentPiece {
        offset: 0,
        len: 8,
        source: PieceSource::Chunk { id, offset: 0 },
    };
    let change = ContentChange {
        cut: 0,
        size: 8,
        mtime: world.laptop.now(),
        pieces: vec![piece],
    };
    let op = Op::SetContent {
        object: file,
        base: world.laptop.base,
        change,
    };
    let teal_proto::ServerReply::Refused(refused) = world
        .laptop
        .send(teal_types::BatchNo::new(2), std::slice::from_ref(&op))
    else {
        panic!()
    };
    assert_eq!(refused.code, RefusalCode::NeedsChunks);
    assert_eq!(world.laptop.read(file), b"1");
    world.laptop.put(b"not sent");
    world.laptop.pull();
    let teal_proto::ServerReply::Refused(_) =
        world.laptop.ask_commit(teal_types::BatchNo::new(2), &[])
    else {
        panic!("another digest")
    };
    let op = world.laptop.write(file, b"not sent");
    assert!(matches!(
        world.laptop.send(teal_types::BatchNo::new(2), &[op]),
        teal_proto::ServerReply::Committed { .. }
    ));
    assert_eq!(world.laptop.read(file), b"not sent");
}
