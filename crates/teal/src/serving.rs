//! The server in this process: its two stores, its listener, and the way in for this machine's own
//! mount.

use crate::control::ControlAnswer;
use crate::private;
use anyhow::{Context, Result};
use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use teal_chunk::{AccessMode, ChunkStore, ChunkStoreOptions, DirectoryShelf};
use teal_device::{Upstream, UpstreamError};
use teal_env::{Clock, SystemEntropy};
use teal_meta::{MetaStore, Sqlite};
use teal_net::{Fingerprint, ListeningServer, PeerService, TransportLimits};
use teal_proto::{ClientRequest, MESSAGE_MAX, ServerReply};
use teal_server::{Peer, Server};
use teal_types::VolumeId;
use tokio::runtime::Handle;

/// Requests in progress may take so long when the server ends.
const GRACE: Duration = Duration::from_secs(5);

/// A token is good for so long.
const TOKEN_MINUTES: u64 = 60;

/// A server that runs.
pub(crate) struct RunningServer {
    pub(crate) server: Arc<Server>,
    peer: Peer,
    listening: ListeningServer,
    /// Looks after the chunks.
    upkeep: JoinHandle<()>,
    fingerprint: Fingerprint,
}

/// Passes the transport's requests to the server.
struct NetworkService(Arc<Server>);

fn peer_of(peer: teal_net::CertifiedPeer) -> Peer {
    Peer {
        volume: peer.volume,
        replica: peer.replica,
    }
}

impl PeerService for NetworkService {
    fn call(&self, from: teal_net::CertifiedPeer, request: &[u8]) -> Vec<u8> {
        self.0.handle_bytes(peer_of(from), request)
    }

    fn enrol(&self, token: &str, device: &str) -> Result<teal_net::CertifiedPeer, String> {
        let peer = self.0.enrol(token, device).map_err(|e| e.to_string())?;
        Ok(teal_net::CertifiedPeer {
            volume: peer.volume,
            replica: peer.replica,
        })
    }

    fn check_peer(&self, from: teal_net::CertifiedPeer) -> Result<(), String> {
        self.0
            .welcome_enrolled(peer_of(from))
            .map(drop)
            .map_err(|e| e.words)
    }
}

/// The way in for this machine's own mount.
struct LocalUpstream(Arc<Server>, Peer);

impl Upstream for LocalUpstream {
    fn call(
        &self,
        request: &ClientRequest,
        _deadline: Duration,
    ) -> Result<ServerReply, UpstreamError> {
        // Nothing is sent over a network, so the deadline is not needed.
        match self.0.handle(self.1, request.clone()) {
            ServerReply::Refused(refused) => Err(refused.into()),
            reply => Ok(reply),
        }
    }
}

/// Opens the two stores of a server, and makes them readable by their owner only.
pub(crate) fn open_server(
    runtime: &Handle,
    data: &Path,
    clock: &Arc<dyn Clock>,
) -> Result<Arc<Server>> {
    private::enforce_server_data(data)?;
    let entropy = Arc::new(SystemEntropy);
    let meta: Arc<dyn MetaStore> = Arc::new(Sqlite::open(&data.join("meta.db"))?);
    // The metadata holds the key by which chunks are named.
    let domain = teal_server::load_domain(&*meta, &*entropy)?;
    let shelf = DirectoryShelf::open(&data.join("chunks"), AccessMode::Write, runtime.clone())?;
    let (chunks, opening) = ChunkStore::open(
        Arc::new(shelf),
        domain,
        ChunkStoreOptions::default(),
        Arc::clone(clock),
        entropy.clone(),
    )?;
    // A damaged pack is no reason to refuse the others.
    for (pack, whole) in &opening.damaged {
        log::warn!("pack {pack} of the server's chunks is damaged; {whole} chunks of it are whole");
    }
    Ok(Arc::new(Server::open(
        meta,
        chunks,
        Arc::clone(clock),
        entropy,
    )?))
}

/// Listens on an address.
pub(crate) fn bind(listen: &str) -> Result<TcpListener> {
    TcpListener::bind(listen).with_context(|| {
        format!("cannot listen on {listen}: choose another address with `teal serve --listen`")
    })
}

impl RunningServer {
    /// Serves a volume of the server in `data`.
    pub(crate) fn start(
        runtime: &Handle,
        data: &Path,
        listen: &str,
        volume: VolumeId,
        device: &str,
        clock: &Arc<dyn Clock>,
    ) -> Result<Self> {
        // Packs and the database's own files are made at any time.
        private::PrivateFiles::begin().keep_for_process();
        let server = open_server(runtime, data, clock)
            .with_context(|| format!("the server's data in {}", data.display()))?;
        // The serving machine is a replica like the others, but needs no certificate.
        let peer = server.local_replica(volume, device)?;
        let identity = teal_net::ServerIdentity::open(&data.join("identity"), &**clock)?;
        let fingerprint = identity.fingerprint();
        // The address is taken before a thread starts, so that a port in use leaves nothing to
        // stop.
        let listener = bind(listen)?;
        let limits = TransportLimits {
            message_bytes: MESSAGE_MAX,
            ..TransportLimits::default()
        };
        let door = Arc::new(NetworkService(Arc::clone(&server)));
        let listening =
            teal_net::serve(runtime, listener, identity, limits, Arc::clone(clock), door)?;
        let for_upkeep = Arc::clone(&server);
        let upkeep = std::thread::Builder::new()
            .name("teal-upkeep".into())
            .spawn(move || for_upkeep.run_upkeep());
        let upkeep = upkeep.context("the thread for the server's chunks cannot be started")?;
        Ok(Self {
            server,
            peer,
            listening,
            upkeep,
            fingerprint,
        })
    }

    pub(crate) fn local_upstream(&self) -> Arc<dyn Upstream> {
        Arc::new(LocalUpstream(Arc::clone(&self.server), self.peer))
    }

    /// Returns where it listens.
    pub(crate) fn address(&self) -> std::net::SocketAddr {
        self.listening.address()
    }

    /// Makes a token that lets one machine join within `lifetime`; it carries the server's
    /// fingerprint.
    fn make_token(&self, lifetime: Duration) -> Result<String> {
        let secret = self.server.make_token(self.peer.volume, lifetime)?;
        debug_assert!(!secret.contains('.'), "a dot ends the secret");
        let fingerprint = self.fingerprint.to_string();
        // The prefix would only make the token longer.
        Ok(format!(
            "{secret}.{}",
            fingerprint.trim_start_matches("sha256:")
        ))
    }

    /// Returns what another machine needs to join.
    pub(crate) fn make_invitation(&self) -> Result<ControlAnswer> {
        let minutes = TOKEN_MINUTES;
        Ok(ControlAnswer::Token {
            token: self.make_token(Duration::from_secs(60 * minutes))?,
            address: self.address().to_string(),
            fingerprint: self.fingerprint.to_string(),
            minutes,
        })
    }

    /// Returns the volume that is served.
    pub(crate) fn volume(&self) -> VolumeId {
        self.peer.volume
    }

    /// Lets requests in progress end.
    pub(crate) fn stop(self) {
        // From here on no request begins; the listener then waits for those in progress.
        self.server.stop();
        if !self.listening.stop(GRACE) {
            log::warn!("some requests of other machines were cut off");
        }
        // The thread ends after the step it is in.
        if self.upkeep.join().is_err() {
            log::error!("the thread that looks after the server's chunks broke down");
        }
    }
}
