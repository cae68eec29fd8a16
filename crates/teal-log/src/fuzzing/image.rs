//! Opening and using an image that was tampered with.

use super::metered::{FixedClock, MeteredDisk};
use super::oracle::{self, ObservedStore};
use super::script::MutationScript;
use super::with_lenient_checksums;
use crate::error::StoreError;
use crate::inspect::check::CheckOptions;
use crate::inspect::dump::{DumpWhat, RawWhat, dump_raw};
use crate::recovery::open::{OpenOptions, Recovery};
use crate::repair::survey::RepairSurvey;
use crate::space::cost::Cost;
use crate::store::handle::Store;
use crate::store::locked::{AttributeChanges, NewObject};
use crate::store::mkfs::{MkfsOptions, SMALLEST_STORE};
use std::sync::Arc;
use teal_env::{Clock, Disk, MemDisk, SystemEntropy};
use teal_types::{FileType, Name, ObjectNo, SECTOR};

/// The most bytes that may be read of and written to an image in one run: some hundred times its
/// size.
const BUDGET: u64 = 4 << 30;
/// The most content that is repaired.
const REPAIRED_MAX: u64 = 4 << 20;
/// Objects that are changed.
const CHANGED: usize = 8;

fn open_image(
    disk: &Arc<MeteredDisk>,
    read_only: bool,
    salvage: bool,
) -> Option<(Arc<Store>, Recovery)> {
    let disk: Arc<dyn Disk> = disk.clone();
    let clock: Arc<dyn Clock> = Arc::new(FixedClock);
    Store::open(
        disk,
        clock,
        OpenOptions {
            read_only,
            salvage,
            ..OpenOptions::default()
        },
    )
    .ok()
}

/// Checksums look away: whatever the image says, nothing panics and everything ends.
pub(super) fn fuzz_image(input: &[u8]) {
    let Some(script) = MutationScript::decode(input) else {
        return;
    };
    let disk = script.mutated_disk(BUDGET);
    with_lenient_checksums(|| {
        // Dumps read the disk without opening the store.
        raw_dumps(&disk);
        if script.salvage && !script.for_writing {
            repair_image(&disk);
        }
        let Some((store, _)) = open_image(&disk, !script.for_writing, script.salvage) else {
            return;
        };
        // Everything is read before anything is written.
        let seen = observe_all(&store);
        if !script.for_writing {
            return;
        }
        let _ = exercise_store(&store, &seen);
        drop(store);
        // The store must open again after the writes.
        if let Some((store, _)) = open_image(&disk, true, false) {
            observe_all(&store);
        }
    });
}

/// Checksums count: what is read is what one of the commits had made, or an error.
pub(super) fn fuzz_image_sealed(input: &[u8]) {
    let Some(script) = MutationScript::decode(input) else {
        return;
    };
    let disk = script.mutated_disk(BUDGET);
    let Some((store, _)) = open_image(&disk, !script.for_writing, script.salvage) else {
        return;
    };
    let seen = oracle::observe_store(&store);
    let states = &script.base.states;
    // With checksums, only states that were once committed may show.
    let of_a_commit = if script.salvage && !script.for_writing {
        seen.is_made_of(states)
    } else {
        states.iter().any(|state| seen.is_part_of(state))
    };
    assert!(
        of_a_commit,
        "wrong data without an error: no commit had left this"
    );
    store.check(CheckOptions { verify_data: true }, &mut |_| {});
    if script.for_writing {
        let _ = exercise_store(&store, &seen);
    }
}

/// Repairs into a new store. If that succeeds, the new store is clean, whatever the image said.
fn repair_image(disk: &Arc<MeteredDisk>) {
    let clock: Arc<dyn Clock> = Arc::new(FixedClock);
    let Ok(survey) = RepairSurvey::open(disk.clone(), clock.clone(), &mut |_| {}) else {
        return;
    };
    // What claims to be more does not fit.
    if survey.findings().bytes > REPAIRED_MAX {
        return;
    }
    let new: Arc<dyn Disk> = Arc::new(MemDisk::new(SMALLEST_STORE / SECTOR));
    let options = MkfsOptions::default();
    Store::mkfs(new.clone(), clock.clone(), &SystemEntropy, &options).expect("memory is written");
    let (store, _) =
        Store::open(new, clock, OpenOptions::default()).expect("it was made a moment ago");
    if survey.copy_to(&store, &mut |_| {}).is_ok() {
        let report = store.check(CheckOptions { verify_data: true }, &mut |_| {});
        assert!(report.is_clean(), "a repaired store: {:?}", report.problems);
    }
}

fn raw_dumps(disk: &MeteredDisk) {
    let mut out = std::io::sink();
    for what in [
        RawWhat::Superblock,
        RawWhat::Anchors,
        RawWhat::Chain,
        RawWhat::Segment(0),
        RawWhat::Segment(1),
    ] {
        // An error says that no superblock is left, or fewer segments.
        let _ = dump_raw(disk, what, &mut out);
    }
}

/// Looks at everything in every way there is.
fn observe_all(store: &Store) -> ObservedStore {
    let seen = oracle::observe_store(store);
    store.check(CheckOptions { verify_data: true }, &mut |_| {});
    let mut out = std::io::sink();
    let of = seen
        .things
        .keys()
        .flat_map(|no| [DumpWhat::Inode(*no), DumpWhat::Directory(*no)]);
    for what in [
        DumpWhat::Usage,
        DumpWhat::InodeMap,
        DumpWhat::Orphans,
        DumpWhat::Shared,
    ]
    .into_iter()
    .chain(of.take(600))
    {
        store.dump(what, &mut out).expect("a sink takes everything");
    }
    let _ = (store.space(), store.is_dirty(), store.unfolded_bytes());
    // Reads from here on go to the disk.
    store.drop_caches();
    seen
}

/// Makes a few operations of each kind, commits, a checkpoint, cleaning, the clean end.
fn exercise_store(store: &Store, seen: &ObservedStore) -> Result<(), StoreError> {
    let files = objects_of_kind(seen, FileType::File);
    // Errors of operations are expected in a damaged image.
    for dir in objects_of_kind(seen, FileType::Dir) {
        let _ = add_names(store, dir);
        let _ = remove_names(store, dir);
    }
    store.commit()?;
    for pair in files.windows(2) {
        let _ = share_content(store, pair[0], pair[1]);
    }
    store.commit()?;
    for file in files {
        let _ = change_content(store, file);
    }
    store.commit()?;
    for no in seen.things.keys().take(CHANGED) {
        let _ = change_attributes(store, *no);
    }
    for no in store.orphans().into_iter().flatten().take(CHANGED) {
        let op = store.begin(Cost::names(1).freeing())?;
        let _ = op.lock(&[no]).and_then(|mut locked| locked.free_object(no));
    }
    store.tick()?;
    store.checkpoint()?;
    // Several rounds: moved content of one becomes victims of the next.
    for _ in 0..3 {
        store.clean(4, 100)?;
        store.commit()?;
    }
    store.checkpoint()?;
    store.close()
}

/// Returns a few of the objects of a type.
fn objects_of_kind(seen: &ObservedStore, kind: FileType) -> Vec<ObjectNo> {
    let mut found = Vec::new();
    for (no, thing) in &seen.things {
        if found.len() < CHANGED && thing.attr.is_some_and(|attr| attr.kind == kind) {
            found.push(*no);
        }
    }
    found
}

fn add_names(store: &Store, dir: ObjectNo) -> Result<(), StoreError> {
    let fresh = Name::new(b"a fresh name").expect("it is one");
    let op = store.begin(Cost::names(2))?;
    let mut locked = op.lock(&[dir])?;
    for kind in [FileType::Dir, FileType::File] {
        let no = locked.create(NewObject {
            kind,
            perm: 0o600,
            uid: 0,
            gid: 0,
            rdev: 0,
            now: FixedClock.civil_time(),
        });
        // The name may exist in a damaged image.
        if locked.entry(dir, &fresh)?.is_none() {
            locked.insert_entry(dir, &fresh, no)?;
        } else {
            locked.free_object(no)?;
        }
    }
    Ok(())
}

fn remove_names(store: &Store, dir: ObjectNo) -> Result<(), StoreError> {
    let mut found = Vec::new();
    store.each_entry(dir, 0, &mut |_, child, _, name| {
        found.push((child, name.clone()));
        if found.len() < CHANGED {
            std::ops::ControlFlow::Continue(())
        } else {
            std::ops::ControlFlow::Break(())
        }
    })?;
    // Damaged entries may lead anywhere.
    for (child, name) in found {
        let op = store.begin(Cost::names(2).freeing())?;
        let Ok(mut locked) = op.lock(&[dir, child]) else {
            continue;
        };
        let entry = locked.entry(dir, &name)?;
        if entry.is_none_or(|(now, _)| now != child) {
            continue;
        }
        locked.remove_entry(dir, &name)?;
        if !locked.is_linked(child) {
            locked.set_orphan(child, true)?;
        }
    }
    Ok(())
}

fn change_content(store: &Store, file: ObjectNo) -> Result<(), StoreError> {
    let size = store.attr(file)?.size;
    let op = store.begin(Cost::write(1 << 18))?;
    let mut locked = op.lock(&[file])?;
    // Inside, across a block, in the middle, near the end and at the end.
    for at in [0, 5000, size / 2, size.saturating_sub(10), size] {
        let _ = locked.write(file, at, &[9; 9000]);
    }
    let _ = locked.punch(file, size / 3, size / 2);
    let _ = locked.truncate(file, size / 2 + 1);
    let _ = locked.truncate(file, size.saturating_mul(2));
    Ok(())
}

fn share_content(store: &Store, from: ObjectNo, to: ObjectNo) -> Result<(), StoreError> {
    let size = store.attr(from)?.size;
    // To another file, at an offset, and into the file itself.
    for (at, to, into) in [
        (0, to, 0),
        (4096, to, 1 << 20),
        (0, from, size.next_multiple_of(4096)),
    ] {
        let sharing = store.plan_share((from, at), (to, into), size)?;
        let op = store.begin(sharing.cost)?;
        let mut locked = op.lock(&[from, to])?;
        let _ = locked.share((from, at), (to, into), size.saturating_sub(at), &sharing);
    }
    Ok(())
}

fn change_attributes(store: &Store, no: ObjectNo) -> Result<(), StoreError> {
    let op = store.begin(Cost::names(1))?;
    let mut locked = op.lock(&[no])?;
    locked.set_attr(
        no,
        AttributeChanges {
            perm: Some(0o777),
            ..AttributeChanges::default()
        },
    );
    let _ = locked.set_xattr(no, b"user.fuzz", Some(&[1; 100]))?;
    let _ = locked.entry_count(no);
    locked.set_orphan(no, true)?;
    locked.set_orphan(no, false)
}
