//! Repair: a damaged store gives back a whole one, in which nothing is wrong and nothing that was
//! deleted is in the tree.

use crate::explore::{assert_checked, made, shape};
use crate::forged;
use crate::life;
use crate::salvage::sectors_with;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{ErrorKind, IoSlice};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;
use teal_env::{Disk, MemDisk, SystemClock, SystemEntropy};
use teal_log::{
    AttributeChanges, Cost, DiskPlace, LossKind, MkfsOptions, NewObject, OpenOptions, RepairError,
    RepairFindings, RepairSurvey, Store, StoreSettings, UNFINISHED,
};
use teal_testkit::{CrashPolicy, CrashWalk, DiskCall, FaultDisk, FaultDuration, Rng};
use teal_types::{Attr, FileType, Name, ObjectNo, SECTOR, Sector, Timestamp};

const MIB: u64 = 1 << 20;
const STORE: u64 = 16 * MIB;
const MAP_PAGE: &str = "a page of the inode map";
const COPY: &str = "the second copy of a page";
const CAPABILITY: &[u8] = b"security.capability";
/// Files in one directory, enough for several pages of it and of the inode map.
const MANY: u64 = 400;

/// So few files that a repair can be cut at each of its writes.
const FEW: u64 = 12;

/// What is under a path.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Seen {
    no: ObjectNo,
    kind: FileType,
    perm: u16,
    owner: (u32, u32),
    rdev: u32,
    times: [Timestamp; 4],
    nlink: u32,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// `None`: it cannot be read.
    content: Option<Vec<u8>>,
}

type Tree = BTreeMap<String, Seen>;

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

fn seen(store: &Store, attr: Attr) -> Seen {
    let no = attr.object;
    let names = store.xattr_names(no).unwrap();
    let has_content = matches!(attr.kind, FileType::File | FileType::Symlink);
    let content = if has_content {
        store.read(no, 0, attr.size as usize).ok()
    } else {
        Some(Vec::new())
    };
    Seen {
        no,
        kind: attr.kind,
        perm: attr.perm,
        owner: (attr.uid, attr.gid),
        rdev: attr.rdev,
        times: [attr.atime, attr.mtime, attr.ctime, attr.btime],
        nlink: attr.nlink,
        xattrs: names
            .into_iter()
            .map(|name| {
                let value = store.xattr(no, &name).unwrap().unwrap();
                (name, value)
            })
            .collect(),
        content,
    }
}

/// Returns everything that can be reached.
fn tree_of(store: &Store) -> Tree {
    let mut tree = Tree::new();
    let mut waiting = vec![(String::new(), ObjectNo::ROOT)];
    while let Some((path, no)) = waiting.pop() {
        let Ok(attr) = store.attr(no) else { continue };
        if attr.kind.is_dir() {
            let _ = store.each_entry(no, 0, &mut |_, child, _, name| {
                waiting.push((format!("{path}/{name}"), child));
                ControlFlow::Continue(())
            });
        }
        tree.insert(path, seen(store, attr));
    }
    tree
}

fn open_on(disk: &Arc<dyn Disk>) -> Arc<Store> {
    let disk = Arc::clone(disk);
    Store::open(disk, Arc::new(SystemClock), OpenOptions::default())
        .unwrap()
        .0
}

fn new_disk(bytes: u64) -> Arc<dyn Disk> {
    let disk: Arc<dyn Disk> = Arc::new(MemDisk::new(bytes / SECTOR));
    let shared = Arc::clone(&disk);
    let options = MkfsOptions::default();
    Store::mkfs(shared, Arc::new(SystemClock), &SystemEntropy, &options).unwrap();
    disk
}

fn image(disk: &dyn Disk) -> Vec<u8> {
    let mut bytes = vec![0; (disk.shape().sectors * SECTOR) as usize];
    disk.read_at(Sector::new(0), &mut bytes).unwrap();
    bytes
}

fn disk_with(bytes: &[u8]) -> Arc<dyn Disk> {
    Arc::new(MemDisk::from_bytes(bytes.to_vec()))
}

fn new_object(kind: FileType, seconds: i64) -> NewObject {
    NewObject {
        kind,
        perm: 0o640,
        uid: 7,
        gid: 8,
        rdev: if kind == FileType::Char { 259 } else { 0 },
        now: Timestamp {
            secs: seconds,
            nanos: 5,
        },
    }
}

/// Makes an object with content.
fn make(store: &Store, dir: ObjectNo, called: &str, kind: FileType, content: &[u8]) -> ObjectNo {
    let op = store
        .begin(Cost::create().with_piece(content.len() as u64))
        .unwrap();
    let mut locked = op.lock(&[dir]).unwrap();
    let no = locked.create(new_object(kind, 1000));
    locked.insert_entry(dir, &name(called), no).unwrap();
    match kind {
        FileType::File if !content.is_empty() => locked.write(no, 0, content).unwrap(),
        FileType::Symlink => locked.set_target(no, content),
        _ => {}
    }
    no
}

fn remove(store: &Store, dir: ObjectNo, called: &str) {
    let (no, _) = store.lookup(dir, &name(called)).unwrap().unwrap();
    let op = store.begin(Cost::unlink().and_also(Cost::free())).unwrap();
    let mut locked = op.lock(&[dir, no]).unwrap();
    locked.remove_entry(dir, &name(called)).unwrap();
    locked.free_object(no).unwrap();
}

fn small_content(n: u64) -> Vec<u8> {
    (0..40 + n % 90).map(|at| (at * 3 + n) as u8).collect()
}

fn large_content(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    Rng::new(seed).fill(&mut bytes);
    bytes
}

/// Fills a store with one of everything, and returns what is in it before `/gone` and every third
/// of the many files are deleted.
fn fill(store: &Store, count: u64) -> Tree {
    let root = ObjectNo::ROOT;
    let a = make(store, root, "a", FileType::Dir, &[]);
    let b = make(store, a, "b", FileType::Dir, &[]);
    make(store, b, "deep", FileType::File, b"deep content");
    make(store, root, "link", FileType::Symlink, b"a/b/deep");
    make(store, root, "device", FileType::Char, &[]);
    make(store, a, "empty", FileType::File, &[]);
    make(store, root, "gone", FileType::File, &large_content(1, 9000));
    let large = make(
        store,
        a,
        "large",
        FileType::File,
        &large_content(2, 700_000),
    );
    let holes = make(store, root, "holes", FileType::File, b"begin");
    let op = store.begin(Cost::write(8192)).unwrap();
    let mut locked = op.lock(&[holes]).unwrap();
    locked
        .write(holes, 3 * MIB, &large_content(3, 5000))
        .unwrap();
    locked.truncate(holes, 5 * MIB + 17).unwrap();
    drop(locked);
    drop(op);
    let op = store.begin(Cost::link()).unwrap();
    let mut locked = op.lock(&[b, large]).unwrap();
    locked.insert_entry(b, &name("also large"), large).unwrap();
    drop(locked);
    drop(op);
    let tool = make(store, root, "tool", FileType::File, &large_content(4, 6000));
    let op = store.begin(Cost::set_xattr(200)).unwrap();
    let mut locked = op.lock(&[tool]).unwrap();
    locked.set_xattr(tool, CAPABILITY, Some(b"all")).unwrap();
    locked.set_xattr(tool, b"user.note", Some(b"kept")).unwrap();
    locked.set_attr(
        tool,
        AttributeChanges {
            perm: Some(0o6755),
            mtime: Some(Timestamp { secs: 77, nanos: 1 }),
            ..AttributeChanges::default()
        },
    );
    drop(locked);
    drop(op);
    let many = make(store, root, "many", FileType::Dir, &[]);
    for n in 0..count {
        make(
            store,
            many,
            &format!("file {n}"),
            FileType::File,
            &small_content(n),
        );
    }
    store.checkpoint().unwrap();
    let older = tree_of(store);
    remove(store, root, "gone");
    for n in (0..count).step_by(3) {
        remove(store, many, &format!("file {n}"));
    }
    older
}

/// A full store, closed, and what is in it.
struct FilledStore {
    bytes: Vec<u8>,
    tree: Tree,
    /// What was in it before files were deleted.
    older: Tree,
    places: Vec<DiskPlace>,
}

fn filled(count: u64) -> FilledStore {
    let disk = new_disk(STORE);
    let store = open_on(&disk);
    let older = fill(&store, count);
    store.checkpoint().unwrap();
    let tree = tree_of(&store);
    store.close().unwrap();
    drop(store);
    FilledStore {
        bytes: image(&*disk),
        tree,
        older,
        places: open_on(&disk).places(),
    }
}

fn invert(bytes: &mut [u8], place: &DiskPlace) {
    let range = place.byte as usize..(place.byte + place.bytes) as usize;
    bytes[range].iter_mut().for_each(|byte| *byte = !*byte);
}

fn survey(bytes: &[u8]) -> Option<RepairSurvey> {
    RepairSurvey::open(disk_with(bytes), Arc::new(SystemClock), &mut |_| {}).ok()
}

/// Repairs, and returns what the new store has. It is clean and can be written.
fn repaired(bytes: &[u8], said: &str) -> Option<(Tree, RepairFindings)> {
    let survey = survey(bytes)?;
    let disk = new_disk(STORE);
    let store = open_on(&disk);
    survey
        .copy_to(&store, &mut |_| {})
        .unwrap_or_else(|e| panic!("{said}: {e}"));
    assert_checked(&store, true).unwrap_or_else(|e| panic!("{said}: {e}"));
    store.close().unwrap();
    drop(store);
    let store = open_on(&disk);
    assert!(store.orphans().unwrap().is_empty(), "{said}");
    let tree = tree_of(&store);
    make(
        &store,
        ObjectNo::ROOT,
        "new",
        FileType::File,
        &large_content(9, 9000),
    );
    store.checkpoint().unwrap();
    assert_checked(&store, true).unwrap_or_else(|e| panic!("{said}, written: {e}"));
    Some((tree, survey.findings().clone()))
}

fn is_lost_and_found(path: &str) -> bool {
    path.starts_with("/lost+found")
}

/// Checks that the tree has nothing but what was there, whole, and that everything else is named
/// among the losses, or is in `lost+found`.
fn assert_true(tree: &Tree, findings: &RepairFindings, before: &Tree, said: &str) {
    assert_of_states(tree, &[before], said);
    assert_all_told(tree, findings, before, said);
}

/// Checks that the tree has nothing but what was in one of these states, whole.
fn assert_of_states(tree: &Tree, states: &[&Tree], said: &str) {
    for (path, seen) in tree.iter().filter(|(path, _)| !is_lost_and_found(path)) {
        // The attributes of the root directory may be lost.
        if path.is_empty() {
            continue;
        }
        // Some of its names or subdirectories may be lost.
        let is_as = |was: &Seen| {
            Seen {
                nlink: 0,
                ..was.clone()
            } == Seen {
                nlink: 0,
                ..seen.clone()
            }
        };
        let mut known = states.iter().filter_map(|state| state.get(path));
        assert!(
            known.any(is_as),
            "{said}: {path} was not there, or not so: {seen:?}"
        );
    }
}

/// Checks that what was there is in the tree, or named among the losses.
fn assert_all_told(tree: &Tree, findings: &RepairFindings, before: &Tree, said: &str) {
    for (path, seen) in tree.iter().filter(|(path, _)| is_lost_and_found(path)) {
        assert_eq!(seen.perm & 0o6000, 0, "{said}: {path}");
        assert!(!seen.xattrs.contains_key(CAPABILITY), "{said}: {path}");
    }
    let is_found = |no: ObjectNo| tree.values().any(|seen| seen.no == no);
    for (path, was) in before {
        let is_named = findings
            .losses
            .iter()
            .any(|loss| loss.object == was.no || loss.path == *path);
        let is_counted = findings.unknown > 0 || findings.count_losses(LossKind::Names) > 0;
        assert!(
            tree.contains_key(path) || is_found(was.no) || is_named || is_counted,
            "{said}: {path} is gone without a word: {findings:#?}"
        );
    }
}

#[test]
fn a_store_without_losses_is_copied_with_everything_it_has() {
    let FilledStore {
        bytes,
        tree: before,
        ..
    } = filled(MANY);
    let (tree, findings) = repaired(&bytes, "whole").unwrap();
    assert!(findings.is_whole(), "{findings:#?}");
    assert_eq!(tree, before);
    // The hole takes nothing.
    assert!(findings.bytes < 2 * MIB, "{}", findings.bytes);
}

#[test]
fn each_damaged_structure_costs_only_itself_and_the_new_store_is_clean() {
    let FilledStore {
        bytes: whole,
        tree: before,
        places,
        ..
    } = filled(MANY);
    let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
    let mut rescued = 0;
    for place in &places {
        // Of the many files a few stand for all.
        let turn = kinds.entry(place.what).or_default();
        *turn += 1;
        let of_many = place.what == "an inode record" || place.what == "content";
        if of_many && *turn % 23 != 1 {
            continue;
        }
        let mut bytes = whole.clone();
        invert(&mut bytes, place);
        let said = format!("{} of {:?}", place.what, place.owner);
        let (tree, findings) = repaired(&bytes, &said).unwrap_or_else(|| panic!("{said}"));
        assert_true(&tree, &findings, &before, &said);
        let lost = before
            .keys()
            .filter(|path| !tree.contains_key(*path))
            .count();
        let most = match place.what {
            "an inode record" | "content" | "an extent page" => 2,
            // Pages are stored twice, and names come back by the objects that have them.
            _ => 0,
        };
        let is_dir = place.owner.is_some_and(|no| {
            before
                .values()
                .any(|seen| seen.no == no && seen.kind.is_dir())
        });
        assert!(lost <= most || is_dir, "{said}: {lost} paths are lost");
        rescued += tree.keys().filter(|path| is_lost_and_found(path)).count();
    }
    assert!(kinds.len() >= 7, "{kinds:?}");
    assert!(rescued > 10, "{rescued}");
}

/// Returns the store with the last leaf of the inode map lost, both copies of it, and the numbers
/// in it.
fn without_a_map_page(whole: &[u8], places: &[DiskPlace]) -> Option<(Vec<u8>, BTreeSet<ObjectNo>)> {
    let store = open_on(&disk_with(whole));
    let all: Vec<ObjectNo> = store.objects_from(ObjectNo::new(0), 10_000).unwrap();
    let pages = places.iter().filter(|place| place.what == MAP_PAGE);
    for page in pages {
        let mut bytes = whole.to_vec();
        let first = page.byte as usize..(page.byte + page.bytes) as usize;
        let original = whole[first].to_vec();
        // A page above the leaves leads to the root, too.
        let copies = places.iter().filter(|place| place.what == COPY);
        for copy in copies {
            let range = copy.byte as usize..(copy.byte + copy.bytes) as usize;
            if whole[range] == original[..] {
                invert(&mut bytes, copy);
            }
        }
        invert(&mut bytes, page);
        let salvaged = OpenOptions {
            read_only: true,
            salvage: true,
            ..OpenOptions::default()
        };
        let Ok((store, _)) = Store::open(disk_with(&bytes), Arc::new(SystemClock), salvaged) else {
            continue;
        };
        let lost: BTreeSet<ObjectNo> = all
            .iter()
            .copied()
            .filter(|no| store.attr(*no).is_err())
            .collect();
        if lost.len() > 20 && lost.len() < all.len() / 2 {
            return Some((bytes, lost));
        }
    }
    None
}

#[test]
fn what_a_lost_page_of_the_map_led_to_is_found_but_not_in_the_tree() {
    let FilledStore {
        bytes: whole,
        tree: before,
        places,
        ..
    } = filled(MANY);
    let (bytes, lost) = without_a_map_page(&whole, &places).unwrap();
    let (tree, findings) = repaired(&bytes, "a map page").unwrap();
    assert_true(&tree, &findings, &before, "a map page");
    for (path, was) in &before {
        let is_lost = lost.contains(&was.no);
        assert_eq!(tree.contains_key(path), !is_lost, "{path}");
        if is_lost {
            let found = tree
                .iter()
                .find(|(path, seen)| seen.no == was.no && is_lost_and_found(path));
            let (at, found) = found.unwrap_or_else(|| panic!("{path} is not found"));
            assert!(at.starts_with("/lost+found/uncertain/"), "{at}");
            assert_eq!(found.content, was.content, "{path}");
        }
    }
    // What was deleted is nowhere.
    for seen in tree.values() {
        let is_known = before.values().any(|was| was.no == seen.no);
        let is_made = seen.no.get() > 16 && seen.owner == (0, 0);
        assert!(is_known || is_made, "{seen:?} was deleted");
    }
    assert_eq!(findings.count_losses(LossKind::Uncertain), lost.len());
}

#[test]
fn names_of_a_torn_directory_come_back_by_the_objects_that_have_them() {
    let FilledStore {
        bytes: whole,
        tree: before,
        places,
        ..
    } = filled(MANY);
    let pages = places
        .iter()
        .filter(|place| place.what == "a directory page");
    let mut bytes = whole.clone();
    let mut torn = 0;
    for page in pages {
        invert(&mut bytes, page);
        torn += 1;
    }
    assert!(torn > 1, "{torn} pages");
    let (tree, findings) = repaired(&bytes, "all pages of directories").unwrap();
    assert_eq!(tree, before);
    assert!(findings.is_whole(), "{findings:#?}");
}

#[test]
fn a_lost_directory_gives_its_children_and_their_names_to_lost_and_found() {
    let FilledStore {
        bytes: whole,
        tree: before,
        places,
        ..
    } = filled(MANY);
    let many = before["/many"].no;
    let record = places
        .iter()
        .find(|place| place.owner == Some(many) && place.what == "an inode record");
    let mut bytes = whole;
    invert(&mut bytes, record.unwrap());
    let (tree, findings) = repaired(&bytes, "a directory").unwrap();
    assert_true(&tree, &findings, &before, "a directory");
    for (path, was) in &before {
        let Some(file) = path.strip_prefix("/many/") else {
            continue;
        };
        let path = format!("/lost+found/detached/{many} many/{file}");
        assert_eq!(tree[&path].content, was.content, "{path}");
    }
    let report = tree["/lost+found/report"].content.clone().unwrap();
    let report = String::from_utf8(report).unwrap();
    assert!(
        report.contains("/many/file 1 has lost its directory"),
        "{report}"
    );
}

#[test]
fn with_any_sector_lost_every_file_is_in_its_place_or_told_of() {
    let FilledStore {
        bytes: whole,
        tree: before,
        ..
    } = filled(1100);
    let used: Vec<usize> = (0..whole.len())
        .step_by(SECTOR as usize)
        .filter(|at| {
            let sector = &whole[*at..*at + SECTOR as usize];
            sector.iter().any(|byte| *byte != 0)
        })
        .collect();
    let sample = std::env::var("TEAL_REPAIR_SECTORS").map_or(40, |n| n.parse().unwrap());
    let (mut looked, mut moved, mut most) = (0, 0, 0);
    for at in used.iter().step_by(used.len().div_ceil(sample)) {
        let mut bytes = whole.clone();
        let sector = &mut bytes[*at..*at + SECTOR as usize];
        sector.iter_mut().for_each(|byte| *byte = !*byte);
        let said = format!("sector {}", at / SECTOR as usize);
        let (tree, findings) = repaired(&bytes, &said).unwrap_or_else(|| panic!("{said}"));
        assert_true(&tree, &findings, &before, &said);
        let away = before
            .keys()
            .filter(|path| !tree.contains_key(*path))
            .count();
        let is_dir = findings.count_losses(LossKind::Detached) > 0;
        assert!(
            away <= 4 || is_dir,
            "{said}: {away} paths are not in their places"
        );
        looked += 1;
        moved += away;
        most = most.max(away);
    }
    let paths = before.len();
    println!(
        "{looked} of {} sectors, {paths} paths: {moved} moved, at most {most}",
        used.len()
    );
    assert!(looked > sample / 2, "{looked}");
}

#[test]
fn random_damage_of_any_size_leaves_a_clean_store_and_a_true_tree() {
    let FilledStore {
        bytes: whole,
        tree: before,
        older,
        ..
    } = filled(MANY);
    let used: Vec<usize> = (0..whole.len())
        .step_by(SECTOR as usize)
        .filter(|at| {
            whole[*at..*at + SECTOR as usize]
                .iter()
                .any(|byte| *byte != 0)
        })
        .collect();
    let mut rng = Rng::new(18);
    let rounds = std::env::var("TEAL_REPAIR_ROUNDS").map_or(60, |n| n.parse().unwrap());
    let (mut repairs, mut kept) = (0, 0);
    for round in 0..rounds {
        let mut bytes = whole.clone();
        for _ in 0..=rng.below(4) {
            let at = used[rng.pick_index(used.len())];
            let len = [1, 1, 8, 64, 600][rng.pick_index(5)] * SECTOR as usize;
            let end = (at + len).min(bytes.len());
            bytes[at..end].iter_mut().for_each(|byte| *byte = !*byte);
        }
        let said = format!("round {round}");
        let Some((tree, findings)) = repaired(&bytes, &said) else {
            continue;
        };
        // What the end of the log said is lost, and the repair says so.
        let states: &[&Tree] = match findings.log_losses {
            0 => &[&before],
            _ => &[&before, &older],
        };
        assert_of_states(&tree, states, &said);
        if findings.log_losses == 0 {
            assert_all_told(&tree, &findings, &before, &said);
        }
        repairs += 1;
        kept += tree
            .keys()
            .filter(|path| before.contains_key(*path))
            .count();
    }
    let paths = repairs * before.len();
    println!("{repairs} of {rounds} damages repaired, {kept} of {paths} paths in their places");
    assert!(10 * repairs > 8 * rounds, "{repairs} of {rounds}");
    assert!(100 * kept > 70 * paths, "{kept} of {paths}");
}

#[test]
fn a_forged_record_and_a_store_in_the_store_are_content() {
    let (bytes, contents) = forged::store_with_forged_record();
    let (tree, _) = repaired(&bytes, "forged").unwrap();
    let victim = tree.get("/victim").unwrap();
    assert_eq!(victim.content.as_deref(), Some(&b"the new content"[..]));
    for (path, seen) in &tree {
        let known = path.rsplit('/').next().unwrap().as_bytes().to_vec();
        if let Some(versions) = contents.get(&known) {
            assert!(versions.contains(seen.content.as_ref().unwrap()), "{path}");
        }
    }
    // A store that holds an older image of itself, with files that were deleted since.
    let disk = new_disk(STORE);
    let store = open_on(&disk);
    fill(&store, MANY);
    store.checkpoint().unwrap();
    let inner = image(&*disk)[..2 * MIB as usize].to_vec();
    let many = store
        .lookup(ObjectNo::ROOT, &name("many"))
        .unwrap()
        .unwrap();
    make(&store, ObjectNo::ROOT, "image", FileType::File, &inner);
    for n in (1..MANY).step_by(3) {
        remove(&store, many.0, &format!("file {n}"));
    }
    store.checkpoint().unwrap();
    let before = tree_of(&store);
    store.close().unwrap();
    drop(store);
    let places = open_on(&disk).places();
    let whole = image(&*disk);
    let (bytes, _) = without_a_map_page(&whole, &places).unwrap();
    let (tree, findings) = repaired(&bytes, "a store in the store").unwrap();
    assert_true(&tree, &findings, &before, "a store in the store");
    for seen in tree.values().filter(|seen| seen.owner == (7, 8)) {
        let is_known = before.values().any(|was| was.no == seen.no);
        assert!(is_known, "{seen:?} was deleted");
    }
}

/// Lets each object be durable by itself.
fn commit_each(store: &Store) {
    store.set_settings(StoreSettings {
        commit_interval: Duration::ZERO,
        ..store.settings()
    });
}

/// Returns whether a copy was finished, though perhaps not the last checkpoint.
fn is_finished(store: &Store) -> bool {
    let mark = store.lookup(ObjectNo::ROOT, &name(UNFINISHED)).unwrap();
    mark.is_none() && tree_of(store).len() > 1
}

#[test]
fn a_repair_that_is_killed_at_any_write_is_finished_by_the_next_one() {
    let FilledStore {
        mut bytes, places, ..
    } = filled(FEW);
    let content = places.iter().find(|place| place.what == "content").unwrap();
    invert(&mut bytes, content);
    let (wanted, _) = repaired(&bytes, "not killed").unwrap();
    let survey = survey(&bytes).unwrap();
    let mut turn = 0;
    let empty = image(&*new_disk(STORE));
    loop {
        let disk = MemDisk::from_bytes(empty.clone());
        let faults = FaultDisk::new(disk);
        let shared: Arc<dyn Disk> = Arc::new(faults.clone());
        faults.fail_nth(
            DiskCall::Write,
            turn,
            FaultDuration::Forever,
            ErrorKind::Other,
        );
        let store = open_on(&shared);
        commit_each(&store);
        let is_done = survey.copy_to(&store, &mut |_| {}).is_ok();
        drop(store);
        faults.clear_faults();
        let store = open_on(&shared);
        assert_checked(&store, true).unwrap();
        if !is_finished(&store) {
            survey.copy_to(&store, &mut |_| {}).unwrap();
        }
        assert_checked(&store, true).unwrap();
        assert_eq!(tree_of(&store), wanted, "killed at write {turn}");
        if is_done {
            break;
        }
        turn += 1;
    }
    println!("{turn} writes");
    assert!(turn > 2, "{turn} writes");
}

#[test]
fn a_power_cut_at_any_point_of_a_repair_is_harmless() {
    let FilledStore {
        mut bytes, places, ..
    } = filled(FEW);
    let content = places.iter().find(|place| place.what == "content").unwrap();
    invert(&mut bytes, content);
    let (wanted, _) = repaired(&bytes, "not cut").unwrap();
    let survey = survey(&bytes).unwrap();
    let (note, clock) = made(shape(16, 512, false, false), 5);
    let disk: Arc<dyn Disk> = Arc::new(note.clone());
    let store = life::open(&disk, &clock).unwrap();
    commit_each(&store);
    survey.copy_to(&store, &mut |_| {}).unwrap();
    drop(store);
    let trace = note.trace();
    let policy = CrashPolicy {
        exhaustive: 1,
        random: 2,
        unreadable: false,
    };
    let mut walk = CrashWalk::new(&trace);
    let mut rng = Rng::new(5);
    let mut cut = 0;
    for point in trace.crash_points() {
        while walk.point() < point && walk.apply_next().is_some() {}
        for image in walk.crash_images(&mut rng, &policy) {
            let disk: Arc<dyn Disk> = Arc::new(image.disk.clone());
            let store = life::open(&disk, &clock).unwrap();
            if !is_finished(&store) {
                survey.copy_to(&store, &mut |_| {}).unwrap();
            }
            assert_checked(&store, true).unwrap_or_else(|e| panic!("{image}: {e}"));
            assert_eq!(tree_of(&store), wanted, "{image}");
            cut += 1;
        }
    }
    println!("{cut} images");
    assert!(cut > 5, "{cut} images");
}

#[test]
fn a_repair_goes_on_only_with_its_own_copy() {
    let FilledStore {
        bytes: whole,
        places,
        ..
    } = filled(FEW);
    let mut bytes = whole.clone();
    invert(
        &mut bytes,
        places.iter().find(|place| place.what == "content").unwrap(),
    );
    let mine = survey(&bytes).unwrap();
    let other = survey(&filled(FEW).bytes).unwrap();

    // A store with something in it is no place for a copy.
    let disk = new_disk(STORE);
    let store = open_on(&disk);
    make(&store, ObjectNo::ROOT, "mine", FileType::File, b"content");
    let refused = mine.copy_to(&store, &mut |_| {});
    assert!(matches!(refused, Err(RepairError::NotEmpty)), "{refused:?}");

    let disk = MemDisk::from_bytes(image(&*new_disk(STORE)));
    let faults = FaultDisk::new(disk);
    let shared: Arc<dyn Disk> = Arc::new(faults.clone());
    let store = open_on(&shared);
    commit_each(&store);
    faults.fail_nth(DiskCall::Write, 3, FaultDuration::Forever, ErrorKind::Other);
    assert!(other.copy_to(&store, &mut |_| {}).is_err());
    drop(store);
    faults.clear_faults();
    let store = open_on(&shared);
    let refused = mine.copy_to(&store, &mut |_| {});
    assert!(
        matches!(refused, Err(RepairError::OtherRepair)),
        "{refused:?}"
    );
    other.copy_to(&store, &mut |_| {}).unwrap();
}

#[test]
fn a_repair_does_not_go_on_when_the_disk_reads_otherwise() {
    let FilledStore {
        bytes: whole,
        places,
        ..
    } = filled(FEW);
    let content: Vec<_> = places.iter().filter(|p| p.what == "content").collect();
    let mut bytes = whole.clone();
    invert(&mut bytes, content[0]);
    let before = survey(&bytes).unwrap();
    invert(&mut bytes, content[content.len() - 1]);
    let after = survey(&bytes).unwrap();

    let disk = MemDisk::from_bytes(image(&*new_disk(STORE)));
    let faults = FaultDisk::new(disk);
    let shared: Arc<dyn Disk> = Arc::new(faults.clone());
    let store = open_on(&shared);
    commit_each(&store);
    faults.fail_nth(DiskCall::Write, 3, FaultDuration::Forever, ErrorKind::Other);
    assert!(before.copy_to(&store, &mut |_| {}).is_err());
    drop(store);
    faults.clear_faults();
    let store = open_on(&shared);
    let refused = after.copy_to(&store, &mut |_| {});
    assert!(
        matches!(refused, Err(RepairError::OtherRepair)),
        "{refused:?}"
    );
    before.copy_to(&store, &mut |_| {}).unwrap();
}

#[test]
fn what_fails_between_the_survey_and_the_copy_is_no_silent_hole() {
    let FilledStore { bytes, places, .. } = filled(FEW);
    let disk = disk_with(&bytes);
    let survey = RepairSurvey::open(Arc::clone(&disk), Arc::new(SystemClock), &mut |_| {}).unwrap();
    assert!(survey.findings().is_whole(), "{:?}", survey.findings());
    let place = places.iter().find(|place| place.what == "content").unwrap();
    let mut damaged = bytes;
    invert(&mut damaged, place);
    let range = place.byte as usize..(place.byte + place.bytes) as usize;
    let slices = [IoSlice::new(&damaged[range])];
    disk.write_at(Sector::new(place.byte / SECTOR), &slices)
        .unwrap();
    let refused = survey.copy_to(&open_on(&new_disk(STORE)), &mut |_| {});
    let Err(error @ RepairError::Failing { .. }) = refused else {
        panic!("{refused:?}");
    };
    let said = error.to_string();
    assert!(said.contains("/") && said.contains("ddrescue"), "{said}");
}

#[test]
fn a_new_store_that_is_too_small_says_so() {
    let disk = new_disk(64 * MIB);
    let store = open_on(&disk);
    for n in 0..20 {
        make(
            &store,
            ObjectNo::ROOT,
            &format!("{n}"),
            FileType::File,
            &large_content(n, MIB as usize),
        );
    }
    store.close().unwrap();
    drop(store);
    let survey = survey(&image(&*disk)).unwrap();
    let store = open_on(&new_disk(STORE));
    let full = survey.copy_to(&store, &mut |_| {});
    let needed = 20 * MIB;
    assert!(
        matches!(full, Err(RepairError::NoSpace { needed: n }) if n == needed),
        "{full:?}"
    );
}

#[test]
fn the_damaged_store_is_not_written() {
    let FilledStore {
        mut bytes, places, ..
    } = filled(FEW);
    invert(
        &mut bytes,
        places.iter().find(|place| place.what == "content").unwrap(),
    );
    let faults = FaultDisk::new(MemDisk::from_bytes(bytes.clone()));
    let shared: Arc<dyn Disk> = Arc::new(faults.clone());
    let survey = RepairSurvey::open(shared, Arc::new(SystemClock), &mut |_| {}).unwrap();
    survey
        .copy_to(&open_on(&new_disk(STORE)), &mut |_| {})
        .unwrap();
    assert_eq!(faults.call_count(DiskCall::Write), 0);
    let mut now = vec![0; bytes.len()];
    faults.inner().read_at(Sector::new(0), &mut now).unwrap();
    assert!(now == bytes);
    // Writing is possible, but for the repair.
    faults
        .write_at(Sector::new(0), &[IoSlice::new(&bytes[..512])])
        .unwrap();
}

#[test]
fn a_store_without_its_root_directory_has_all_that_was_in_it() {
    let FilledStore {
        mut bytes,
        tree: mut before,
        places,
        ..
    } = filled(FEW);
    let record = places
        .iter()
        .find(|place| place.owner == Some(ObjectNo::ROOT) && place.what == "an inode record");
    invert(&mut bytes, record.unwrap());
    // The log does not lead from an older state to the newest.
    for at in sectors_with(&bytes, b"TREC") {
        bytes[at..at + SECTOR as usize].fill(0);
    }
    let (mut tree, findings) = repaired(&bytes, "without the root").unwrap();
    // Its own attributes are lost.
    before.remove("");
    tree.remove("");
    tree.retain(|path, _| !is_lost_and_found(path));
    assert_eq!(tree, before);
    assert_eq!(findings.count_losses(LossKind::Names), 1);
}
