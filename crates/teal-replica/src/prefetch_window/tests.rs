//! Windows follow use; flights end.

use super::*;

const A: ObjectNo = ObjectNo::ROOT;

fn no(n: u64) -> ObjectNo {
    ObjectNo::new(100 + n)
}

#[test]
fn a_window_that_is_used_grows_and_one_that_is_not_shrinks() {
    let window = PrefetchWindow::new(100, 1000);
    let mut sizes = Vec::new();
    for _ in 0..5 {
        sizes.push(window.note_wait());
        (0..10).for_each(|n| window.note_prefetched(no(n), 0, sizes[sizes.len() - 1] / 10));
        assert!(
            (0..10).filter(|n| window.note_use(no(*n), 1)).count() > 4,
            "more is due when half is used"
        );
        window.note_use(no(3), 1);
    }
    assert_eq!(sizes, [100, 200, 400, 800, 1000]);
    // Half of it used.
    let window = PrefetchWindow::new(100, 1000);
    window.note_prefetched(no(1), 0, 100);
    window.note_use(no(1), 1);
    assert_eq!(window.note_wait(), 200);
    window.note_prefetched(no(1), 0, 100);
    window.note_prefetched(no(2), 0, 100);
    window.note_use(no(1), 1);
    assert_eq!(
        window.note_wait(),
        250,
        "a hundred more, and half of a hundred less"
    );
    window.note_prefetched(no(1), 0, 250);
    assert_eq!(window.note_wait(), 125, "nothing of it used");
    assert_eq!(window.note_wait(), 125, "that counts once");
    window.note_use(no(2), 1);
    assert_eq!(window.note_wait(), 225, "used late is used");
    window.note_prefetched(no(3), 0, 1000);
    assert_eq!(window.note_wait(), 100, "never less");
}

#[test]
fn what_was_read_does_not_count_as_what_came_ahead_of_it() {
    let window = PrefetchWindow::new(100, 1000);
    window.note_prefetched(A, 50, 100);
    window.note_use(A, 50);
    window.note_use(no(1), 1000);
    assert_eq!(window.note_wait(), 100);
    window.note_prefetched(A, 50, 100);
    window.note_use(A, 51);
    assert_eq!(window.note_wait(), 200);
}

#[test]
fn a_window_that_takes_long_is_halved_and_one_that_may_not_open_stays_shut() {
    let window = PrefetchWindow::new(100, 1000);
    window.note_prefetched(A, 0, 700);
    window.note_use(A, 1);
    window.note_duration(Duration::from_millis(900));
    assert_eq!(window.note_wait(), 800);
    window.note_duration(Duration::from_millis(1100));
    assert_eq!(window.note_wait(), 400);
    assert_eq!(PrefetchWindow::new(100, 0).note_wait(), 0);
}

#[test]
fn more_comes_when_half_of_the_window_is_used_and_never_more_than_it_holds() {
    let window = PrefetchWindow::new(100, 1000);
    assert_eq!(window.available(), (100, 100));
    (0..4).for_each(|n| window.note_prefetched(no(n), 0, 25));
    assert_eq!(window.available(), (100, 0));
    assert!(!window.note_use(no(9), 1), "that did not come ahead");
    assert!(
        !window.note_use(no(0), 1),
        "three quarters of what was the window are unused"
    );
    assert!(window.note_use(no(1), 1));
    assert_eq!(window.available(), (150, 100), "it grew by what was used");
    assert!(!window.note_use(no(1), 1), "that counts once");
    window.note_prefetched(no(4), 0, 100);
    window.note_prefetched(no(4), 50, 75);
    assert_eq!(
        window.available(),
        (150, 25),
        "of one object it is what came last"
    );
    // Somebody had to wait elsewhere: what came before takes no room there, and has made the window
    // smaller.
    assert_eq!(window.note_wait(), 100);
    assert_eq!(window.available(), (100, 100));
    assert!(window.note_use(no(4), 51), "used late is used");
    assert_eq!(window.available(), (175, 175));
    assert_eq!(PrefetchWindow::new(100, 0).available(), (0, 0));
}

fn ranges(of: &[(u64, u64)]) -> ByteRanges {
    ByteRanges::from_sorted(of.to_vec()).unwrap()
}

#[test]
fn what_one_fetches_another_does_not_take_but_waits_for() {
    let flights = FetchesInFlight::default();
    let mut first = flights.begin_claim();
    assert_eq!(
        first.claim_ranges(A, &ranges(&[(0, 100)])),
        ranges(&[(0, 100)])
    );
    let mut second = flights.begin_claim();
    assert_eq!(
        second.claim_ranges(A, &ranges(&[(50, 150), (200, 300)])),
        ranges(&[(100, 150), (200, 300)])
    );
    assert_eq!(
        second.claim_ranges(no(1), &ranges(&[(0, 1)])),
        ranges(&[(0, 1)])
    );
    assert!(
        !flights.wait_for_others(A, 150, 200) && !flights.wait_for_others(no(2), 0, 100),
        "nobody fetches that"
    );
    let (is_over, begin) = (AtomicBool::new(false), std::sync::Barrier::new(2));
    std::thread::scope(|scope| {
        let wait = || {
            begin.wait();
            flights.wait_for_others(A, 0, 120);
            is_over.load(Ordering::SeqCst)
        };
        let waiting = std::thread::Builder::new()
            .spawn_scoped(scope, wait)
            .unwrap();
        begin.wait();
        drop(first);
        assert!(
            !flights.wait_for_others(A, 0, 100),
            "the second goes on elsewhere"
        );
        is_over.store(true, Ordering::SeqCst);
        drop(second);
        assert!(waiting.join().unwrap(), "it waited until both had ended");
    });
    assert_eq!(
        flights.begin_claim().claim_ranges(A, &ranges(&[(0, 400)])),
        ranges(&[(0, 400)]),
        "nothing is left of them"
    );
}
