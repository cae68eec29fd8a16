//! Copies through the kernel: `cp` of a large file moves no content, and what comes of it behaves
//! like any two files.

use crate::support::{Mounted, digest, seeded, shell};
use rustix::fs;
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;

const MIB: u64 = 1 << 20;

fn open(path: &Path) -> File {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
        .unwrap()
}

/// A file of this size without a hole, on the disk.
fn make(path: &Path, seed: u64, bytes: u64) {
    let file = open(path);
    for at in (0..bytes).step_by(MIB as usize) {
        file.write_all_at(&seeded(seed + at, (bytes - at).min(MIB) as usize), at)
            .unwrap();
    }
    file.sync_all().unwrap();
}

#[test]
fn a_copy_by_cp_writes_no_content() {
    let Some(mut m) = Mounted::new("a_copy_by_cp_writes_no_content", "1G") else {
        return;
    };
    let (bytes, from, to) = (200 * MIB + 777, m.path("from"), m.path("to"));
    make(&from, 1, bytes);
    let whole = digest(&from);
    let (written, read, live) = (
        m.counter("bytes_written"),
        m.counter("bytes_read"),
        m.status()["live_bytes"].clone(),
    );
    let said = shell(m.world(), r#"cp "$1" "$2" && sync "$2""#, &[&from, &to]);
    assert_eq!(said.code, 0, "{said}");
    assert_eq!(m.counter("bytes_shared"), bytes);
    let written = m.counter("bytes_written") - written;
    assert!(
        written < bytes / 100,
        "{written} bytes were written for a copy of {bytes}"
    );
    let read = m.counter("bytes_read") - read;
    assert!(
        read < bytes / 100,
        "{read} bytes were read for a copy of {bytes}"
    );
    let more = m.status()["live_bytes"]
        .as_u64()
        .unwrap()
        .saturating_sub(live.as_u64().unwrap());
    assert!(more < bytes / 100, "{more} bytes more are in use");
    let (a, b) = (
        std::fs::metadata(&from).unwrap(),
        std::fs::metadata(&to).unwrap(),
    );
    assert_eq!((a.size(), a.blocks()), (b.size(), b.blocks()));
    assert_eq!(digest(&to), whole);

    open(&to).write_all_at(b"another", 5 * MIB + 99).unwrap();
    open(&from).set_len(100 * MIB + 1).unwrap();
    let changed = digest(&to);
    assert_ne!(changed, whole);
    m.remount();
    assert_eq!(digest(&to), changed);
    std::fs::remove_file(&from).unwrap();
    m.remount();
    assert_eq!(digest(&to), changed);
    open(&to)
        .write_all_at(&seeded(1 + 5 * MIB, MIB as usize)[99..106], 5 * MIB + 99)
        .unwrap();
    assert_eq!(digest(&to), whole);
    std::fs::remove_file(&to).unwrap();
    m.down();
    m.check();
}

/// All of a range, however it is cut.
fn copy(from: (&File, u64), to: (&File, u64), len: u64) -> Result<u64, Errno> {
    let (mut at, mut into) = (from.1, to.1);
    while at < from.1 + len {
        let left = (from.1 + len - at) as usize;
        if fs::copy_file_range(from.0, Some(&mut at), to.0, Some(&mut into), left)? == 0 {
            break;
        }
    }
    Ok(at - from.1)
}

#[test]
fn ranges_of_every_kind_are_copied() {
    let Some(mut m) = Mounted::new("ranges_of_every_kind_are_copied", "256M") else {
        return;
    };
    let size = 3 * MIB + 1234;
    make(&m.path("from"), 5, size);
    let (from, original) = (
        open(&m.path("from")),
        std::fs::read(m.path("from")).unwrap(),
    );
    let ranges = [
        (0, 0, size),
        (4096, 0, MIB),
        (0, 12_288, 2 * MIB + 5),
        (100, 8292, MIB),
        (7, 0, 99_999),
        (MIB, 3 * MIB, 9 * MIB),
    ];
    let mut expected = Vec::new();
    for (n, (at, into, len)) in ranges.into_iter().enumerate() {
        let path = m.path(format!("to{n}"));
        make(&path, 9, 2 * MIB + 11);
        let mut bytes = std::fs::read(&path).unwrap();
        let old = std::fs::metadata(&path).unwrap().mtime_nsec();
        let has = copy((&from, at), (&open(&path), into), len).unwrap();
        assert_eq!(
            has,
            len.min(size - at),
            "range {n}: a copy ends at the end of the source"
        );
        bytes.resize(bytes.len().max((into + has) as usize), 0);
        bytes[into as usize..(into + has) as usize]
            .copy_from_slice(&original[at as usize..(at + has) as usize]);
        assert!(std::fs::read(&path).unwrap() == bytes, "range {n}");
        assert_ne!(
            std::fs::metadata(&path).unwrap().mtime_nsec(),
            old,
            "a copy is a change of the target"
        );
        expected.push((path, bytes));
    }
    // Within one file: elsewhere, but not over itself.
    assert_eq!(copy((&from, 0), (&from, 4 * MIB), MIB), Ok(MIB));
    for into in [1, 4096, size - 1] {
        assert_eq!(copy((&from, 0), (&from, into), size), Err(Errno::INVAL));
    }
    assert_eq!(
        copy((&from, 9 * MIB), (&from, 0), 1),
        Ok(0),
        "behind the end there is nothing"
    );
    drop(from);
    m.remount();
    for (path, bytes) in expected {
        assert!(std::fs::read(&path).unwrap() == bytes, "{}", path.display());
    }
    assert!(std::fs::read(m.path("from")).unwrap()[4 * MIB as usize..] == original[..MIB as usize]);
    m.down();
    m.check();
}

#[test]
fn holes_stay_holes_in_a_copy() {
    let Some(m) = Mounted::new("holes_stay_holes_in_a_copy", "256M") else {
        return;
    };
    let (from, to) = (open(&m.path("from")), open(&m.path("to")));
    from.write_all_at(&seeded(1, MIB as usize), 1 << 40)
        .unwrap();
    from.sync_all().unwrap();
    assert_eq!(
        copy((&from, 0), (&to, 0), (1 << 40) + MIB),
        Ok((1 << 40) + MIB)
    );
    assert_eq!(
        to.metadata().unwrap().blocks(),
        from.metadata().unwrap().blocks()
    );
    assert_eq!(fs::seek(&to, fs::SeekFrom::Data(0)), Ok(1 << 40));
}
