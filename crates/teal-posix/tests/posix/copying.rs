//! Copies that share content: what they are made of, in steps, and with others at work.

use crate::fixture::{ROOT, Volume, refused};
use rustix::io::Errno;
use std::sync::atomic::{AtomicBool, Ordering};
use teal_log::CheckOptions;
use teal_posix::{FallocateMode, FileSystem, InodeFlags, SetAttrRequest, WriteFlags};
use teal_testkit::Rng;
use teal_types::ObjectNo;

fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    Rng::new(seed).fill(&mut bytes);
    bytes
}

fn copy(client: &FileSystem, from: (ObjectNo, u64), to: (ObjectNo, u64), len: u64) -> u64 {
    client
        .copy_file_range(from, to, len, WriteFlags::default())
        .unwrap()
}

fn check(v: &Volume) {
    v.client.sync().unwrap();
    let report = v
        .client
        .store()
        .check(CheckOptions { verify_data: true }, &mut |_| {});
    assert!(report.is_clean(), "{:#?}", report.problems);
}

fn truncate(v: &Volume, no: ObjectNo, size: u64) {
    v.client
        .setattr(
            no,
            &SetAttrRequest {
                size: Some(size),
                ..SetAttrRequest::default()
            },
        )
        .unwrap();
}

#[test]
fn little_that_is_not_committed_is_copied_and_much_is_committed_first() {
    let v = Volume::new();
    let (f, g) = (v.file(ROOT, "f"), v.file(ROOT, "g"));
    let data = bytes(1, 3 << 20);
    v.write(f, 0, &data[..100_000]);
    let batches = || v.client.store().counter_values().batches;
    let before = batches();
    assert_eq!(copy(&v.client, (f, 0), (g, 0), 100_000), 100_000);
    assert_eq!(batches(), before, "24 blocks are no reason for a barrier");
    assert_eq!(v.client.read(g, 0, 200_000).unwrap(), data[..100_000]);
    v.client.sync().unwrap();
    v.write(f, 0, &data);
    let before = v.client.store().counter_values();
    assert_eq!(copy(&v.client, (f, 0), (g, 0), 3 << 20), 3 << 20);
    let after = v.client.store().counter_values();
    assert_eq!(
        (
            after.batches - before.batches,
            after.bytes_shared - before.bytes_shared
        ),
        (1, 3 << 20)
    );
    v.client.sync().unwrap();
    assert_eq!(
        v.client.store().counter_values().bytes_data,
        after.bytes_data,
        "the copy has no content of its own"
    );
    assert_eq!(v.client.read(g, 0, 4 << 20).unwrap(), data);
    check(&v);
}

#[test]
fn much_shared_content_is_given_back_in_steps() {
    let mut v = Volume::new();
    let (f, g) = (v.file(ROOT, "f"), v.file(ROOT, "g"));
    let data = bytes(2, 6 << 20);
    v.write(f, 0, &data);
    let ops = |v: &Volume| v.client.store().counter_values().ops;
    assert_eq!(copy(&v.client, (f, 0), (g, 0), 6 << 20), 6 << 20);
    let before = ops(&v);
    v.client
        .fallocate(
            g,
            FallocateMode::PunchHole,
            5000,
            4 << 20,
            Default::default(),
        )
        .unwrap();
    assert!(ops(&v) - before >= 4, "4 MiB, with steps of 1 MiB");
    let mut expected = data.clone();
    expected[5000..(4 << 20) + 5000].fill(0);
    assert!(v.client.read(g, 0, 8 << 20).unwrap() == expected);
    check(&v);
    let before = ops(&v);
    truncate(&v, f, 100);
    assert!(ops(&v) - before >= 5);
    check(&v);
    v.reopen();
    assert!(v.client.read(f, 0, 8 << 20).unwrap() == data[..100]);
    assert!(v.client.read(g, 0, 8 << 20).unwrap() == expected);
    // What never was shared goes at once.
    let h = v.file(ROOT, "h");
    v.write(h, 0, &data);
    v.client.sync().unwrap();
    let before = ops(&v);
    truncate(&v, h, 0);
    assert_eq!(ops(&v) - before, 1);
}

#[test]
fn a_file_whose_flags_forbid_it_loses_no_shared_content() {
    let v = Volume::new();
    let (f, g) = (v.file(ROOT, "f"), v.file(ROOT, "g"));
    let data = bytes(2, 6 << 20);
    v.write(f, 0, &data);
    assert_eq!(copy(&v.client, (f, 0), (g, 0), 6 << 20), 6 << 20);
    for flags in [InodeFlags::IMMUTABLE, InodeFlags::APPEND_ONLY] {
        v.client.set_inode_flags(g, flags).unwrap();
        let cut = SetAttrRequest {
            size: Some(0),
            ..SetAttrRequest::default()
        };
        assert_eq!(refused(v.client.setattr(g, &cut)), Errno::PERM);
        let punched =
            v.client
                .fallocate(g, FallocateMode::PunchHole, 0, 5 << 20, Default::default());
        assert_eq!(refused(punched), Errno::PERM);
        assert!(v.client.read(g, 0, 8 << 20).unwrap() == data, "{flags:?}");
    }
    let room = FallocateMode::Allocate { keep_size: true };
    v.client.set_inode_flags(g, InodeFlags::IMMUTABLE).unwrap();
    let free = v.client.store().space().free;
    let refusal = v
        .client
        .fallocate(g, room, 8 << 20, 1 << 20, Default::default());
    assert_eq!(refused(refusal), Errno::PERM);
    assert!(
        v.client.store().space().free >= free,
        "no room is set aside"
    );
    check(&v);
}

#[test]
fn a_copy_counts_as_a_write() {
    let v = Volume::new();
    let (f, g) = (v.file(ROOT, "f"), v.file(ROOT, "g"));
    v.write(f, 0, &bytes(3, 50_000));
    v.client.sync().unwrap();
    let perm = |perm| {
        v.client
            .setattr(
                g,
                &SetAttrRequest {
                    perm: Some(perm),
                    ..SetAttrRequest::default()
                },
            )
            .unwrap()
    };
    perm(0o6755);
    let old = v.attr(f);
    v.clock.advance(std::time::Duration::from_secs(10));
    assert_eq!(copy(&v.client, (f, 0), (g, 0), 50_000), 50_000);
    assert_eq!(v.attr(g).perm, 0o6755, "who may keep them, keeps them");
    assert!(v.attr(g).mtime > old.mtime && v.attr(g).ctime > old.ctime);
    assert_eq!(
        (v.attr(f).mtime, v.attr(f).ctime),
        (old.mtime, old.ctime),
        "the source has not changed"
    );
    let flags = WriteFlags {
        kill_suidgid: true,
        ..WriteFlags::default()
    };
    assert_eq!(
        v.client
            .copy_file_range((f, 0), (g, 0), 50_000, flags)
            .unwrap(),
        50_000
    );
    assert_eq!(v.attr(g).perm, 0o755);
    assert_eq!(
        v.client
            .copy_file_range((f, 50_000), (g, 0), 1, flags)
            .unwrap(),
        0
    );
    for (from, to) in [(0, 0), (0, 4096), (40_000, 49_999)] {
        assert_eq!(
            refused(v.client.copy_file_range((f, from), (f, to), 1 << 40, flags)),
            Errno::INVAL
        );
    }
    assert_eq!(
        refused(v.client.copy_file_range((ROOT, 0), (f, 0), 1, flags)),
        Errno::ISDIR
    );
    assert_eq!(
        refused(v.client.copy_file_range((f, 0), (ROOT, 0), 1, flags)),
        Errno::ISDIR
    );
}

/// Copies between a file that all read and one of its own, and writes, and compares.
fn work(client: &FileSystem, seed: u64, (base, content): (ObjectNo, &[u8]), mine: ObjectNo) {
    let mut rng = Rng::new(seed);
    let mut model: Vec<u8> = Vec::new();
    for _ in 0..150 {
        let blocks = content.len() as u64 / 4096;
        let (from, to) = (rng.below(blocks) * 4096, rng.below(blocks) * 4096);
        match rng.below(4) {
            0 | 1 => {
                let len = rng.below(400_000) + 1;
                let n = copy(client, (base, from), (mine, to), len) as usize;
                let end = to as usize + n;
                model.resize(model.len().max(end), 0);
                model[to as usize..end].copy_from_slice(&content[from as usize..from as usize + n]);
            }
            2 => {
                let data = bytes(rng.next_u64(), 9000);
                let at = rng.below(blocks * 4096);
                client
                    .write(mine, at, &data, WriteFlags::default())
                    .unwrap();
                model.resize(model.len().max(at as usize + data.len()), 0);
                model[at as usize..at as usize + data.len()].copy_from_slice(&data);
            }
            _ => {
                let size = rng.below(model.len() as u64 + 1);
                client
                    .setattr(
                        mine,
                        &SetAttrRequest {
                            size: Some(size),
                            ..SetAttrRequest::default()
                        },
                    )
                    .unwrap();
                model.truncate(size as usize);
            }
        }
        assert!(
            client.read(mine, 0, 8 << 20).unwrap() == model,
            "seed {seed}"
        );
    }
}

#[test]
fn many_copy_from_one_file_while_the_store_commits_and_cleans() {
    let v = Volume::new();
    let base = v.file(ROOT, "base");
    let content = bytes(4, 2 << 20);
    v.write(base, 0, &content);
    let mine: Vec<_> = (0..4).map(|n| v.file(ROOT, &format!("f{n}"))).collect();
    let settings = teal_log::StoreSettings {
        clean_below_percent: 100,
        ..v.client.store().settings()
    };
    v.client.store().set_settings(settings);
    let (client, content, is_done) = (&*v.client, &content[..], &AtomicBool::new(false));
    std::thread::scope(|threads| {
        let workers: Vec<_> = (0_u64..)
            .zip(&mine)
            .map(|(seed, mine)| threads.spawn(move || work(client, seed, (base, content), *mine)))
            .collect();
        threads.spawn(move || {
            let store = client.store();
            while !is_done.load(Ordering::Acquire) {
                store.commit().unwrap();
                store.clean(8, 90).unwrap();
                store.drop_caches();
                store.checkpoint().unwrap();
            }
        });
        let done: Vec<_> = workers
            .into_iter()
            .map(std::thread::ScopedJoinHandle::join)
            .collect();
        is_done.store(true, Ordering::Release);
        done.into_iter().for_each(|worker| worker.unwrap());
    });
    assert!(
        v.client.store().counter_values().bytes_shared > 10 << 20,
        "{:?}",
        v.client.store().counter_values()
    );
    assert!(v.client.read(base, 0, 4 << 20).unwrap() == content);
    check(&v);
    (0..mine.len()).for_each(|n| v.client.unlink(ROOT, format!("f{n}").as_bytes()).unwrap());
    // Large ones go in steps.
    for _ in 0..50 {
        v.client.step();
    }
    assert!(mine.iter().all(|no| v.client.getattr(*no).is_err()));
    check(&v);
}
