//! A range of the disk that holds again what it held earlier: as when a part of an old image was
//! copied over it, or a disk lost writes.

use crate::new_objects::new_file;
use crate::stores::{disk_bytes, name, new_disk, open, open_as, put_bytes};
use std::sync::Arc;
use teal_env::MemDisk;
use teal_log::{CheckOptions, Cost, OpenOptions, Store};
use teal_types::ObjectNo;

const MIB: u64 = 1 << 20;
const STORE: u64 = 32 * MIB;
/// Places of anchors, and where: as `docs/format.md` says, for a store of this size.
const PLACES: u64 = 4;

/// Writes the number of the state, and a megabyte that moves the log on.
fn go_on(store: &Store, state: u64) {
    let op = store.begin(Cost::write(2 * MIB)).unwrap();
    let known = store.lookup(ObjectNo::ROOT, &name("state")).unwrap();
    let mut locked = op
        .lock(&known.map_or(vec![ObjectNo::ROOT], |(no, _)| vec![no]))
        .unwrap();
    let file = known.map_or_else(
        || {
            let file = locked.create(new_file());
            locked
                .insert_entry(ObjectNo::ROOT, &name("state"), file)
                .unwrap();
            file
        },
        |(no, _)| no,
    );
    locked.write(file, 0, &state.to_le_bytes()).unwrap();
    locked
        .write(file, 8192, &vec![state as u8; MIB as usize])
        .unwrap();
}

fn state(store: &Store) -> Option<u64> {
    let (no, _) = store.lookup(ObjectNo::ROOT, &name("state")).unwrap()?;
    let bytes = store.read(no, 0, 8).unwrap();
    Some(u64::from_le_bytes(bytes.try_into().unwrap()))
}

/// How a life ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Clean,
    /// Without an end, right behind a checkpoint.
    Checkpointed,
    /// Without an end, behind a checkpoint and a batch that is durable.
    Committed,
}

/// What a user learns who opens a store for reading and checks it.
enum Seen {
    Refused { is_salvaged: bool },
    Damaged,
    Clean(Option<u64>),
}

fn look(disk: &Arc<MemDisk>) -> Seen {
    let options = OpenOptions {
        read_only: true,
        ..OpenOptions::default()
    };
    let Ok(store) = open_as(disk, options) else {
        // Unless pages that an older checkpoint needs are in the range.
        return Seen::Refused {
            is_salvaged: open_as(
                disk,
                OpenOptions {
                    salvage: true,
                    ..options
                },
            )
            .is_ok(),
        };
    };
    match store
        .check(CheckOptions { verify_data: true }, &mut |_| {})
        .is_clean()
    {
        true => Seen::Clean(state(&store)),
        false => Seen::Damaged,
    }
}

/// The store after each state from the first on, and after the last one's end.
fn life(states: u64, end: End) -> (Vec<Vec<u8>>, Vec<u8>) {
    let disk = new_disk(STORE / MIB);
    let store = open(&disk);
    let mut images = Vec::new();
    for state in 0..states {
        go_on(&store, state);
        if end == End::Committed && state + 1 == states {
            store.commit().unwrap();
        } else {
            store.checkpoint().unwrap();
        }
        images.push(disk_bytes(&disk));
    }
    if end == End::Clean {
        store.close().unwrap();
    }
    (images, disk_bytes(&disk))
}

/// Returns where something differs: what the last states wrote, the end of the log among it.
fn written(old: &[u8], new: &[u8]) -> Vec<u64> {
    let differs = |at: &u64| {
        let range = *at as usize..(*at + MIB) as usize;
        old[range.clone()] != new[range]
    };
    (0..STORE / MIB).map(|n| n * MIB).filter(differs).collect()
}

#[test]
fn a_stale_range_of_some_megabytes_never_passes_for_an_older_state() {
    let (mut refused, mut salvaged, mut found, mut as_new) = (0, 0, 0, 0);
    for end in [End::Clean, End::Checkpointed, End::Committed] {
        // The log goes round several times: its end meets each place of anchors.
        for states in (6..40).step_by(3) {
            let (images, now) = life(states, end);
            let disk = Arc::new(MemDisk::from_bytes(now.clone()));
            let newest = states - 1;
            // What a torn tail looks like cannot be told from it: batches behind the last
            // checkpoint (docs/semantics.md, promise 5).
            let least = if end == End::Committed {
                newest - 1
            } else {
                newest
            };
            for back in [1, 2, 5] {
                let old = &images[(newest - back) as usize];
                for at in written(old, &now) {
                    for length in [1, 2, 4] {
                        let from = at.saturating_sub((length - 1) * MIB) as usize;
                        let range = from..(from + (length * MIB) as usize).min(STORE as usize);
                        let said = format!(
                            "{end:?}, {states} states, {back} back, {length} MiB at {from}"
                        );
                        put_bytes(&disk, old, range.clone());
                        match look(&disk) {
                            Seen::Refused { is_salvaged } => {
                                refused += 1;
                                salvaged += u32::from(is_salvaged);
                            }
                            Seen::Damaged => found += 1,
                            Seen::Clean(state) => {
                                as_new += 1;
                                assert!(
                                    state >= Some(least),
                                    "{said}: {state:?} passes for {newest}"
                                );
                            }
                        }
                        put_bytes(&disk, &now, range);
                    }
                }
            }
        }
    }
    let said = format!(
        "{refused} refused, {salvaged} of them salvaged, {found} found by check, {as_new} as new"
    );
    println!("{said}");
    assert!(refused > 100 && salvaged > 10 && as_new > 100, "{said}");
}

#[test]
fn a_stale_range_over_any_place_of_anchors_alone_changes_nothing() {
    let (images, now) = life(20, End::Clean);
    for place in 0..PLACES {
        for old in [0, 10, 18] {
            let segments = (STORE - 8192) / (512 << 10);
            let at = (place * segments / PLACES * (512 << 10)) as usize;
            let range = at..at + 3 * 4096;
            let disk = Arc::new(MemDisk::from_bytes(now.clone()));
            put_bytes(&disk, &images[old], range);
            let store = open(&disk);
            assert!(
                store
                    .check(CheckOptions { verify_data: true }, &mut |_| {})
                    .is_clean(),
                "place {place}, {old}"
            );
            assert_eq!(state(&store), Some(19), "place {place}, {old}");
        }
    }
}
