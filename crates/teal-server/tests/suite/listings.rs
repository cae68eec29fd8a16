//! Directories can be listed as they were, at the cost of what was in them.

use crate::fixture::{Device, ROOT, Stores, World, link, seq};
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use teal_meta::{MetaError, PastNames};
use teal_types::{CommitSeq, FileType, Name, ObjectNo, Op};

on_both! {
    what_came_and_went_costs_a_listing_nothing
    a_directory_of_the_past_is_there_while_it_was
    a_long_listing_comes_in_parts
}

fn read_at(world: &World, dir: ObjectNo, at: CommitSeq) -> PastNames {
    teal_meta::read::<_, MetaError>(&*world.stores.meta, world.volume, |txn| {
        txn.names_at(dir, at)
    })
    .unwrap()
}

fn what_came_and_went_costs_a_listing_nothing(mut world: World) {
    const EACH: usize = 1000;
    let device = &mut world.laptop;
    let kept = (Name::new(b"kept").unwrap(), device.file(ROOT, "kept", b""));
    // Each of them has a few names at a time.
    let files: Vec<ObjectNo> = (0..25)
        .map(|n| device.file(ROOT, &format!("was{n}"), b""))
        .collect();
    let named = |round: usize| {
        (round * EACH..(round + 1) * EACH)
            .map(|n| (files[n % files.len()], link(ROOT, &format!("f{n}"))))
    };
    let mut commits = vec![];
    for round in 0..100_000 / EACH {
        let mut ops: Vec<Op> = named(round)
            .map(|(file, link)| device.place(file, link))
            .collect();
        if round > 0 {
            ops.extend(named(round - 1).map(|(file, link)| device.remove(file, link)));
        }
        device.base = device.commit(&ops);
        commits.push(device.base);
    }
    let first = files
        .iter()
        .enumerate()
        .map(|(n, file)| (*file, link(ROOT, &format!("was{n}"))));
    let last = named(100_000 / EACH - 1).chain(first);
    let ops: Vec<Op> = last.map(|(file, link)| device.remove(file, link)).collect();
    let last = device.commit(&ops);
    assert_eq!(
        world.laptop.past_names(ROOT, last).unwrap(),
        std::slice::from_ref(&kept)
    );
    assert!(
        read_at(&world, ROOT, last).rows <= 3 + 2 * 64,
        "{} rows for one name",
        read_at(&world, ROOT, last).rows
    );
    let there = EACH + files.len() + 1;
    for at in commits.iter().rev().step_by(9) {
        let past = read_at(&world, ROOT, *at);
        assert!(past.names.len() == there && past.names.contains(&kept));
        assert!(
            past.rows <= 3 * there + 2 * 64,
            "{} rows for {there} names",
            past.rows
        );
    }
}

fn a_directory_of_the_past_is_there_while_it_was(mut world: World) {
    let dir = world.laptop.dir(ROOT, "d");
    let file = world.laptop.file(dir, "f", b"1");
    world.laptop.pull();
    let there = world.laptop.base;
    let ops = [
        world.laptop.remove(file, link(dir, "f")),
        world.laptop.remove(dir, link(ROOT, "d")),
    ];
    let gone = world.laptop.commit(&ops);
    assert_eq!(
        world.desk.past_names(dir, there).unwrap(),
        [(Name::new(b"f").unwrap(), file)]
    );
    assert_eq!(world.desk.past_names(dir, seq(1)), None, "not yet");
    assert_eq!(world.desk.past_names(dir, gone), None);
    assert_eq!(world.desk.past_names(file, there), None, "a file");
    assert_eq!(world.desk.past_names(ROOT, gone).unwrap(), []);
}

fn a_long_listing_comes_in_parts(mut world: World) {
    let names: Vec<String> = (0..4_000).map(|n| format!("{n:0255}")).collect();
    let mut ops = vec![];
    for names in names.chunks(100) {
        let object = world.laptop.number();
        ops.push(world.laptop.create(object, FileType::File));
        ops.extend(
            names
                .iter()
                .map(|name| world.laptop.place(object, link(ROOT, name))),
        );
    }
    let at = world.laptop.commit(&ops);
    let listed = world.desk.past_names(ROOT, at).unwrap();
    assert!(listed.iter().map(|(name, _)| name.to_string()).eq(names));
}

/// Carries steps out, many a commit, and lists every commit of the past when all is done.
fn every_listing_is_kept(mut world: World, steps: &[(u8, u8)]) {
    let device = &mut world.laptop;
    let (one, two) = (device.file(ROOT, "one", b""), device.file(ROOT, "two", b""));
    let dirs = [device.dir(ROOT, "a"), device.dir(ROOT, "b")];
    let mut seen = vec![];
    for steps in steps.chunks(20) {
        device.pull();
        let listed = dirs.map(|dir| device.list(dir).unwrap());
        let mut ops = vec![];
        let mut done = std::collections::BTreeSet::new();
        for (which, name) in steps {
            let at = usize::from(which & 1);
            if !done.insert((at, *name)) {
                continue;
            }
            let (to, name) = (link(dirs[at], &name.to_string()), name.to_string());
            match listed[at].get(&name) {
                Some(version) => ops.push(device.remove(version.object, to)),
                None => ops.push(device.place(if which & 2 == 0 { one } else { two }, to)),
            }
        }
        let at = device.commit(&ops);
        let now = |device: &Device, dir| {
            let listed = device.list(dir).unwrap().into_iter();
            let named =
                listed.map(|(name, version)| (Name::new(name.as_bytes()).unwrap(), version.object));
            named.collect::<Vec<(Name, ObjectNo)>>()
        };
        seen.push((at, dirs.map(|dir| (dir, now(device, dir)))));
    }
    let mut most = 0;
    for (at, dirs) in seen {
        for (dir, names) in dirs {
            let past = read_at(&world, dir, at);
            assert!(
                past.rows <= 3 * names.len() + 2 * 64,
                "{} rows for {} names",
                past.rows,
                names.len()
            );
            most = most.max(past.rows);
            assert_eq!(past.names, names, "after commit {}", at.get());
            assert_eq!(world.desk.past_names(dir, at).unwrap(), names);
        }
    }
    assert!(
        most < steps.len() || steps.len() < 400,
        "snapshots were taken"
    );
}

/// Few names, so that they come and go again; now and then one of many.
fn step() -> impl Strategy<Value = (u8, u8)> {
    (0_u8..4, prop_oneof![3 => 0_u8..12, 1 => any::<u8>()])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn each_listing_is_as_it_was(steps in prop::collection::vec(step(), 1..900)) {
        every_listing_is_kept(World::new(), &steps);
    }
}

#[test]
fn each_listing_is_kept_by_the_database_too() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    for _ in 0..3 {
        let dir = tempfile::tempdir().unwrap();
        let steps = prop::collection::vec(step(), 800..900)
            .new_tree(&mut runner)
            .unwrap()
            .current();
        every_listing_is_kept(World::on(Stores::sqlite(dir.path())), &steps);
    }
}
