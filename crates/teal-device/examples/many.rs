//! What a drive with very many objects costs: making it, opening it (that is what attaching waits
//! for, besides the commits that were missed), asking it for objects, taking in commits. `many FILE
//! SIZE_GIB OBJECTS [COMMITS]`: makes the file if it is not there. `many fill FILE OBJECTS`: so
//! many are added to a drive of some volume, under numbers that the volume does not use.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a measurement that fails may stop"
)]

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use teal_device::{Drive, DriveLabel};
use teal_env::{FileDisk, OpenMode, SystemClock, SystemEntropy};
use teal_types::{CommitSeq, ObjectNo};

const FIRST: u64 = 1 << 30;
const SIZE: u64 = 4096;
/// No client of a volume gets so many leases.
const UNUSED: u64 = 1 << 50;

fn megabytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS"))
        .unwrap();
    line.split_whitespace()
        .nth(1)
        .unwrap()
        .parse::<u64>()
        .unwrap()
        / 1024
}

fn make(path: &Path, gib: u64, objects: u64) {
    let begun = Instant::now();
    let disk = Arc::new(FileDisk::open(path, OpenMode::Create(gib << 30)).unwrap());
    let label = DriveLabel {
        volume: teal_types::VolumeId::new(1),
        device: teal_types::DriveNo::new(1),
        position: CommitSeq::new(1),
        ..DriveLabel::default()
    };
    let drive = Drive::create(disk, Arc::new(SystemClock), &SystemEntropy, "many", label).unwrap();
    add(&drive, FIRST, objects);
    drive.close().unwrap();
    println!(
        "made {objects} objects in {:?}, {} MB resident",
        begun.elapsed(),
        megabytes()
    );
}

fn add(drive: &Drive, first: u64, objects: u64) {
    for n in 0..objects {
        // Content of zeros: nothing but what is known of it takes room.
        drive
            .install(
                ObjectNo::new(first + n),
                (CommitSeq::new(1), SIZE),
                (0, SIZE),
                &[],
            )
            .unwrap();
        if n % 5_000 == 4_999 {
            drive.sync().unwrap();
        }
    }
}

fn open(path: &Path) -> Drive {
    Drive::open(
        Arc::new(FileDisk::open(path, OpenMode::Write).unwrap()),
        Arc::new(SystemClock),
    )
    .unwrap()
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let number = |at: usize| args[at].parse::<u64>().unwrap();
    if args[1] == "fill" {
        let drive = open(Path::new(&args[2]));
        add(&drive, UNUSED, number(3));
        drive.close().unwrap();
        return;
    }
    let path = Path::new(&args[1]);
    let objects = number(3);
    if !path.exists() {
        make(path, number(2), objects);
        return;
    }
    let (begun, before) = (Instant::now(), megabytes());
    let drive = open(path);
    println!(
        "{} objects, opened in {:?}, {before} to {} MB resident",
        drive.capacity().objects,
        begun.elapsed(),
        megabytes()
    );
    let begun = Instant::now();
    drive.update_label(|label| label.is_clean = false).unwrap();
    drive.sync().unwrap();
    println!("label written in {:?}", begun.elapsed());
    let asked = 2_000;
    let begun = Instant::now();
    for n in 0..asked {
        let no = ObjectNo::new(FIRST + (n * 7_919_993) % objects);
        assert!(
            drive
                .read(no, CommitSeq::new(1), 0, SIZE)
                .unwrap()
                .present
                .iter()
                .len()
                == 1
        );
    }
    println!(
        "{asked} objects read here and there in {:?}, {} MB resident",
        begun.elapsed(),
        megabytes()
    );
    let commits = args.get(4).map_or(0, |said| said.parse().unwrap());
    let begun = Instant::now();
    for n in 0..commits {
        let no = ObjectNo::new(FIRST + (n * 104_729) % objects);
        drive
            .apply_change(no, (CommitSeq::new(2), SIZE), None)
            .unwrap();
        // As often as answers of the server end.
        if n % 2_000 == 1_999 {
            drive.sync().unwrap();
        }
    }
    drive.sync().unwrap();
    println!(
        "{commits} changed objects taken in in {:?}, {} MB resident",
        begun.elapsed(),
        megabytes()
    );
    drive.close().unwrap();
}
