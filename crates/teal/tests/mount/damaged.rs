//! Bad sectors under a whole store, by the program: what they cost.

use super::support::{Mounted, is_long};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;

const SECTOR: usize = 512;
const FILES: usize = 1100;
/// Sectors tried of each kind; all with `--long`.
const SAMPLE: usize = 40;
/// Files whose inode records lie in one sector, at most.
const RECORDS_IN_SECTOR: usize = 8;
/// Sectors with a part of a directory's own record, at most: it is not stored twice, and no path
/// leads to what is below it.
const DIRECTORY_SECTORS: usize = 2 * (1 + FILES.div_ceil(100));
/// Kinds of pages that are stored twice: the inode map, the orphan set, the usage table
/// (`docs/format.md`).
const COPIED_KINDS: [u8; 3] = [1, 4, 5];
const DIRECTORY_KIND: u8 = 3;

/// What a sector of a store belongs to, by the magic of what begins before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum SectorKind {
    /// A page that is stored twice, or its second copy.
    Copied,
    /// An anchor and the roots behind it.
    Anchor,
    /// Headers, inode records and content.
    Record,
}

fn content(file: usize) -> Vec<u8> {
    (0..300).map(|at| (file * 31 + at * 7) as u8).collect()
}

fn path(m: &Mounted, file: usize) -> std::path::PathBuf {
    m.path(format!("d{}", file / 100))
        .join(format!("file {file}"))
}

/// Returns the sectors that hold anything, by their kinds. Pages of directories are left out: they
/// have no second copies, and each names some files.
fn sectors_in_use(bytes: &[u8]) -> Vec<(SectorKind, usize)> {
    let mut found = Vec::new();
    let mut kind = None;
    for (at, sector) in bytes.chunks(SECTOR).enumerate() {
        // A sector of zeros ends what came before.
        if sector.iter().all(|byte| *byte == 0) {
            kind = None;
            continue;
        }
        match &sector[..4] {
            b"TPAG" if COPIED_KINDS.contains(&sector[6]) => kind = Some(SectorKind::Copied),
            b"TPAG" if sector[6] == DIRECTORY_KIND => kind = None,
            b"TPAG" | b"TREC" => kind = Some(SectorKind::Record),
            b"TANC" => kind = Some(SectorKind::Anchor),
            _ => {}
        }
        found.extend(kind.map(|kind| (kind, at)));
    }
    found
}

fn invert(store: &Path, sector: usize) {
    let file = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(store)
        .unwrap();
    let mut bytes = [0; SECTOR];
    let at = (sector * SECTOR) as u64;
    file.read_exact_at(&mut bytes, at).unwrap();
    bytes.iter_mut().for_each(|byte| *byte = !*byte);
    file.write_all_at(&bytes, at).unwrap();
}

/// Returns how many files cannot be read. What can be read is right.
fn count_lost(m: &Mounted, sector: usize) -> usize {
    let mut lost = 0;
    for file in 0..FILES {
        match fs::read(path(m, file)) {
            Ok(read) => assert!(
                read == content(file),
                "sector {sector}: wrong data in {file}"
            ),
            Err(_) => lost += 1,
        }
    }
    lost
}

#[test]
fn a_bad_sector_costs_no_file_but_those_that_lie_there() {
    let test = "a_bad_sector_costs_no_file_but_those_that_lie_there";
    let Some(mut m) = Mounted::new(test, "64M") else {
        return;
    };
    for file in 0..FILES {
        fs::create_dir_all(path(&m, file).parent().unwrap()).unwrap();
        fs::write(path(&m, file), content(file)).unwrap();
    }
    m.down();
    let whole = fs::read(m.store()).unwrap();
    let in_use = sectors_in_use(&whole);
    let kinds: BTreeSet<_> = in_use.iter().map(|(kind, _)| *kind).collect();
    assert_eq!(kinds.len(), 3, "{kinds:?}");
    for kind in kinds {
        let sectors: Vec<_> = in_use.iter().filter(|(of, _)| *of == kind).collect();
        let step = if is_long() {
            1
        } else {
            sectors.len().div_ceil(SAMPLE)
        };
        let mut worst = 0;
        let mut directories = 0;
        for (_, sector) in sectors.iter().step_by(step) {
            invert(m.store(), *sector);
            m.mount("ro");
            let lost = count_lost(&m, *sector);
            m.down();
            // Nothing was written: the store is as it was.
            invert(m.store(), *sector);
            // Whole directories: the sector holds a record of one.
            if kind == SectorKind::Record && lost > 0 && lost.is_multiple_of(100) {
                directories += 1;
                continue;
            }
            let most = match kind {
                SectorKind::Copied | SectorKind::Anchor => 0,
                SectorKind::Record => RECORDS_IN_SECTOR,
            };
            assert!(
                lost <= most,
                "{kind:?}, sector {sector}: {lost} files are lost"
            );
            worst = worst.max(lost);
        }
        assert!(directories <= DIRECTORY_SECTORS, "{directories} sectors");
        println!(
            "{kind:?}: {} sectors, every {step}., {worst} files at worst",
            sectors.len()
        );
    }
    assert!(
        fs::read(m.store()).unwrap() == whole,
        "reading changes nothing"
    );
    m.up();
    assert_eq!(count_lost(&m, 0), 0);
    m.down();
    m.check();
}
