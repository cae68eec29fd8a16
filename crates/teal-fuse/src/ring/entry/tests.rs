//! Requests and answers in the memory of an entry; the test is the kernel.

use super::*;
use crate::abi::{fuse_in_header, fuse_uring_ent_in_out};

const PAYLOAD: usize = 8192;

/// Puts a request there as the kernel does.
fn ask(slot: &RingEntry, unique: u64, op: &[u8], payload: &[u8]) {
    let mut area = slot.memory.lock();
    let [mut headers, mut room] = area.lend_to_kernel();
    let len = u32::try_from(size_of::<fuse_in_header>() + op.len() + payload.len()).unwrap();
    let header = fuse_in_header {
        len,
        unique,
        ..Default::default()
    };
    headers[..40].copy_from_slice(header.as_bytes());
    headers[128..128 + op.len()].copy_from_slice(op);
    let payload_sz = u32::try_from(payload.len()).unwrap();
    let says = fuse_uring_ent_in_out {
        commit_id: unique,
        payload_sz,
        ..Default::default()
    };
    headers[256..].copy_from_slice(says.as_bytes());
    room[..payload.len()].copy_from_slice(payload);
}

/// The answer as the kernel finds it: its number, error and payload.
fn answer(slot: &RingEntry) -> (u64, i32, Vec<u8>) {
    let mut area = slot.memory.lock();
    let [headers, room] = area.lend_to_kernel();
    let header = fuse_out_header::read_from_bytes(&headers[..16]).unwrap();
    let says = fuse_uring_ent_in_out::read_from_bytes(&headers[256..]).unwrap();
    (
        header.unique,
        header.error,
        room[..says.payload_sz as usize].to_vec(),
    )
}

fn reply(slot: &RingEntry, unique: u64, pieces: &[&[u8]]) -> Result<(), Errno> {
    let header = fuse_out_header {
        len: 0,
        error: 0,
        unique,
    };
    let all: Vec<_> = std::iter::once(header.as_bytes())
        .chain(pieces.iter().copied())
        .map(IoSlice::new)
        .collect();
    slot.send(&all)
}

#[test]
fn a_request_is_one_message_and_its_answer_lies_where_the_kernel_looks() {
    let slot = RingEntry::new(PAYLOAD);
    for (op, payload) in [
        (&b"operation"[..], &b"payload"[..]),
        (b"", b"name\0"),
        (b"only headers", b""),
        (b"", b""),
    ] {
        ask(&slot, 6, op, payload);
        let served = slot.serve_request(
            |message| {
                assert_eq!(&message[40..], [op, payload].concat());
                // An answer that overwrites the request's own memory leaves the request as it is.
                reply(&slot, 6, &[b"first, ", b"second"]).unwrap();
                assert_eq!(&message[40..], [op, payload].concat());
                true
            },
            |_| (),
        );
        assert_eq!(served, Some(6));
        assert_eq!(answer(&slot), (6, 0, b"first, second".to_vec()));
    }
}

#[test]
fn an_answer_may_come_later_from_another_thread_and_the_worker_says_that_it_waits() {
    let slot = RingEntry::new(PAYLOAD);
    ask(&slot, 8, b"", b"x");
    let (says, hears) = std::sync::mpsc::channel();
    let told = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        let waiting = &slot;
        let later = move || {
            hears.recv().unwrap();
            reply(waiting, 8, &[&[7; PAYLOAD]]).unwrap();
        };
        std::thread::Builder::new()
            .spawn_scoped(scope, later)
            .unwrap();
        let on_wait = |wait| {
            told.lock().push(wait);
            if wait == AnswerWait::Begins {
                says.send(()).unwrap();
            }
        };
        assert_eq!(slot.serve_request(|_| true, on_wait), Some(8));
    });
    assert_eq!(*told.lock(), [AnswerWait::Begins, AnswerWait::Ends]);
    assert_eq!(answer(&slot), (8, 0, vec![7; PAYLOAD]));
    ask(&slot, 10, b"", b"x");
    let at_once = |_: &[u8]| reply(&slot, 10, &[]).is_ok();
    assert_eq!(
        slot.serve_request(at_once, |_| panic!("nobody waits")),
        Some(10)
    );
}

#[test]
fn a_request_is_answered_once_and_by_its_own_answer() {
    let slot = RingEntry::new(PAYLOAD);
    ask(&slot, 2, b"", b"");
    slot.serve_request(
        |_| {
            assert_eq!(reply(&slot, 4, &[]), Err(Errno::NOENT));
            assert_eq!(
                reply(&slot, 2, &[&[0; PAYLOAD + 1]]),
                Err(Errno::INVAL),
                "more than there is room for"
            );
            assert_eq!(reply(&slot, 2, &[]), Ok(()));
            assert_eq!(reply(&slot, 2, &[]), Err(Errno::NOENT));
            true
        },
        |_| (),
    );
    assert_eq!(reply(&slot, 2, &[]), Err(Errno::NOENT));
    ask(&slot, 10, b"", b"");
    assert_eq!(
        slot.serve_request(|_| false, |_| ()),
        Some(10),
        "what nobody answers"
    );
    assert_eq!(answer(&slot), (10, -Errno::IO.raw_os_error(), Vec::new()));
}

#[test]
fn headers_that_contradict_themselves_are_no_message() {
    let slot = RingEntry::new(PAYLOAD);
    ask(&slot, 2, b"", b"");
    slot.memory.lock().lend_to_kernel()[0][..4].copy_from_slice(&4000_u32.to_ne_bytes());
    slot.serve_request(
        |message| {
            assert!(message.is_empty());
            false
        },
        |_| (),
    );
}

#[test]
fn the_end_calls_off_who_waits_and_loses_what_comes_late() {
    let slot = RingEntry::new(PAYLOAD);
    ask(&slot, 2, b"", b"");
    std::thread::scope(|scope| {
        let served = slot.serve_request(
            |_| {
                std::thread::Builder::new()
                    .spawn_scoped(scope, || slot.mark_ended())
                    .unwrap();
                true
            },
            |_| (),
        );
        assert_eq!(served, None);
    });
    assert_eq!(reply(&slot, 2, &[]), Err(Errno::NODEV));
    assert_eq!(
        slot.serve_request(|_| unreachable!("nothing is served any more"), |_| ()),
        None
    );
}
