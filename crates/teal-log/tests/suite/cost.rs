//! What a change costs the disk, counted.

use crate::new_objects::{new_file, new_object};
use crate::stores::{name, new_store};
use teal_log::{Cost, Store, StoreCounts, StoreSettings};
use teal_types::limits::TARGET_MAX;
use teal_types::{FileType, Name, ObjectNo};

/// Returns what making a file of this size and committing it costs, once the store has been written
/// to.
fn creation_cost(store: &Store, file: &str, bytes: usize) -> StoreCounts {
    let before = store.counter_values();
    let op = store.begin(Cost::names(2)).unwrap();
    let mut locked = op.lock(&[ObjectNo::ROOT]).unwrap();
    let no = locked.create(new_file());
    locked
        .insert_entry(ObjectNo::ROOT, &name(file), no)
        .unwrap();
    locked.write(no, 0, &vec![7; bytes]).unwrap();
    drop(locked);
    drop(op);
    store.commit().unwrap();
    let mut spent = store.counter_values();
    spent.writes -= before.writes;
    spent.barriers -= before.barriers;
    spent.bytes_written -= before.bytes_written;
    spent.reads -= before.reads;
    spent
}

#[test]
fn one_write_and_one_barrier() {
    let store = new_store(64);
    creation_cost(&store, "first", 1);
    for (i, (bytes, at_most)) in [(0, 1536), (1000, 3072), (4096, 6144), (32768, 35328)]
        .into_iter()
        .enumerate()
    {
        let spent = creation_cost(&store, &format!("file-{i}"), bytes);
        assert_eq!(
            (spent.writes, spent.barriers, spent.reads),
            (1, 1, 0),
            "for a file of {bytes} bytes"
        );
        assert!(
            spent.bytes_written <= at_most,
            "{} bytes for a file of {bytes}",
            spent.bytes_written
        );
    }
}

#[test]
fn a_large_batch_is_written_at_once_and_its_barrier_comes_with_the_commit() {
    let store = new_store(64);
    creation_cost(&store, "first", 1);
    let settings = store.settings();
    store.set_settings(StoreSettings {
        batch_bytes: 1 << 20,
        ..settings
    });
    let before = store.counter_values();
    let op = store.begin(Cost::write(2 << 20)).unwrap();
    let mut locked = op.lock(&[ObjectNo::ROOT]).unwrap();
    let no = locked.create(new_file());
    locked
        .insert_entry(ObjectNo::ROOT, &name("large"), no)
        .unwrap();
    locked.write(no, 0, &vec![7; 2 << 20]).unwrap();
    drop(locked);
    drop(op);
    store.tick().unwrap();
    let written = store.counter_values();
    assert!(written.bytes_written - before.bytes_written > 2 << 20 && store.is_dirty());
    assert_eq!(written.barriers, before.barriers);
    store.commit().unwrap();
    store.commit().unwrap();
    let durable = store.counter_values();
    assert!(!store.is_dirty());
    assert_eq!(
        (
            durable.writes - written.writes,
            durable.barriers - written.barriers
        ),
        (0, 1)
    );
}

/// A log of mail grows by less than a page, and is read again: the kernel has no whole page of its
/// end.
#[test]
fn the_end_of_a_file_that_has_just_grown_is_read_from_memory() {
    let store = new_store(64);
    let (mut files, mut sizes) = (Vec::new(), Vec::new());
    for n in 0..20 {
        creation_cost(&store, &format!("file-{n}"), 5000);
        let (no, _) = store
            .lookup(
                ObjectNo::ROOT,
                &Name::new(format!("file-{n}").as_bytes()).unwrap(),
            )
            .unwrap()
            .unwrap();
        files.push(no);
        sizes.push(5000);
    }
    let before = store.counter_values().reads;
    for round in 0..3_u8 {
        for at in (0..files.len()).rev() {
            let (no, size) = (files[at], sizes[at]);
            let op = store.begin(Cost::write(8192)).unwrap();
            op.lock(&[no])
                .unwrap()
                .write(no, size, &[round; 700])
                .unwrap();
            drop(op);
            store.commit().unwrap();
            sizes[at] += 700;
            // Far from what was read last.
            let other = files[(at + 9) % files.len()];
            assert_eq!(store.read(other, 4096, 904).unwrap(), [7; 904]);
            assert_eq!(store.read(no, size, 700).unwrap(), [round; 700]);
        }
    }
    assert_eq!(store.counter_values().reads - before, 0);
}

#[test]
fn what_only_a_header_parts_is_read_at_once() {
    let store = new_store(64);
    let op = store.begin(Cost::write(4 << 20)).unwrap();
    let mut locked = op.lock(&[ObjectNo::ROOT]).unwrap();
    let no = locked.create(new_file());
    locked
        .insert_entry(ObjectNo::ROOT, &name("large"), no)
        .unwrap();
    let data: Vec<u8> = (0..3 << 20).map(|i| (i / 4096 % 251) as u8).collect();
    locked.write(no, 0, &data).unwrap();
    drop(locked);
    drop(op);
    store.checkpoint().unwrap();
    store.read(no, 0, 1).unwrap();
    let before = store.counter_values().reads;
    let parts = store.read_parts(no, 1 << 20, 1 << 20).unwrap();
    assert_eq!(
        store.counter_values().reads - before,
        1,
        "of a range that more than one segment holds"
    );
    assert!(parts.pieces().len() > 1 && parts.to_vec() == data[1 << 20..2 << 20]);
}

#[test]
fn nothing_to_commit_costs_nothing() {
    let store = new_store(64);
    creation_cost(&store, "first", 1);
    store.checkpoint().unwrap();
    let before = store.counter_values();
    store.commit().unwrap();
    store.checkpoint().unwrap();
    assert_eq!(store.tick().unwrap(), None, "nothing is due");
    let after = store.counter_values();
    assert_eq!(
        (after.writes, after.barriers, after.reads),
        (before.writes, before.barriers, before.reads)
    );
}

#[test]
fn what_comes_and_goes_within_a_batch_is_never_written() {
    let store = new_store(64);
    creation_cost(&store, "first", 1);
    let before = store.counter_values().bytes_data;
    let op = store.begin(Cost::write(1 << 20)).unwrap();
    let mut locked = op.lock(&[ObjectNo::ROOT]).unwrap();
    let no = locked.create(new_file());
    let name = name("temporary");
    locked.insert_entry(ObjectNo::ROOT, &name, no).unwrap();
    locked.write(no, 0, &vec![7; 1 << 20]).unwrap();
    locked.remove_entry(ObjectNo::ROOT, &name).unwrap();
    locked.free_object(no).unwrap();
    drop(locked);
    drop(op);
    store.commit().unwrap();
    assert_eq!(store.counter_values().bytes_data, before);
}

/// Makes a symbolic link in the root whose target has so many bytes.
fn symlink(store: &Store, target: usize) -> ObjectNo {
    let op = store.begin(Cost::create()).unwrap();
    let mut locked = op.lock(&[ObjectNo::ROOT]).unwrap();
    let no = locked.create(new_object(FileType::Symlink));
    locked.set_target(no, &vec![b't'; target]);
    let name = name("link");
    locked.insert_entry(ObjectNo::ROOT, &name, no).unwrap();
    no
}

/// The target of a symbolic link lies in its record, which an operation writes twice, and as much
/// may stay unused. An operation that takes more than its cost panics when it ends.
#[test]
fn the_cost_of_an_attribute_holds_for_the_longest_symbolic_link() {
    let store = new_store(64);
    let link = symlink(&store, TARGET_MAX);
    store.commit().unwrap();
    for len in [0, 10, 1400, 9000, 60_000] {
        let name = format!("user.{len}").into_bytes();
        let head = store.head_bytes(link).unwrap();
        let cost = Cost::set_xattr((name.len() + len) as u64).with_head(head);
        let op = store.begin(cost).unwrap();
        let mut locked = op.lock(&[link]).unwrap();
        locked.set_xattr(link, &name, Some(&vec![7; len])).unwrap();
        drop(locked);
        drop(op);
        store.commit().unwrap();
    }
    assert_eq!(
        store.xattr(link, b"user.60000").unwrap().unwrap().len(),
        60_000
    );
}
