//! The verification of both sides: by the authority that signed, never by a name, and never by a
//! clock.
//!
//! # Guarantees
//! 1. TLS 1.3 only, with Ed25519 certificates; no sessions are resumed, so that every connection
//!    proves both sides anew.
//! 2. A client's certificate is accepted if the server's own authority signed it for that use,
//!    whatever its dates: they are judged at each request, where a refusal can say why.
//! 3. A server's certificate is accepted if it leads to the authority of the expected fingerprint,
//!    whatever its dates.

use crate::fingerprint::Fingerprint;
use crate::validity::CertificateValidity;
use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring as provider, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error, ServerConfig,
};
use rustls::{PeerIncompatible, SignatureScheme};
use std::sync::Arc;
use std::time::Duration;
use webpki::{EndEntityCert, KeyUsage, anchor_from_trusted_cert};

/// The name in every server's certificate: which server it is, its authority says.
pub(crate) const SERVER_NAME: &str = "teal";
/// The only protocol spoken over TLS.
pub(crate) const HTTP2: &[u8] = b"h2";

fn crypto_provider() -> Arc<CryptoProvider> {
    Arc::new(provider::default_provider())
}

/// Verifies that `authority` signed `certificate` for `usage`, and finds its dates, without regard
/// to any clock.
pub(crate) fn verify_signed_by(
    certificate: &CertificateDer<'_>,
    authority: &CertificateDer<'_>,
    usage: KeyUsage,
) -> Result<CertificateValidity, webpki::Error> {
    let certificate = EndEntityCert::try_from(certificate)?;
    let anchors = [anchor_from_trusted_cert(authority)?];
    let algorithms = [webpki::ring::ED25519];
    let at = |seconds: u64| {
        let time = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        certificate
            .verify_for_usage(&algorithms, &anchors, &[], time, usage, None, None)
            .map(|_| ())
    };
    // Asked for the beginning and the end of time, the verifier tells the dates; asked for one of
    // them, the truth.
    let issued = match at(0) {
        Err(webpki::Error::CertNotValidYet { not_before, .. }) => not_before.as_secs(),
        other => other.map(|()| 0)?,
    };
    let expires = match at(u64::MAX) {
        Err(webpki::Error::CertExpired { not_after, .. }) => not_after.as_secs(),
        other => other.map(|()| u64::MAX)?,
    };
    at(issued)?;
    debug_assert!(issued <= expires, "the verifier has compared the two dates");
    Ok(CertificateValidity { issued, expires })
}

fn certificate_error(error: webpki::Error) -> Error {
    log::debug!("a certificate is refused: {error}");
    // The alert says only the kind of failure, so the log says the rest.
    match error {
        webpki::Error::BadDer | webpki::Error::BadDerTime => CertificateError::BadEncoding.into(),
        _ => CertificateError::UnknownIssuer.into(),
    }
}

/// Accepts clients that show no certificate (to enrol), or one that the server's own authority
/// signed.
#[derive(Debug)]
struct OwnClients {
    authority: CertificateDer<'static>,
    crypto: Arc<CryptoProvider>,
}

impl ClientCertVerifier for OwnClients {
    fn client_auth_mandatory(&self) -> bool {
        false
    }
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }
    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        verify_signed_by(end_entity, &self.authority, KeyUsage::client_auth())
            .map_err(certificate_error)?;
        Ok(ClientCertVerified::assertion())
    }
    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(PeerIncompatible::Tls12NotOffered.into())
    }
    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(
            message,
            cert,
            dss,
            &self.crypto.signature_verification_algorithms,
        )
    }
    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }
}

/// Accepts a server if its certificate leads to one authority.
#[derive(Debug)]
struct OneServer {
    fingerprint: Fingerprint,
    crypto: Arc<CryptoProvider>,
}

impl ServerCertVerifier for OneServer {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        // The server sends its authority along; the fingerprint tells if it is the expected one.
        let authority = intermediates
            .iter()
            .find(|sent| Fingerprint::of_certificate(sent) == self.fingerprint);
        let authority = authority.ok_or(CertificateError::UnknownIssuer)?;
        verify_signed_by(end_entity, authority, KeyUsage::server_auth())
            .map_err(certificate_error)?;
        // Which server it is, the authority has said; the name is the same for all.
        let named = EndEntityCert::try_from(end_entity)
            .and_then(|c| c.verify_is_valid_for_subject_name(server_name));
        named.map_err(|_| CertificateError::NotValidForName)?;
        Ok(ServerCertVerified::assertion())
    }
    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(PeerIncompatible::Tls12NotOffered.into())
    }
    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(
            message,
            cert,
            dss,
            &self.crypto.signature_verification_algorithms,
        )
    }
    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }
}

/// Returns the server's side of TLS: `certificate` with `key`, signed by `authority`.
pub(crate) fn server_config(
    authority: &CertificateDer<'static>,
    certificate: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
) -> Result<ServerConfig, Error> {
    let clients = OwnClients {
        authority: authority.clone(),
        crypto: crypto_provider(),
    };
    let mut config = ServerConfig::builder_with_provider(crypto_provider())
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_client_cert_verifier(Arc::new(clients))
        .with_single_cert(vec![certificate, authority.clone()], key)?;
    config.alpn_protocols = vec![HTTP2.to_vec()];
    // A resumed session would skip the verification of the certificates.
    config.send_tls13_tickets = 0;
    Ok(config)
}

/// Returns the client's side of TLS, towards the server of `fingerprint`; without a certificate it
/// can only enrol.
pub(crate) fn client_config(
    fingerprint: Fingerprint,
    own: Option<(CertificateDer<'static>, PrivateKeyDer<'static>)>,
) -> Result<ClientConfig, Error> {
    let builder = ClientConfig::builder_with_provider(crypto_provider())
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(OneServer {
            fingerprint,
            crypto: crypto_provider(),
        }));
    let mut config = match own {
        Some((certificate, key)) => builder.with_client_auth_cert(vec![certificate], key)?,
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![HTTP2.to_vec()];
    // As on the server: every connection proves both sides anew.
    config.resumption = Resumption::disabled();
    Ok(config)
}
