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
    kernel.request(FUSE_INIT, NodeId::new(0), &[&body])
}

fn started() -> (Session, MemoryKernel) {
    let (transport, kernel) = memory_pair();
    kernel.init(InitFlags::all() - InitFlags::FLOCK_LOCKS);
    let session = Session::start(Arc::new(transport), &InitConfig::default()).unwrap();
    assert_eq!(kernel.message().unwrap().body.len(), 64);
    (session, kernel)
}

/// Answers lookups, panics on unlinks, drops the rest.
struct Moody;

impl Serve for Moody {
    fn serve(&self, request: Request<'_>, reply: Reply) {
        match request.operation {
            Operation::Lookup { .. } => reply.error(Errno::NOENT),
            Operation::Unlink { .. } => panic!("as the test wants"),
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
    assert!(session.unmounter().is_none() && session.device().is_none());

    let (transport, kernel) = memory_pair();
    init(&kernel, &[8, 0]);
    init(&kernel, &[7, 45, 4096, 1, 0]);
    Session::start(Arc::new(transport), &InitConfig::default()).unwrap();
    let newer = kernel.message().unwrap();
    assert_eq!(
        (newer.error, &newer.body[..4]),
        (0, &7_u32.to_ne_bytes()[..])
    );
    assert_eq!(kernel.message().unwrap().error, 0);
}

#[test]
fn kernels_that_cannot_are_told_and_named() {
    for (major, minor) in [(7, 30), (6, 99)] {
        let (transport, kernel) = memory_pair();
        init(&kernel, &[major, minor, 4096, 1]);
        let error = Session::start(Arc::new(transport), &InitConfig::default()).unwrap_err();
        assert!(
            matches!(error, SessionError::Version { major: m, minor: n } if (m, n) == (major, minor)),
            "{error}"
        );
        assert_eq!(
            kernel.message().unwrap().error,
            -Errno::PROTO.raw_os_error()
        );
    }
    let (transport, kernel) = memory_pair();
    kernel.request(FUSE_STATFS, NodeId::ROOT, &[]);
    let error = Session::start(Arc::new(transport), &InitConfig::default()).unwrap_err();
    assert!(
        matches!(
            error,
            SessionError::NotInit {
                opcode: FUSE_STATFS
            }
        ),
        "{error}"
    );
    assert_eq!(kernel.message().unwrap().error, -Errno::IO.raw_os_error());

    let (transport, kernel) = memory_pair();
    kernel.close();
    let error = Session::start(Arc::new(transport), &InitConfig::default()).unwrap_err();
    assert!(matches!(error, SessionError::Closed), "{error}");
}

#[test]
fn a_panic_costs_one_request_and_every_request_gets_one_answer() {
    let (session, kernel) = started();
    let lookup = kernel.request(FUSE_LOOKUP, NodeId::ROOT, &[b"a\0"]);
    let panics = kernel.request(FUSE_UNLINK, NodeId::ROOT, &[b"a\0"]);
    let dropped = kernel.request(FUSE_STATFS, NodeId::ROOT, &[]);
    kernel.request(FUSE_FORGET, NodeId::ROOT, &[&1_u64.to_ne_bytes()]);
    let malformed = kernel.request(FUSE_LOOKUP, NodeId::ROOT, &[b"no end"]);
    kernel.raw(b"noise".to_vec());
    let again = init(&kernel, &[7, 45, 0, 0]);
    let last = kernel.request(FUSE_LOOKUP, NodeId::ROOT, &[b"a\0"]);
    kernel.close();
    session.run(one(), &Moody).unwrap();
    let mut answers = std::iter::from_fn(|| kernel.message())
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
    impl Serve for Meeting {
        fn serve(&self, _: Request<'_>, reply: Reply) {
            self.0.wait();
            self.1.fetch_add(1, Ordering::Relaxed);
            reply.ok();
        }
    }
    const WORKERS: usize = 3;
    let (session, kernel) = started();
    let meeting = Meeting(Barrier::new(WORKERS), AtomicUsize::new(0));
    for _ in 0..WORKERS {
        kernel.request(FUSE_STATFS, NodeId::ROOT, &[]);
    }
    kernel.close();
    session
        .run(NonZeroUsize::new(WORKERS).unwrap(), &meeting)
        .unwrap();
    assert_eq!(meeting.1.into_inner(), WORKERS);
}

#[test]
fn a_reply_may_be_answered_after_the_session_on_another_thread() {
    struct Keeps(parking_lot::Mutex<Vec<Reply>>);
    impl Serve for Keeps {
        fn serve(&self, _: Request<'_>, reply: Reply) {
            self.0.lock().push(reply);
        }
    }
    let (session, kernel) = started();
    let unique = kernel.request(FUSE_FSYNC, NodeId::ROOT, &[&[0; 16]]);
    kernel.close();
    let keeps = Keeps(parking_lot::Mutex::default());
    session.run(one(), &keeps).unwrap();
    let kept = keeps.0.into_inner();
    std::thread::scope(|scope| {
        let later = move || kept.into_iter().for_each(Reply::ok);
        std::thread::Builder::new()
            .spawn_scoped(scope, later)
            .unwrap();
    });
    assert_eq!(kernel.message().unwrap().unique, unique);
}

#[test]
fn requests_that_wait_keep_no_other_from_being_served() {
    const WAIT: usize = 20;
    /// Lookups wait until they are let go.
    struct Waits(parking_lot::Mutex<bool>, parking_lot::Condvar);
    impl Serve for Waits {
        fn serve(&self, request: Request<'_>, reply: Reply) {
            if let Operation::Lookup { .. } = request.operation {
                let mut may_go = self.0.lock();
                while !*may_go {
                    self.1.wait(&mut may_go);
                }
            }
            reply.error(Errno::NOENT);
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
            .map(|_| kernel.request(FUSE_LOOKUP, NodeId::ROOT, &[b"a\0"]))
            .collect();
        let other = kernel.request(FUSE_STATFS, NodeId::ROOT, &[]);
        assert_eq!(
            kernel.message().unwrap().unique,
            other,
            "the one that does not wait is answered while they do"
        );
        *waits.0.lock() = true;
        waits.1.notify_all();
        let mut answered: Vec<_> = (0..WAIT)
            .map(|_| kernel.message().unwrap().unique)
            .collect();
        answered.sort_unstable();
        assert_eq!(answered, held);
        kernel.close();
        running.join().unwrap().unwrap();
    });
}
