//! The way between a client and the server, which loses, repeats and delays by seed.
//!
//! # Guarantees
//! 1. *Repeatable*: the same seed and the same requests give the same faults; every message is in the trace's digest.
//! 2. *As a network*: what the client is told has not arrived may have; what arrived may arrive once more, later too.

use parking_lot::{Mutex, RwLock};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::Duration;
use teal_device::{Upstream, UpstreamError};
use teal_proto::{Reply, Request, encode_reply, encode_request};
use teal_server::{Peer, Server};
use teal_testkit::Rng;

/// The server of now: a power cut puts another one here.
pub(crate) type Seat = Arc<RwLock<Arc<Server>>>;

/// Everything that has been said, in one number; and whether to print it.
#[derive(Clone, Default)]
pub(crate) struct Trace(Arc<Mutex<DefaultHasher>>);

impl Trace {
    pub(crate) fn note(&self, what: &[u8]) {
        what.hash(&mut *self.0.lock());
    }

    pub(crate) fn digest(&self) -> u64 {
        self.0.lock().finish()
    }
}

struct State {
    rng: Rng,
    /// The share of requests that something happens to.
    faults: f64,
    is_cut: bool,
    /// A request that is still somewhere, and arrives once more.
    straying: Option<Request>,
}

/// One client's way to the server.
pub(crate) struct Wire {
    seat: Seat,
    peer: Peer,
    trace: Trace,
    is_printed: bool,
    state: Mutex<State>,
}

fn lost() -> UpstreamError {
    UpstreamError::Unreachable("the network lost it".into())
}

impl Wire {
    pub(crate) fn new(seat: &Seat, peer: Peer, trace: &Trace, rng: Rng, is_printed: bool) -> Arc<Self> {
        let state = Mutex::new(State { rng, faults: 0.0, is_cut: false, straying: None });
        Arc::new(Self { seat: Arc::clone(seat), peer, trace: trace.clone(), is_printed, state })
    }

    pub(crate) fn set_faults(&self, faults: f64) {
        self.state.lock().faults = faults;
    }

    pub(crate) fn cut(&self, is_cut: bool) {
        self.state.lock().is_cut = is_cut;
    }

    pub(crate) fn is_cut(&self) -> bool {
        self.state.lock().is_cut
    }

    fn deliver(&self, request: &Request) -> Reply {
        let server = Arc::clone(&*self.seat.read());
        let reply = server.handle(self.peer, request.clone());
        self.trace.note(&encode_request(request).unwrap());
        self.trace.note(&encode_reply(&reply).unwrap());
        if self.is_printed {
            println!(
                "      {} -> {}\n      {} <- {}",
                self.peer.replica,
                short(request),
                self.peer.replica,
                short(&reply)
            );
        }
        reply
    }
}

fn short(what: &impl std::fmt::Debug) -> String {
    let mut words = format!("{what:?}");
    if let Some((end, _)) = words.char_indices().nth(2500) {
        words.truncate(end);
    }
    words
}

impl Upstream for Wire {
    fn call(&self, request: &Request, _: Duration) -> Result<Reply, UpstreamError> {
        let (fate, straying) = {
            let mut state = self.state.lock();
            if state.is_cut {
                return Err(UpstreamError::Unreachable("the network is cut".into()));
            }
            let faults = state.faults;
            let fate = if state.rng.chance(faults) { state.rng.below(4) } else { 9 };
            let straying = if state.rng.chance(0.3) { state.straying.take() } else { None };
            if fate == 3 {
                state.straying = Some(request.clone());
            }
            (fate, straying)
        };
        if let Some(straying) = straying {
            self.deliver(&straying);
        }
        let reply = match fate {
            0 => return Err(lost()),
            1 => {
                self.deliver(request);
                return Err(lost());
            }
            2 => {
                self.deliver(request);
                self.deliver(request)
            }
            _ => self.deliver(request),
        };
        match reply {
            Reply::Refused(refused) => Err(UpstreamError::Refused(refused)),
            reply => Ok(reply),
        }
    }
}
