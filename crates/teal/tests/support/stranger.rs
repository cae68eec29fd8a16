//! Clients that are not the program: built from the protocol and the transport, to do what the
//! program never would.

use super::{Mounted, Nas, is_long};
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use teal_env::{Clock as _, SystemClock};
use teal_net::{
    CertifiedPeer, Channel, ChannelOptions, ClientIdentity, ListeningServer, NetError, PeerService,
    ServerIdentity, TransportLimits, enrol,
};
use teal_proto::{ClientRequest, Hello, MESSAGE_MAX, ServerReply, decode_reply, encode_request};
use teal_testkit::SimClock;
use teal_types::{BatchNo, CommitSeq, Incarnation, ServerIncarnation, Timestamp};
use tokio::runtime::Runtime;

/// The longest time that an answer may take.
pub(crate) const DEADLINE: Duration = Duration::from_secs(30);

pub(crate) fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .on_thread_start(yield_processors)
        .build()
        .unwrap()
}

/// Makes the calling thread of a stranger wait for whoever else needs a processor, in the long
/// forms that measure: a stranger's machine has processors of its own.
pub(crate) fn yield_processors() {
    if is_long() {
        rustix::process::setpriority_process(None, 19).unwrap();
    }
}

/// Returns where a served volume keeps the identity of its server.
pub(crate) fn server_identity(nas: &Mounted) -> PathBuf {
    nas.store().with_extension("teal.d").join("server/identity")
}

/// The time so many days ago.
pub(crate) fn days_ago(days: i64) -> Timestamp {
    let now = SystemClock.civil_time();
    Timestamp::new(now.secs - days * 86_400, now.nanos)
}

/// A machine that was invited, and is not to be trusted.
pub(crate) struct Stranger {
    pub(crate) runtime: Runtime,
    identity: ClientIdentity,
    pub(crate) address: String,
}

impl Stranger {
    /// Joins with a token of its own.
    pub(crate) fn new(nas: &mut Nas) -> Self {
        let (address, token) = nas.serve();
        let runtime = runtime();
        let (secret, fingerprint) = token.rsplit_once('.').unwrap();
        let identity = enrol(
            runtime.handle(),
            &address,
            &fingerprint.parse().unwrap(),
            secret,
            "stranger",
            DEADLINE,
        )
        .unwrap();
        Self {
            runtime,
            identity,
            address,
        }
    }

    /// A connection of its own to `address`.
    pub(crate) fn channel_to(&self, address: &str, message_bytes: usize) -> Channel {
        let options = ChannelOptions {
            message_bytes,
            ..ChannelOptions::default()
        };
        Channel::new(
            self.runtime.handle(),
            address.to_owned(),
            self.identity.clone(),
            options,
        )
    }

    pub(crate) fn channel(&self) -> Channel {
        self.channel_to(&self.address, MESSAGE_MAX)
    }

    /// A life and numbers for objects: the first of them.
    pub(crate) fn begin(channel: &Channel) -> (Incarnation, u64) {
        let (seen, seen_digest) = (CommitSeq::new(0), [0; 32]);
        let device = "../../stranger".to_owned();
        let hello = ClientRequest::Hello(Hello {
            incarnation: Incarnation::NONE,
            last_batch: BatchNo::NONE,
            seen,
            seen_digest,
            earlier: Vec::new(),
            server_incarnation: ServerIncarnation::NONE,
            device,
        });
        assert!(matches!(call(channel, &hello), ServerReply::Welcome(_)));
        match call(channel, &ClientRequest::Incarnate) {
            ServerReply::Incarnated { incarnation, lease } => {
                (incarnation, lease.object_numbers().start)
            }
            reply => panic!("{reply:?}"),
        }
    }
}

/// Asks as the program would.
#[track_caller]
pub(crate) fn call(channel: &Channel, request: &ClientRequest) -> ServerReply {
    call_with(channel, &encode_request(request).unwrap()).unwrap()
}

/// Sends any bytes.
pub(crate) fn call_with(channel: &Channel, bytes: &[u8]) -> Result<ServerReply, NetError> {
    channel
        .call(bytes, DEADLINE)
        .map(|answer| decode_reply(&answer).unwrap())
}

/// A server that takes every client for the same machine, and has one answer to everything.
struct Registrar(CertifiedPeer, Vec<u8>);

impl PeerService for Registrar {
    fn call(&self, _: CertifiedPeer, _: &[u8]) -> Vec<u8> {
        self.1.clone()
    }
    fn enrol(&self, _: &str, _: &str) -> Result<CertifiedPeer, String> {
        Ok(self.0)
    }
    fn check_peer(&self, _: CertifiedPeer) -> Result<(), String> {
        Ok(())
    }
}

/// Such a server as long as it lives, and an identity it gave out when its clock showed `now`.
pub(crate) struct Office {
    pub(crate) identity: ClientIdentity,
    pub(crate) address: String,
    _listening: ListeningServer,
    _runtime: Runtime,
}

impl Office {
    /// Signs with the authority in `dir`.
    pub(crate) fn new(
        dir: &std::path::Path,
        now: Timestamp,
        peer: CertifiedPeer,
        answer: Vec<u8>,
    ) -> Self {
        let runtime = runtime();
        let clock = SimClock::new(now);
        let authority = ServerIdentity::open(dir, &clock).unwrap();
        let fingerprint = authority.fingerprint();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let service = Arc::new(Registrar(peer, answer));
        let listening = teal_net::serve(
            runtime.handle(),
            listener,
            authority,
            TransportLimits::default(),
            Arc::new(clock),
            service,
        )
        .unwrap();
        let address = listening.address().to_string();
        let identity = enrol(
            runtime.handle(),
            &address,
            &fingerprint,
            "a token",
            "anybody",
            DEADLINE,
        )
        .unwrap();
        Self {
            identity,
            address,
            _listening: listening,
            _runtime: runtime,
        }
    }
}

/// Returns where the identity of a joined machine is, while it is not mounted.
pub(crate) fn identity_dir(laptop: &Mounted) -> PathBuf {
    laptop.store().with_extension("teal.d").join("identity")
}
