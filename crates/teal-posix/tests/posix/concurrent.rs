//! Several threads at once: no deadlock, and the tree is consistent afterwards.

use crate::fixture::{CALLER, ROOT, Volume};
use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use teal_posix::{DirEntry, FileSystem, FsError, RenameMode, WriteFlags};
use teal_testkit::Rng;
use teal_types::{Attr, Name, ObjectNo};

const THREADS: u64 = 4;
const OPS: usize = 3_000;

/// Returns what may be refused when others change the same names.
fn tolerate<T>(result: Result<T, FsError>) -> Option<T> {
    match result {
        Ok(done) => Some(done),
        Err(
            e @ (FsError::Io(_)
            | FsError::NoSpace
            | FsError::ReadOnly
            | FsError::NameTooLong
            | FsError::NoData
            | FsError::Range
            | FsError::FileTooBig
            | FsError::ValueTooBig
            | FsError::NotSupported),
        ) => panic!("{e}"),
        Err(_) => None,
    }
}

/// A directory somewhere down from the root, held once (the root is not counted).
fn wander(client: &FileSystem, rng: &mut Rng) -> ObjectNo {
    let mut dir = ROOT;
    for _ in 0..rng.below(4) {
        match client.lookup(dir, &[b'a' + rng.below(6) as u8]) {
            Ok(attr) if attr.kind.is_dir() => {
                client.release(dir, 1);
                dir = attr.object;
            }
            Ok(attr) => client.release(attr.object, 1),
            Err(e) => drop(tolerate::<()>(Err(e))),
        }
    }
    dir
}

fn operate(client: &FileSystem, rng: &mut Rng) {
    let (dir, other) = (wander(client, rng), wander(client, rng));
    let (name, second) = ([b'a' + rng.below(6) as u8], [b'a' + rng.below(6) as u8]);
    let mut made = None;
    match rng.below(12) {
        0 | 1 => made = tolerate(client.create(&CALLER, dir, &name, 0o644, false)),
        2 | 3 => made = tolerate(client.mkdir(&CALLER, dir, &name, 0o755)),
        4 => drop(tolerate(client.unlink(dir, &name))),
        5 => drop(tolerate(client.rmdir(dir, &name))),
        6 | 7 => drop(tolerate(client.rename(
            dir,
            &name,
            other,
            &second,
            RenameMode::Replace,
        ))),
        8 => drop(tolerate(client.rename(
            dir,
            &name,
            other,
            &second,
            RenameMode::Exchange,
        ))),
        9 => {
            if let Some(attr) = tolerate(client.lookup(dir, &name)) {
                made = tolerate(client.link(attr.object, other, &second));
                tolerate(client.write(
                    attr.object,
                    rng.below(20_000),
                    &[1; 5000],
                    WriteFlags::default(),
                ));
                client.release(attr.object, 1);
            }
        }
        10 => {
            let visit = &mut |_: &DirEntry, attr: Option<&Attr>| {
                attr.iter().for_each(|attr| client.release(attr.object, 1));
                ControlFlow::Continue(())
            };
            let _ = tolerate(client.readdirplus(dir, 0, visit));
        }
        _ if rng.chance(0.05) => client.sync().unwrap(),
        _ => _ = client.step(),
    }
    if let Some(attr) = made {
        client.release(attr.object, 1);
    }
    client.release(dir, 1);
    client.release(other, 1);
}

/// Every entry's child has the matching link, every count is right, and everything is reached.
fn sweep(volume: &Volume) {
    let store = volume.client.store();
    let mut names: HashMap<ObjectNo, Vec<(ObjectNo, Name)>> = HashMap::new();
    let (mut dirs, mut at) = (vec![ROOT], 0);
    while at < dirs.len() {
        let dir = dirs[at];
        at += 1;
        let mut subdirs = 0;
        let mut entries = 0;
        let visit = &mut |_, child, kind: teal_types::FileType, name: &Name| {
            entries += 1;
            names.entry(child).or_default().push((dir, name.clone()));
            if kind.is_dir() {
                subdirs += 1;
                dirs.push(child);
            }
            ControlFlow::Continue(())
        };
        store.each_entry(dir, 0, visit).unwrap();
        assert_eq!(
            (volume.attr(dir).nlink, volume.attr(dir).size),
            (2 + subdirs, entries * 32),
            "{dir}"
        );
    }
    for (no, mut expected) in names.clone() {
        let mut links = store.names(no).unwrap();
        links.sort();
        expected.sort();
        assert_eq!(links, expected, "the names of {no}");
        let attr = volume.attr(no);
        assert!(attr.kind.is_dir() && links.len() == 1 || attr.nlink == links.len() as u32);
    }
    assert_eq!(
        volume.client.status().unwrap().space.objects,
        names.len() as u64 + 1,
        "objects that nothing leads to"
    );
}

#[test]
fn four_threads_leave_a_consistent_tree() {
    let mut volume = Volume::new();
    let mut seeds = Rng::new(11);
    let threads: Vec<_> = (0..THREADS)
        .map(|n| {
            let (client, mut rng) = (Arc::clone(&volume.client), seeds.fork());
            let work = move || (0..OPS).for_each(|_| operate(&client, &mut rng));
            std::thread::Builder::new()
                .name(format!("worker-{n}"))
                .spawn(work)
                .unwrap()
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    let status = volume.client.status().unwrap();
    assert_eq!((status.held, status.orphans), (0, 0));
    sweep(&volume);
    volume.client.sync().unwrap();
    volume.reopen();
    sweep(&volume);
}
