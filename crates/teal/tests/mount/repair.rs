//! A damaged store gives back a whole one that can be mounted and written.

use crate::support::{Mounted, TestLoopDevice, World, has_loop_devices, seeded};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

const SECTOR: usize = 512;
const FILES: u64 = 1100;
const LARGE: usize = 3 << 20;
/// The code of the inode map among the kinds of pages (`docs/format.md`).
const INODE_MAP: u8 = 1;

fn small(n: u64) -> Vec<u8> {
    seeded(n, 50 + n as usize % 300)
}

fn name_of(n: u64) -> String {
    format!("d{}/file {n}", n / 100)
}

/// Makes files, removes some, and unmounts.
fn filled(test: &str) -> Option<Mounted> {
    let mut m = Mounted::new(test, "64M")?;
    for n in 0..FILES {
        let path = m.path(name_of(n));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, small(n)).unwrap();
    }
    fs::write(m.path("large"), seeded(9, LARGE)).unwrap();
    fs::hard_link(m.path("large"), m.path("d1/also large")).unwrap();
    std::os::unix::fs::symlink("d1/also large", m.path("link")).unwrap();
    fs::write(m.path("deleted"), seeded(10, 5000)).unwrap();
    m.remount();
    fs::remove_file(m.path("deleted")).unwrap();
    for n in (50..FILES).step_by(100) {
        fs::remove_file(m.path(name_of(n))).unwrap();
    }
    m.down();
    Some(m)
}

fn exists(n: u64) -> bool {
    n % 100 != 50
}

/// Destroys all leaves of the inode map but the first, which has the root directory, and a sector
/// of the large file.
fn damage(store: &Path) -> Vec<u8> {
    let mut bytes = fs::read(store).unwrap();
    let mut pages = 0;
    for at in (0..bytes.len()).step_by(SECTOR) {
        let page = &bytes[at..at + SECTOR];
        let first_key = u64::from_le_bytes(page[24..32].try_into().unwrap());
        if page.starts_with(b"TPAG") && page[6..8] == [INODE_MAP, 0] && first_key > 1 {
            bytes[at..at + SECTOR].fill(0xee);
            pages += 1;
        }
    }
    assert!(pages > 10, "{pages} pages");
    let large = seeded(9, LARGE);
    let sought = &large[LARGE / 2..LARGE / 2 + SECTOR];
    let found = bytes
        .chunks(SECTOR)
        .position(|sector| sector == sought)
        .unwrap();
    bytes[found * SECTOR] ^= 1;
    fs::write(store, &bytes).unwrap();
    bytes
}

fn files_below(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut waiting = vec![dir.to_owned()];
    while let Some(dir) = waiting.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let entry = entry.unwrap();
            let kind = entry.file_type().unwrap();
            if kind.is_dir() {
                waiting.push(entry.path());
            } else if kind.is_file() {
                let content = fs::read(entry.path()).unwrap();
                found.insert(entry.path(), content);
            }
        }
    }
    found
}

fn repair(world: &World, args: &[&str]) -> crate::support::ProgramOutput {
    world.teal(&[&["repair"], args].concat())
}

/// Looks at the repaired store: what is in the tree is right, and what is not is in `lost+found`.
fn assert_repaired(m: &Mounted) {
    let mut in_place = 0;
    let lost = files_below(&m.path("lost+found"));
    let of_lost = |ending: &str| {
        let mut paths = lost.iter();
        paths.find(|(path, _)| path.to_str().unwrap().ends_with(ending))
    };
    for n in 0..FILES {
        let path = m.path(name_of(n));
        match fs::read(&path) {
            Ok(content) => {
                assert!(exists(n), "{} was deleted", path.display());
                assert!(content == small(n), "{} is wrong", path.display());
                in_place += 1;
            }
            Err(_) if exists(n) => {
                let (at, content) =
                    of_lost(&format!(" file {n}")).unwrap_or_else(|| panic!("file {n} is nowhere"));
                assert!(content == &small(n), "{} is wrong", at.display());
            }
            Err(_) => assert!(of_lost(&format!(" file {n}")).is_none(), "file {n} is back"),
        }
    }
    println!(
        "{in_place} of {FILES} files are in their places, {} in lost+found",
        lost.len()
    );
    assert!(in_place > 20, "{in_place}");
    assert!(lost.len() > 500, "{}", lost.len());
    assert!(!m.path("deleted").exists() && of_lost(" deleted").is_none());
    // What is left of the large file is where it was, block by block.
    assert!(!m.path("large").exists());
    let (_, left) = of_lost("large").unwrap();
    let whole = seeded(9, LARGE);
    let blocks = left.chunks(4096).zip(whole.chunks(4096));
    assert_eq!(blocks.filter(|(left, was)| left != was).count(), 1);
    assert!(
        fs::read_to_string(m.path("lost+found/report"))
            .unwrap()
            .contains("large")
    );
}

#[test]
fn a_damaged_store_is_repaired_in_place_and_can_be_written_again() {
    let Some(mut m) = filled("a_damaged_store_is_repaired_in_place_and_can_be_written_again")
    else {
        return;
    };
    let damaged = damage(m.store());
    let store = m.store().to_str().unwrap().to_owned();
    let said = m.world().teal(&["check", &store]);
    assert_eq!(said.code, 1, "{said}");
    assert!(said.stdout.contains("teal repair"), "{said}");

    // Without a person who agrees, losses are shown and nothing is written.
    let said = repair(m.world(), &[&store]);
    assert_eq!(said.code, 1, "{said}");
    assert!(said.stdout.contains("/large has lost 4096 of"), "{said}");
    assert!(said.stderr.contains("nothing was written"), "{said}");
    assert!(said.stderr.contains("--yes"), "{said}");
    assert!(fs::read(m.store()).unwrap() == damaged);

    // A link to the store is no second name for it.
    let kept = format!("{store}.damaged");
    std::os::unix::fs::symlink(&store, &kept).unwrap();
    let said = repair(m.world(), &[&store, "--yes"]).expect_refusal();
    assert!(said.contains(&kept), "{said}");
    fs::remove_file(&kept).unwrap();

    // What is no unfinished repair is overwritten only when that is asked for.
    let unfinished = format!("{store}.repairing");
    fs::write(&unfinished, [1; 5000]).unwrap();
    let said = repair(m.world(), &[&store, "--yes"]).expect_refusal();
    assert!(said.contains("--force"), "{said}");
    assert!(fs::read(&unfinished).unwrap() == [1; 5000]);
    let said = repair(m.world(), &[&store, "--yes", "--force"]).expect_success();
    assert!(said.contains("it is clean"), "{said}");
    assert!(!Path::new(&unfinished).exists());
    assert!(
        fs::read(&kept).unwrap() == damaged,
        "the damaged store stays"
    );

    m.check();
    m.up();
    assert_repaired(&m);
    fs::write(m.path("d1/new"), seeded(20, 100_000)).unwrap();
    m.remount();
    assert!(fs::read(m.path("d1/new")).unwrap() == seeded(20, 100_000));
    m.down();
    m.check();

    let said = repair(m.world(), &[&store, "--yes"]).expect_success();
    assert!(said.contains("nothing to repair"), "{said}");
}

#[test]
fn a_damaged_store_is_repaired_into_another_file_and_onto_a_device() {
    let test = "a_damaged_store_is_repaired_into_another_file_and_onto_a_device";
    let Some(mut m) = filled(test) else {
        return;
    };
    let damaged = damage(m.store());
    let store = m.store().to_str().unwrap().to_owned();
    let dest = m.world().path("whole");
    let dest = dest.to_str().unwrap();
    repair(m.world(), &[&store, "--to", dest, "--yes"]).expect_success();
    assert!(
        fs::read(m.store()).unwrap() == damaged,
        "nothing is written"
    );
    m.world().teal(&["check", dest]).expect_success();
    let said = repair(m.world(), &[&store, "--to", dest, "--yes"]).expect_refusal();
    assert!(said.contains("exists already"), "{said}");

    if has_loop_devices(test) {
        let device = TestLoopDevice::new(&m.world().path("device"), 64 << 20);
        let device = device.path().to_str().unwrap();
        repair(m.world(), &[&store, "--to", device, "--yes"]).expect_success();
        m.world().teal(&["check", device]).expect_success();
        let said = repair(m.world(), &[device, "--yes"]).expect_refusal();
        assert!(said.contains("--to"), "{said}");
    }
    fs::rename(dest, m.store()).unwrap();
    m.up();
    assert_repaired(&m);
    m.down();
    m.check();
}

#[test]
fn a_store_that_is_mounted_is_not_repaired() {
    let Some(mut m) = Mounted::new("a_store_that_is_mounted_is_not_repaired", "64M") else {
        return;
    };
    let store = m.store().to_str().unwrap().to_owned();
    let said = repair(m.world(), &[&store, "--yes"]).expect_refusal();
    assert!(said.contains("in use"), "{said}");
    m.down();
}
