//! Copying out what is left of a damaged store.

use crate::support::{Mounted, seeded};
use std::io::Write as _;
use std::path::PathBuf;

const SECTOR: usize = 512;
const FILES: u64 = 200;

fn sectors_with(image: &[u8], magic: &[u8]) -> Vec<usize> {
    let sectors = image.chunks(SECTOR).enumerate();
    sectors
        .filter(|(_, sector)| sector.starts_with(magic))
        .map(|(n, _)| n * SECTOR)
        .collect()
}

/// A store with files that were synced one by one, unmounted; and its bytes from the moment before
/// that, behind a log that no checkpoint has folded.
fn synced_files(test: &str) -> Option<(Mounted, Vec<u8>)> {
    let mut m = Mounted::new(test, "64M")?;
    for n in 0..FILES {
        let mut file = std::fs::File::create_new(m.path(format!("{n}"))).unwrap();
        file.write_all(&seeded(n, 5000)).unwrap();
        file.sync_all().unwrap();
    }
    // What was synced is in the file of the store.
    let image = std::fs::read(m.store()).unwrap();
    m.down();
    Some((m, image))
}

/// Returns how many of the files can be read. Panics if one of them is not as it was written. One
/// may be empty: another program's `sync(2)` makes it durable before its content is written, and
/// the record with that is lost.
fn readable_files(m: &Mounted) -> u64 {
    let (mut readable, mut empty) = (0, 0);
    for n in 0..FILES {
        let path: PathBuf = m.path(format!("{n}"));
        let Ok(content) = std::fs::read(&path) else {
            continue;
        };
        if content.is_empty() {
            empty += 1;
            continue;
        }
        assert!(content == seeded(n, 5000), "{} is wrong", path.display());
        readable += 1;
    }
    assert!(
        empty <= 1,
        "the lost record has the content of one file, not of {empty}"
    );
    readable
}

/// Returns what an ordinary mount says that refuses the store.
fn refused(m: &Mounted, options: &str) -> String {
    let (store, point) = (m.store().to_str().unwrap(), m.point().to_str().unwrap());
    let said = m.world().teal(&["mount", store, point, "-o", options]);
    assert_ne!(said.code, 0, "{said}");
    said.to_string()
}

#[test]
fn salvage_goes_on_behind_a_header_that_cannot_be_read() {
    let Some((mut m, image)) = synced_files("salvage_goes_on_behind_a_header_that_cannot_be_read")
    else {
        return;
    };
    let number = |at: &usize| u64::from_le_bytes(image[at + 32..at + 40].try_into().unwrap());
    let mut headers = sectors_with(&image, b"TREC");
    headers.sort_by_key(number);
    // Early in the log of the files: nearly all of them are behind it.
    let lost = headers[headers.len() - FILES as usize + 5];
    let mut damaged = image.clone();
    damaged[lost..lost + SECTOR].fill(0);
    std::fs::write(m.store(), &damaged).unwrap();
    for options in ["rw", "ro"] {
        let said = refused(&m, options);
        assert!(said.contains("-o salvage"), "{said}");
    }
    m.mount("ro,salvage");
    let readable = readable_files(&m);
    m.down();
    println!("{readable} of {FILES} files are behind a bad header and around it");
    assert!(readable + 2 >= FILES, "{readable} of {FILES}");
    assert!(
        std::fs::read(m.store()).unwrap() == damaged,
        "nothing is written"
    );
}

#[test]
fn salvage_finds_a_checkpoint_by_any_anchor_or_none() {
    let Some((mut m, image)) = synced_files("salvage_finds_a_checkpoint_by_any_anchor_or_none")
    else {
        return;
    };
    let checkpoint = |at: &usize| u64::from_le_bytes(image[at + 24..at + 32].try_into().unwrap());
    let mut anchors = sectors_with(&image, b"TANC");
    anchors.sort_by_key(checkpoint);
    for spared in [Some(anchors[0]), None] {
        let mut damaged = image.clone();
        for at in anchors.iter().filter(|at| Some(**at) != spared) {
            damaged[*at..*at + SECTOR].fill(0);
        }
        std::fs::write(m.store(), &damaged).unwrap();
        if spared.is_none() {
            let said = refused(&m, "rw");
            assert!(said.contains("-o salvage"), "{said}");
        }
        m.mount("ro,salvage");
        assert_eq!(readable_files(&m), FILES, "spared {spared:?}");
        m.down();
    }
}

#[test]
fn salvage_of_nothing_does_not_advise_salvage() {
    let Some((m, image)) = synced_files("salvage_of_nothing_does_not_advise_salvage") else {
        return;
    };
    let mut damaged = image;
    for magic in [&b"TREC"[..], b"TANC"] {
        for at in sectors_with(&damaged, magic) {
            damaged[at..at + SECTOR].fill(0);
        }
    }
    std::fs::write(m.store(), &damaged).unwrap();
    let said = refused(&m, "ro,salvage");
    assert!(said.contains("nothing can be salvaged"), "{said}");
    assert!(!said.contains("-o salvage"), "{said}");
}
