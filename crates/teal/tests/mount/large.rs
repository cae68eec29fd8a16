//! Large directories and large files cost in proportion to what is in them, in device bytes and
//! pages, not in time.

use crate::support::{Mounted, is_long, run_program};
use rustix::fs::{FallocateFlags, SeekFrom, fallocate, seek};
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};

/// The work that the store has done.
#[derive(Debug, Clone, Copy)]
struct Done {
    written: u64,
    read: u64,
}

fn done(m: &Mounted) -> Done {
    let status = m.status();
    let counters = status["counters"].as_array().unwrap();
    let count = |name: &str| {
        counters.iter().find(|c| c[0] == name).unwrap()[1]
            .as_u64()
            .unwrap()
    };
    Done {
        written: count("bytes_written"),
        read: count("bytes_read"),
    }
}

/// Device bytes for each entry of a directory of `count`: written for making them, read for listing
/// and looking at them after a remount, written for removing them.
fn costs(m: &mut Mounted, count: usize) -> [u64; 3] {
    // Commits and checkpoints come by size, so that a slow machine writes no more than a fast one,
    // and a machine with many calls of sync(2) no more than one without.
    let by_size = |m: &Mounted| {
        ["commit-seconds", "checkpoint-seconds"]
            .iter()
            .for_each(|key| m.set(key, "3600"))
    };
    let sync = |m: &Mounted| {
        run_program(std::process::Command::new("sync").arg(m.point())).expect_success()
    };
    let dir = m.path(count.to_string());
    let file = |n: usize| dir.join(format!("an entry {n}"));
    m.hide_from_sync();
    by_size(m);
    let mut from = done(m);
    std::fs::create_dir(&dir).unwrap();
    for n in 0..count {
        std::fs::write(file(n), "").unwrap();
    }
    sync(m);
    let made = done(m).written - from.written;
    m.hide_from_sync();
    by_size(m);
    from = done(m);
    let each = std::fs::read_dir(&dir).unwrap();
    assert_eq!(
        each.filter(|entry| entry.as_ref().unwrap().metadata().unwrap().is_file())
            .count(),
        count
    );
    let listed = done(m).read - from.read;
    from = done(m);
    for n in 0..count {
        std::fs::remove_file(file(n)).unwrap();
    }
    sync(m);
    let removed = done(m).written - from.written;
    std::fs::remove_dir(&dir).unwrap();
    let costs = [made, listed, removed].map(|bytes| bytes / count as u64);
    eprintln!(
        "{count} entries, bytes for each: written {}, read to list {}, written to remove {}",
        costs[0], costs[1], costs[2]
    );
    costs
}

#[test]
fn directories_cost_in_proportion_to_their_entries() {
    let Some(mut m) = Mounted::new("directories_cost_in_proportion_to_their_entries", "4G") else {
        return;
    };
    let counts: &[usize] = if is_long() {
        &[10_000, 100_000, 1_000_000]
    } else {
        &[10_000, 30_000, 100_000]
    };
    let all: Vec<_> = counts.iter().map(|count| costs(&mut m, *count)).collect();
    for (count, costs) in counts.iter().zip(&all).skip(1) {
        for (what, (large, small)) in ["making", "listing", "removing"]
            .iter()
            .zip(costs.iter().zip(all[0]))
        {
            assert!(
                *large < small * 2 + 64,
                "{what} {count}: {large} bytes for each, {small} of {}",
                counts[0]
            );
        }
    }
    m.down();
    m.check();
}

#[test]
fn eight_tebibytes_of_holes_take_no_room() {
    const END: u64 = 8 << 40;
    let Some(mut m) = Mounted::new("eight_tebibytes_of_holes_take_no_room", "64M") else {
        return;
    };
    let path = m.path("sparse");
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .open(&path)
        .unwrap();
    file.write_all_at(b"middle", 3 << 40).unwrap();
    file.write_all_at(b"end", END - 3).unwrap();
    file.sync_all().unwrap();
    let look = |file: &File| {
        assert_eq!(seek(file, SeekFrom::Data(0)), Ok(3 << 40));
        assert_eq!(seek(file, SeekFrom::Hole(3 << 40)), Ok((3 << 40) + 4096));
        assert_eq!(seek(file, SeekFrom::Data((3 << 40) + 4096)), Ok(END - 4096));
        assert_eq!(seek(file, SeekFrom::Hole(END - 1)), Ok(END));
        assert_eq!(seek(file, SeekFrom::Data(END)), Err(Errno::NXIO));
        let meta = file.metadata().unwrap();
        assert!(
            meta.len() == END && meta.blocks() * 512 <= 2 * 4096,
            "{meta:?}"
        );
        let mut bytes = [0; 6];
        file.read_exact_at(&mut bytes, 3 << 40).unwrap();
        assert_eq!(&bytes, b"middle");
        file.read_exact_at(&mut bytes, END - 6).unwrap();
        assert_eq!(&bytes, b"\0\0\0end");
    };
    look(&file);
    drop(file);
    m.remount();
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(&path)
        .unwrap();
    look(&file);
    fallocate(
        &file,
        FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
        1 << 40,
        6 << 40,
    )
    .unwrap();
    assert_eq!(seek(&file, SeekFrom::Data(0)), Ok(END - 4096));
    file.write_all_at(b"middle", 3 << 40).unwrap();
    // Cut in the middle of what is there: what was behind does not come back.
    file.set_len((3 << 40) + 3).unwrap();
    file.set_len(END).unwrap();
    let mut bytes = [1; 6];
    file.read_exact_at(&mut bytes, 3 << 40).unwrap();
    assert_eq!(&bytes, b"mid\0\0\0");
    assert_eq!(
        seek(&file, SeekFrom::Data((3 << 40) + 4096)),
        Err(Errno::NXIO)
    );
    assert!(file.metadata().unwrap().blocks() * 512 <= 4096);
    file.set_len(0).unwrap();
    assert_eq!(file.metadata().unwrap().blocks(), 0);
    drop(file);
    m.down();
    m.check();
}
