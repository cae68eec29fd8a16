//! Names under conflict: removals, placements and moves of two devices that had not seen each
//! other's.

use crate::fixture::{ROOT, World, link};
use teal_proto::ConflictKind::{Move, Name, Removal};
use teal_types::{FileType, ObjectVersion, Op, ReplicatedAttributes, Timestamp};

on_both! {
    entries_of_two_devices_in_one_directory_commute
    a_removal_of_what_has_gone_is_nothing
    a_removal_of_a_name_that_leads_elsewhere_is_nothing
    a_file_changed_elsewhere_is_not_removed
    what_its_author_has_sent_himself_is_seen
    a_file_with_another_name_loses_one
    a_file_changed_under_another_name_keeps_its_last_one
    a_directory_that_another_put_something_into_stays
    a_tree_is_removed_in_any_order
    a_tree_with_a_changed_file_stays_as_far_as_it_must
    the_later_of_two_files_of_one_name_gets_the_conflict_name
    conflict_names_are_unique
    a_file_placed_into_a_removed_directory_brings_it_back
    removed_directories_come_back_with_those_above_them
    a_removed_directory_whose_name_is_taken_comes_back_beside_it
    an_object_placed_after_its_removal_lives_again
    the_second_move_of_an_object_is_not_applied
    a_move_of_a_removed_object_brings_it_back
    a_directory_is_never_moved_into_itself
    a_move_onto_a_name_taken_elsewhere_gets_the_conflict_name
    a_replacing_rename_replaces
    a_replacing_rename_keeps_what_was_changed_elsewhere
    names_change_places_in_one_batch
    a_name_for_an_object_that_never_was_is_shown
}

fn entries_of_two_devices_in_one_directory_commute(mut world: World) {
    world.laptop.file(ROOT, "a", b"1");
    world.desk.file(ROOT, "b", b"2");
    assert_eq!(world.desk.names(ROOT), ["a", "b"]);
    assert_eq!(world.desk.conflicts(), []);
}

fn a_removal_of_what_has_gone_is_nothing(mut world: World) {
    let file = world.laptop.file(ROOT, "a", b"1");
    world.sync();
    for device in [&mut world.laptop, &mut world.desk] {
        let ops = [device.remove(file, link(ROOT, "a"))];
        device.commit(&ops);
    }
    assert_eq!(
        (world.desk.names(ROOT), world.desk.conflicts()),
        (vec![], vec![])
    );
}

fn a_removal_of_a_name_that_leads_elsewhere_is_nothing(mut world: World) {
    let file = world.laptop.file(ROOT, "a", b"1");
    world.sync();
    let ops = [world.laptop.rename(file, link(ROOT, "a"), link(ROOT, "b"))];
    world.laptop.commit(&ops);
    let other = world.laptop.file(ROOT, "a", b"2");
    let ops = [world.desk.remove(file, link(ROOT, "a"))];
    world.desk.commit(&ops);
    let list = world.desk.list(ROOT).unwrap();
    assert_eq!((list["a"].object, list["b"].object), (other, file));
    assert_eq!(world.desk.conflicts(), []);
}

fn a_file_changed_elsewhere_is_not_removed(mut world: World) {
    for change in ["content", "attributes", "xattr"] {
        let file = world.laptop.file(ROOT, change, b"1");
        world.sync();
        let op = match change {
            "content" => world.laptop.write(file, b"22"),
            "attributes" => world.laptop.chmod(file, 0o600),
            _ => world.laptop.xattr(file, "user.a", Some("1")),
        };
        world.laptop.commit(&[op]);
        let ops = [world.desk.remove(file, link(ROOT, change))];
        world.desk.commit(&ops);
        assert!(world.desk.look(file).is_some(), "{change}");
        // The author of the removal learns that it did not happen.
        let pulled = world.desk.pull();
        assert!(pulled.changes.iter().any(
            |c| matches!(c, teal_proto::PulledObject::Is { version, .. } if version.object == file)
        ));
    }
    assert_eq!(world.desk.conflict_kinds(), [Removal; 3]);
    assert_eq!(world.desk.conflicts()[0].path, "/content");
}

fn what_its_author_has_sent_himself_is_seen(mut world: World) {
    let file = world.laptop.file(ROOT, "a", b"1");
    world.sync();
    // The base stays where it was: of what was on its way when the next was done he had seen no
    // commit.
    let ops = [
        world.laptop.write(file, b"2"),
        world.laptop.chmod(file, 0o600),
    ];
    world.laptop.commit(&ops);
    let old = Timestamp::new(77, 7);
    let attributes = ReplicatedAttributes {
        mtime: old,
        ..world.laptop.attributes(0o640)
    };
    let ops = [
        Op::SetAttributes {
            object: file,
            base: world.laptop.base,
            attributes,
        },
        world.laptop.xattr(file, "user.a", Some("1")),
        world.laptop.rename(file, link(ROOT, "a"), link(ROOT, "b")),
    ];
    world.laptop.commit(&ops);
    let ObjectVersion { attributes, .. } = world.desk.look(file).unwrap();
    assert_eq!((attributes.perm, attributes.mtime), (0o640, old));
    let ops = [
        world.laptop.xattr(file, "user.a", Some("2")),
        world.laptop.remove(file, link(ROOT, "b")),
    ];
    world.laptop.commit(&ops[..1]);
    world.laptop.commit(&ops[1..]);
    assert_eq!(
        (world.desk.look(file), world.desk.conflicts()),
        (None, vec![])
    );
    // In another life it has not.
    let file = world.laptop.file(ROOT, "a", b"1");
    world.laptop.incarnate();
    let ops = [world.laptop.remove(file, link(ROOT, "a"))];
    world.laptop.commit(&ops);
    assert_eq!(world.desk.conflict_kinds(), [Removal]);
}

fn a_file_with_another_name_loses_one(mut world: World) {
    let file = world.laptop.file(ROOT, "a", b"1");
    let ops = [world.laptop.place(file, link(ROOT, "b"))];
    world.laptop.commit(&ops);
    world.sync();
    let ops = [world.laptop.write(file, b"2")];
    world.laptop.commit(&ops);
    let ops = [world.desk.remove(file, link(ROOT, "a"))];
    world.desk.commit(&ops);
    assert_eq!(world.desk.names(ROOT), ["b"]);
    assert_eq!(world.desk.conflicts(), []);
}

fn a_file_changed_under_another_name_keeps_its_last_one(mut world: World) {
    let file = world.laptop.file(ROOT, "a", b"1");
    let ops = [world.laptop.place(file, link(ROOT, "b"))];
    world.laptop.commit(&ops);
    world.sync();
    let ops = [world.laptop.remove(file, link(ROOT, "b"))];
    world.laptop.commit(&ops);
    // The desk has removed one name, and written to the file under the other.
    let ops = [
        world.desk.remove(file, link(ROOT, "a")),
        world.desk.write(file, b"2"),
    ];
    world.desk.commit(&ops);
    assert_eq!(world.desk.read_named(ROOT, "a"), b"2");
    assert_eq!(world.desk.conflict_kinds(), [Removal]);
}

fn a_directory_that_another_put_something_into_stays(mut world: World) {
    let dir = world.laptop.dir(ROOT, "d");
    world.sync();
    world.laptop.file(dir, "f", b"1");
    let ops = [world.desk.remove(dir, link(ROOT, "d"))];
    world.desk.commit(&ops);
    assert_eq!(world.desk.names(ROOT), ["d"]);
    assert_eq!(world.desk.names(dir), ["f"]);
    assert_eq!(world.desk.conflict_kinds(), [Removal]);
}

fn a_tree_is_removed_in_any_order(mut world: World) {
    for is_upside_down in [false, true] {
        let outer = world.laptop.dir(ROOT, "outer");
        let inner = world.laptop.dir(outer, "inner");
        let file = world.laptop.file(inner, "f", b"1");
        let moved = world.laptop.file(inner, "g", b"1");
        world.sync();
        let mut ops = vec![
            world.desk.remove(file, link(inner, "f")),
            world.desk.rename(moved, link(inner, "g"), link(ROOT, "g")),
            world.desk.remove(inner, link(outer, "inner")),
            world.desk.remove(outer, link(ROOT, "outer")),
        ];
        if is_upside_down {
            ops.reverse();
        }
        world.desk.commit(&ops);
        assert_eq!(
            (world.desk.names(ROOT), world.desk.conflicts()),
            (vec!["g".to_owned()], vec![])
        );
        assert!(
            [outer, inner, file]
                .iter()
                .all(|object| world.desk.look(*object).is_none())
        );
        world.sync();
        let ops = [world.desk.remove(moved, link(ROOT, "g"))];
        world.desk.commit(&ops);
        world.sync();
    }
}

fn a_tree_with_a_changed_file_stays_as_far_as_it_must(mut world: World) {
    let outer = world.laptop.dir(ROOT, "outer");
    let [empty, full] = ["empty", "full"].map(|name| world.laptop.dir(outer, name));
    let [kept, lost] = ["kept", "lost"].map(|name| world.laptop.file(full, name, b"1"));
    world.sync();
    let ops = [world.laptop.write(kept, b"2")];
    world.laptop.commit(&ops);
    let ops = [
        world.desk.remove(outer, link(ROOT, "outer")),
        world.desk.remove(empty, link(outer, "empty")),
        world.desk.remove(full, link(outer, "full")),
        world.desk.remove(kept, link(full, "kept")),
        world.desk.remove(lost, link(full, "lost")),
    ];
    world.desk.commit(&ops);
    assert_eq!(
        (
            world.desk.names(ROOT),
            world.desk.names(outer),
            world.desk.names(full)
        ),
        (
            vec!["outer".to_owned()],
            vec!["full".to_owned()],
            vec!["kept".to_owned()]
        )
    );
    assert_eq!(world.desk.conflict_kinds(), [Removal; 3]);
}

fn the_later_of_two_files_of_one_name_gets_the_conflict_name(mut world: World) {
    let first = world.laptop.file(ROOT, "a.txt", b"1");
    let second = world.desk.file(ROOT, "a.txt", b"2");
    let list = world.desk.list(ROOT).unwrap();
    assert_eq!(list["a.txt"].object, first);
    assert_eq!(list["a (conflict desk 2026-11-22).txt"].object, second);
    let note = &world.desk.conflicts()[0];
    assert_eq!(
        (note.kind, note.object, note.copy, &note.device[..]),
        (Name, first, Some(second), "desk")
    );
    assert_eq!(
        (&note.path[..], &note.copy_path[..]),
        ("/a.txt", "/a (conflict desk 2026-11-22).txt")
    );
}

fn conflict_names_are_unique(mut world: World) {
    world.laptop.file(ROOT, "a", b"1");
    world.desk.file(ROOT, "a", b"2");
    world.desk.file(ROOT, "a", b"3");
    let names = [
        "a",
        "a (conflict desk 2026-11-22)",
        "a (conflict desk 2026-11-22) 2",
    ];
    assert_eq!(world.desk.names(ROOT), names);
}

fn a_file_placed_into_a_removed_directory_brings_it_back(mut world: World) {
    let dir = world.laptop.dir(ROOT, "d");
    world.sync();
    let ops = [world.laptop.remove(dir, link(ROOT, "d"))];
    world.laptop.commit(&ops);
    world.desk.file(dir, "f", b"1");
    assert_eq!(world.desk.names(ROOT), ["d"]);
    assert_eq!(world.desk.list(ROOT).unwrap()["d"].object, dir);
    assert_eq!(world.desk.read_named(dir, "f"), b"1");
    assert_eq!(world.desk.conflict_kinds(), [Removal]);
}

fn removed_directories_come_back_with_those_above_them(mut world: World) {
    let a = world.laptop.dir(ROOT, "a");
    let b = world.laptop.dir(a, "b");
    let c = world.laptop.dir(b, "c");
    world.sync();
    let ops = [
        world.laptop.remove(c, link(b, "c")),
        world.laptop.remove(b, link(a, "b")),
        world.laptop.remove(a, link(ROOT, "a")),
    ];
    world.laptop.commit(&ops);
    let file = world.desk.file(c, "f", b"1");
    assert_eq!(world.desk.look(file).unwrap().links, [link(c, "f")]);
    assert_eq!(world.desk.look(c).unwrap().links, [link(b, "c")]);
    assert_eq!(world.desk.look(b).unwrap().links, [link(a, "b")]);
    assert_eq!(world.desk.look(a).unwrap().links, [link(ROOT, "a")]);
    assert_eq!(world.desk.conflict_kinds(), [Removal; 3]);
}

fn a_removed_directory_whose_name_is_taken_comes_back_beside_it(mut world: World) {
    let dir = world.laptop.dir(ROOT, "d");
    world.sync();
    let ops = [world.laptop.remove(dir, link(ROOT, "d"))];
    world.laptop.commit(&ops);
    world.laptop.file(ROOT, "d", b"now a file");
    world.desk.file(dir, "f", b"1");
    assert_eq!(
        world.desk.names(ROOT),
        ["d", "d (conflict desk 2026-11-22)"]
    );
    assert_eq!(
        world.desk.list(ROOT).unwrap()["d (conflict desk 2026-11-22)"].object,
        dir
    );
}

fn an_object_placed_after_its_removal_lives_again(mut world: World) {
    let file = world.laptop.file(ROOT, "a", b"content");
    let ops = [world.laptop.xattr(file, "user.a", Some("1"))];
    world.laptop.commit(&ops);
    world.sync();
    let ops = [world.laptop.remove(file, link(ROOT, "a"))];
    world.laptop.commit(&ops);
    let ops = [world.desk.place(file, link(ROOT, "b"))];
    world.desk.commit(&ops);
    assert_eq!(world.desk.names(ROOT), ["b"]);
    assert_eq!(world.desk.read(file), b"content");
    assert_eq!(
        world.desk.look(file).unwrap().xattrs,
        [(b"user.a".to_vec(), b"1".to_vec())]
    );
    assert_eq!(world.desk.conflict_kinds(), [Removal]);
}

fn the_second_move_of_an_object_is_not_applied(mut world: World) {
    let file = world.laptop.file(ROOT, "a", b"1");
    world.sync();
    for (device, to) in [(&mut world.laptop, "b"), (&mut world.desk, "c")] {
        let ops = [device.rename(file, link(ROOT, "a"), link(ROOT, to))];
        device.commit(&ops);
    }
    assert_eq!(world.desk.names(ROOT), ["b"]);
    assert_eq!(world.desk.conflict_kinds(), [Move]);
}

fn a_move_of_a_removed_object_brings_it_back(mut world: World) {
    let file = world.laptop.file(ROOT, "a", b"1");
    world.sync();
    let ops = [world.laptop.remove(file, link(ROOT, "a"))];
    world.laptop.commit(&ops);
    let ops = [world.desk.rename(file, link(ROOT, "a"), link(ROOT, "b"))];
    world.desk.commit(&ops);
    assert_eq!(world.desk.names(ROOT), ["b"]);
    assert_eq!(world.desk.read(file), b"1");
    assert_eq!(world.desk.conflict_kinds(), [Removal]);
}

fn a_directory_is_never_moved_into_itself(mut world: World) {
    let [a, b] = ["a", "b"].map(|name| world.laptop.dir(ROOT, name));
    world.sync();
    let ops = [world.laptop.rename(a, link(ROOT, "a"), link(b, "a"))];
    world.laptop.commit(&ops);
    let ops = [world.desk.rename(b, link(ROOT, "b"), link(a, "b"))];
    world.desk.commit(&ops);
    assert_eq!(
        (world.desk.names(ROOT), world.desk.names(b)),
        (vec!["b".to_owned()], vec!["a".to_owned()])
    );
    assert_eq!(world.desk.names(a), [""; 0]);
    assert_eq!(world.desk.conflict_kinds(), [Move]);
    // Not even by placing it.
    world.sync();
    let ops = [world.desk.rename(b, link(ROOT, "b"), link(b, "b"))];
    world.desk.commit(&ops);
    assert_eq!(world.desk.names(ROOT), ["b"]);
}

fn a_move_onto_a_name_taken_elsewhere_gets_the_conflict_name(mut world: World) {
    let file = world.laptop.file(ROOT, "a", b"1");
    world.sync();
    world.laptop.file(ROOT, "b", b"2");
    let ops = [world.desk.rename(file, link(ROOT, "a"), link(ROOT, "b"))];
    world.desk.commit(&ops);
    assert_eq!(
        world.desk.names(ROOT),
        ["b", "b (conflict desk 2026-11-22)"]
    );
    assert_eq!(world.desk.conflict_kinds(), [Name]);
}

fn a_replacing_rename_replaces(mut world: World) {
    let old = world.laptop.file(ROOT, "a", b"1");
    let new = world.laptop.file(ROOT, "a.tmp", b"2");
    world.sync();
    let ops = [
        world.desk.remove(old, link(ROOT, "a")),
        world.desk.rename(new, link(ROOT, "a.tmp"), link(ROOT, "a")),
    ];
    world.desk.commit(&ops);
    assert_eq!(world.desk.names(ROOT), ["a"]);
    assert_eq!(
        (world.desk.read_named(ROOT, "a"), world.desk.conflicts()),
        (b"2".to_vec(), vec![])
    );
}

fn a_replacing_rename_keeps_what_was_changed_elsewhere(mut world: World) {
    let old = world.laptop.file(ROOT, "a", b"1");
    world.sync();
    let ops = [world.laptop.write(old, b"changed")];
    world.laptop.commit(&ops);
    let new = world.desk.number();
    let ops = [
        world.desk.create(new, FileType::File),
        world.desk.remove(old, link(ROOT, "a")),
        world.desk.place(new, link(ROOT, "a")),
        world.desk.write(new, b"new"),
    ];
    world.desk.commit(&ops);
    assert_eq!(world.desk.read_named(ROOT, "a"), b"changed");
    assert_eq!(
        world.desk.read_named(ROOT, "a (conflict desk 2026-11-22)"),
        b"new"
    );
    assert_eq!(world.desk.conflict_kinds(), [Removal, Name]);
}

fn names_change_places_in_one_batch(mut world: World) {
    let [a, b] = ["a", "b"].map(|name| world.laptop.dir(ROOT, name));
    world.sync();
    let ops = [
        world.desk.rename(a, link(ROOT, "a"), link(ROOT, "b")),
        world.desk.rename(b, link(ROOT, "b"), link(ROOT, "a")),
    ];
    world.desk.commit(&ops);
    let list = world.desk.list(ROOT).unwrap();
    assert_eq!((list["a"].object, list["b"].object), (b, a));
    assert_eq!(world.desk.conflicts(), []);
}

fn a_name_for_an_object_that_never_was_is_shown(mut world: World) {
    let nobody = world.laptop.number();
    let ops = [
        world.laptop.place(nobody, link(ROOT, "a")),
        world.laptop.chmod(nobody, 0o600),
        world.laptop.write(nobody, b"x"),
        world.laptop.xattr(nobody, "user.a", None),
    ];
    world.laptop.commit(&ops);
    assert_eq!(
        (world.laptop.names(ROOT), world.laptop.look(nobody)),
        (vec![], None)
    );
    assert_eq!(world.laptop.conflict_kinds(), [Removal; 4]);
    let pulled = world.laptop.pull();
    assert_eq!(pulled.changes, []);
}
