//! History: every version of a file can be read as it was committed.

use crate::fixture::{Device, ROOT, Stores, World, link, seq};
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use teal_types::{CommitSeq, ContentChange, ContentPiece, Op, PieceSource};

on_both! {
    the_versions_of_an_object_are_listed_with_names_and_attributes
    a_removed_file_can_be_read_as_it_was
    a_directory_of_the_past_keeps_its_state
}

fn the_versions_of_an_object_are_listed_with_names_and_attributes(mut world: World) {
    let file = world.laptop.file(ROOT, "a", b"1");
    world.laptop.pull();
    let first = world.laptop.base;
    world
        .stores
        .clock
        .advance(std::time::Duration::from_secs(60));
    for step in 0..5 {
        let device = &mut world.laptop;
        let op = match step {
            0 => device.chmod(file, 0o600),
            1 => device.xattr(file, "user.a", Some("1")),
            2 => device.rename(file, link(ROOT, "a"), link(ROOT, "b")),
            3 => device.place(file, link(ROOT, "c")),
            _ => device.xattr(file, "user.a", None),
        };
        device.commit(&[op]);
        device.pull();
    }
    let notes = world.laptop.history(file);
    assert_eq!(notes.len(), 6);
    assert_eq!(notes[0].seq, first);
    assert_eq!(notes[1].time.secs - notes[0].time.secs, 60);
    assert_eq!(notes[1].batch.batch.get(), 2);
    let versions: Vec<_> = notes
        .iter()
        .map(|note| note.version.clone().unwrap())
        .collect();
    assert_eq!(
        versions
            .iter()
            .map(|v| v.attributes.perm)
            .collect::<Vec<_>>()[..2],
        [0o644, 0o600]
    );
    assert_eq!(
        versions.iter().map(|v| v.xattrs.len()).collect::<Vec<_>>(),
        [0, 0, 1, 1, 1, 0]
    );
    let links: Vec<Vec<_>> = versions.iter().map(|v| v.links.clone()).collect();
    assert_eq!(
        (&links[2], &links[3]),
        (&vec![link(ROOT, "a")], &vec![link(ROOT, "b")])
    );
    assert_eq!(links[5], [link(ROOT, "b"), link(ROOT, "c")]);
    assert_eq!(versions[5], world.laptop.look(file).unwrap());
}

fn a_removed_file_can_be_read_as_it_was(mut world: World) {
    let file = world.laptop.file(ROOT, "a", b"precious");
    world.laptop.pull();
    let before = world.laptop.base;
    let ops = [world.laptop.remove(file, link(ROOT, "a"))];
    let after = world.laptop.commit(&ops);
    let (version, content) = world.laptop.past(file, before).unwrap();
    assert_eq!(
        (version.links, content),
        (vec![link(ROOT, "a")], b"precious".to_vec())
    );
    assert_eq!(world.laptop.past(file, after), None);
    assert_eq!(world.laptop.past(file, seq(u64::MAX)), None);
    assert_eq!(world.laptop.past(file, seq(1)), None);
    let notes = world.laptop.history(file);
    assert_eq!(
        notes.last().map(|note| (note.seq, note.version.is_none())),
        Some((after, true))
    );
}

fn a_directory_of_the_past_keeps_its_state(mut world: World) {
    let dir = world.laptop.dir(ROOT, "d");
    world.laptop.time = 7_000;
    world.laptop.file(dir, "a", b"1");
    let notes = world.laptop.history(dir);
    assert_eq!(notes.len(), 2);
    assert!(
        notes[1].version.as_ref().unwrap().attributes.mtime
            > notes[0].version.as_ref().unwrap().attributes.mtime
    );
    assert_eq!(
        notes[0].version.as_ref().unwrap().attr_seq,
        notes[1].version.as_ref().unwrap().attr_seq
    );
}

/// A change of a small file: cut to, pieces as (gap before, length, content or hole), bytes beyond
/// the last piece.
type Step = (u64, Vec<(u64, u64, Option<u8>)>, u64);

fn step() -> impl Strategy<Value = Step> {
    let piece = (0_u64..9, 1_u64..9, prop::option::weighted(0.8, any::<u8>()));
    (0_u64..60, prop::collection::vec(piece, 0..4), 0_u64..20)
}

/// Makes the change of a step, and carries it out on `content`.
fn apply(device: &mut Device, content: &mut Vec<u8>, (cut, pieces, tail): Step) -> ContentChange {
    let cut = cut.min(content.len() as u64);
    content.truncate(usize::try_from(cut).unwrap());
    let (mut at, mut made) = (0, Vec::new());
    for (gap, len, fill) in pieces {
        let offset = at + gap;
        at = offset + len;
        let range = usize::try_from(offset).unwrap()..usize::try_from(at).unwrap();
        content.resize(content.len().max(range.end), 0);
        let bytes: Vec<u8> = (0..len)
            .map(|n| fill.map_or(0, |fill| fill.wrapping_add(u8::try_from(n).unwrap())))
            .collect();
        content[range].copy_from_slice(&bytes);
        made.push(match fill {
            Some(_) => {
                // In the middle of its chunk.
                let chunk = [b"before".as_slice(), &bytes, b"behind"].concat();
                ContentPiece {
                    offset,
                    len,
                    source: PieceSource::Chunk {
                        id: device.put(&chunk),
                        offset: 6,
                    },
                }
            }
            None => ContentPiece {
                offset,
                len,
                source: PieceSource::Hole,
            },
        });
    }
    content.resize(content.len() + usize::try_from(tail).unwrap(), 0);
    ContentChange {
        cut,
        size: content.len() as u64,
        mtime: device.now(),
        pieces: made,
    }
}

fn every_version_is_kept(mut world: World, steps: Vec<(bool, Step)>) {
    let file = world.laptop.file(ROOT, "f", b"");
    let (mut content, mut ops) = (Vec::new(), Vec::new());
    let mut versions: Vec<(CommitSeq, Vec<u8>)> = Vec::new();
    for (ends_batch, step) in steps {
        world.laptop.pull();
        let change = apply(&mut world.laptop, &mut content, step);
        ops.push(Op::SetContent {
            object: file,
            base: world.laptop.base,
            change,
        });
        if ends_batch {
            versions.push((world.laptop.commit(&ops), content.clone()));
            ops.clear();
            // Others follow by ranges alone: what they have outside of them stays.
            assert_eq!(world.desk.read(file), content);
        }
    }
    for (at, content) in &versions {
        assert_eq!(
            &world.laptop.past(file, *at).unwrap().1,
            content,
            "after commit {}",
            at.get()
        );
    }
    assert_eq!(world.laptop.conflicts(), []);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn each_version_reads_as_it_was_committed(steps in prop::collection::vec((any::<bool>(), step()), 1..24)) {
        every_version_is_kept(World::new(), steps);
    }

    /// A client that had the content before, and takes only the changed ranges, has the content
    /// after.
    #[test]
    fn the_ranges_of_a_pull_are_enough(steps in prop::collection::vec(step(), 1..12), every in 1_usize..4) {
        let mut world = World::new();
        let file = world.laptop.file(ROOT, "f", b"");
        world.sync();
        let (mut content, mut copy) = (Vec::new(), Vec::new());
        for (n, step) in steps.into_iter().enumerate() {
            world.laptop.pull();
            let change = apply(&mut world.laptop, &mut content, step);
            let op = Op::SetContent { object: file, base: world.laptop.base, change };
            world.laptop.commit(&[op]);
            if n % every != 0 {
                continue;
            }
            for change in world.desk.pull().changes {
                let teal_proto::PulledObject::Is { version, ranges: Some(ranges) } = change else { continue };
                if version.object == file {
                    copy.resize(content.len(), 0);
                    for (offset, len) in ranges {
                        let end = (offset + len).min(content.len() as u64);
                        let range = usize::try_from(offset.min(end)).unwrap()..usize::try_from(end).unwrap();
                        copy[range.clone()].copy_from_slice(&content[range]);
                    }
                }
            }
            prop_assert_eq!(&copy, &content);
        }
    }
}

#[test]
fn each_version_is_kept_by_the_database_too() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let steps = prop::collection::vec((any::<bool>(), step()), 20..24);
    for _ in 0..4 {
        let dir = tempfile::tempdir().unwrap();
        let steps = steps.new_tree(&mut runner).unwrap().current();
        every_version_is_kept(World::on(Stores::sqlite(dir.path())), steps);
    }
}
