//! Everything through a real listener on the loopback: a server, its service and machines that
//! speak with it.

mod limits;
mod links;
mod stopping;
mod times;
mod trust;

use crate::{
    CertifiedPeer, Channel, ChannelOptions, ClientIdentity, ListeningServer, NetError, PeerService,
    ServerIdentity, TransportLimits,
};
use parking_lot::{Condvar, Mutex};
use std::collections::{HashMap, HashSet};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;
use teal_env::{Clock as _, SystemClock};
use teal_testkit::SimClock;
use teal_types::{ReplicaNo, VolumeId};
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// Longer than anything takes; a test that waits for so long has failed.
const LONG: Duration = Duration::from_secs(20);
/// Begins a request that waits for the gate.
const WAIT: &[u8] = b"wait";
/// Begins a request at which the service breaks down.
const PANIC: &[u8] = b"panic";
/// Begins a request that is answered with as many bytes as follow in decimal.
const MUCH: &[u8] = b"much";

/// Answers with volume, replica and the request.
struct Echo {
    /// The tokens, with the peer that each makes of the machine that shows it.
    tokens: Mutex<HashMap<String, CertifiedPeer>>,
    revoked: Mutex<HashSet<CertifiedPeer>>,
    is_open: Mutex<bool>,
    opened: Condvar,
    /// Is told of each request that waits.
    waiting: Mutex<Sender<CertifiedPeer>>,
}

impl Echo {
    fn open(&self) {
        *self.is_open.lock() = true;
        self.opened.notify_all();
    }
}

impl PeerService for Echo {
    fn call(&self, peer: CertifiedPeer, request: &[u8]) -> Vec<u8> {
        assert!(!request.starts_with(PANIC), "asked to break down");
        if request.starts_with(WAIT) {
            let mut is_open = self.is_open.lock();
            let _ = self.waiting.lock().send(peer);
            while !*is_open && !self.opened.wait_for(&mut is_open, LONG).timed_out() {}
        }
        if let Some(number) = request.strip_prefix(MUCH) {
            return vec![7; String::from_utf8_lossy(number).parse().unwrap()];
        }
        echoed(peer, request)
    }

    fn enrol(&self, token: &str, device: &str) -> Result<CertifiedPeer, String> {
        self.tokens
            .lock()
            .remove(token)
            .ok_or_else(|| format!("no such token for {device}; ask for a new one"))
    }

    fn check_peer(&self, peer: CertifiedPeer) -> Result<(), String> {
        if self.revoked.lock().contains(&peer) {
            return Err(format!(
                "replica {} was removed by Mum at 15:00: ça va",
                peer.replica
            ));
        }
        Ok(())
    }
}

fn echoed(peer: CertifiedPeer, request: &[u8]) -> Vec<u8> {
    [
        &peer.volume.get().to_le_bytes()[..],
        &peer.replica.get().to_le_bytes()[..],
        request,
    ]
    .concat()
}

/// A server and what it stands on.
struct World {
    runtime: Option<Runtime>,
    dir: TempDir,
    clock: SimClock,
    service: Arc<Echo>,
    waiting: Receiver<CertifiedPeer>,
    limits: TransportLimits,
    listening: Option<ListeningServer>,
}

impl World {
    fn new(limits: TransportLimits) -> Self {
        let (sender, waiting) = channel();
        let service = Echo {
            tokens: Mutex::default(),
            revoked: Mutex::default(),
            is_open: Mutex::new(false),
            opened: Condvar::new(),
            waiting: Mutex::new(sender),
        };
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let (dir, clock) = (tempfile::tempdir().unwrap(), SimClock::default());
        let mut world = Self {
            runtime: Some(runtime),
            dir,
            clock,
            service: Arc::new(service),
            waiting,
            limits,
            listening: None,
        };
        world.start("127.0.0.1:0".parse().unwrap());
        world
    }

    /// A server with limits that tests do not meet.
    fn default() -> Self {
        Self::new(TransportLimits {
            enrolments_per_second: 1000,
            ..TransportLimits::default()
        })
    }

    fn runtime(&self) -> &tokio::runtime::Handle {
        self.runtime.as_ref().unwrap().handle()
    }

    fn start(&mut self, address: SocketAddr) {
        let identity = ServerIdentity::open(self.dir.path(), &self.clock).unwrap();
        // Another program may take a port that was free a moment ago.
        let start = SystemClock.monotonic_time();
        let listener = loop {
            match TcpListener::bind(address) {
                Err(_) if SystemClock.monotonic_time() - start < LONG => std::thread::yield_now(),
                bound => break bound.unwrap(),
            }
        };
        let (limits, clock) = (self.limits.clone(), Arc::new(self.clock.clone()));
        let served = crate::serve(
            self.runtime(),
            listener,
            identity,
            limits,
            clock,
            self.service.clone(),
        );
        self.listening = Some(served.unwrap());
    }

    fn address(&self) -> SocketAddr {
        self.listening.as_ref().unwrap().address()
    }

    fn identity(&self) -> ServerIdentity {
        ServerIdentity::open(self.dir.path(), &self.clock).unwrap()
    }

    fn give_token(&self, token: &str, peer: CertifiedPeer) {
        self.service.tokens.lock().insert(token.into(), peer);
    }

    fn try_enrol(&self, token: &str) -> Result<ClientIdentity, NetError> {
        let (address, fingerprint) = (self.address().to_string(), self.identity().fingerprint());
        crate::enrol(
            self.runtime(),
            &address,
            &fingerprint,
            token,
            "a laptop",
            LONG,
        )
    }

    fn enrolled(&self, replica: u32) -> ClientIdentity {
        let token = format!("token of {replica}");
        self.give_token(
            &token,
            CertifiedPeer {
                volume: VolumeId::new(3),
                replica: ReplicaNo::new(replica),
            },
        );
        self.try_enrol(&token).unwrap()
    }

    fn channel(&self, identity: &ClientIdentity) -> Channel {
        self.channel_to(self.address(), identity, ChannelOptions::default())
    }

    fn channel_to(
        &self,
        address: SocketAddr,
        identity: &ClientIdentity,
        options: ChannelOptions,
    ) -> Channel {
        Channel::new(
            self.runtime(),
            address.to_string(),
            identity.clone(),
            options,
        )
    }

    /// Another machine enrols and is served: the server is well.
    fn assert_well(&self) {
        let identity = self.enrolled(99);
        assert_eq!(
            self.channel(&identity).call(b"well?", LONG),
            Ok(echoed(identity.peer(), b"well?"))
        );
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.service.open();
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// The words of an error that must be of this kind.
macro_rules! words {
    ($result:expr, $kind:ident) => {
        match $result {
            Err(error @ crate::NetError::$kind { .. }) => error.to_string(),
            other => panic!("{} was expected, and not {other:?}", stringify!($kind)),
        }
    };
}
use words;
