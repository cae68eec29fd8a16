//! The messages of the gRPC service `teal.v1.Teal`, written by hand so that building needs no
//! protobuf compiler.
//!
//! `docs/protocol.md` holds the same as protobuf text; a test here pins the bytes of each message.

use bytes::Bytes;

/// A machine without a certificate shows a token.
pub(crate) const ENROL: &str = "/teal.v1.Teal/Enrol";
/// One opaque request.
pub(crate) const CALL: &str = "/teal.v1.Teal/Call";
/// A new certificate for the old one.
pub(crate) const RENEW: &str = "/teal.v1.Teal/Renew";
/// Set to [`RENEW_DUE`] in every answer while the peer's certificate, by the server's clock, is to
/// be renewed.
pub(crate) const RENEW_HEADER: &str = "teal-renew";
/// See [`RENEW_HEADER`].
pub(crate) const RENEW_DUE: &str = "due";
/// The most bytes that the protobuf encoding of a [`Payload`] adds to its content.
pub(crate) const PAYLOAD_OVERHEAD: usize = 16;

/// The request of `Enrol`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct EnrolRequest {
    /// The one-time token, as a person typed it.
    #[prost(string, tag = "1")]
    pub(crate) token: String,
    /// The name that the person gives to this machine.
    #[prost(string, tag = "2")]
    pub(crate) device: String,
    /// The machine's Ed25519 public key, 32 bytes.
    #[prost(bytes = "bytes", tag = "3")]
    pub(crate) public_key: Bytes,
}

/// The request of `Renew`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct RenewRequest {
    /// A new Ed25519 public key, 32 bytes.
    #[prost(bytes = "bytes", tag = "1")]
    pub(crate) public_key: Bytes,
}

/// The answer of `Enrol` and of `Renew`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct CertifiedKey {
    /// The certificate, X.509 in DER.
    #[prost(bytes = "bytes", tag = "1")]
    pub(crate) certificate: Bytes,
    /// The volume of the certificate's holder.
    #[prost(uint32, tag = "2")]
    pub(crate) volume: u32,
    /// The replica of the certificate's holder.
    #[prost(uint32, tag = "3")]
    pub(crate) replica: u32,
    /// Its first second, since 1970.
    #[prost(uint64, tag = "4")]
    pub(crate) issued: u64,
    /// Its last second, since 1970.
    #[prost(uint64, tag = "5")]
    pub(crate) expires: u64,
}

/// The request and the answer of `Call`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Payload {
    /// Bytes this crate knows nothing of.
    #[prost(bytes = "bytes", tag = "1")]
    pub(crate) bytes: Bytes,
}

#[cfg(test)]
mod tests {
    use super::*;
    use prost::Message;

    #[test]
    fn the_bytes_of_every_message_are_as_documented() {
        let key = Bytes::from_static(&[7, 8]);
        let enrol = EnrolRequest {
            token: "t1".into(),
            device: "pc".into(),
            public_key: key.clone(),
        };
        assert_eq!(
            enrol.encode_to_vec(),
            b"\x0a\x02t1\x12\x02pc\x1a\x02\x07\x08"
        );
        assert_eq!(
            EnrolRequest::decode(enrol.encode_to_vec().as_slice()),
            Ok(enrol)
        );

        let renew = RenewRequest { public_key: key };
        assert_eq!(renew.encode_to_vec(), b"\x0a\x02\x07\x08");
        assert_eq!(
            RenewRequest::decode(renew.encode_to_vec().as_slice()),
            Ok(renew)
        );

        let certificate = Bytes::from_static(&[9]);
        let certified = CertifiedKey {
            certificate,
            volume: 3,
            replica: 300,
            issued: 1,
            expires: 128,
        };
        assert_eq!(
            certified.encode_to_vec(),
            b"\x0a\x01\x09\x10\x03\x18\xac\x02\x20\x01\x28\x80\x01"
        );
        assert_eq!(
            CertifiedKey::decode(certified.encode_to_vec().as_slice()),
            Ok(certified)
        );

        let payload = Payload {
            bytes: Bytes::from_static(b"any"),
        };
        assert_eq!(payload.encode_to_vec(), b"\x0a\x03any");
        assert_eq!(
            Payload::decode(payload.encode_to_vec().as_slice()),
            Ok(payload)
        );
    }

    #[test]
    fn fields_of_later_versions_are_passed_over() {
        assert_eq!(
            Payload::decode(&b"\x0a\x01x\x4a\x02??"[..]).unwrap().bytes,
            "x"
        );
    }

    #[test]
    fn the_slack_holds_what_encoding_adds() {
        let payload = Payload {
            bytes: vec![0; 1 << 28].into(),
        };
        assert!(payload.encoded_len() <= (1 << 28) + PAYLOAD_OVERHEAD);
    }
}
