//! Notes through the store: pieces, replacement, bounds, and what survives.

use super::*;
use crate::{Cost, MkfsOptions, OpenOptions, StoreSettings};
use std::sync::Arc;
use teal_env::{Disk, MemDisk, SystemClock, SystemEntropy};

fn made() -> Arc<dyn Disk> {
    let disk: Arc<dyn Disk> = Arc::new(MemDisk::new(64 << 11));
    let options = MkfsOptions {
        label: "notes".into(),
        owner: (0, 0),
        ..MkfsOptions::default()
    };
    Store::mkfs(
        Arc::clone(&disk),
        Arc::new(SystemClock),
        &SystemEntropy,
        &options,
    )
    .unwrap();
    disk
}

fn open(disk: &Arc<dyn Disk>) -> Arc<Store> {
    let settings = StoreSettings {
        checkpoint_bytes: 1 << 20,
        ..StoreSettings::default()
    };
    let options = OpenOptions {
        settings,
        ..OpenOptions::default()
    };
    Store::open(Arc::clone(disk), Arc::new(SystemClock), options)
        .unwrap()
        .0
}

fn set(store: &Store, no: u64, note: Option<&[u8]>) {
    let cost = Cost::names(1).with_note(note.map_or(0, <[u8]>::len));
    store
        .begin(cost)
        .unwrap()
        .set_note(ObjectNo::new(no), note)
        .unwrap();
}

fn noted(store: &Store) -> Vec<(u64, Vec<u8>)> {
    let mut found = Vec::new();
    let mut visit = |no: ObjectNo, head: &[u8]| {
        found.push((no.get(), head.to_vec()));
        ControlFlow::Continue(())
    };
    store.each_note(ObjectNo::new(0), &mut visit).unwrap();
    found
}

#[test]
fn a_note_is_found_again_after_a_crash_and_after_a_checkpoint() {
    for checkpoint in [false, true] {
        let disk = made();
        let store = open(&disk);
        let long: Vec<u8> = (0..70_000_u32).map(|i| (i % 251) as u8).collect();
        set(&store, 5, Some(&long));
        set(&store, 900, Some(b"short"));
        set(&store, 901, Some(b""));
        set(&store, 902, Some(b"goes"));
        store.commit().unwrap();
        if checkpoint {
            store.checkpoint().unwrap();
        }
        set(&store, 5, Some(&long[..1500]));
        set(&store, 902, None);
        store.commit().unwrap();
        set(&store, 900, Some(b"not committed"));
        drop(store);
        let store = open(&disk);
        assert_eq!(store.note(ObjectNo::new(5)).unwrap().unwrap(), long[..1500]);
        let heads = vec![
            (5, long[..NOTE_HEAD].to_vec()),
            (900, b"short".to_vec()),
            (901, Vec::new()),
        ];
        assert_eq!(noted(&store), heads);
        assert_eq!(store.note(ObjectNo::new(902)).unwrap(), None);
        assert!(
            store
                .check(crate::CheckOptions { verify_data: true }, &mut |_| {})
                .is_clean()
        );
    }
}

#[test]
fn many_notes_stay_within_what_was_promised() {
    let disk = made();
    let store = open(&disk);
    for round in 0..3_u8 {
        for no in 0..3000 {
            set(&store, 16 + no * 7, Some(&[round; 120]));
        }
        store.commit().unwrap();
    }
    assert_eq!(noted(&store).len(), 3000);
    for no in 0..3000 {
        set(&store, 16 + no * 7, None);
    }
    store.checkpoint().unwrap();
    assert_eq!(noted(&store), []);
    assert!(
        store
            .check(crate::CheckOptions { verify_data: true }, &mut |_| {})
            .is_clean()
    );
}

#[test]
fn a_note_at_the_limit_and_one_past_it() {
    let store = open(&made());
    let at_limit = vec![7; NOTE_MAX];
    set(&store, 1, Some(&at_limit));
    store.commit().unwrap();
    assert_eq!(
        store.note(ObjectNo::new(1)).unwrap().unwrap().len(),
        NOTE_MAX
    );
    let op = store.begin(Cost::names(1)).unwrap();
    assert!(matches!(
        op.set_note(ObjectNo::new(1), Some(&vec![7; NOTE_MAX + 1])),
        Err(StoreError::TooBig(_))
    ));
    assert!(matches!(
        op.set_note(ObjectNo::new(REPLICATED_LIMIT), Some(b"x")),
        Err(StoreError::TooBig(_))
    ));
    assert_eq!(store.note(ObjectNo::new(REPLICATED_LIMIT)).unwrap(), None);
}
