//! A file that one device changes in place and another saves by renaming a new one over it.

use crate::fixture::{Device, ROOT, World, link};
use teal_proto::ConflictKind::{Content, Name, Removal};
use teal_types::{FileType, HardLink, Name as FileName, ObjectNo};

on_both! {
    a_change_of_a_file_that_was_saved_over_is_beside_what_replaced_it
    a_save_over_a_file_that_was_changed_is_beside_it
    a_chain_of_saves_is_followed_to_the_file_that_lives
    the_copy_is_where_the_saved_file_is_now
    a_name_in_the_root_for_want_of_a_better_one_is_not_taken_up
    the_copy_has_what_its_author_had_seen
    history_has_the_copy_as_its_author_had_seen_it
    content_of_what_its_author_has_saved_over_since_is_nothing
    what_was_saved_and_removed_leaves_the_change_under_its_name
}

const COPY: &str = "a (conflict desk 2026-11-22)";

/// Saves as editors do: a new file takes the name of the old one.
fn save(device: &mut Device, old: ObjectNo, at: &HardLink, content: &[u8]) -> ObjectNo {
    let new = device.number();
    let ops = [
        device.create(new, FileType::File),
        device.remove(old, at.clone()),
        device.place(new, at.clone()),
        device.write(new, content),
    ];
    device.commit(&ops);
    device.pull();
    new
}

/// Both devices have the file `a` in a directory.
fn shared(world: &mut World) -> (ObjectNo, ObjectNo) {
    let dir = world.laptop.dir(ROOT, "dir");
    let file = world.laptop.file(dir, "a", b"1");
    world.sync();
    (dir, file)
}

fn change(world: &mut World, file: ObjectNo) {
    let ops = [world.desk.write(file, b"changed")];
    world.desk.commit(&ops);
}

fn a_change_of_a_file_that_was_saved_over_is_beside_what_replaced_it(mut world: World) {
    let (dir, file) = shared(&mut world);
    let new = save(&mut world.laptop, file, &link(dir, "a"), b"saved");
    change(&mut world, file);
    assert_eq!(
        (world.desk.names(dir), world.desk.names(ROOT)),
        (vec!["a".into(), COPY.into()], vec!["dir".into()])
    );
    assert_eq!(world.desk.read_named(dir, "a"), b"saved");
    assert_eq!(world.desk.read_named(dir, COPY), b"changed");
    let note = &world.desk.conflicts()[..];
    assert_eq!((note.len(), note[0].kind), (1, Content));
    assert_eq!((note[0].object, note[0].path.as_str()), (new, "/dir/a"));
    assert_eq!(
        (note[0].copy, note[0].copy_path.clone()),
        (Some(file), format!("/dir/{COPY}"))
    );
}

fn a_save_over_a_file_that_was_changed_is_beside_it(mut world: World) {
    let (dir, file) = shared(&mut world);
    change(&mut world, file);
    let new = world.laptop.number();
    let ops = [
        world.laptop.create(new, FileType::File),
        world.laptop.remove(file, link(dir, "a")),
        world.laptop.place(new, link(dir, "a")),
        world.laptop.write(new, b"saved"),
    ];
    world.laptop.commit(&ops);
    let copy = "a (conflict laptop 2026-11-22)";
    assert_eq!(
        (world.desk.names(dir), world.desk.names(ROOT)),
        (vec!["a".into(), copy.into()], vec!["dir".into()])
    );
    assert_eq!(
        (
            world.desk.read_named(dir, "a"),
            world.desk.read_named(dir, copy)
        ),
        (b"changed".to_vec(), b"saved".to_vec())
    );
    assert_eq!(world.desk.conflict_kinds(), [Removal, Name]);
    let note = &world.desk.conflicts()[1];
    assert_eq!(
        (note.path.as_str(), note.copy_path.clone()),
        ("/dir/a", format!("/dir/{copy}"))
    );
}

fn a_chain_of_saves_is_followed_to_the_file_that_lives(mut world: World) {
    let (dir, file) = shared(&mut world);
    let mut newest = file;
    for n in 0..5_u8 {
        newest = save(&mut world.laptop, newest, &link(dir, "a"), &[b's', n]);
    }
    change(&mut world, file);
    assert_eq!(world.desk.read_named(dir, "a"), [b's', 4]);
    assert_eq!(world.desk.read_named(dir, COPY), b"changed");
    assert_eq!(world.desk.conflicts()[0].object, newest);
}

fn the_copy_is_where_the_saved_file_is_now(mut world: World) {
    let (dir, file) = shared(&mut world);
    let new = save(&mut world.laptop, file, &link(dir, "a"), b"saved");
    let other = world.laptop.dir(ROOT, "other");
    let laptop = &mut world.laptop;
    let ops = [
        laptop.rename(new, link(dir, "a"), link(other, "b.txt")),
        laptop.remove(dir, link(ROOT, "dir")),
    ];
    laptop.commit(&ops);
    laptop.pull();
    let ops = [world
        .laptop
        .rename(other, link(ROOT, "other"), link(ROOT, "moved"))];
    world.laptop.commit(&ops);
    change(&mut world, file);
    assert_eq!(world.desk.names(ROOT), ["moved"]);
    assert_eq!(
        world.desk.names(other),
        ["b (conflict desk 2026-11-22).txt", "b.txt"]
    );
    assert_eq!(
        world
            .desk
            .read_named(other, "b (conflict desk 2026-11-22).txt"),
        b"changed"
    );
    assert_eq!(world.desk.conflict_kinds(), [Content]);
}

fn a_name_in_the_root_for_want_of_a_better_one_is_not_taken_up(mut world: World) {
    let (dir, file) = shared(&mut world);
    save(&mut world.laptop, file, &link(dir, "a"), b"saved");
    let name = FileName::new(format!("object-{}", file.get()).as_bytes()).unwrap();
    let ops = [
        world.desk.place(file, HardLink { dir: ROOT, name }),
        world.desk.write(file, b"changed"),
    ];
    world.desk.commit(&ops);
    assert_eq!(
        (world.desk.names(ROOT), world.desk.names(dir)),
        (vec!["dir".into()], vec!["a".into(), COPY.into()])
    );
    // A name that a person has chosen is kept.
    let (dir, file) = shared_in(&mut world, "more");
    save(&mut world.laptop, file, &link(dir, "a"), b"saved");
    let ops = [
        world.desk.place(file, link(dir, "mine")),
        world.desk.write(file, b"changed"),
    ];
    world.desk.commit(&ops);
    assert_eq!(world.desk.names(dir), ["a", "mine"]);
    assert_eq!(
        (
            world.desk.read_named(dir, "mine"),
            world.desk.conflict_kinds()
        ),
        (b"changed".to_vec(), vec![Content; 2])
    );
}

fn shared_in(world: &mut World, name: &str) -> (ObjectNo, ObjectNo) {
    let dir = world.laptop.dir(ROOT, name);
    let file = world.laptop.file(dir, "a", b"1");
    world.sync();
    (dir, file)
}

fn the_copy_has_what_its_author_had_seen(mut world: World) {
    let (dir, file) = shared(&mut world);
    // The file was changed again in place, as its author had seen it when it was saved: the copy
    // must have nothing of that.
    let ops = [world.laptop.write(file, b"12345678")];
    world.laptop.commit(&ops);
    world.laptop.pull();
    save(&mut world.laptop, file, &link(dir, "a"), b"saved");
    let ops = [
        world.desk.chmod(file, 0o600),
        world.desk.overwrite(file, 1, 0, b"x"),
    ];
    world.desk.commit(&ops);
    assert_eq!(world.desk.names(dir), ["a", COPY]);
    assert_eq!(world.desk.read_named(dir, COPY), b"x");
    assert_eq!(world.desk.look(file).unwrap().attributes.perm, 0o600);
    assert_eq!(world.desk.conflict_kinds(), [Content]);
}

fn history_has_the_copy_as_its_author_had_seen_it(mut world: World) {
    let (dir, file) = shared(&mut world);
    let ops = [world.laptop.write(file, b"92345678")];
    world.laptop.commit(&ops);
    world.laptop.pull();
    save(&mut world.laptop, file, &link(dir, "a"), b"saved");
    // The copy keeps the first byte, which was another one when the file was saved over.
    let ops = [world.desk.overwrite(file, 3, 1, b"xy")];
    world.desk.commit(&ops);
    let copy = world.desk.look(file).unwrap();
    assert_eq!(world.desk.read_named(dir, COPY), b"1xy");
    let (_, past) = world.desk.past(file, copy.data_seq).unwrap();
    assert_eq!(past, b"1xy");
}

fn content_of_what_its_author_has_saved_over_since_is_nothing(mut world: World) {
    let (dir, file) = shared(&mut world);
    // Its content was held back, as large content is, and comes after the save.
    let held_back = [world.laptop.write(file, b"held back")];
    save(&mut world.laptop, file, &link(dir, "a"), b"saved");
    world.laptop.commit(&held_back);
    world.laptop.pull();
    assert_eq!(world.laptop.names(dir), ["a"]);
    assert_eq!(world.laptop.read_named(dir, "a"), b"saved");
    assert!(world.laptop.conflicts().is_empty());
}

fn what_was_saved_and_removed_leaves_the_change_under_its_name(mut world: World) {
    let (dir, file) = shared(&mut world);
    let new = save(&mut world.laptop, file, &link(dir, "a"), b"saved");
    let ops = [world.laptop.remove(new, link(dir, "a"))];
    world.laptop.commit(&ops);
    change(&mut world, file);
    assert_eq!(
        (world.desk.names(dir), world.desk.names(ROOT)),
        (vec!["a".into()], vec!["dir".into()])
    );
    assert_eq!(
        (world.desk.read_named(dir, "a"), world.desk.conflict_kinds()),
        (b"changed".to_vec(), vec![Removal])
    );
}
