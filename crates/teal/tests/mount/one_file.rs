//! Random operations on the bytes of two files, cached, direct and by `fallocate` and
//! `copy_file_range` in turn, against what they must hold.

use super::support::{Mounted, is_long};
use rustix::fd::OwnedFd;
use rustix::fs::{Advice, CWD, FallocateFlags, Mode, OFlags, SeekFrom};
use rustix::io::Errno;
use std::path::PathBuf;
use teal_testkit::Rng;

/// Files grow to this.
const SIZE: u64 = 256 << 10;
/// The longest range of one operation.
const LONGEST: u64 = 64 << 10;

/// A file, open twice, and what it must hold.
struct File {
    path: PathBuf,
    /// Through the page cache, and past it.
    ways: [OwnedFd; 2],
    bytes: Vec<u8>,
}

impl File {
    fn new(path: PathBuf) -> Self {
        let flags = OFlags::CLOEXEC | OFlags::RDWR | OFlags::CREATE;
        let open =
            |more| rustix::fs::openat(CWD, &path, flags | more, Mode::RUSR | Mode::WUSR).unwrap();
        Self {
            ways: [open(OFlags::empty()), open(OFlags::DIRECT)],
            bytes: Vec::new(),
            path,
        }
    }

    fn size(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn grow(&mut self, end: u64) {
        self.bytes.resize(self.bytes.len().max(end as usize), 0);
    }

    fn range(&mut self, from: u64, to: u64) -> &mut [u8] {
        let to = (to as usize).min(self.bytes.len());
        &mut self.bytes[(from as usize).min(to)..to]
    }

    #[track_caller]
    fn reads(&mut self, way: usize, from: u64, to: u64, what: &str) {
        let mut got = vec![0xee; (to - from) as usize];
        let mut at = 0;
        while at < got.len() {
            match rustix::io::pread(&self.ways[way], &mut got[at..], from + at as u64) {
                Ok(0) => break,
                Ok(n) => at += n,
                Err(e) => panic!("{what}: reading at {}: {e}", from + at as u64),
            }
        }
        let want = self.range(from, to);
        assert_eq!(
            at,
            want.len(),
            "{what}: length read from {from} to {to}, way {way}"
        );
        let wrong = got
            .iter()
            .zip(want.iter())
            .position(|(got, want)| got != want);
        assert_eq!(
            wrong.map(|at| from + at as u64),
            None,
            "{what}: first wrong byte of {from} to {to}, way {way}"
        );
    }

    /// Checks that everything between the end of data and the next data is zeros, and that the map
    /// of data ends.
    #[track_caller]
    fn has_true_holes(&mut self, what: &str) {
        let mut at = 0;
        while at < self.size() {
            let data = match rustix::fs::seek(&self.ways[0], SeekFrom::Data(at)) {
                Ok(data) => data,
                Err(Errno::NXIO) => self.size(),
                Err(e) => panic!("{what}: {e}"),
            };
            assert!(
                self.range(at, data).iter().all(|byte| *byte == 0),
                "{what}: hole from {at} to {data}"
            );
            if data < self.size() {
                let hole = rustix::fs::seek(&self.ways[0], SeekFrom::Hole(data)).unwrap();
                assert!(hole > data, "{what}: data at {data}");
                at = hole;
            } else {
                at = data;
            }
        }
    }
}

/// A range within the largest size; a third of them in whole pages, a third in sectors.
fn range(rng: &mut Rng) -> (u64, u64) {
    let unit = *rng.pick(&[4096, 512, 1]);
    let from = rng.below(SIZE) / unit * unit;
    let to = (from + (rng.below(LONGEST) / unit + 1) * unit).min(SIZE);
    (from, to)
}

/// One operation on `files[one]`.
fn step(rng: &mut Rng, files: &mut [File; 2], what: &str) {
    let one = rng.pick_index(2);
    let way = rng.pick_index(2);
    let (from, to) = range(rng);
    let file = &mut files[one];
    let fd = &file.ways[way];
    match rng.below(24) {
        0..7 => file.reads(way, from, to, what),
        7..14 => {
            let mut bytes = vec![0; (to - from) as usize];
            rng.fill(&mut bytes);
            let mut at = 0;
            while at < bytes.len() {
                at += rustix::io::pwrite(fd, &bytes[at..], from + at as u64)
                    .unwrap_or_else(|e| panic!("{what}: {e}"));
            }
            file.grow(to);
            file.range(from, to).copy_from_slice(&bytes);
        }
        14 => {
            rustix::fs::ftruncate(fd, from).unwrap();
            file.bytes.resize(from as usize, 0);
        }
        15 => {
            rustix::fs::fallocate(
                fd,
                FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
                from,
                to - from,
            )
            .unwrap();
            file.range(from, to).fill(0);
        }
        16 => {
            rustix::fs::fallocate(fd, FallocateFlags::ZERO_RANGE, from, to - from).unwrap();
            file.grow(to);
            file.range(from, to).fill(0);
        }
        17 => {
            let flags = FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE;
            rustix::fs::fallocate(fd, flags, from, to - from).unwrap();
            file.range(from, to).fill(0);
        }
        18 => {
            rustix::fs::fallocate(fd, FallocateFlags::empty(), from, to - from).unwrap();
            file.grow(to);
        }
        19 => copy(rng, files, (one, from, to), what),
        20 => rustix::fs::fadvise(fd, 0, None, Advice::DontNeed).unwrap(),
        21 => rustix::fs::fsync(fd).unwrap(),
        22 => rustix::fs::fdatasync(fd).unwrap(),
        _ => file.has_true_holes(what),
    }
    let size = rustix::fs::fstat(&files[one].ways[1 - way])
        .unwrap()
        .st_size as u64;
    assert_eq!(size, files[one].size(), "{what}: size");
}

/// Copies a range to somewhere in either file.
fn copy(rng: &mut Rng, files: &mut [File; 2], (one, from, to): (usize, u64, u64), what: &str) {
    let other = rng.pick_index(2);
    let target = range(rng).0;
    let length = (to - from)
        .min(SIZE - target)
        .min(files[one].size().saturating_sub(from));
    let overlaps = one == other && from.abs_diff(target) < length;
    let mut done = 0;
    while done < length {
        let (mut at, mut into) = (from + done, target + done);
        let (source, sink) = (
            &files[one].ways[rng.pick_index(2)],
            &files[other].ways[rng.pick_index(2)],
        );
        let copied = rustix::fs::copy_file_range(
            source,
            Some(&mut at),
            sink,
            Some(&mut into),
            (length - done) as usize,
        );
        match copied {
            Err(Errno::INVAL) if overlaps => return,
            Ok(0) | Err(_) => {
                panic!("{what}: copying {length} from {from} to {target}: {copied:?}")
            }
            Ok(n) => done += n as u64,
        }
    }
    assert!(
        length == 0 || !overlaps,
        "{what}: overlapping ranges are refused"
    );
    let bytes = files[one].range(from, from + length).to_vec();
    if length > 0 {
        files[other].grow(target + length);
        files[other]
            .range(target, target + length)
            .copy_from_slice(&bytes);
    }
}

fn holds_what_was_written(test: &str, seeds: std::ops::Range<u64>, ops: usize) {
    let Some(mut m) = Mounted::new(test, "512M") else {
        return;
    };
    for seed in seeds {
        let mut rng = Rng::new(seed);
        let mut files = ["a", "b"].map(|name| File::new(m.path(format!("{seed}{name}"))));
        for round in 0..4 {
            for op in 0..ops / 4 {
                step(
                    &mut rng,
                    &mut files,
                    &format!("seed {seed}, round {round}, op {op}"),
                );
            }
            for file in &mut files {
                (0..2).for_each(|way| {
                    file.reads(
                        way,
                        0,
                        SIZE + 1,
                        &format!("seed {seed}, after round {round}"),
                    )
                });
            }
            // Bytes and paths stay; what is open is closed.
            let kept = files.map(|file| (file.path, file.bytes));
            m.remount();
            files = kept.map(|(path, bytes)| File {
                bytes,
                ..File::new(path)
            });
        }
        for file in &mut files {
            file.reads(0, 0, SIZE + 1, &format!("seed {seed}, mounted again"));
            file.has_true_holes("mounted again");
        }
    }
    m.down();
    m.check();
}

#[test]
fn cached_direct_and_shifted_bytes_agree() {
    let (seeds, ops) = if is_long() {
        (1..9, 100_000)
    } else {
        (1..5, 8_000)
    };
    holds_what_was_written("cached_direct_and_shifted_bytes_agree", seeds, ops);
}
