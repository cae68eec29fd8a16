//! What a mount finds of the one before, and that an idle one is silent.

use crate::fixture::{ROOT, Volume};
use std::time::Duration;

#[test]
fn the_tree_survives_an_end_and_a_crash_after_sync() {
    let mut v = Volume::new();
    let d = v.dir(ROOT, "d");
    let f = v.file(d, "f");
    v.write(f, 0, &[5; 10_000]);
    v.client.shutdown().unwrap();
    v.reopen();
    v.file(d, "g");
    v.client.sync().unwrap();
    v.file(d, "lost");
    v.reopen();
    assert_eq!(v.names(d), [".", "..", "f", "g"]);
    assert_eq!(v.client.read(f, 0, 20_000).unwrap(), [5; 10_000]);
}

#[test]
fn what_is_due_is_committed_without_being_asked() {
    let mut v = Volume::new();
    v.file(ROOT, "f");
    assert!(v.client.step() > Some(Duration::ZERO));
    assert!(v.client.status().unwrap().dirty);
    v.clock.advance(Duration::from_secs(6));
    v.client.step();
    assert!(!v.client.status().unwrap().dirty);
    v.reopen();
    assert_eq!(v.names(ROOT), [".", "..", "f"]);
}

#[test]
fn idle_means_no_io() {
    let v = Volume::new();
    v.file(ROOT, "f");
    v.clock.advance(Duration::from_secs(60));
    v.client.step();
    v.clock.advance(Duration::from_secs(60));
    assert_eq!(
        v.client.step(),
        None,
        "nothing is due until something changes"
    );
    let before = v.client.store().counter_values();
    for _ in 0..100 {
        v.clock.advance(Duration::from_secs(60));
        v.client.step();
    }
    let after = v.client.store().counter_values();
    assert_eq!(
        (before.writes, before.reads, before.barriers),
        (after.writes, after.reads, after.barriers)
    );
}

#[test]
fn the_thread_ends_with_its_client() {
    let mut v = Volume::new();
    v.client.start().unwrap();
    v.client.start().unwrap();
    let f = v.file(ROOT, "f");
    // Enough for the thread to be woken.
    for n in 0..20 {
        v.write(f, n << 20, &vec![1; 1 << 20]);
    }
    assert_eq!(v.client.shutdown().unwrap(), Default::default());
    v.reopen();
    assert_eq!(v.attr(f).size, 20 << 20);
    v.client.start().unwrap();
    v.reopen();
}
