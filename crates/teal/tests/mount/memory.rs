//! The daemon's memory is bounded, whatever it serves: many files, much data.

use crate::support::{Mounted, is_long};
use std::fs::OpenOptions;
use std::io::{Read as _, Write as _};
use std::path::Path;

/// The most that was ever resident of a process, in KiB.
fn peak(pid: i32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmHWM:"))
        .unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// In one directory: makes them, mounts again, lists, looks at each, removes. What the daemon held
/// at most after each.
fn peaks_of_files(m: &mut Mounted, count: usize) -> Vec<(&'static str, u64)> {
    let dir = m.path("dir");
    let mut peaks = Vec::new();
    let mut told = |what, m: &Mounted| {
        peaks.push((what, peak(m.pid())));
        eprintln!("{count} files {what}: VmHWM {} KiB", peak(m.pid()));
    };
    std::fs::create_dir(&dir).unwrap();
    let file = |n: usize| dir.join(format!("file {n:07}"));
    for n in 0..count {
        std::fs::write(file(n), format!("the content of file {n}")).unwrap();
    }
    told("created", m);
    assert_eq!(std::fs::read_dir(&dir).unwrap().count(), count);
    told("listed", m);
    assert!((0..count).all(|n| std::fs::metadata(file(n)).unwrap().len() >= 21));
    told("looked at", m);
    m.remount();
    assert_eq!(std::fs::read_dir(&dir).unwrap().count(), count);
    assert!((0..count).all(|n| std::fs::metadata(file(n)).unwrap().len() >= 21));
    told("listed and looked at after a remount", m);
    for n in 0..count {
        std::fs::remove_file(file(n)).unwrap();
    }
    told("removed", m);
    std::fs::remove_dir(&dir).unwrap();
    peaks
}

#[test]
fn memory_does_not_grow_with_the_number_of_files() {
    let Some(mut m) = Mounted::new("memory_does_not_grow_with_the_number_of_files", "4G") else {
        return;
    };
    let (count, most) = if is_long() {
        (1_000_000, 100 << 10)
    } else {
        (100_000, 90 << 10)
    };
    let peaks = peaks_of_files(&mut m, count);
    assert!(
        peaks.iter().all(|(_, peak)| *peak < most),
        "of {count} files, KiB: {peaks:?}"
    );
    m.down();
    m.check();
}

/// Writes files of `each` bytes with something of their own in each block, and reads them back.
fn stream(dir: &Path, files: usize, each: u64) {
    let mut block = vec![0x5a; 1 << 20];
    for n in 0..files {
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(dir.join(n.to_string()))
            .unwrap();
        for at in 0..each >> 20 {
            block[..16].copy_from_slice(&[n as u64, at].map(u64::to_le_bytes).concat());
            file.write_all(&block).unwrap();
        }
    }
    for n in 0..files {
        let mut file = OpenOptions::new()
            .read(true)
            .open(dir.join(n.to_string()))
            .unwrap();
        for at in 0..each >> 20 {
            file.read_exact(&mut block).unwrap();
            assert_eq!(block[..16], [n as u64, at].map(u64::to_le_bytes).concat());
        }
    }
}

#[test]
fn memory_does_not_grow_with_what_streams_through() {
    let size = if is_long() { "24G" } else { "2G" };
    let Some(mut m) = Mounted::new("memory_does_not_grow_with_what_streams_through", size) else {
        return;
    };
    let each = if is_long() { 5 << 30 } else { 256 << 20 };
    stream(m.point(), 4, each);
    let streamed = peak(m.pid());
    eprintln!(
        "4 x {} MiB written and read: VmHWM {streamed} KiB",
        each >> 20
    );
    assert!(streamed < 150 << 10, "{streamed} KiB");
    m.down();
    m.check();
}
