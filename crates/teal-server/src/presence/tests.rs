//! Tests of presence: company, filters, and which waiting pulls are notified.

use super::*;
use std::collections::HashSet;
use teal_types::ObjectNo;

const NOW: Duration = Duration::from_secs(100);

fn peer(volume: u32, replica: u32) -> Peer {
    Peer {
        volume: VolumeId::new(volume),
        replica: ReplicaNo::new(replica),
    }
}

fn in_dir(dir: u64) -> CommitConcern {
    CommitConcern {
        seq: CommitSeq::new(1),
        rows: Vec::new(),
        notable: HashSet::from([ObjectNo::new(dir)]),
    }
}

#[test]
fn volumes_are_independent() {
    let mut registry = PresenceRegistry::default();
    registry.record_request(peer(1, 1), NOW);
    registry.record_request(peer(2, 2), NOW);
    assert!(!registry.has_company(peer(1, 1), NOW) && registry.is_live(peer(2, 2), NOW));
    registry.record_request(peer(1, 2), NOW);
    assert!(registry.has_company(peer(1, 1), NOW));
    registry.record_goodbye(peer(1, 2));
    assert!(!registry.has_company(peer(1, 1), NOW));
    let tickets = [1, 2].map(|n| registry.begin_waiting(peer(n, n), None));
    assert_eq!(registry.notify_of_commit(VolumeId::new(2), &in_dir(1)), 1);
    assert_eq!(
        tickets.map(|ticket| registry.take_notification(ticket)),
        [None, Some(1)]
    );
}

#[test]
fn pulls_that_a_commit_does_not_concern_are_not_notified() {
    let mut registry = PresenceRegistry::default();
    let keeping = |registry: &mut PresenceRegistry, replica: u32, dir: u64| {
        let of = peer(1, replica);
        registry.begin_filter(of, dir, CommitSeq::new(0), NOW);
        assert!(
            registry.usable_filter(of, dir, NOW).is_none(),
            "not before all has been said"
        );
        registry
            .filter_to_fill(of, dir, true)
            .unwrap()
            .add_objects([ObjectNo::new(dir)]);
        let filter = registry.usable_filter(of, dir, NOW);
        registry.begin_waiting(of, filter)
    };
    let tickets =
        [(1, 30), (2, 31), (3, 31)].map(|(replica, dir)| keeping(&mut registry, replica, dir));
    let all = registry.begin_waiting(peer(1, 4), None);
    assert_eq!(registry.notify_of_commit(VolumeId::new(1), &in_dir(31)), 3);
    assert_eq!(
        tickets.map(|ticket| registry.take_notification(ticket)),
        [None, Some(3), Some(3)]
    );
    assert_eq!(
        (
            registry.take_notification(all),
            registry.take_notification(all)
        ),
        (Some(3), None)
    );
    assert_eq!(
        registry.notify_of_commit(VolumeId::new(1), &in_dir(ObjectNo::ROOT.get())),
        4,
        "the root is everybody's"
    );
}

#[test]
fn filters_are_bounded_and_forgotten_when_unused() {
    let mut registry = PresenceRegistry::default();
    let ids = 1..=FILTERS_EACH as u64 + 1;
    ids.clone()
        .for_each(|id| registry.begin_filter(peer(1, 1), id, CommitSeq::new(0), NOW));
    let found: Vec<bool> = ids
        .map(|id| registry.filter_to_fill(peer(1, 1), id, true).is_some())
        .collect();
    assert_eq!(found, [false, true, true, true, true]);
    let later = NOW + FILTER_FOR;
    assert!(registry.usable_filter(peer(1, 1), 3, later).is_some());
    registry.begin_filter(peer(1, 2), 9, CommitSeq::new(0), later);
    assert_eq!(
        (
            registry.filters_of(peer(1, 1)).len(),
            registry.filters_of(peer(1, 2)).len()
        ),
        (1, 1)
    );
    let filter = registry.filters_of(peer(1, 2)).pop().unwrap();
    filter.add_objects((0..=crate::limits::FILTER_MAX as u64).map(ObjectNo::new));
    assert!(
        filter.is_woken_by(&in_dir(1 << 40)),
        "one that is too large lets everything through"
    );
    drop(filter);
    registry.record_goodbye(peer(1, 1));
    registry.record_goodbye(peer(1, 2));
    assert_eq!(
        registry
            .filtered_objects
            .load(std::sync::atomic::Ordering::Relaxed),
        0
    );
}

#[test]
fn few_are_notified_at_once_and_many_within_bounds() {
    assert_eq!(gathering_time(GATHERING_FROM), Duration::ZERO);
    assert_eq!(gathering_time(200), GATHER_FOR_EACH * 200);
    assert_eq!(gathering_time(9000), GATHER_MAX);
}
