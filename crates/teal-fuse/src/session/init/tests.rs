//! What is negotiated, and how the kernel is told.

use super::*;
use zerocopy::IntoBytes;

fn offer(minor: u32, flags: InitFlags) -> InitRequest {
    InitRequest {
        major: 7,
        minor,
        max_readahead: 128 << 10,
        flags,
    }
}

#[test]
fn intersection_of_what_is_wanted_and_offered() {
    let config = InitConfig {
        wanted: InitFlags::all(),
        ..Default::default()
    };
    let all = config.negotiate(&offer(45, InitFlags::all()));
    assert_eq!(
        all.flags,
        InitFlags::all() - InitFlags::PASSTHROUGH,
        "served or not in force"
    );
    assert_eq!(
        (all.minor, all.max_write, all.max_readahead),
        (45, 1 << 20, 128 << 10)
    );
    let some = config.negotiate(&offer(99, InitFlags::FLOCK_LOCKS));
    assert_eq!((some.minor, some.flags), (45, InitFlags::FLOCK_LOCKS));
    let plain = InitConfig {
        wanted: InitFlags::empty(),
        ..config
    }
    .negotiate(&offer(31, InitFlags::all()));
    assert_eq!((plain.minor, plain.flags), (31, InitFlags::WIRE));
}

#[test]
fn room_for_every_request() {
    let old = InitConfig::default().negotiate(&offer(31, InitFlags::empty()));
    assert_eq!(old.max_write, 128 << 10, "no MAX_PAGES");
    let small = InitConfig {
        max_write: 0,
        ..Default::default()
    }
    .negotiate(&offer(45, InitFlags::all()));
    assert_eq!(small.max_write, 4096);
    assert!(small.buffer_size() > 64 << 10, "an extended attribute fits");
    let huge = InitConfig {
        max_write: u32::MAX,
        ..Default::default()
    }
    .negotiate(&offer(45, InitFlags::all()));
    assert_eq!(
        (huge.max_write, huge.buffer_size()),
        (1 << 20, (1 << 20) + 4096)
    );
}

#[test]
fn golden_answer() {
    let config = InitConfig {
        wanted: InitFlags::HAS_EXPIRE_ONLY | InitFlags::REQUEST_TIMEOUT,
        request_timeout: 0x77,
        ..Default::default()
    };
    let answer = config.init_reply(&config.negotiate(&offer(45, InitFlags::all())));
    let words = answer
        .as_bytes()
        .chunks_exact(4)
        .map(|w| u32::from_ne_bytes(w.try_into().unwrap()))
        .collect::<Vec<_>>();
    let flags = 1 << 5 | 1 << 22 | 1 << 29 | 1 << 30;
    let expected = [
        7,
        45,
        128 << 10,
        flags,
        48 << 16 | 64,
        1 << 20,
        1,
        256,
        1 << 3 | 1 << 10,
        0,
        0x77,
        0,
        0,
        0,
        0,
        0,
    ];
    assert_eq!(words, expected);
}
