//! Too much, too fast, too slow, and nonsense: each is refused, and others do not notice.

use super::*;
use crate::wire;
use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;

/// Reads what comes until the other side closes; panics if it does not.
fn read_to_close(tcp: &mut TcpStream) -> Vec<u8> {
    tcp.set_read_timeout(Some(LONG)).unwrap();
    let mut all = Vec::new();
    match tcp.read_to_end(&mut all) {
        Err(error) if error.kind() != io::ErrorKind::ConnectionReset => {
            panic!("not closed: {error}")
        }
        _ => all,
    }
}

#[test]
fn a_message_over_the_limit_is_refused_on_either_side_and_in_either_direction() {
    let world = World::new(TransportLimits {
        message_bytes: 10_000,
        enrolments_per_second: 1000,
        ..TransportLimits::default()
    });
    let identity = world.enrolled(1);
    let small = ChannelOptions {
        message_bytes: 10_000,
        ..ChannelOptions::default()
    };
    let channel = world.channel_to(world.address(), &identity, small);
    let most = [1; 10_000 - 8];
    assert_eq!(
        channel.call(&most, LONG),
        Ok(echoed(identity.peer(), &most))
    );
    let words = words!(channel.call(&[1; 10_001], LONG), TooLarge);
    assert!(words.contains("10001 bytes, and 10000"), "{words}");

    let careless = world.channel_to(
        world.address(),
        &identity,
        ChannelOptions {
            message_bytes: 1 << 30,
            ..ChannelOptions::default()
        },
    );
    let words = words!(
        careless.call(&[WAIT, &vec![1; 50 << 20]].concat(), LONG),
        TooLarge
    );
    assert!(words.contains("the limit is"), "{words}");
    assert!(
        world.waiting.try_recv().is_err(),
        "the service does not get to see it"
    );
    words!(careless.call(b"much10001000", LONG), TooLarge);
    let modest = world.channel_to(
        world.address(),
        &identity,
        ChannelOptions {
            message_bytes: 100,
            ..ChannelOptions::default()
        },
    );
    words!(modest.call(b"much5000", LONG), TooLarge);
    assert_eq!(
        modest.call(b"hi", LONG),
        Ok(echoed(identity.peer(), b"hi")),
        "the channel still works"
    );
    assert_eq!(
        channel.call(&most, LONG),
        Ok(echoed(identity.peer(), &most))
    );
}

#[test]
fn an_enrolment_is_small() {
    let world = World::default();
    let (address, print) = (world.address().to_string(), world.identity().fingerprint());
    let token = "x".repeat(1 << 20);
    words!(
        crate::enrol(world.runtime(), &address, &print, &token, "pc", LONG),
        TooLarge
    );
    world.assert_well();
}

#[test]
fn plain_http_and_garbage_are_closed() {
    let world = World::default();
    let hello = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    for nonsense in [
        &hello[..],
        preface,
        &[0; 70_000],
        &[0xff; 70_000],
        b"\x16\x03\x01\xff\xff\x01",
    ] {
        let mut tcp = TcpStream::connect(world.address()).unwrap();
        // The server may close before it has got everything.
        let _ = tcp.write_all(nonsense);
        let _ = tcp.shutdown(std::net::Shutdown::Write);
        let answer = read_to_close(&mut tcp);
        assert!(answer.len() < 20, "an alert at most, and not {answer:?}");
    }
    world.assert_well();
}

#[test]
fn a_server_that_speaks_no_tls_is_told_apart() {
    let world = World::default();
    let identity = world.enrolled(1);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let channel = world.channel_to(
        listener.local_addr().unwrap(),
        &identity,
        ChannelOptions::default(),
    );
    std::thread::scope(|scope| {
        let call = scope.spawn(|| channel.call(b"hi", LONG));
        let (mut tcp, _) = listener.accept().unwrap();
        tcp.write_all(b"SSH-2.0-OpenSSH_9.6\r\n").unwrap();
        let words = words!(call.join().unwrap(), Protocol);
        assert!(words.contains("is it the right port?"), "{words}");
    });
}

#[test]
fn who_connects_and_says_nothing_is_closed_in_time() {
    let patience = Duration::from_millis(300);
    let world = World::new(TransportLimits {
        patience,
        enrolments_per_second: 1000,
        ..TransportLimits::default()
    });
    let mut silent = TcpStream::connect(world.address()).unwrap();
    let mut half = TcpStream::connect(world.address()).unwrap();
    half.write_all(b"\x16\x03\x01\x02\x00\x01\x00").unwrap();
    assert_eq!(read_to_close(&mut silent), b"");
    assert_eq!(read_to_close(&mut half), b"");

    // After the handshake, with a certificate and without one.
    for config in [
        world.enrolled(1).tls_config().unwrap(),
        crate::tls::client_config(world.identity().fingerprint(), None).unwrap(),
    ] {
        world.runtime().block_on(async {
            use tokio::io::AsyncReadExt as _;
            let tcp = tokio::net::TcpStream::connect(world.address())
                .await
                .unwrap();
            let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
            let mut tls = connector
                .connect("teal".try_into().unwrap(), tcp)
                .await
                .unwrap();
            let mut all = Vec::new();
            let closed = tokio::time::timeout(LONG, tls.read_to_end(&mut all)).await;
            assert!(closed.is_ok(), "still open");
        });
    }
    world.assert_well();
}

#[test]
fn strangers_have_few_places_and_give_them_back() {
    let patience = Duration::from_millis(500);
    let limits = TransportLimits {
        handshakes: 3,
        patience,
        enrolments_per_second: 1000,
        ..TransportLimits::default()
    };
    let world = World::new(limits);
    let identity = world.enrolled(1);
    let channel = world.channel(&identity);
    channel.call(b"hi", LONG).unwrap();
    let mut crowd: Vec<_> = (0..10)
        .map(|_| TcpStream::connect(world.address()).unwrap())
        .collect();
    channel.call(b"the enrolled do not notice", LONG).unwrap();
    crowd.iter_mut().for_each(|tcp| drop(read_to_close(tcp)));
    world.assert_well();
}

#[test]
fn silent_connections_lose_their_places_to_newcomers() {
    // They have all the time there is: only newcomers end them.
    let patience = LONG * 10;
    let limits = TransportLimits {
        handshakes: 3,
        strangers: 3,
        patience,
        enrolments_per_second: 1000,
        ..TransportLimits::default()
    };
    let world = World::new(limits);
    let identity = world.enrolled(1);
    let mut raw: Vec<_> = (0..10)
        .map(|_| TcpStream::connect(world.address()).unwrap())
        .collect();
    raw.iter_mut()
        .take(7)
        .for_each(|tcp| drop(read_to_close(tcp)));
    let config = Arc::new(crate::tls::client_config(world.identity().fingerprint(), None).unwrap());
    let silent: Vec<_> = (0..10)
        .map(|_| {
            world.runtime().block_on(async {
                let tcp = tokio::net::TcpStream::connect(world.address())
                    .await
                    .unwrap();
                let connector = tokio_rustls::TlsConnector::from(config.clone());
                connector
                    .connect("teal".try_into().unwrap(), tcp)
                    .await
                    .unwrap()
            })
        })
        .collect();
    world.assert_well();
    world
        .channel(&identity)
        .call(b"the enrolled do not notice", LONG)
        .unwrap();
    world.runtime().block_on(async {
        use tokio::io::AsyncReadExt as _;
        for mut tls in silent.into_iter().take(7) {
            let mut all = Vec::new();
            assert!(
                tokio::time::timeout(LONG, tls.read_to_end(&mut all))
                    .await
                    .is_ok(),
                "still open"
            );
        }
    });
}

#[test]
fn connections_of_one_machine_and_of_all_are_limited_in_words() {
    let limits = TransportLimits {
        connections: 2,
        connections_per_peer: 1,
        enrolments_per_second: 1000,
        ..TransportLimits::default()
    };
    let world = World::new(limits);
    let (one, two, three) = (world.enrolled(1), world.enrolled(2), world.enrolled(3));
    let channel = world.channel(&one);
    channel.call(b"hi", LONG).unwrap();
    let second = world.channel(&one);
    assert!(
        words!(second.call(b"hi", LONG), Busy).contains("this machine has 1 connections already")
    );
    let other = world.channel(&two);
    other.call(b"hi", LONG).unwrap();
    assert!(words!(world.channel(&three).call(b"hi", LONG), Busy).contains("too many machines"));
    channel.call(b"hi", LONG).unwrap();
    drop(other);
    let mut tries = (0..1000).map(|_| world.channel(&three).call(b"hi", LONG));
    assert!(
        tries.any(|tried| tried.is_ok()),
        "a place that was given back is taken again"
    );
}

#[test]
fn requests_too_fast_wait_then_are_refused() {
    let world = World::new(TransportLimits {
        requests_per_second: 1,
        enrolments_per_second: 1000,
        ..TransportLimits::default()
    });
    let (one, two) = (world.enrolled(1), world.enrolled(2));
    let (fast, slow) = (world.channel(&one), world.channel(&two));
    assert!(fast.call(b"at once", LONG).is_ok());
    assert!(fast.call(b"after a second", LONG).is_ok());
    let words = words!(fast.call(b"too much", LONG), Busy);
    assert!(
        words.contains("more than 1 requests per second of this machine"),
        "{words}"
    );
    assert!(slow.call(b"someone else", LONG).is_ok());
    world.clock.advance(Duration::from_secs(3));
    assert!(fast.call(b"rested", LONG).is_ok());
}

#[test]
fn guessing_tokens_is_slow() {
    let world = World::new(TransportLimits {
        enrolments_per_second: 1,
        ..TransportLimits::default()
    });
    words!(world.try_enrol("a"), Refused);
    words!(world.try_enrol("b"), Refused);
    assert!(words!(world.try_enrol("c"), Busy).contains("too many machines enrol"));
}

#[test]
fn a_request_keeps_its_place_until_the_service_has_returned() {
    let limits = TransportLimits {
        requests_per_peer: 1,
        enrolments_per_second: 1000,
        ..TransportLimits::default()
    };
    let world = World::new(limits);
    let (one, two) = (world.enrolled(1), world.enrolled(2));
    let (channel, other) = (world.channel(&one), world.channel(&two));
    let short = Duration::from_millis(200);
    words!(channel.call(WAIT, short), Unreachable);
    world.waiting.recv_timeout(LONG).unwrap();
    words!(channel.call(b"has to wait", short), Unreachable);
    other.call(b"someone else", LONG).unwrap();
    world.service.open();
    channel.call(b"its turn", LONG).unwrap();
}

#[test]
fn requests_in_progress_are_limited_for_all() {
    let world = World::new(TransportLimits {
        requests: 2,
        enrolments_per_second: 1000,
        ..TransportLimits::default()
    });
    let identities = [world.enrolled(1), world.enrolled(2)];
    std::thread::scope(|scope| {
        for identity in &identities {
            let channel = world.channel(identity);
            scope.spawn(move || channel.call(WAIT, LONG).unwrap());
        }
        assert!(
            identities
                .iter()
                .all(|_| world.waiting.recv_timeout(LONG).is_ok())
        );
        let third = world.channel(&identities[0]);
        assert!(
            words!(third.call(b"one more", LONG), Busy)
                .contains("too many requests are in progress")
        );
        world.service.open();
    });
    world.assert_well();
}

#[test]
fn a_slow_call_holds_up_nobody_and_takes_its_time() {
    let arrival = Duration::from_millis(100);
    let world = World::new(TransportLimits {
        arrival,
        enrolments_per_second: 1000,
        ..TransportLimits::default()
    });
    let (one, two) = (world.enrolled(1), world.enrolled(2));
    let (slow, other) = (world.channel(&one), world.channel(&two));
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| slow.call(WAIT, LONG));
        assert_eq!(world.waiting.recv_timeout(LONG), Ok(one.peer()));
        other.call(b"another machine", LONG).unwrap();
        slow.call(b"the same machine", LONG).unwrap();
        words!(other.call(WAIT, arrival * 3), Unreachable);
        assert!(!waits.is_finished());
        world.service.open();
        assert_eq!(waits.join().unwrap(), Ok(echoed(one.peer(), WAIT)));
    });
}

#[test]
fn nonsense_inside_of_tls_is_closed_and_in_messages_refused() {
    let world = World::default();
    let identity = world.enrolled(1);
    let print = identity.server_fingerprint();
    world.runtime().block_on(async {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        for config in [
            identity.tls_config().unwrap(),
            crate::tls::client_config(print, None).unwrap(),
        ] {
            let tcp = tokio::net::TcpStream::connect(world.address())
                .await
                .unwrap();
            let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
            let mut tls = connector
                .connect("teal".try_into().unwrap(), tcp)
                .await
                .unwrap();
            tls.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
                .await
                .unwrap();
            let mut all = Vec::new();
            assert!(
                tokio::time::timeout(LONG, tls.read_to_end(&mut all))
                    .await
                    .is_ok(),
                "still open"
            );
        }
        let (address, options) = (world.address().to_string(), ChannelOptions::default());
        let config = crate::tls::client_config(print, None).unwrap();
        let link = crate::channel::connection::ClientConnection::connect(
            &address,
            config,
            Default::default(),
            &options,
        )
        .await
        .unwrap();
        let no_text = wire::CertifiedKey {
            certificate: b"\xff\xff".as_slice().into(),
            ..Default::default()
        };
        let answer = link
            .call_unary::<_, wire::CertifiedKey>(wire::ENROL, no_text, 1000)
            .await
            .ok()
            .unwrap();
        words!(answer.result, Protocol);
    });
    world.assert_well();
}

#[test]
fn a_request_that_breaks_the_service_breaks_nothing_else() {
    let world = World::default();
    let channel = world.channel(&world.enrolled(1));
    let words = words!(channel.call(PANIC, LONG), Protocol);
    assert!(words.contains("its log says more"), "{words}");
    channel.call(b"hi", LONG).unwrap();
    world.assert_well();
}

#[test]
fn the_slack_lets_the_largest_message_through() {
    assert!(
        wire::PAYLOAD_OVERHEAD
            >= prost::encoding::encoded_len_varint(u64::MAX) + prost::encoding::key_len(1)
    );
}
