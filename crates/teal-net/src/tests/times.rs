//! Certificates that end, and clocks that are wrong.

use super::*;
use teal_types::Timestamp;

const DAY: Duration = Duration::from_secs(86_400);
/// The times of clients with clocks that are wrong in either direction.
const CLOCKS: [Timestamp; 2] = [Timestamp::new(0, 0), Timestamp::new(1 << 40, 0)];

#[test]
fn a_certificate_is_renewed_when_the_server_says_that_it_is_time() {
    let world = World::default();
    let channel = world.channel(&world.enrolled(1));
    channel.call(b"hi", LONG).unwrap();
    for now in CLOCKS {
        assert!(
            channel.renew_if_due(now).unwrap().is_none(),
            "the server's word counts"
        );
    }
    world.clock.advance(DAY * 61);
    channel.call(b"hi", LONG).unwrap();
    let renewed = channel
        .renew_if_due(CLOCKS[0])
        .unwrap()
        .expect("the server said so");
    assert_eq!(renewed.expires().secs, 1_700_000_000 + (61 + 90) * 86_400);
    channel.call(b"hi", LONG).unwrap();
    assert!(channel.renew_if_due(CLOCKS[1]).unwrap().is_none());
    world.clock.advance(DAY * 50);
    assert!(channel.call(b"the old one would have ended", LONG).is_ok());
    assert!(world.channel(&renewed).call(b"hi", LONG).is_ok());
}

#[test]
fn before_the_server_was_heard_the_own_clock_decides() {
    let world = World::default();
    let identity = world.enrolled(1);
    let due = Timestamp::new(identity.expires().secs - 86_400, 0);
    assert!(identity.is_due(due) && !identity.is_due(Timestamp::new(1_700_000_000, 0)));
    assert!(
        world
            .channel(&identity)
            .renew_if_due(Timestamp::new(1_700_000_000, 0))
            .unwrap()
            .is_none()
    );
    assert!(
        world
            .channel(&identity)
            .renew_if_due(due)
            .unwrap()
            .is_some()
    );
}

#[test]
fn a_machine_long_absent_renews_and_goes_on() {
    let world = World::default();
    let channel = world.channel(&world.enrolled(1));
    world.clock.advance(DAY * 179);
    let words = words!(channel.call(b"hi", LONG), Certificate);
    assert!(
        words.contains("ended on 2024-02-12") && words.contains("is to be renewed"),
        "{words}"
    );
    assert!(channel.renew_if_due(CLOCKS[0]).unwrap().is_some());
    channel.call(b"hi", LONG).unwrap();
}

#[test]
fn past_its_grace_a_certificate_is_refused_with_the_date_of_the_clock_that_judged() {
    let world = World::default();
    let channel = world.channel(&world.enrolled(1));
    world.clock.advance(DAY * 400);
    for refused in [
        channel.call(b"hi", LONG).map(|_| ()),
        channel.renew_if_due(CLOCKS[1]).map(|_| ()),
    ] {
        let words = words!(refused, Certificate);
        assert!(
            words.contains("ended on 2024-02-12") && words.contains("which says 2024-12-18"),
            "{words}"
        );
        assert!(
            words.contains("set the server's clock") && words.contains("enrol this machine again"),
            "{words}"
        );
    }
    world.clock.set_civil(Timestamp::new(1_700_000_000, 0));
    channel.call(b"the clock was wrong", LONG).unwrap();
}

#[test]
fn a_server_whose_clock_went_back_serves_all_it_knew() {
    let world = World::default();
    let channel = world.channel(&world.enrolled(1));
    world.clock.set_civil(Timestamp::new(1_668_000_000, 0));
    channel.call(b"a year ago", LONG).unwrap();
    world.clock.set_civil(Timestamp::new(-5, 0));
    channel.call(b"before the epoch", LONG).unwrap();
    let born = world.enrolled(2);
    assert_eq!(
        born.expires().secs,
        1_700_000_000 + 90 * 86_400,
        "no certificate is older than its authority"
    );
}

#[test]
fn a_server_started_in_a_wrong_year_can_be_enrolled_with_and_found_again() {
    for civil in [0, i64::MAX] {
        let mut world = World::default();
        world.dir = tempfile::tempdir().unwrap();
        world.clock.set_civil(Timestamp::new(civil, 0));
        world.listening = None;
        world.start("127.0.0.1:0".parse().unwrap());
        let identity = world.enrolled(1);
        world.channel(&identity).call(b"hi", LONG).unwrap();
    }
}
