//! Whole sessions over a connection in memory.

use super::*;
use crate::abi::opcode::*;
use crate::request::NodeId;
use crate::transport::{MemoryKernel, memory_pair};
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};

fn init(kernel: &MemoryKernel, words: &[u32]) -> u64 {
    let body = words
        .iter()
        .flat_map(|w| w.to_ne_bytes())
        .collect::<Vec<_>>();
    kernel.send_request(FUSE_INIT, NodeId::new(0), &[&body])
}

fn started() -> (FuseSession, MemoryKernel) {
    let (transport, kernel) = memory_pair();
    kernel.send_init(InitFlags::all() - InitFlags::FLOCK_LOCKS);
    let session =
        FuseSession::start_on_transport(Arc::new(transport), &InitConfig::default()).unwrap();
    assert_eq!(kernel.receive_message().unwrap().body.len(), 64);
    (session, kernel)
}

/// Answers lookups, panics on unlinks, drops the rest.
struct Moody;

impl RequestHandler for Moody {
    fn handle_request(&self, request: KernelRequest<'_>, reply: ReplySender) {
        match request.operation {
            FuseOperation::Lookup { .. } => reply.send_error(Errno::NOENT),
            FuseOperation::Unlink { .. } => panic!("as the test wants"),
            _ => {}
        }
    }
}

fn one() -> NonZeroUsize {
    NonZeroUsize::MIN
}

#[test]
fn handshake_first_and_with_every_kernel_that_can() {
    let (session, _kernel) = started();
    assert_eq!(session.negotiated().minor, 45);
    assert!(
        session
            .negotiated()
            .flags
            .contains(InitFlags::PARALLEL_DIROPS)
    );
    assert!(!session.negotiated().flags.contains(InitFlags::FLOCK_LOCKS));
    assert!(session.unmount_handle().is_none() && session.device_number().is_none());

    let (transport, kernel) = memory_pair();
    init(&kernel, &[8, 0]);
    init(&kernel, &[7, 45, 4096, 1, 0]);
    FuseSession::start_on_transport(Arc::new(transport), &InitConfig::default()).unwrap();
    let newer = kernel.receive_message().unwrap();
    assert_eq!(
        (newer.error, &newer.body[..4]),
        (0, &7_u32.to_ne_bytes()[..])
    );
    assert_eq!(kernel.receive_message().unwrap().error, 0);
}

#[test]
fn kernels_that_cannot_are_told_and_named() {
    for (major, minor) in [(7, 30), (6, 99)] {
        let (transport, kernel) = memory_pair();
        init(&kernel, &[major, minor, 4096, 1]);
        let error = FuseSession::start_on_transport(Arc::new(transport), &InitConfig::default())
            .unwrap_err();
        assert!(
            matches!(error, SessionError::Version { major: m, minor: n } if (m, n) == (major, minor)),
            "{error}"
        );
        assert_eq!(
            kernel.receive_message().unwrap().error,
            -Errno::PROTO.raw_os_error()
        );
    }
    let (transport, kernel) = memory_pair();
    kernel.send_request(FUSE_STATFS, NodeId::ROOT, &[]);
    let error =
        FuseSession::start_on_transport(Arc::new(transport), &InitConfig::default()).unwrap_err();
    assert!(
        matches!(
            error,
            SessionError::NotInit {
                opcode: FUSE_STATFS
            }
        ),
        "{error}"
    );
    assert_eq!(
        kernel.receive_message().unwrap().error,
        -Errno::IO.raw_os_error()
    );

    let (transport, kernel) = memory_pair();
    kernel.close();
    let error =
        FuseSession::start_on_transport(Arc::new(transport), &InitConfig::default()).unwrap_err();
    assert!(matches!(error, SessionError::Closed), "{error}");
}

#[test]
fn a_panic_costs_one_request_and_every_request_gets_one_answer() {
    let (session, kernel) = started();
    let lookup = kernel.send_request(FUSE_LOOKUP, NodeId::ROOT, &[b"a\0"]);
    let panics = kernel.send_request(FUSE_UNLINK, NodeId::ROOT, &[b"a\0"]);
    let dropped = kernel.send_request(FUSE_STATFS, NodeId::ROOT, &[]);
    kernel.send_request(FUSE_FORGET, NodeId::ROOT, &[&1_u64.to_ne_bytes()]);
    let malformed = kernel.send_request(FUSE_LOOKUP, NodeId::ROOT, &[b"no end"]);
    kernel.send_raw(b"noise".to_vec());
    let again = init(&kernel, &[7, 45, 0, 0]);
    let last = kernel.send_request(FUSE_LOOKUP, NodeId::ROOT, &[b"a\0"]);
    kernel.close();
    session.run(one(), &Moody).unwrap();
    let mut answers = std::iter::from_fn(|| kernel.receive_message())
        .map(|m| (m.unique, m.error))
        .collect::<Vec<_>>();
    // While one panics at length, another worker may have gone on.
    answers.sort_unstable();
    let expected = [
        (lookup, Errno::NOENT),
        (panics, Errno::IO),
        (dropped, Errno::IO),
        (malformed, Errno::INVAL),
        (again, Errno::PROTO),
        (last, Errno::NOENT),
    ];
    assert_eq!(
        answers,
        expected.map(|(unique, errno)| (unique, -errno.raw_os_error()))
    );
}

#[test]
fn workers_serve_side_by_side_and_end_together() {
    struct Meeting(Barrier, AtomicUsize);
    impl RequestHandler for Meeting {
        fn handle_request(&self, _: KernelRequest<'_>, reply: ReplySender) {
            self.0.wait();
            self.1.fetch_add(1, Ordering::Relaxed);
            reply.send_ok();
        }
    }
    const WORKERS: usize = 3;
    let (session, kernel) = started();
    let meeting = Meeting(Barrier::new(WORKERS), AtomicUsize::new(0));
    for _ in 0..WORKERS {
        kernel.send_request(FUSE_STATFS, NodeId::ROOT, &[]);
    }
    kernel.close();
    session
        .run(NonZeroUsize::new(WORKERS).unwrap(), &meeting)
        .unwrap();
    assert_eq!(meeting.1.into_inner(), WORKERS);
}

#[test]
fn a_reply_may_be_answered_after_the_session_on_another_thread() {
    struct Keeps(parking_lot::Mutex<Vec<ReplySender>>);
    impl RequestHandler for Keeps {
        fn handle_request(&self, _: KernelRequest<'_>, reply: ReplySender) {
            self.0.lock().push(reply);
        }
    }
    let (session, kernel) = started();
    let unique = kernel.send_request(FUSE_FSYNC, NodeId::ROOT, &[&[0; 16]]);
    kernel.close();
    let keeps = Keeps(parking_lot::Mutex::default());
    session.run(one(), &keeps).unwrap();
    let kept = keeps.0.into_inner();
    std::thread::scope(|scope| {
        let later = move || kept.into_iter().for_each(ReplySender::send_ok);
        std::thread::Builder::new()
            .spawn_scoped(scope, later)
            .unwrap();
    });
    assert_eq!(kernel.receive_message().unwrap().unique, unique);
}

#[test]
fn requests_that_wait_keep_no_other_from_being_served() {
    const WAIT: usize = 20;
    /// Lookups wait until they are let go.
    struct Waits(parking_lot::Mutex<bool>, parking_lot::Condvar);
    impl RequestHandler for Waits {
        fn handle_request(&self, request: KernelRequest<'_>, reply: ReplySender) {
            if let FuseOperation::Lookup { .. } = request.operation {
                let mut may_go = self.0.lock();
                while !*may_go {
                    self.1.wait(&mut may_go);
                }
            }
            reply.send_error(Errno::NOENT);
        }
    }
    let (session, kernel) = started();
    let waits = Waits(parking_lot::Mutex::new(false), parking_lot::Condvar::new());
    std::thread::scope(|scope| {
        let run = || session.run(NonZeroUsize::new(2).unwrap(), &waits);
        let running = std::thread::Builder::new()
            .spawn_scoped(scope, run)
            .unwrap();
        let held: Vec<_> = (0..WAIT)
            .map(|_| kernel.send_request(FUSE_LOOKUP, NodeId::ROOT, &[b"a\0"]))
            .collect();
        let other = kernel.send_request(FUSE_STATFS, NodeId::ROOT, &[]);
        assert_eq!(
            kernel.receive_message().unwrap().unique,
            other,
            "the one that does not wait is answered while they do"
        );
        *waits.0.lock() = true;
        waits.1.notify_all();
        let mut answered: Vec<_> = (0..WAIT)
            .map(|_| kernel.receive_message().unwrap().unique)
            .collect();
        answered.sort_unstable();
        assert_eq!(answered, held);
        kernel.close();
        running.join().unwrap().unwrap();
    });
}
