//! Stores in real directories: durable through a power cut, locked, clean, and clear about what is
//! in the way.

mod tmpfs;

use crate::place::{Ext4, dir, files, open_store, runtime};
use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use teal_chunk::{AccessMode, ChunkError, ChunkStore, DirectoryShelf, Shelf, ShelfError};
use teal_testkit::Rng;
use tmpfs::Tmpfs;
use tokio::runtime::Runtime;

/// Bytes that do not compress.
fn content(seed: u64, bytes: usize) -> Vec<u8> {
    let mut out = vec![0; bytes];
    Rng::new(seed).fill(&mut out);
    out
}

/// Opens the store for writing, uses it, closes it.
fn with<T>(dir: &Path, runtime: &Runtime, then: impl FnOnce(&ChunkStore) -> T) -> T {
    then(&open_store(dir, AccessMode::Write, runtime).unwrap().0)
}

#[test]
fn a_store_in_a_directory_is_there_after_opening_again() {
    let (dir, runtime) = (dir(), runtime());
    let contents: Vec<Vec<u8>> = (0..20).map(|n| content(n, 50_000)).collect();
    let ids = with(dir.path(), &runtime, |store| {
        store.put(contents.iter().map(Vec::as_slice)).unwrap().0
    });
    with(dir.path(), &runtime, |store| {
        for (id, content) in ids.iter().zip(&contents) {
            assert!(&store.get(id).unwrap() == content);
        }
        assert_eq!(store.check(|_, _| {}).unwrap().problem_count, 0);
        let mut marking = store.begin_collection(std::time::Duration::ZERO).unwrap();
        marking.mark_live(ids.iter().copied().take(3));
        marking.begin_sweep().run().unwrap();
        assert!(
            store.usage().chunks == 3 && store.usage().bytes < 200_000,
            "{:?}",
            store.usage()
        );
    });
    let (store, opening) = open_store(dir.path(), AccessMode::Read, &runtime).unwrap();
    assert_eq!(
        (
            opening.packs,
            opening.damaged.len(),
            store.find_present(&ids[..4])
        ),
        (1, 0, vec![true, true, true, false])
    );
}

#[test]
fn what_was_committed_survives_a_power_cut() {
    let Some(ext4) = Ext4::new("what_was_committed_survives_a_power_cut") else {
        return;
    };
    let runtime = runtime();
    let contents: Vec<Vec<u8>> = (0..12).map(|n| content(n, 100_000)).collect();
    let store = open_store(&ext4.store(), AccessMode::Write, &runtime)
        .unwrap()
        .0;
    let mut ids = Vec::new();
    for part in contents.chunks(4) {
        ids.extend(store.put(part.iter().map(Vec::as_slice)).unwrap().0);
    }
    // What the backing device has at this moment; nothing has been unmounted or synced.
    let after = ext4.power_cut();
    let (store, opening) = open_store(&after.store(), AccessMode::Write, &runtime).unwrap();
    assert_eq!((opening.packs, opening.damaged.len()), (3, 0));
    for (id, content) in ids.iter().zip(&contents) {
        assert!(&store.get(id).unwrap() == content);
    }
}

#[test]
fn one_process_writes_and_others_may_read() {
    let (dir, runtime) = (dir(), runtime());
    with(dir.path(), &runtime, |_| {
        let said = DirectoryShelf::open(dir.path(), AccessMode::Write, runtime.handle().clone())
            .unwrap_err();
        assert!(matches!(said, ShelfError::InUse { .. }), "{said}");
        assert!(
            said.to_string().contains(dir.path().to_str().unwrap()),
            "{said}"
        );
        assert!(
            DirectoryShelf::open(dir.path(), AccessMode::Read, runtime.handle().clone()).is_ok()
        );
    });
    assert!(DirectoryShelf::open(dir.path(), AccessMode::Write, runtime.handle().clone()).is_ok());
}

#[test]
fn leftovers_of_interrupted_puts_are_removed_and_nothing_else() {
    let (dir, runtime) = (dir(), runtime());
    with(dir.path(), &runtime, |store| {
        drop(store.put([&b"1"[..]]).unwrap())
    });
    // One pack in 256 has a name that begins with these two digits, so the store's own pack may
    // lie here, too.
    let packs = dir.path().join("packs/ab");
    std::fs::create_dir_all(&packs).unwrap();
    let names = || {
        let entries = std::fs::read_dir(&packs).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.collect::<BTreeSet<String>>()
    };
    let leftover = "ab0123.pack#1";
    let mut wanted = names();
    for name in ["ab0123.pack#x", "note#1", "other.pack"] {
        std::fs::write(packs.join(name), "half").unwrap();
        wanted.insert(name.to_owned());
    }
    std::fs::write(packs.join(leftover), "half").unwrap();
    let shelf =
        DirectoryShelf::open(dir.path(), AccessMode::Read, runtime.handle().clone()).unwrap();
    assert_eq!(shelf.removed_leftovers(), 0);
    assert!(names().contains(leftover), "reading changes nothing");
    drop(shelf);
    let shelf =
        DirectoryShelf::open(dir.path(), AccessMode::Write, runtime.handle().clone()).unwrap();
    assert_eq!(shelf.removed_leftovers(), 1);
    assert_eq!(names(), wanted);
}

#[test]
fn a_missing_or_wrong_directory_is_named() {
    let (dir, runtime) = (dir(), runtime());
    let file = dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    for path in [dir.path().join("nowhere"), file] {
        let said = DirectoryShelf::open(&path, AccessMode::Write, runtime.handle().clone())
            .unwrap_err()
            .to_string();
        assert!(said.contains(path.to_str().unwrap()), "{said}");
    }
}

#[test]
fn a_read_only_directory_can_be_read_and_says_so_when_written() {
    let Some(tmpfs) = Tmpfs::new(
        "a_read_only_directory_can_be_read_and_says_so_when_written",
        16,
    ) else {
        return;
    };
    let runtime = runtime();
    let (id, said) = with(tmpfs.path(), &runtime, |store| {
        let id = store.put([&b"1"[..]]).unwrap().0[0];
        tmpfs.remount_read_only();
        (id, store.put([&b"2"[..]]).unwrap_err())
    });
    assert!(
        matches!(said, ChunkError::Shelf(ShelfError::ReadOnly { .. })),
        "{said}"
    );
    assert!(
        said.to_string().contains("make the place writable"),
        "{said}"
    );
    let said = open_store(tmpfs.path(), AccessMode::Write, &runtime)
        .err()
        .unwrap();
    assert!(
        matches!(said, ChunkError::Shelf(ShelfError::ReadOnly { .. })),
        "{said}"
    );
    let (store, _) = open_store(tmpfs.path(), AccessMode::Read, &runtime).unwrap();
    assert_eq!(store.get(&id).unwrap(), b"1");
}

#[test]
fn a_full_directory_says_so_keeps_what_it_has_and_recovers() {
    let Some(tmpfs) = Tmpfs::new("a_full_directory_says_so_keeps_what_it_has_and_recovers", 4)
    else {
        return;
    };
    let runtime = runtime();
    with(tmpfs.path(), &runtime, |store| {
        let mut kept = Vec::new();
        let said = loop {
            let content = content(kept.len() as u64, 300_000);
            match store.put([content.as_slice()]) {
                Ok((ids, _)) => kept.push((ids[0], content)),
                Err(said) => break said,
            }
        };
        assert!(
            matches!(said, ChunkError::Shelf(ShelfError::NoSpace { .. })),
            "{said:?}"
        );
        assert!(said.to_string().contains("make room"), "{said}");
        assert!(
            kept.len() > 8
                && kept
                    .iter()
                    .all(|(id, content)| &store.get(id).unwrap() == content)
        );
        let mut marking = store.begin_collection(std::time::Duration::ZERO).unwrap();
        marking.mark_live(kept.iter().skip(4).map(|(id, _)| *id));
        let collected = marking.begin_sweep().run().unwrap();
        // There is not enough room to merge what is left into one pack; the dead ones are gone
        // nevertheless.
        assert_eq!(
            (collected.dead_packs, collected.without_room),
            (4, kept.len() - 4)
        );
        store.put([content(99, 300_000).as_slice()]).unwrap();
        assert!(
            kept[4..]
                .iter()
                .all(|(id, content)| &store.get(id).unwrap() == content)
        );
    });
}

#[test]
fn odd_names_in_the_directory_do_no_harm() {
    let (dir, runtime) = (dir(), runtime());
    with(dir.path(), &runtime, |store| {
        drop(store.put([&b"1"[..]]).unwrap())
    });
    let odd = dir.path().join("packs/zz");
    std::fs::create_dir_all(odd.join("deep/er")).unwrap();
    for name in ["%41", "a b", "\u{e4}.pack", "..pack", "deep/er/x.pack"] {
        std::fs::write(odd.join(name), "?").unwrap();
    }
    std::os::unix::fs::symlink("/nowhere", odd.join("broken")).unwrap();
    let (store, opening) = open_store(dir.path(), AccessMode::Write, &runtime).unwrap();
    assert_eq!(
        (opening.packs, opening.stranger_count, store.usage().chunks),
        (1, 5, 1),
        "{opening:?}"
    );
    drop(store);
    // What cannot be listed is no reason to take a part for all: the error names it.
    for bad in [&b"\xff.pack"[..], b"new\nline"] {
        let bad = odd.join(std::ffi::OsStr::from_bytes(bad));
        std::fs::write(&bad, "?").unwrap();
        let said = open_store(dir.path(), AccessMode::Write, &runtime)
            .err()
            .unwrap()
            .to_string();
        assert!(said.contains("packs/zz"), "{said}");
        std::fs::remove_file(&bad).unwrap();
    }
    // Beside the packs anything may lie.
    std::fs::write(dir.path().join("new\nline"), "?").unwrap();
    assert!(open_store(dir.path(), AccessMode::Write, &runtime).is_ok());
}

#[test]
fn a_pack_truncated_on_the_disk_is_damage_not_an_unreachable_shelf() {
    let (dir, runtime) = (dir(), runtime());
    with(dir.path(), &runtime, |store| {
        let id = store.put([content(1, 10_000).as_slice()]).unwrap().0[0];
        let pack = files(dir.path())
            .into_iter()
            .find(|path| path.extension().is_some_and(|e| e == "pack"))
            .unwrap();
        for len in [5000, 100, 80, 10, 0] {
            truncate(&pack, len);
            let said = store.get(&id).unwrap_err();
            assert!(matches!(said, ChunkError::Damaged { .. }), "{len}: {said}");
            let name = pack
                .strip_prefix(dir.path())
                .unwrap()
                .to_str()
                .unwrap()
                .to_owned();
            let shelf =
                DirectoryShelf::open(dir.path(), AccessMode::Read, runtime.handle().clone())
                    .unwrap();
            assert_eq!(shelf.read(&name, 0..len + 10).unwrap().len() as u64, len);
        }
    });
}

fn truncate(path: &Path, len: u64) {
    std::fs::OpenOptions::new()
        .write(true)
        .open(path)
        .unwrap()
        .set_len(len)
        .unwrap();
}
