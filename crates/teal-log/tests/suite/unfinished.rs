//! Power cuts in the middle of a checkpoint of a store whose inode map has several pages: what of
//! its second copies was not written is written by the next opening.

use crate::explore::{assert_checked, made, shape};
use crate::life::open;
use crate::new_objects::new_file;
use std::sync::Arc;
use teal_env::Disk;
use teal_log::{Cost, Store, StoreError};
use teal_testkit::{CrashPolicy, CrashWalk, Rng, SimClock};
use teal_types::ObjectNo;

/// Enough for several leaves of the inode map.
const FILES: usize = 500;

fn create(store: &Store) -> Result<ObjectNo, StoreError> {
    let op = store.begin(Cost::create())?;
    let mut locked = op.lock(&[])?;
    let no = locked.create(new_file());
    locked.set_orphan(no, true)?;
    Ok(no)
}

fn change(store: &Store, no: ObjectNo, byte: u8) -> Result<(), StoreError> {
    let op = store.begin(Cost::write(100))?;
    op.lock(&[no])?.write(no, 0, &[byte; 100])
}

/// Cuts the power at every point of a checkpoint, lives on elsewhere in the map, and looks at all
/// copies.
pub(crate) fn cut_checkpoints(physical: u32, seed: u64) -> Result<u64, String> {
    let (note, clock) = made(shape(16, physical, false, false), seed);
    let disk: Arc<dyn Disk> = Arc::new(note.clone());
    let store = open(&disk, &clock).map_err(|e| e.to_string())?;
    let say = |e: StoreError| e.to_string();
    let files: Result<Vec<_>, _> = (0..FILES).map(|_| create(&store)).collect();
    let files = files.map_err(say)?;
    store.checkpoint().map_err(say)?;
    // The last leaf changes in the checkpoint that is cut, the first one after it.
    change(&store, files[FILES - 1], 1).map_err(say)?;
    note.restart_trace();
    store.checkpoint().map_err(say)?;
    let trace = note.trace();
    let policy = CrashPolicy {
        exhaustive: 3,
        random: 12,
        unreadable: false,
    };
    let mut walk = CrashWalk::new(&trace);
    let mut rng = Rng::new(seed);
    let mut images = 0;
    for point in trace.crash_points() {
        while walk.point() < point && walk.apply_next().is_some() {}
        for image in walk.crash_images(&mut rng, &policy) {
            images += 1;
            let disk: Arc<dyn Disk> = Arc::new(image.disk.clone());
            live_on(&disk, &clock, &files).map_err(|what| format!("{image}: {what}"))?;
        }
    }
    Ok(images)
}

fn live_on(disk: &Arc<dyn Disk>, clock: &SimClock, files: &[ObjectNo]) -> Result<(), String> {
    let say = |e: StoreError| e.to_string();
    let store = open(disk, clock).map_err(|e| e.to_string())?;
    assert_checked(&store, true)?;
    change(&store, files[0], 2).map_err(say)?;
    store.checkpoint().map_err(say)?;
    assert_checked(&store, true).map_err(|what| format!("lived on: {what}"))?;
    drop(store);
    let store = open(disk, clock).map_err(|e| e.to_string())?;
    assert_checked(&store, true).map_err(|what| format!("opened again: {what}"))
}

#[test]
fn a_power_cut_in_a_checkpoint_leaves_no_page_without_its_second_copy() {
    let images = cut_checkpoints(512, 1).unwrap() + cut_checkpoints(4096, 2).unwrap();
    assert!(images > 50, "{images} images");
}
