//! When workers are called, and when they leave.

use super::*;
use std::thread::Builder;

/// Called while `busy` of a crew of two are in requests that do not end.
fn called(busy: usize) -> usize {
    let crew = Crew::new(2);
    let calls = AtomicUsize::new(0);
    (0..2).for_each(|_| crew.join());
    std::thread::scope(|scope| {
        let watch = || crew.watch(|| calls.fetch_add(1, SeqCst) < 3);
        let watching = Builder::new().spawn_scoped(scope, watch).unwrap();
        (0..busy).for_each(|_| crew.begin());
        while busy >= 2 && calls.load(SeqCst) < busy - 1 {
            std::thread::yield_now();
        }
        crew.is_over();
        watching.join().unwrap();
    });
    calls.into_inner()
}

#[test]
fn more_are_called_only_while_all_are_held_up() {
    assert_eq!(called(1), 0);
    assert!(called(2) >= 1);
    assert!(called(3) >= 2, "and again, as long as it is so");
}

#[test]
fn who_is_too_many_leaves() {
    let crew = Crew::new(1);
    (0..3).for_each(|_| crew.join());
    (0..3).for_each(|_| crew.begin());
    assert!(!crew.end(), "the only one that is free");
    assert!(crew.end());
    crew.leave();
    assert!(crew.end());
    crew.leave();
    crew.begin();
    assert!(!crew.end(), "as many as are wanted");
}
