//! A server that stops.

use super::*;

#[test]
fn stopping_answers_what_is_in_progress_and_lets_nothing_new_in() {
    let mut world = World::default();
    let (one, two) = (world.enrolled(1), world.enrolled(2));
    let (first, second) = (world.channel(&one), world.channel(&two));
    second.call(b"idle from now on", LONG).unwrap();
    let listening = world.listening.take().unwrap();
    let address = listening.address();
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| first.call(WAIT, LONG));
        world.waiting.recv_timeout(LONG).unwrap();
        let stopped = scope.spawn(|| listening.stop(LONG));
        // Connecting is refused as soon as the server has begun to stop.
        while std::net::TcpStream::connect(address).is_ok() {
            std::thread::yield_now();
        }
        words!(second.call(b"new", LONG), Unreachable);
        assert!(!stopped.is_finished() && !waits.is_finished());
        world.service.open();
        assert_eq!(waits.join().unwrap(), Ok(echoed(one.peer(), WAIT)));
        assert!(stopped.join().unwrap(), "nothing was cut off");
    });
}

#[test]
fn stopping_has_a_deadline() {
    let mut world = World::default();
    let channel = world.channel(&world.enrolled(1));
    let listening = world.listening.take().unwrap();
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| channel.call(WAIT, LONG));
        world.waiting.recv_timeout(LONG).unwrap();
        assert!(
            !listening.stop(Duration::from_millis(100)),
            "something was cut off"
        );
        words!(waits.join().unwrap(), Unreachable);
    });
}

#[test]
fn a_server_with_nothing_to_do_stops_at_once_though_someone_is_silent() {
    let mut world = World::default();
    let channel = world.channel(&world.enrolled(1));
    channel.call(b"hi", LONG).unwrap();
    let listening = world.listening.take().unwrap();
    let silent = std::net::TcpStream::connect(listening.address()).unwrap();
    assert!(listening.stop(world.limits.patience / 2));
    drop(silent);
}
