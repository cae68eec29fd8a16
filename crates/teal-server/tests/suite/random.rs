//! Random batches of devices that have not seen each other's: whatever they do, there is one tree,
//! and both kinds of metadata agree.

use crate::fixture::{Device, ROOT, Stores, World, link, seq};
use std::collections::BTreeMap;
use teal_proto::{PulledObject, ServerReply};
use teal_testkit::Rng;
use teal_types::{FileType, HardLink, ObjectNo, ObjectVersion, Op};

/// The devices' knowledge: every object there ever was.
#[derive(Default)]
struct Known {
    files: Vec<ObjectNo>,
    dirs: Vec<ObjectNo>,
}

fn any_link(rng: &mut Rng, known: &Known) -> HardLink {
    let dir = if rng.chance(0.3) || known.dirs.is_empty() {
        ROOT
    } else {
        *rng.pick(&known.dirs)
    };
    let names: [&str; 4] = ["a", "b", "c.txt", "d"];
    link(dir, names[rng.pick_index(names.len())])
}

/// A name that the object has, if it has one: most operations should meet something.
fn its_link(device: &Device, rng: &mut Rng, known: &Known, object: ObjectNo) -> HardLink {
    let links = device
        .look(object)
        .map(|version| version.links)
        .unwrap_or_default();
    if links.is_empty() || rng.chance(0.2) {
        any_link(rng, known)
    } else {
        rng.pick(&links).clone()
    }
}

fn some_ops(device: &mut Device, rng: &mut Rng, known: &mut Known) -> Vec<Op> {
    let mut ops = Vec::new();
    for _ in 0..=rng.below(5) {
        let is_dir = rng.chance(0.4);
        let objects = if is_dir { &known.dirs } else { &known.files };
        if objects.is_empty() || rng.chance(0.2) {
            let object = device.number();
            ops.push(device.create(
                object,
                if is_dir {
                    FileType::Dir
                } else {
                    FileType::File
                },
            ));
            let to = any_link(rng, known);
            ops.push(device.place(object, to));
            if is_dir {
                known.dirs.push(object)
            } else {
                known.files.push(object)
            }
            continue;
        }
        let object = *rng.pick(objects);
        let to = any_link(rng, known);
        let from = its_link(device, rng, known, object);
        ops.push(match rng.below(7) {
            0 => device.place(object, to),
            1 | 2 => device.remove(object, from),
            3 | 4 => device.rename(object, from, to),
            5 => device.chmod(object, 0o600 + u16::try_from(rng.below(8)).unwrap()),
            _ if is_dir => device.xattr(object, "user.a", Some("1")),
            _ => device.write(object, format!("content {}", rng.below(1000)).as_bytes()),
        });
    }
    ops
}

fn everything(device: &Device) -> BTreeMap<ObjectNo, ObjectVersion> {
    let changes = device.ask_pull(seq(0), None).changes;
    let versions = changes.into_iter().map(|change| match change {
        PulledObject::Is { version, .. } => (version.object, *version),
        PulledObject::Gone { object } => panic!("{object} is gone for somebody who has nothing"),
    });
    versions.collect()
}

/// Everything that lives has a way to the root; directories have one name; listings agree with the
/// names of objects.
fn assert_is_a_tree(device: &Device) {
    let all = everything(device);
    for (object, version) in &all {
        assert!(
            *object == ROOT || !version.links.is_empty(),
            "{object} has no name"
        );
        assert!(
            !version.kind.is_dir() || version.links.len() <= 1,
            "{object} has two names"
        );
        let (mut at, mut steps) = (version, 0);
        while at.object != ROOT {
            at = &all[&at.links[0].dir];
            assert!(
                at.kind.is_dir() && steps < all.len(),
                "{object} is in no tree"
            );
            steps += 1;
        }
    }
    let listed: usize = all
        .values()
        .filter(|v| v.kind.is_dir())
        .map(|v| device.list(v.object).unwrap().len())
        .sum();
    assert_eq!(
        listed,
        all.values()
            .map(|version| version.links.len())
            .sum::<usize>()
    );
}

/// Returns all that lives in the end, and how many conflicts were met.
fn run(seed: u64, mut world: World) -> (BTreeMap<ObjectNo, ObjectVersion>, usize) {
    let (mut rng, mut known) = (Rng::new(seed), Known::default());
    let mut copy = everything(&world.desk);
    for _ in 0..30 {
        let device = if rng.chance(0.5) {
            &mut world.laptop
        } else {
            &mut world.desk
        };
        let ops = some_ops(device, &mut rng, &mut known);
        device.batch = device.batch.next();
        match device.send(device.batch, &ops) {
            ServerReply::Committed { .. } => {}
            other => panic!("seed {seed}: {other:?} to {ops:?}"),
        }
        assert_is_a_tree(device);
        if rng.chance(0.4) {
            world.laptop.pull();
        }
        // A client that follows the changes has the server's state.
        if rng.chance(0.4) {
            for change in world.desk.pull().changes {
                match change {
                    PulledObject::Is { version, .. } => copy.insert(version.object, *version),
                    PulledObject::Gone { object } => copy.remove(&object),
                };
            }
            assert_eq!(copy, everything(&world.desk), "seed {seed}");
        }
    }
    let all = everything(&world.desk);
    for version in all
        .values()
        .filter(|version| version.kind == FileType::File)
    {
        let past = world
            .desk
            .past(version.object, world.desk.ask_pull(seq(1), None).to)
            .unwrap();
        assert_eq!(
            past,
            (version.clone(), world.desk.read(version.object)),
            "seed {seed}: the newest of history is what lives"
        );
    }
    (all, world.desk.conflicts().len())
}

#[test]
fn whatever_two_devices_do_there_is_one_tree() {
    let conflicts: usize = (0..200).map(|seed| run(seed, World::new()).1).sum();
    assert!(conflicts > 1000, "only {conflicts} conflicts");
}

#[test]
fn both_kinds_of_metadata_lead_to_the_same_tree() {
    for seed in 0..3 {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(
            run(seed, World::new()),
            run(seed, World::on(Stores::sqlite(dir.path()))),
            "seed {seed}"
        );
    }
}
