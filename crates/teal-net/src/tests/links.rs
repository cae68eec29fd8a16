//! Connections that break, fall silent and come back.

use super::*;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

/// A way to a server that can fall silent: what is sent is swallowed, and nothing is closed.
struct Way {
    address: SocketAddr,
    is_silent: Arc<AtomicBool>,
    connections: Arc<AtomicUsize>,
    /// The bytes that were sent, in both directions together.
    bytes: Arc<AtomicUsize>,
}

impl Way {
    fn to(world: &World) -> Self {
        let listener = world
            .runtime()
            .block_on(tokio::net::TcpListener::bind("127.0.0.1:0"))
            .unwrap();
        let address = listener.local_addr().unwrap();
        let (is_silent, connections) = (
            Arc::new(AtomicBool::new(false)),
            Arc::new(AtomicUsize::new(0)),
        );
        let (silent, count, server) = (is_silent.clone(), connections.clone(), world.address());
        let bytes = Arc::new(AtomicUsize::new(0));
        let sum = bytes.clone();
        world.runtime().spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::SeqCst);
                let far = tokio::net::TcpStream::connect(server).await.unwrap();
                let ((near_read, near_write), (far_read, far_write)) =
                    (near.into_split(), far.into_split());
                tokio::spawn(carry(near_read, far_write, silent.clone(), sum.clone()));
                tokio::spawn(carry(far_read, near_write, silent.clone(), sum.clone()));
            }
        });
        Self {
            address,
            is_silent,
            connections,
            bytes,
        }
    }

    fn set_silent(&self, is_silent: bool) {
        self.is_silent.store(is_silent, Ordering::SeqCst);
    }
}

async fn carry(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    is_silent: Arc<AtomicBool>,
    sum: Arc<AtomicUsize>,
) {
    let mut buffer = vec![0; 65_536];
    while let Ok(bytes @ 1..) = from.read(&mut buffer).await {
        sum.fetch_add(bytes, Ordering::SeqCst);
        if !is_silent.load(Ordering::SeqCst) && to.write_all(&buffer[..bytes]).await.is_err() {
            return;
        }
    }
    if is_silent.load(Ordering::SeqCst) {
        std::future::pending::<()>().await;
    }
}

#[test]
fn a_channel_outlives_its_server() {
    let mut world = World::default();
    let identity = world.enrolled(1);
    let (channel, address) = (world.channel(&identity), world.address());
    for round in 0..3 {
        channel.call(b"hi", LONG).unwrap();
        if round % 2 == 0 {
            assert!(world.listening.take().unwrap().stop(LONG));
        } else {
            world.listening = None;
        }
        let words = words!(channel.call(b"hi", LONG), Unreachable);
        assert!(words.contains(&address.to_string()), "{words}");
        world.start(address);
        channel.call(b"back", LONG).unwrap();
    }
}

#[test]
fn nobody_there_and_no_address_are_unreachable() {
    let world = World::default();
    let identity = world.enrolled(1);
    let free = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    words!(
        world
            .channel_to(free, &identity, ChannelOptions::default())
            .call(b"hi", LONG),
        Unreachable
    );
    let channel = Channel::new(
        world.runtime(),
        "nonsense".into(),
        identity,
        ChannelOptions::default(),
    );
    words!(channel.call(b"hi", LONG), Unreachable);
}

#[test]
fn a_call_on_a_silent_link_ends_by_its_deadline_and_the_next_takes_a_new_one() {
    let world = World::default();
    let (identity, way) = (world.enrolled(1), Way::to(&world));
    let channel = world.channel_to(way.address, &identity, ChannelOptions::default());
    channel.call(b"hi", LONG).unwrap();
    way.set_silent(true);
    let (start, deadline) = (SystemClock.monotonic_time(), Duration::from_millis(300));
    words!(channel.call(b"hello?", deadline), Unreachable);
    let took = SystemClock.monotonic_time() - start;
    assert!(
        took >= deadline && took < deadline + Duration::from_secs(5),
        "{took:?}"
    );
    // Neither does making a connection take longer than the deadline.
    words!(channel.call(b"hello?", deadline), Unreachable);
    way.set_silent(false);
    channel.call(b"back", LONG).unwrap();
}

#[test]
fn a_link_that_falls_silent_is_noticed_long_before_the_deadline() {
    let world = World::default();
    let (identity, way) = (world.enrolled(1), Way::to(&world));
    let options = ChannelOptions {
        keep_alive: Duration::from_millis(200),
        ..ChannelOptions::default()
    };
    let channel = world.channel_to(way.address, &identity, options);
    std::thread::scope(|scope| {
        let start = SystemClock.monotonic_time();
        let call = scope.spawn(|| channel.call(WAIT, LONG * 10));
        world.waiting.recv_timeout(LONG).unwrap();
        way.set_silent(true);
        words!(call.join().unwrap(), Unreachable);
        assert!(SystemClock.monotonic_time() - start < LONG);
    });
    way.set_silent(false);
    channel.call(b"back", LONG).unwrap();
}

#[test]
fn a_link_that_lives_is_not_given_up_for_a_slow_answer() {
    let world = World::default();
    let (identity, way) = (world.enrolled(1), Way::to(&world));
    let keep_alive = Duration::from_millis(250);
    let channel = world.channel_to(
        way.address,
        &identity,
        ChannelOptions {
            keep_alive,
            ..ChannelOptions::default()
        },
    );
    channel.call(b"hi", LONG).unwrap();
    words!(channel.call(WAIT, keep_alive * 3), Unreachable);
    channel.call(b"the same link", LONG).unwrap();
    assert_eq!(way.connections.load(Ordering::SeqCst), 1);
}

#[test]
fn the_place_of_a_machine_that_went_silent_is_given_back() {
    let short = Duration::from_millis(200);
    let limits = TransportLimits {
        connections_per_peer: 1,
        silence: short,
        patience: short,
        enrolments_per_second: 1000,
        ..TransportLimits::default()
    };
    let world = World::new(limits);
    let (identity, way) = (world.enrolled(1), Way::to(&world));
    let before = world.channel_to(way.address, &identity, ChannelOptions::default());
    before.call(b"hi", LONG).unwrap();
    let after = world.channel(&identity);
    words!(after.call(b"moved", LONG), Busy);
    way.set_silent(true);
    let (start, mut moved) = (SystemClock.monotonic_time(), false);
    while !moved && SystemClock.monotonic_time() - start < LONG {
        // A connection without a place is closed as a stranger after a while, and the client asks
        // again on a new connection.
        moved = world.channel(&identity).call(b"moved", LONG).is_ok();
    }
    assert!(moved);
}

#[test]
fn an_idle_channel_sends_nothing() {
    let world = World::default();
    let (identity, way) = (world.enrolled(1), Way::to(&world));
    let keep_alive = Duration::from_millis(250);
    let channel = world.channel_to(
        way.address,
        &identity,
        ChannelOptions {
            keep_alive,
            ..ChannelOptions::default()
        },
    );
    let other = world.channel(&world.enrolled(2));
    channel.call(b"hi", LONG).unwrap();
    // The bytes of that call are sent in the first of these times; nothing is sent in the second.
    words!(other.call(WAIT, keep_alive * 3), Unreachable);
    let sent = way.bytes.load(Ordering::SeqCst);
    words!(other.call(WAIT, keep_alive * 3), Unreachable);
    assert_eq!(way.bytes.load(Ordering::SeqCst), sent);
    channel.call(b"still there", LONG).unwrap();
}

#[test]
fn many_threads_share_one_connection() {
    let world = World::default();
    let (identity, way) = (world.enrolled(1), Way::to(&world));
    let channel = world.channel_to(way.address, &identity, ChannelOptions::default());
    std::thread::scope(|scope| {
        for thread in 0..8_u8 {
            let (channel, peer) = (&channel, identity.peer());
            scope.spawn(move || {
                for size in 0..50 {
                    let request = vec![thread; size * 500];
                    assert_eq!(channel.call(&request, LONG), Ok(echoed(peer, &request)));
                }
            });
        }
    });
    assert_eq!(way.connections.load(Ordering::SeqCst), 1);
}

#[test]
fn whoever_waits_for_a_failing_connection_shares_its_failure() {
    let world = World::default();
    let (identity, way) = (world.enrolled(1), Way::to(&world));
    way.set_silent(true);
    let options = ChannelOptions {
        connect_timeout: Duration::from_millis(500),
        ..ChannelOptions::default()
    };
    let channel = world.channel_to(way.address, &identity, options);
    std::thread::scope(|scope| {
        let calls: Vec<_> = (0..8)
            .map(|_| scope.spawn(|| channel.call(b"hi", LONG)))
            .collect();
        for call in calls {
            assert!(
                words!(call.join().unwrap(), Unreachable).contains("no connection within 500ms")
            );
        }
    });
    assert!(
        way.connections.load(Ordering::SeqCst) < 8,
        "not one after the other"
    );
}

#[test]
fn a_delay_is_added_to_the_way_there_and_back() {
    let world = World::default();
    let delay = Duration::from_millis(30);
    let channel = world.channel_to(
        world.address(),
        &world.enrolled(1),
        ChannelOptions {
            delay,
            ..ChannelOptions::default()
        },
    );
    let start = SystemClock.monotonic_time();
    channel.call(b"hi", LONG).unwrap();
    assert!(SystemClock.monotonic_time() - start >= delay * 2);
}
