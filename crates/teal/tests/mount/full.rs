//! A full store: filled to the last block and emptied, again and again; nothing wedges, nothing is
//! lost, `df` is right.

use crate::support::{Mounted, PATIENCE, seeded, wait_until};
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use teal_testkit::Rng;

const SIZE: &str = "64M";
/// The amount by which free space may differ after everything was deleted: a checkpoint and the
/// cleaner hold some in reserve.
const TOLERANCE: u64 = 4 << 20;

fn free(m: &Mounted) -> u64 {
    let df = rustix::fs::statvfs(m.point()).unwrap();
    assert!(df.f_bfree <= df.f_blocks && df.f_bavail <= df.f_bfree);
    df.f_bfree * df.f_frsize
}

fn is_full(error: &io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::NOSPC.raw_os_error())
}

/// Syncing one directory commits everything.
fn sync(m: &Mounted) {
    use rustix::fs::{Mode, OFlags};
    let dir = rustix::fs::open(
        m.point(),
        OFlags::CLOEXEC | OFlags::RDONLY | OFlags::DIRECTORY,
        Mode::empty(),
    )
    .unwrap();
    rustix::fs::fsync(dir).unwrap();
}

/// Fills the mount with files of mixed sizes; the seeds and lengths of those that were written
/// whole, by number.
fn fill_up(m: &Mounted, rng: &mut Rng) -> Vec<(u64, usize)> {
    let mut whole = Vec::new();
    let mut misses = 0;
    // A file that does not fit is tried smaller.
    while misses < 6 {
        let sizes: &[usize] = if misses == 0 {
            &[0, 100, 4096, 50_000, 700_000, 3_000_000]
        } else {
            &[4096, 20_000]
        };
        let (seed, len) = (rng.next_u64(), *rng.pick(sizes));
        let path = m.path(format!("f{}", whole.len()));
        match std::fs::write(&path, seeded(seed, len)) {
            Ok(()) => whole.push((seed, len)),
            Err(e) => {
                assert!(is_full(&e), "{e}");
                misses += 1;
                match std::fs::remove_file(&path) {
                    Ok(()) => {}
                    Err(e) => assert_eq!(
                        e.kind(),
                        io::ErrorKind::NotFound,
                        "deleting works on a full store"
                    ),
                }
            }
        }
    }
    whole
}

fn verify(m: &Mounted, files: &[(u64, usize)]) {
    for (n, (seed, len)) in files.iter().enumerate() {
        assert!(
            std::fs::read(m.path(format!("f{n}"))).unwrap() == seeded(*seed, *len),
            "f{n} of {len} bytes"
        );
    }
}

fn empty(m: &Mounted) {
    for entry in std::fs::read_dir(m.point()).unwrap() {
        let path = entry.unwrap().path();
        std::fs::remove_file(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    }
    sync(m);
}

#[track_caller]
fn is_as_free_as(m: &Mounted, start: u64, what: &str) {
    let is_back = wait_until(PATIENCE, || free(m) + TOLERANCE >= start);
    assert!(
        is_back,
        "{what}: {} of {start} bytes are free again: {}",
        free(m),
        m.status()
    );
}

#[test]
fn filled_and_emptied_twenty_times() {
    let Some(mut m) = Mounted::new("filled_and_emptied_twenty_times", SIZE) else {
        return;
    };
    let start = free(&m);
    let mut rng = Rng::new(1);
    for round in 1..=20 {
        let files = fill_up(&m, &mut rng);
        let bytes: u64 = files.iter().map(|(_, len)| *len as u64).sum();
        assert!(
            bytes * 10 > start * 8,
            "round {round}: {bytes} of {start} bytes could be written"
        );
        verify(&m, &files);
        if round % 5 == 0 {
            m.down();
            m.check();
            m.up();
            verify(&m, &files);
        }
        empty(&m);
        is_as_free_as(&m, start, &format!("round {round}"));
    }
    m.down();
    m.check();
}

#[test]
fn used_space_grows_as_written() {
    let Some(m) = Mounted::new("used_space_grows_as_written", SIZE) else {
        return;
    };
    let start = free(&m);
    for n in 1..=8_u64 {
        std::fs::write(m.path(format!("f{n}")), seeded(n, 4 << 20)).unwrap();
        sync(&m);
        let used = start - free(&m);
        assert!(
            used >= n * (4 << 20),
            "{used} bytes used by {n} files of 4 MiB"
        );
        assert!(
            used < n * (4 << 20) + TOLERANCE,
            "{used} bytes used by {n} files of 4 MiB"
        );
    }
    let sparse = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(m.path("sparse"))
        .unwrap();
    sparse.set_len(1 << 40).unwrap();
    sync(&m);
    assert!(
        start - free(&m) < (32 << 20) + TOLERANCE,
        "holes take no space"
    );
}

#[test]
fn a_store_full_of_tiny_files_can_be_emptied() {
    let Some(mut m) = Mounted::new("a_store_full_of_tiny_files_can_be_emptied", "32M") else {
        return;
    };
    let start = free(&m);
    let mut count = 0;
    let error = loop {
        let dir = m.path(format!("d{}", count / 1000));
        let made = if count % 1000 == 0 {
            std::fs::create_dir(&dir)
        } else {
            Ok(())
        };
        match made
            .and_then(|()| std::fs::write(dir.join(format!("tiny{count}")), count.to_string()))
        {
            Ok(()) => count += 1,
            Err(error) => break error,
        }
    };
    assert!(is_full(&error), "{error}");
    assert!(count > 5_000, "{count} files of a few bytes in 32 MiB");
    m.remount();
    for n in (0..count).step_by(97) {
        let path = m.path(format!("d{}/tiny{n}", n / 1000));
        assert_eq!(std::fs::read_to_string(path).unwrap(), n.to_string());
    }
    for entry in std::fs::read_dir(m.point()).unwrap() {
        std::fs::remove_dir_all(entry.unwrap().path()).unwrap();
    }
    sync(&m);
    is_as_free_as(&m, start, "tiny files");
    m.down();
    m.check();
}

fn append_until_full(path: &Path, piece: &[u8]) -> u64 {
    let mut file = std::fs::OpenOptions::new()
        .append(true)
        .create(true)
        .open(path)
        .unwrap();
    let mut written = 0;
    loop {
        match file.write(piece) {
            Ok(n) => written += n as u64,
            Err(e) => {
                assert!(is_full(&e), "{e}");
                return written;
            }
        }
    }
}

#[test]
fn one_file_may_take_everything() {
    let Some(mut m) = Mounted::new("one_file_may_take_everything", SIZE) else {
        return;
    };
    let start = free(&m);
    let path = m.path("all");
    let piece = seeded(9, 123_457);
    let written = append_until_full(&path, &piece);
    assert!(written * 10 > start * 8, "{written} of {start}");
    assert_eq!(std::fs::metadata(&path).unwrap().len(), written);
    m.remount();
    let read = std::fs::read(&path).unwrap();
    assert_eq!(read.len() as u64, written);
    assert!(
        read.chunks(piece.len())
            .all(|chunk| *chunk == piece[..chunk.len()])
    );
    std::fs::remove_file(&path).unwrap();
    sync(&m);
    is_as_free_as(&m, start, "one file");
}

#[test]
fn overwriting_at_random_on_a_full_store_goes_on() {
    let Some(mut m) = Mounted::new("overwriting_at_random_on_a_full_store_goes_on", SIZE) else {
        return;
    };
    let path = m.path("all");
    let len = append_until_full(&path, &vec![0xee; 1 << 20]);
    // Give back a little: no log works on the very last block, and df says so.
    let len = len - (2 << 20);
    let file = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(&path)
        .unwrap();
    file.set_len(len).unwrap();
    file.sync_all().unwrap();
    let mut expected = vec![0xee; usize::try_from(len).unwrap()];
    let mut rng = Rng::new(4);
    let mut refused = 0;
    for n in 0..8_000 {
        let block = rng.below(len / 4096);
        let data = seeded(n, 4096);
        match file.write_all_at(&data, block * 4096) {
            Ok(()) => expected[block as usize * 4096..][..4096].copy_from_slice(&data),
            Err(e) => {
                assert!(is_full(&e), "{e}");
                refused += 1;
            }
        }
        if n % 500 == 0 {
            file.sync_data().unwrap();
        }
    }
    assert!(
        refused < 80,
        "{refused} of 8000 overwrites were refused: {}",
        m.status()
    );
    drop(file);
    assert!(std::fs::read(&path).unwrap() == expected);
    m.remount();
    assert!(std::fs::read(&path).unwrap() == expected);
    std::fs::remove_file(&path).unwrap();
    m.down();
    m.check();
}
