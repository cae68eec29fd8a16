//! The explorer itself is tested: a toy log with seeded bugs, each of which must be caught, and a
//! correct one that must not.

use super::*;
use std::io::IoSlice;
use teal_env::{Disk, DiskShape};
use teal_types::Sector;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ToyBug {
    None,
    /// Says "durable" without a sync.
    NoSync,
    /// The checksum covers the header only.
    PayloadUncovered,
    /// A record does not name the one before: leftovers of an earlier life line up behind a new
    /// record.
    NoChain,
    /// An unreadable sector is an error instead of the end.
    UnreadableIsFatal,
    /// Records are packed into physical sectors that already hold durable ones.
    SharesSectors,
}

fn checksum_with(seed: u64, bytes: &[u8]) -> u64 {
    let step = |hash: u64, &b: &u8| {
        (hash ^ u64::from(b))
            .wrapping_mul(0x0100_0000_01b3)
            .rotate_left(23)
    };
    bytes.iter().fold(seed ^ 0xcbf2_9ce4_8422_2325, step)
}

/// Records of a header sector (checksum, epoch, sequence number, payload length) and payload
/// sectors.
struct ToyLog {
    disk: RecordingDisk,
    bug: ToyBug,
    epoch: u64,
    at: u64,
    chain: u64,
    records: Vec<Vec<u8>>,
}

impl ToyLog {
    fn open(disk: RecordingDisk, bug: ToyBug, epoch: u64) -> Result<Self, std::io::Error> {
        let mut log = Self {
            disk,
            bug,
            epoch,
            at: 0,
            chain: 0,
            records: vec![],
        };
        while let Some(payload) = log.read_record()? {
            log.records.push(payload);
        }
        Ok(log)
    }

    fn covered_checksum(&self, header: &[u8; 512], payload: &[u8]) -> u64 {
        let head = checksum_with(
            if self.bug == ToyBug::NoChain {
                0
            } else {
                self.chain
            },
            &header[8..],
        );
        if self.bug == ToyBug::PayloadUncovered {
            head
        } else {
            checksum_with(head, payload)
        }
    }

    fn read_record(&mut self) -> Result<Option<Vec<u8>>, std::io::Error> {
        let mut header = [0; 512];
        match self.disk.read_at(Sector::new(self.at), &mut header) {
            Err(e) if self.bug == ToyBug::UnreadableIsFatal => return Err(e),
            Err(_) => return Ok(None),
            Ok(()) => {}
        }
        let field = |n: usize| u64::from_le_bytes(header[n * 8..][..8].try_into().unwrap());
        let (said, seq, len) = (field(0), field(2), field(3));
        if seq != self.records.len() as u64 + 1 || len > 8192 || !len.is_multiple_of(512) {
            return Ok(None);
        }
        let mut payload = vec![0; len as usize];
        if self
            .disk
            .read_at(Sector::new(self.at + 1), &mut payload)
            .is_err()
            || said != self.covered_checksum(&header, &payload)
        {
            return Ok(None);
        }
        self.advance_past(said, payload.len());
        Ok(Some(payload))
    }

    fn advance_past(&mut self, sum: u64, len: usize) {
        self.chain = sum;
        self.at += 1 + len as u64 / 512;
        if self.bug != ToyBug::SharesSectors {
            let unit = u64::from(self.disk.shape().physical) / 512;
            self.at = self.at.next_multiple_of(unit);
        }
    }

    fn append(&mut self, payload: &[u8]) -> Result<(), String> {
        let mut header = [0; 512];
        let fields = [
            self.epoch,
            self.records.len() as u64 + 1,
            payload.len() as u64,
        ];
        for (n, field) in fields.into_iter().enumerate() {
            header[8 + n * 8..][..8].copy_from_slice(&field.to_le_bytes());
        }
        let sum = self.covered_checksum(&header, payload);
        header[..8].copy_from_slice(&sum.to_le_bytes());
        self.disk.add_mark(self.records.len() as u64);
        let at = Sector::new(self.at);
        self.advance_past(sum, payload.len());
        let padding = vec![0; (self.at - at.get() - 1) as usize * 512 - payload.len()];
        let parts = [&header, payload, &padding].map(IoSlice::new);
        self.disk
            .write_at(at, &parts)
            .map_err(|e| format!("append: {e}"))?;
        self.records.push(payload.to_vec());
        Ok(())
    }

    fn sync(&self) {
        if self.bug != ToyBug::NoSync {
            self.disk.sync().unwrap();
        }
        self.disk.add_mark(PROMISE | self.records.len() as u64);
    }
}

/// Set in marks that say how many records were promised.
const PROMISE: u64 = 1 << 32;

fn record_payload(life: u8, n: usize) -> Vec<u8> {
    // Records of the same number have the same length in every life.
    vec![life * 16 + n as u8; 512 * [1, 4, 16][n % 3]]
}

/// Appends `count` records in this life, two per sync.
fn run_life(log: &mut ToyLog, life: u8, count: usize) -> Result<(), String> {
    for n in 0..count {
        log.append(&record_payload(life, log.records.len()))?;
        if n % 2 == 1 {
            log.sync();
        }
    }
    Ok(())
}

fn promised_records(trace: &DiskTrace, point: usize) -> usize {
    trace
        .marks_before(point)
        .filter(|mark| mark & PROMISE != 0)
        .map(|mark| (mark - PROMISE) as usize)
        .max()
        .unwrap_or(0)
}

/// Opens an image and checks durability and prefix.
fn check_image(
    image: &CrashImage,
    bug: ToyBug,
    epoch: u64,
    written: &[Vec<u8>],
    promised: usize,
) -> Result<ToyLog, String> {
    let log = ToyLog::open(image.disk.clone(), bug, epoch).map_err(|e| format!("{image}: {e}"))?;
    if log.records.len() < promised {
        return Err(format!(
            "{image}: {promised} records promised, {} found",
            log.records.len()
        ));
    }
    if written.get(..log.records.len()) != Some(&log.records) {
        return Err(format!("{image}: not a prefix of what was written"));
    }
    Ok(log)
}

/// Explores two lives; the number of images, or the first broken guarantee.
fn explore_bug(bug: ToyBug, physical: u32) -> Result<u64, String> {
    let shape = DiskShape {
        sectors: 8192,
        logical: 512,
        physical,
        rotational: false,
        sparse: false,
    };
    let disk = RecordingDisk::new(shape);
    let mut log = ToyLog::open(disk.clone(), bug, 1).unwrap();
    run_life(&mut log, 1, 6)?;
    let (first, mut broken, mut images) = (disk.trace(), Ok(()), 0);
    let (mut rng, mut second_rng) = (Rng::new(1), Rng::new(2));
    let policy = CrashPolicy {
        exhaustive: 6,
        random: 64,
        unreadable: true,
    };
    images += first.explore(&mut rng, &policy, |image| {
        if broken.is_ok() {
            broken = check_image(
                &image,
                bug,
                2,
                &log.records,
                promised_records(&first, image.point),
            )
            .and_then(|mut second| {
                let before = second.records.len();
                run_life(&mut second, 2, 2)?;
                let trace = image.disk.trace();
                let policy = CrashPolicy {
                    exhaustive: 3,
                    random: 8,
                    unreadable: false,
                };
                let mut broken = Ok(());
                images += trace.explore(&mut second_rng, &policy, |image| {
                    let promised = promised_records(&trace, image.point).max(before);
                    broken = broken.clone().and_then(|()| {
                        check_image(&image, bug, 3, &second.records, promised).map(drop)
                    });
                });
                broken
            });
        }
    });
    broken.map(|()| images)
}

#[test]
fn the_correct_log_survives_every_image() {
    for physical in [512, 4096] {
        let images = explore_bug(ToyBug::None, physical).unwrap();
        assert!(images > 1_000, "{images}");
    }
}

#[test]
fn every_seeded_bug_is_caught() {
    for (bug, sign) in [
        (ToyBug::NoSync, "promised"),
        (ToyBug::PayloadUncovered, "not a prefix"),
        (ToyBug::NoChain, "not a prefix"),
        (ToyBug::UnreadableIsFatal, "error"),
    ] {
        let caught = explore_bug(bug, 512).expect_err(&format!("{bug:?} is not caught"));
        assert!(caught.contains(sign), "{bug:?}: {caught}");
    }
}

#[test]
fn sharing_physical_sectors_with_durable_records_is_caught() {
    explore_bug(ToyBug::SharesSectors, 512).expect("harmless where physical sectors are small");
    let caught = explore_bug(ToyBug::SharesSectors, 4096).expect_err("not caught");
    assert!(
        caught.contains("promised") || caught.contains("append"),
        "{caught}"
    );
}
