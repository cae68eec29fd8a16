//! A message far over the limit costs the server no memory. The test is alone in its process,
//! because the memory of the process is measured.

#![allow(clippy::unwrap_used, reason = "a test")]

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use teal_env::SystemClock;
use teal_net::{
    CertifiedPeer, Channel, ChannelOptions, PeerService, ServerIdentity, TransportLimits,
};
use teal_types::{ReplicaNo, VolumeId};

const LONG: Duration = Duration::from_secs(60);
const GIB: u32 = 1 << 30;
const PEER: CertifiedPeer = CertifiedPeer {
    volume: VolumeId::new(1),
    replica: ReplicaNo::new(2),
};

struct Echo;

impl PeerService for Echo {
    fn call(&self, _: CertifiedPeer, request: &[u8]) -> Vec<u8> {
        request.to_vec()
    }
    fn enrol(&self, _: &str, _: &str) -> Result<CertifiedPeer, String> {
        Ok(PEER)
    }
    fn check_peer(&self, _: CertifiedPeer) -> Result<(), String> {
        Ok(())
    }
}

/// A request with a body that is `announced` at its beginning, goes on for `left` bytes, and then
/// ends or stalls.
struct Endless {
    announced: Option<u32>,
    left: usize,
    stalls: bool,
}

impl hyper::body::Body for Endless {
    type Data = bytes::Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<hyper::body::Frame<bytes::Bytes>, Self::Error>>> {
        static PART: [u8; 65_536] = [0; 65_536];
        let part = match self.announced.take() {
            Some(length) => [&[0][..], &length.to_be_bytes()].concat().into(),
            None if self.left == 0 && self.stalls => return Poll::Pending,
            None if self.left == 0 => return Poll::Ready(None),
            None => bytes::Bytes::from_static(&PART[..PART.len().min(self.left)]),
        };
        self.left -= part.len().min(self.left);
        Poll::Ready(Some(Ok(hyper::body::Frame::data(part))))
    }
}

#[derive(Debug)]
struct Anybody;

impl rustls::client::danger::ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<rustls::client::danger::ServerCertVerified, rustls::Error> {
        Ok(rustls::client::danger::ServerCertVerified::assertion())
    }
    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        Ok(rustls::client::danger::HandshakeSignatureValid::assertion())
    }
    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        Ok(rustls::client::danger::HandshakeSignatureValid::assertion())
    }
    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        vec![rustls::SignatureScheme::ED25519]
    }
}

/// Sends a request as another implementation of the client would that heeds no limit, and returns
/// the status of the answer to `body`.
async fn careless(address: std::net::SocketAddr, pem: &str, body: Endless) -> String {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let certificate = CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
    let key = PrivateKeyDer::from_pem_slice(pem.as_bytes()).unwrap();
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Anybody))
        .with_client_auth_cert(vec![certificate], key)
        .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let tcp = tokio::net::TcpStream::connect(address).await.unwrap();
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    let tls = connector
        .connect("teal".try_into().unwrap(), tcp)
        .await
        .unwrap();
    let builder = hyper::client::conn::http2::Builder::new(hyper_util::rt::TokioExecutor::new());
    let (mut sender, connection) = builder
        .handshake(hyper_util::rt::TokioIo::new(tls))
        .await
        .unwrap();
    tokio::spawn(connection);
    let request = http::Request::post("https://teal/teal.v1.Teal/Call")
        .header("content-type", "application/grpc");
    let answer = sender
        .send_request(request.body(body).unwrap())
        .await
        .unwrap();
    answer.headers()["grpc-status"].to_str().unwrap().to_owned()
}

/// The most memory this process has had, in bytes.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .unwrap();
    line.trim()
        .strip_suffix(" kB")
        .unwrap()
        .parse::<u64>()
        .unwrap()
        * 1024
}

#[test]
fn a_message_of_a_gibibyte_is_refused_without_memory_and_without_anybody_noticing() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let dir = tempfile::tempdir().unwrap();
    let identity = ServerIdentity::open(dir.path(), &SystemClock).unwrap();
    let fingerprint = identity.fingerprint();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let limits = TransportLimits {
        arrival: Duration::from_millis(500),
        requests: 2,
        ..TransportLimits::default()
    };
    let clock = Arc::new(SystemClock);
    let listening = teal_net::serve(
        runtime.handle(),
        listener,
        identity,
        limits,
        clock,
        Arc::new(Echo),
    )
    .unwrap();
    let address = listening.address();
    let identity = teal_net::enrol(
        runtime.handle(),
        &address.to_string(),
        &fingerprint,
        "t",
        "pc",
        LONG,
    )
    .unwrap();
    identity.save(dir.path()).unwrap();
    let pem = std::fs::read_to_string(dir.path().join("client.pem")).unwrap();
    let channel = Channel::new(
        runtime.handle(),
        address.to_string(),
        identity,
        ChannelOptions::default(),
    );

    // A message of the largest size may cost as much as it costs an honest client.
    let most = vec![7; 4 << 20];
    assert_eq!(channel.call(&most, LONG), Ok(most.clone()));
    let before = peak();
    for (announced, sent) in [
        (GIB, GIB),
        (GIB, 0),
        (u32::MAX, 100),
        ((4 << 20) + 100, GIB),
    ] {
        let body = Endless {
            announced: Some(announced),
            left: sent as usize,
            stalls: false,
        };
        let answered = async { tokio::time::timeout(LONG, careless(address, &pem, body)).await };
        assert_eq!(
            runtime.block_on(answered).unwrap(),
            "11",
            "announced {announced}, sent {sent}"
        );
        assert_eq!(channel.call(b"hi", LONG), Ok(b"hi".to_vec()));
    }
    for _ in 0..5 {
        let body = Endless {
            announced: Some(4 << 20),
            left: 1 << 20,
            stalls: true,
        };
        let answered = async { tokio::time::timeout(LONG, careless(address, &pem, body)).await };
        assert_eq!(
            runtime.block_on(answered).unwrap(),
            "4",
            "a request that does not arrive gives up its place"
        );
    }
    assert_eq!(channel.call(b"hi", LONG), Ok(b"hi".to_vec()));
    let more = peak() - before;
    assert!(more < 32 << 20, "{more} bytes more");
    assert!(listening.stop(LONG));
}
