//! When workers are called, and when they leave.

use super::*;
use std::thread::Builder;

/// Called while `busy` of a crew of two are in requests that do not end.
fn called(busy: usize) -> usize {
    let crew = WorkerPool::new(2);
    let calls = AtomicUsize::new(0);
    (0..2).for_each(|_| crew.add_worker());
    std::thread::scope(|scope| {
        let watch = || crew.grow_when_stuck(|| calls.fetch_add(1, SeqCst) < 3);
        let watching = Builder::new().spawn_scoped(scope, watch).unwrap();
        (0..busy).for_each(|_| crew.begin_request());
        while busy >= 2 && calls.load(SeqCst) < busy - 1 {
            std::thread::yield_now();
        }
        crew.mark_over();
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
    let crew = WorkerPool::new(1);
    (0..3).for_each(|_| crew.add_worker());
    (0..3).for_each(|_| crew.begin_request());
    assert!(!crew.end_request(), "the only one that is free");
    assert!(crew.end_request());
    crew.remove_worker();
    assert!(crew.end_request());
    crew.remove_worker();
    crew.begin_request();
    assert!(!crew.end_request(), "as many as are wanted");
}
