//! The server's authority: the key that signs its own certificate and those of all its clients.
//!
//! # Guarantees
//! 1. One directory holds one authority for ever: it is made when there is none, and never
//!    replaced.
//! 2. Only the authority is kept. The server's own key and certificate are made anew at every start
//!    and never written.
//! 3. A certificate is not made with a date before the authority's own: a machine that wakes up in
//!    1970 hands out nothing that is void once its clock is right.

use crate::error::IdentityError;
use crate::fingerprint::Fingerprint;
use crate::identity_file::{IdentityFile, damaged_file};
use crate::peer::CertifiedPeer;
use crate::tls;
use crate::validity::{CertificateValidity, whole_seconds};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose,
};
use rcgen::{
    IsCa, Issuer, KeyPair, KeyUsagePurpose, PKCS_ED25519, PublicKeyData, SanType,
    SignatureAlgorithm,
};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;
use std::time::Duration;
use teal_env::{Clock, ExistingFile};
use teal_types::{ReplicaNo, VolumeId};
use webpki::{EndEntityCert, KeyUsage};

const FILE: &str = "authority.pem";
const TITLE: &str = "TealFS server authority 1. Whoever can read this file can be this server. \
    Without it, all enrol again.";
const CREATED: &str = "created";

/// The identity of a server: its authority, kept in a directory.
pub struct ServerIdentity {
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
    fingerprint: Fingerprint,
    /// When the authority was made, in seconds since 1970.
    created: u64,
}

impl std::fmt::Debug for ServerIdentity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerIdentity")
            .field("fingerprint", &self.fingerprint)
            .finish_non_exhaustive()
    }
}

impl ServerIdentity {
    /// Loads the authority in `dir`; makes one, and `dir`, if there is none.
    ///
    /// # Errors
    /// The file cannot be read or written, others may read it, or it is damaged. A damaged one is
    /// not replaced.
    pub fn open(dir: &Path, clock: &dyn Clock) -> Result<Self, IdentityError> {
        let path = dir.join(FILE);
        if let Some(identity) = Self::load(&path)? {
            return Ok(identity);
        }
        // Private from its first moment: the key is in it.
        let made = DirBuilder::new().recursive(true).mode(0o700).create(dir);
        if let Err(source) = made {
            return Err(IdentityError::Io {
                path: dir.to_owned(),
                source,
            });
        }
        let kept =
            Self::make_authority(whole_seconds(clock.civil_time())).map_err(damaged_file(&path))?;
        // The file is made only where none is, so that two processes cannot have two authorities.
        match kept.write(&path, TITLE, ExistingFile::Keep) {
            // Another process was faster: its authority is the one.
            Err(IdentityError::Io { source, .. })
                if source.kind() == io::ErrorKind::AlreadyExists => {}
            written => written?,
        }
        Self::load(&path)?.ok_or_else(|| damaged_file(&path)("it went away"))
    }

    /// Returns what clients are given to know this server by.
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    fn make_authority(created: u64) -> Result<IdentityFile, rcgen::Error> {
        let key = KeyPair::generate_for(&PKCS_ED25519)?;
        let certificate = authority_params().self_signed(&key)?.der().clone();
        let key = PrivatePkcs8KeyDer::from(key.serialize_der());
        Ok(IdentityFile {
            fields: vec![(CREATED, created.to_string())],
            key,
            certificate,
        })
    }

    fn load(path: &Path) -> Result<Option<Self>, IdentityError> {
        let kept = match IdentityFile::read(path, &[CREATED]) {
            Err(IdentityError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                return Ok(None);
            }
            other => other?,
        };
        let created = kept.parse_field(path, CREATED)?;
        let key = KeyPair::from_pkcs8_der_and_sign_algo(&kept.key, &PKCS_ED25519)
            .map_err(damaged_file(path))?;
        let fingerprint = Fingerprint::of_certificate(&kept.certificate);
        let issuer = Issuer::new(authority_params(), key);
        let identity = Self {
            issuer,
            certificate: kept.certificate,
            fingerprint,
            created,
        };
        // A key that does not belong to the certificate would be noticed by clients only.
        let (leaf, _) = identity.own_certificate().map_err(damaged_file(path))?;
        let fits = tls::verify_signed_by(&leaf, &identity.certificate, KeyUsage::server_auth());
        if let Err(e) = fits {
            let why = format!("key and certificate do not fit: {e}");
            return Err(damaged_file(path)(why));
        }
        Ok(Some(identity))
    }

    /// Returns the seconds since 1970 that this server goes by.
    pub(crate) fn current_seconds(&self, clock: &dyn Clock) -> u64 {
        whole_seconds(clock.civil_time()).max(self.created)
    }

    /// Makes a certificate that says that the holder of an Ed25519 key is `peer`.
    pub(crate) fn certify_key(
        &self,
        peer: CertifiedPeer,
        public_key: &[u8],
        now: u64,
    ) -> Result<(CertificateDer<'static>, CertificateValidity), rcgen::Error> {
        debug_assert!(
            now >= self.created,
            "no certificate is older than its authority"
        );
        let validity = CertificateValidity::starting_at(now);
        // The subject is for people; a server reads the name in `subject_alt_names`.
        let mut params = certificate_params(&format!(
            "TealFS volume {} replica {}",
            peer.volume.get(),
            peer.replica
        ));
        params.not_before = rcgen::date_time_ymd(1970, 1, 1) + Duration::from_secs(validity.issued);
        params.not_after = rcgen::date_time_ymd(1970, 1, 1) + Duration::from_secs(validity.expires);
        params.subject_alt_names = vec![SanType::DnsName(name_of(peer).try_into()?)];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        let certificate = params.signed_by(&RawKey(public_key), &self.issuer)?;
        Ok((certificate.der().clone(), validity))
    }

    /// Returns the holder of `certificate` and its validity; `None` unless this authority signed it
    /// for a client.
    pub(crate) fn recognise_peer(
        &self,
        certificate: &CertificateDer<'_>,
    ) -> Option<(CertifiedPeer, CertificateValidity)> {
        let validity =
            // The signature proves that this authority has made the certificate, whatever the name
            // in it says.
            tls::verify_signed_by(certificate, &self.certificate, KeyUsage::client_auth()).ok()?;
        let certificate = EndEntityCert::try_from(certificate).ok()?;
        Some((certificate.valid_dns_names().find_map(peer_of)?, validity))
    }

    /// Returns the server's side of TLS, with a new key.
    pub(crate) fn tls_config(&self) -> Result<rustls::ServerConfig, rustls::Error> {
        let (certificate, key) = self
            .own_certificate()
            .map_err(|e| rustls::Error::General(e.to_string()))?;
        tls::server_config(
            &self.certificate,
            certificate,
            PrivatePkcs8KeyDer::from(key.serialize_der()).into(),
        )
    }

    fn own_certificate(&self) -> Result<(CertificateDer<'static>, KeyPair), rcgen::Error> {
        let key = KeyPair::generate_for(&PKCS_ED25519)?;
        let mut params = certificate_params("TealFS server");
        params.subject_alt_names = vec![SanType::DnsName(tls::SERVER_NAME.to_owned().try_into()?)];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        Ok((params.signed_by(&key, &self.issuer)?.der().clone(), key))
    }
}

/// Returns the parameters of a certificate with this subject, and with dates that do not matter:
/// 1975 to 4096.
fn certificate_params(subject: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, subject);
    params
}

fn authority_params() -> CertificateParams {
    let mut params = certificate_params("TealFS authority");
    // The authority signs clients and servers, and no further authorities.
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    params
}

fn name_of(peer: CertifiedPeer) -> String {
    format!("r{}.v{}.teal", peer.replica, peer.volume.get())
}

fn peer_of(name: &str) -> Option<CertifiedPeer> {
    let (replica, volume) = name.strip_suffix(".teal")?.split_once('.')?;
    let (replica, volume) = (replica.strip_prefix('r')?, volume.strip_prefix('v')?);
    Some(CertifiedPeer {
        volume: VolumeId::new(volume.parse().ok()?),
        replica: ReplicaNo::new(replica.parse().ok()?),
    })
}

/// The Ed25519 public key of another machine.
struct RawKey<'a>(&'a [u8]);

impl PublicKeyData for RawKey<'_> {
    fn der_bytes(&self) -> &[u8] {
        self.0
    }
    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &PKCS_ED25519
    }
}
