//! Salvage: whatever of a damaged store can be read is read, and nothing that never was.

use crate::new_objects::new_file;
use crate::stores::{self, disk_bytes, new_disk};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;
use teal_env::{Disk, MemDisk, SystemClock};
use teal_log::{Cost, OpenOptions, Store};
use teal_testkit::Rng;
use teal_types::{Name, ObjectNo, SECTOR};

const MIB: u64 = 1 << 20;
pub(crate) const STORE: u64 = 24 * MIB;
/// Files so long that their blocks are logged one by one.
const LARGE: u64 = 2;
/// The last of the rounds that end with a checkpoint.
const FOLDED: usize = 2;

/// All contents that a file ever had, by its name.
pub(crate) type KnownContents = BTreeMap<Vec<u8>, BTreeSet<Vec<u8>>>;

/// A store with what it held at some earlier moments, and all that its files ever held.
struct Life {
    older: Vec<Vec<u8>>,
    image: Vec<u8>,
    contents: KnownContents,
}

fn random_bytes(rng: &mut Rng, len: u64) -> Vec<u8> {
    let seed = rng.below(u64::MAX).to_le_bytes();
    (0..len).map(|n| seed[n as usize % 8] ^ n as u8).collect()
}

/// Writes bytes to a file that is made if it is not there, and notes what it holds then.
pub(crate) fn write(
    store: &Store,
    name: &[u8],
    at: u64,
    bytes: &[u8],
    contents: &mut KnownContents,
) {
    let name = Name::new(name).unwrap();
    let known = store.lookup(ObjectNo::ROOT, &name).unwrap();
    let op = store.begin(Cost::write(4 * MIB)).unwrap();
    let mut locked = op
        .lock(&known.map_or(vec![ObjectNo::ROOT], |(no, _)| vec![no]))
        .unwrap();
    let file = known.map_or_else(
        || {
            let file = locked.create(new_file());
            locked.insert_entry(ObjectNo::ROOT, &name, file).unwrap();
            file
        },
        |(no, _)| no,
    );
    locked.write(file, at, bytes).unwrap();
    drop(locked);
    drop(op);
    let size = store.attr(file).unwrap().size;
    let versions = contents.entry(name.as_bytes().to_vec()).or_default();
    versions.insert(store.read(file, 0, size as usize).unwrap());
}

fn live(seed: u64) -> Life {
    let disk = new_disk(STORE / MIB);
    let store = stores::open(&disk);
    let mut rng = Rng::new(seed);
    let (mut older, mut contents) = (Vec::new(), KnownContents::new());
    for round in 0..5_u64 {
        for n in 0..60 {
            let name = format!(
                "file {}",
                if rng.below(4) == 0 { n } else { 60 * round + n }
            );
            let len = 1 + rng.below(16_000);
            let bytes = random_bytes(&mut rng, len);
            write(&store, name.as_bytes(), 0, &bytes, &mut contents);
            if rng.below(6) == 0 {
                let name = format!("large {}", rng.below(LARGE));
                let len = if round == 0 { MIB } else { 8192 };
                let at = rng.below(128) * 4096;
                let bytes = random_bytes(&mut rng, len);
                write(&store, name.as_bytes(), at, &bytes, &mut contents);
            }
            // The last rounds are made of small batches.
            if round > 1 || n % 20 == 0 {
                store.commit().unwrap();
            }
        }
        // The log behind the last checkpoint is long.
        if round <= FOLDED as u64 {
            store.checkpoint().unwrap();
        }
        older.push(disk_bytes(&disk));
    }
    older.pop();
    Life {
        older,
        image: disk_bytes(&disk),
        contents,
    }
}

/// A kind of damage to a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Damage {
    Bit,
    ZeroSector,
    StaleSector,
    StaleMib,
    ZeroMib,
    HeaderOfRecord,
    AnchorsBut,
}

const DAMAGES: [Damage; 7] = [
    Damage::Bit,
    Damage::ZeroSector,
    Damage::StaleSector,
    Damage::StaleMib,
    Damage::ZeroMib,
    Damage::HeaderOfRecord,
    Damage::AnchorsBut,
];

pub(crate) fn sectors_with(image: &[u8], magic: &[u8]) -> Vec<usize> {
    let sectors = image.chunks(SECTOR as usize).enumerate();
    sectors
        .filter(|(_, sector)| sector.starts_with(magic))
        .map(|(n, _)| n * SECTOR as usize)
        .collect()
}

fn damaged(life: &Life, kind: Damage, rng: &mut Rng) -> Vec<u8> {
    let mut bytes = life.image.clone();
    // Half of the damage lies where the log is not folded yet.
    let nothing = vec![0; bytes.len()];
    let before = match rng.below(2) {
        0 => &nothing,
        _ => &life.older[FOLDED],
    };
    let used: Vec<usize> = (0..bytes.len())
        .step_by(SECTOR as usize)
        .filter(|at| bytes[*at..*at + SECTOR as usize] != before[*at..*at + SECTOR as usize])
        .collect();
    let at = used[rng.below(used.len() as u64) as usize];
    let sector = at..at + SECTOR as usize;
    let from = at & !(MIB as usize - 1);
    let mib = from..(from + MIB as usize).min(bytes.len());
    let old = &life.older[rng.below(life.older.len() as u64) as usize];
    match kind {
        Damage::Bit => bytes[at + rng.below(SECTOR) as usize] ^= 1 << rng.below(8),
        Damage::ZeroSector => bytes[sector].fill(0),
        Damage::StaleSector => bytes[sector.clone()].copy_from_slice(&old[sector]),
        Damage::StaleMib => bytes[mib.clone()].copy_from_slice(&old[mib]),
        Damage::ZeroMib => bytes[mib].fill(0),
        Damage::HeaderOfRecord => {
            let headers = sectors_with(&bytes, b"TREC");
            let at = headers[rng.below(headers.len() as u64) as usize];
            bytes[at..at + SECTOR as usize].fill(0);
        }
        Damage::AnchorsBut => {
            // All anchors but one, or all of them.
            let anchors = sectors_with(&bytes, b"TANC");
            let spared = rng.below(anchors.len() as u64 + 1) as usize;
            for (n, at) in anchors.into_iter().enumerate() {
                if n != spared {
                    bytes[at..at + SECTOR as usize].fill(0);
                }
            }
        }
    }
    bytes
}

pub(crate) fn open(bytes: &[u8], salvage: bool) -> Option<Arc<Store>> {
    let disk = Arc::new(MemDisk::from_bytes(bytes.to_vec())) as Arc<dyn Disk>;
    let options = OpenOptions {
        read_only: true,
        salvage,
        ..OpenOptions::default()
    };
    Some(Store::open(disk, Arc::new(SystemClock), options).ok()?.0)
}

/// Returns how many files can be read. Panics if one of them has content that it never had.
pub(crate) fn readable_files(store: &Store, contents: &KnownContents, said: &str) -> usize {
    let mut found = BTreeMap::new();
    let _ = store.each_entry(ObjectNo::ROOT, 0, &mut |_, child, _, name| {
        found.insert(name.as_bytes().to_vec(), child);
        ControlFlow::Continue(())
    });
    let mut readable = 0;
    for (name, versions) in contents {
        // Each by itself: a list may end at a page that cannot be read.
        let wanted = Name::new(name).unwrap();
        let child = found.get(name).copied();
        let child = child.or_else(|| Some(store.lookup(ObjectNo::ROOT, &wanted).ok().flatten()?.0));
        let content = child.and_then(|no| {
            let size = store.attr(no).ok()?.size;
            store.read(no, 0, size as usize).ok()
        });
        if let Some(content) = content {
            let name = String::from_utf8_lossy(name);
            assert!(versions.contains(&content), "{said}: {name} is wrong");
            readable += 1;
        }
    }
    readable
}

#[test]
fn salvage_reads_what_can_be_read_and_nothing_that_never_was() {
    let lives: Vec<Life> = (0..4).map(live).collect();
    let mut rng = Rng::new(18);
    let mut figures: BTreeMap<Damage, [usize; 4]> = BTreeMap::new();
    let rounds = std::env::var("TEAL_SALVAGE_ROUNDS").map_or(60, |n| n.parse().unwrap());
    for round in 0..rounds {
        let life = &lives[round % lives.len()];
        for kind in DAMAGES {
            let bytes = damaged(life, kind, &mut rng);
            let said = format!("{kind:?} in round {round}");
            let figure = figures.entry(kind).or_default();
            if let Some(store) = open(&bytes, false) {
                readable_files(&store, &life.contents, &said);
                continue;
            }
            figure[0] += 1;
            if let Some(store) = open(&bytes, true) {
                figure[1] += 1;
                figure[2] += readable_files(&store, &life.contents, &said);
                figure[3] += life.contents.len();
            }
        }
    }
    let mut all = [0; 4];
    for (kind, figure) in figures {
        let [refused, opened, read, files] = figure;
        println!("{kind:?}: {refused} refused, {opened} salvaged, {read} of {files} files");
        for (sum, one) in all.iter_mut().zip(figure) {
            *sum += one;
        }
    }
    let [refused, opened, read, files] = all;
    println!("all: {refused} refused, {opened} salvaged, {read} of {files} files");
    assert!(refused > rounds / 2, "the damage is noticed");
    assert!(10 * opened >= 9 * refused, "{opened} of {refused} open");
    assert!(100 * read >= 80 * files, "{read} of {files} files are read");
}
