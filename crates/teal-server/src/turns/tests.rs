//! One machine's requests wait for each other, and for nothing else.

use super::*;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use teal_types::{ReplicaNo, VolumeId};

fn peer(replica: u32) -> Peer {
    Peer {
        volume: VolumeId::new(1),
        replica: ReplicaNo::new(replica),
    }
}

#[test]
fn one_request_of_a_machine_and_a_kind_is_carried_out_at_a_time() {
    let turns = PeerTurns::default();
    let (running, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..200 {
                    turns.run(peer(1), TurnKind::Change, || {
                        most.fetch_max(
                            running.fetch_add(1, Ordering::SeqCst) + 1,
                            Ordering::SeqCst,
                        );
                        std::thread::yield_now();
                        running.fetch_sub(1, Ordering::SeqCst);
                    });
                }
            });
        }
    });
    assert_eq!(most.into_inner(), 1);
    assert!(
        turns.entries.lock().is_empty(),
        "a machine at rest is forgotten"
    );
}

#[test]
fn another_machine_and_another_kind_do_not_wait() {
    let turns = PeerTurns::default();
    let (begun, has_begun) = mpsc::channel();
    let (end, may_end) = mpsc::channel();
    std::thread::scope(|scope| {
        let turns = &turns;
        scope.spawn(move || {
            turns.run(peer(1), TurnKind::Change, || {
                begun.send(()).unwrap();
                may_end.recv().unwrap();
            });
        });
        has_begun.recv().unwrap();
        assert_eq!(turns.run(peer(2), TurnKind::Change, || 2), 2);
        assert_eq!(turns.run(peer(1), TurnKind::Gather, || 1), 1);
        assert_eq!(turns.entries.lock().len(), 1);
        end.send(()).unwrap();
    });
    assert!(turns.entries.lock().is_empty());
}

#[test]
fn a_request_that_panics_ends_its_turn() {
    let turns = PeerTurns::default();
    let panicking = || turns.run(peer(1), TurnKind::Change, || panic!("a defect"));
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(panicking));
    assert!(outcome.is_err());
    assert_eq!(turns.run(peer(1), TurnKind::Change, || 1), 1);
    assert!(turns.entries.lock().is_empty());
}
