//! The identity of a client: its key, the certificate that a server gave it, and the fingerprint of
//! that server.

use crate::error::{IdentityError, NetError};
use crate::fingerprint::Fingerprint;
use crate::identity_file::{IdentityFile, damaged_file};
use crate::peer::CertifiedPeer;
use crate::tls;
use crate::validity::{CertificateAge, CertificateValidity, whole_seconds};
use crate::wire::CertifiedKey;
use rcgen::{KeyPair, PKCS_ED25519};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use std::path::Path;
use teal_env::ExistingFile;
use teal_types::{ReplicaNo, Timestamp, VolumeId};

const FILE: &str = "client.pem";
const TITLE: &str = "TealFS client identity 1. Whoever can read this file can act as this machine.";
const FIELDS: [&str; 5] = ["server", "volume", "replica", "issued", "expires"];

/// The identity of a client towards one server.
pub struct ClientIdentity {
    peer: CertifiedPeer,
    fingerprint: Fingerprint,
    validity: CertificateValidity,
    key: PrivatePkcs8KeyDer<'static>,
    certificate: CertificateDer<'static>,
}

impl std::fmt::Debug for ClientIdentity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            peer,
            fingerprint,
            validity,
            ..
        } = self;
        f.debug_struct("ClientIdentity")
            .field("peer", peer)
            .field("server", fingerprint)
            .field("validity", validity)
            .finish_non_exhaustive()
    }
}

impl Clone for ClientIdentity {
    fn clone(&self) -> Self {
        let Self {
            peer,
            fingerprint,
            validity,
            ref key,
            ref certificate,
        } = *self;
        Self {
            peer,
            fingerprint,
            validity,
            key: key.clone_key(),
            certificate: certificate.clone(),
        }
    }
}

impl ClientIdentity {
    /// Keeps the identity in `dir`, which exists, in place of any that is there.
    ///
    /// # Errors
    /// The file cannot be written; what was there before stays.
    pub fn save(&self, dir: &Path) -> Result<(), IdentityError> {
        let values = [
            self.fingerprint.to_string(),
            self.peer.volume.get().to_string(),
            self.peer.replica.to_string(),
            self.validity.issued.to_string(),
            self.validity.expires.to_string(),
        ];
        // The lines stand in the order in which they are read again.
        let fields = FIELDS.into_iter().zip(values).collect();
        let kept = IdentityFile {
            fields,
            key: self.key.clone_key(),
            certificate: self.certificate.clone(),
        };
        kept.write(&dir.join(FILE), TITLE, ExistingFile::Replace)
    }

    /// Loads the identity kept in `dir`.
    ///
    /// # Errors
    /// There is none (an [`IdentityError::Io`] of kind `NotFound`), others may read it, or it is
    /// damaged.
    pub fn load(dir: &Path) -> Result<Self, IdentityError> {
        let path = &dir.join(FILE);
        let kept = IdentityFile::read(path, &FIELDS)?;
        let identity = Self {
            fingerprint: kept.parse_field(path, "server")?,
            peer: CertifiedPeer {
                volume: VolumeId::new(kept.parse_field(path, "volume")?),
                replica: ReplicaNo::new(kept.parse_field(path, "replica")?),
            },
            validity: CertificateValidity {
                issued: kept.parse_field(path, "issued")?,
                expires: kept.parse_field(path, "expires")?,
            },
            key: kept.key,
            certificate: kept.certificate,
        };
        // A key that does not belong to the certificate is found now, and not at the first call.
        identity.tls_config().map_err(damaged_file(path))?;
        Ok(identity)
    }

    /// Returns the volume and the replica that this machine is.
    pub fn peer(&self) -> CertifiedPeer {
        self.peer
    }

    /// Returns the fingerprint of the server that gave the certificate.
    pub fn server_fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// Returns the end of the certificate, by the server's clock.
    pub fn expires(&self) -> Timestamp {
        Timestamp::new(i64::try_from(self.validity.expires).unwrap_or(i64::MAX), 0)
    }

    /// Returns whether it is time to renew the certificate, by a clock that shows `now`.
    pub fn is_due(&self, now: Timestamp) -> bool {
        self.validity.age_at(whole_seconds(now)) != CertificateAge::Good
    }

    /// Returns the client's side of TLS.
    pub(crate) fn tls_config(&self) -> Result<rustls::ClientConfig, rustls::Error> {
        tls::client_config(
            self.fingerprint,
            Some((self.certificate.clone(), self.key.clone_key().into())),
        )
    }
}

/// A new key, which waits for its certificate.
pub(crate) struct NewKey(KeyPair);

impl NewKey {
    pub(crate) fn generate() -> Result<Self, NetError> {
        let key = KeyPair::generate_for(&PKCS_ED25519);
        key.map(Self)
            .map_err(|e| NetError::Certificate(format!("no key can be made: {e}")))
    }

    /// Returns the 32 bytes that a server signs.
    pub(crate) fn public_bytes(&self) -> &[u8] {
        self.0.public_key_raw()
    }

    /// Returns the identity that results from a server's answer.
    pub(crate) fn identity_from(
        &self,
        fingerprint: Fingerprint,
        answer: &CertifiedKey,
    ) -> Result<ClientIdentity, NetError> {
        let identity = ClientIdentity {
            peer: CertifiedPeer {
                volume: VolumeId::new(answer.volume),
                replica: ReplicaNo::new(answer.replica),
            },
            fingerprint,
            validity: CertificateValidity {
                issued: answer.issued,
                expires: answer.expires,
            },
            key: self.0.serialize_der().into(),
            certificate: answer.certificate.to_vec().into(),
        };
        // The certificate must belong to the key; that it leads to the server's authority shows at
        // its first use.
        let fits = identity.tls_config();
        fits.map_err(|e| {
            NetError::Protocol(format!(
                "the server answers with a certificate of no use: {e}"
            ))
        })?;
        Ok(identity)
    }
}
