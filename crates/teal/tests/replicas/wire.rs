//! The way between a client and the server, which loses, repeats and delays by seed.
//!
//! # Guarantees
//! 1. *Repeatable*: the same seed and the same requests give the same faults; every message is in
//!    the trace's digest.
//! 2. *As a network*: what the client is told has not arrived may have; what arrived may arrive
//!    once more, later too.
//! 3. *Meanwhile*: while an answer is on its way, other threads of the same machine go on.

use crate::bounds::POISON;
use crate::ledger::Ledger;
use crate::power::Power;
use parking_lot::{Mutex, RwLock};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;
use teal_device::{Upstream, UpstreamError};
use teal_proto::{
    ClientRequest, RefusalCode, RefusalReply, ServerReply, encode_reply, encode_request,
};
use teal_server::{Peer, Server};
use teal_testkit::Rng;
use teal_types::Op;

/// The server of now: a power cut puts another one here.
#[derive(Clone)]
pub(crate) struct Seat {
    pub(crate) server: Arc<RwLock<Arc<Server>>>,
    pub(crate) power: Power,
    /// True if the server has an older history than some clients have seen.
    pub(crate) is_restored: Arc<AtomicBool>,
}

impl Seat {
    pub(crate) fn new(server: Arc<Server>, power: Power) -> Self {
        Self {
            server: Arc::new(RwLock::new(server)),
            power,
            is_restored: Arc::default(),
        }
    }

    pub(crate) fn is_restored(&self) -> bool {
        self.is_restored.load(SeqCst)
    }
}

/// Everything that has been said: in one number, and what of it must be kept.
#[derive(Clone, Default)]
pub(crate) struct Trace {
    digest: Arc<Mutex<(DefaultHasher, u64)>>,
    pub(crate) ledger: Arc<Mutex<Ledger>>,
}

impl Trace {
    fn note(&self, what: &[u8]) {
        let (hasher, count) = &mut *self.digest.lock();
        what.hash(hasher);
        *count += 1;
    }

    pub(crate) fn digest(&self) -> u64 {
        self.digest.lock().0.finish()
    }

    /// Returns how many there were.
    pub(crate) fn messages(&self) -> u64 {
        self.digest.lock().1
    }
}

/// The work of other threads while an answer is on its way.
pub(crate) type Meanwhile = Box<dyn FnMut(&ClientRequest) + Send>;

struct State {
    rng: Rng,
    /// The share of requests that something happens to.
    faults: f64,
    is_cut: bool,
    /// Operations on files that are called so are refused.
    refuses: bool,
    /// A request that is still somewhere, and arrives once more.
    straying: Option<ClientRequest>,
    meanwhile: Option<Meanwhile>,
}

/// One client's way to the server.
pub(crate) struct Wire {
    seat: Seat,
    peer: Peer,
    trace: Trace,
    power: Power,
    is_printed: bool,
    state: Mutex<State>,
}

fn lost() -> UpstreamError {
    UpstreamError::Unreachable("the network lost it".into())
}

impl Wire {
    pub(crate) fn new(
        seat: &Seat,
        peer: Peer,
        trace: &Trace,
        power: &Power,
        rng: Rng,
        is_printed: bool,
    ) -> Arc<Self> {
        let state = Mutex::new(State {
            rng,
            faults: 0.0,
            is_cut: false,
            refuses: false,
            straying: None,
            meanwhile: None,
        });
        Arc::new(Self {
            seat: seat.clone(),
            peer,
            trace: trace.clone(),
            power: power.clone(),
            is_printed,
            state,
        })
    }

    pub(crate) fn peer(&self) -> Peer {
        self.peer
    }

    pub(crate) fn set_faults(&self, faults: f64) {
        self.state.lock().faults = faults;
    }

    pub(crate) fn set_meanwhile(&self, meanwhile: Option<Meanwhile>) {
        self.state.lock().meanwhile = meanwhile;
    }

    pub(crate) fn refuse(&self, refuses: bool) {
        self.state.lock().refuses = refuses;
    }

    pub(crate) fn cut(&self, is_cut: bool) {
        self.state.lock().is_cut = is_cut;
    }

    pub(crate) fn is_cut(&self) -> bool {
        self.state.lock().is_cut
    }

    fn deliver(&self, request: &ClientRequest) -> Result<ServerReply, UpstreamError> {
        let (begins, _) = self.power.act();
        if !begins || self.seat.power.is_off() {
            return Err(lost());
        }
        let server = Arc::clone(&*self.seat.server.read());
        let reply = server.handle(self.peer, request.clone());
        self.trace.note(&encode_request(request).unwrap());
        self.trace.note(&encode_reply(&reply).unwrap());
        if self.is_printed {
            let replica = self.peer.replica;
            println!(
                "      {replica} -> {}\n      {replica} <- {}",
                short(request),
                short(&reply)
            );
        }
        if self.seat.power.is_off() {
            return Err(lost());
        }
        self.trace.ledger.lock().note(self.peer, request, &reply);
        if self.power.act().0 {
            Ok(reply)
        } else {
            Err(lost())
        }
    }

    /// Lets others go on; what they ask has no such company.
    fn wait(&self, request: &ClientRequest) {
        let meanwhile = self.state.lock().meanwhile.take();
        if let Some(mut meanwhile) = meanwhile {
            meanwhile(request);
            self.state.lock().meanwhile = Some(meanwhile);
        }
    }

    fn fated(&self, request: &ClientRequest, fate: u64) -> Result<ServerReply, UpstreamError> {
        match fate {
            0 => Err(lost()),
            1 => self.deliver(request).and(Err(lost())),
            2 => self.deliver(request).and_then(|_| self.deliver(request)),
            _ => self.deliver(request),
        }
    }
}

/// Returns whether a part of a batch has a file in it that is refused: as with the server, all of
/// the part is.
fn is_poisoned(request: &ClientRequest) -> bool {
    let ClientRequest::Stage { ops, .. } = request else {
        return false;
    };
    ops.iter()
        .any(|op| matches!(op, Op::Place { link, .. } if link.name.to_string().starts_with(POISON)))
}

fn short(what: &impl std::fmt::Debug) -> String {
    let mut words = format!("{what:?}");
    if let Some((end, _)) = words.char_indices().nth(2500) {
        words.truncate(end);
    }
    words
}

impl Upstream for Wire {
    fn call(&self, request: &ClientRequest, _: Duration) -> Result<ServerReply, UpstreamError> {
        let (fate, straying) = {
            let mut state = self.state.lock();
            if state.is_cut {
                return Err(UpstreamError::Unreachable("the network is cut".into()));
            }
            let faults = state.faults;
            let fate = if state.rng.chance(faults) {
                state.rng.below(4)
            } else {
                9
            };
            let straying = if state.rng.chance(0.3) {
                state.straying.take()
            } else {
                None
            };
            if fate == 3 {
                state.straying = Some(request.clone());
            }
            (fate, straying)
        };
        if self.state.lock().refuses && is_poisoned(request) {
            let words = "this operation makes no sense".into();
            return Err(UpstreamError::Refused(RefusalReply {
                code: RefusalCode::BadRequest,
                words,
            }));
        }
        if let Some(straying) = straying {
            let _ = self.deliver(&straying);
        }
        let reply = self.fated(request, fate);
        self.wait(request);
        match reply? {
            ServerReply::Refused(refused) => Err(UpstreamError::Refused(refused)),
            reply => Ok(reply),
        }
    }
}
