//! Messages to bytes and back.

use crate::limits::MESSAGE_MAX;
use crate::reply::ServerReply;
use crate::request::ClientRequest;
use serde::{Serialize, de::DeserializeOwned};

/// The protocol this program speaks.
pub const PROTOCOL: u16 = 3;

/// Why bytes are no message, or a message cannot become bytes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror :: Error)]
pub enum CodecError {
    /// The other side is older or newer.
    #[error(
        "the other side speaks protocol {theirs} and this program protocol {PROTOCOL}: \
         update the older of the two"
    )]
    Version {
        /// The protocol that the other side speaks.
        theirs: u16,
    },
    /// Longer than [`MESSAGE_MAX`].
    #[error("a message of {bytes} bytes; at most {MESSAGE_MAX} are allowed")]
    TooLarge {
        /// Its length.
        bytes: usize,
    },
    /// Not a message.
    #[error("these bytes are no message: {0}")]
    Malformed(String),
}

fn encode<T: Serialize>(message: &T) -> Result<Vec<u8>, CodecError> {
    // The version comes first, so that any version of the protocol can read it.
    let bytes = postcard::to_extend(message, PROTOCOL.to_le_bytes().to_vec())
        .map_err(|e| CodecError::Malformed(e.to_string()))?;
    // Refused here as well, so that the sender learns of it from its own error.
    if bytes.len() > MESSAGE_MAX {
        return Err(CodecError::TooLarge { bytes: bytes.len() });
    }
    debug_assert!(
        bytes.starts_with(&PROTOCOL.to_le_bytes()),
        "a message begins with its version"
    );
    Ok(bytes)
}

fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, CodecError> {
    // Checked before anything is decoded, so that the work is bounded.
    if bytes.len() > MESSAGE_MAX {
        return Err(CodecError::TooLarge { bytes: bytes.len() });
    }
    // Bytes too short for a version are no message of any version.
    let (theirs, body) = bytes
        .split_first_chunk()
        .ok_or_else(|| CodecError::Malformed("it is too short".into()))?;
    let theirs = u16::from_le_bytes(*theirs);
    // The version is judged before the body, because another version may encode the body otherwise.
    if theirs != PROTOCOL {
        return Err(CodecError::Version { theirs });
    }
    match postcard::take_from_bytes(body) {
        Ok((message, [])) => Ok(message),
        // A message with bytes behind it is damaged, or comes from another program.
        Ok((_, rest)) => Err(CodecError::Malformed(format!(
            "{} bytes follow it",
            rest.len()
        ))),
        Err(e) => Err(CodecError::Malformed(e.to_string())),
    }
}

/// Returns the bytes of a request.
///
/// # Errors
/// [`CodecError::TooLarge`].
pub fn encode_request(request: &ClientRequest) -> Result<Vec<u8>, CodecError> {
    encode(request)
}

/// Returns the request of some bytes.
///
/// # Errors
/// [`CodecError`] unless they are exactly one request.
pub fn decode_request(bytes: &[u8]) -> Result<ClientRequest, CodecError> {
    decode(bytes)
}

/// Returns the bytes of a reply.
///
/// # Errors
/// [`CodecError::TooLarge`].
pub fn encode_reply(reply: &ServerReply) -> Result<Vec<u8>, CodecError> {
    encode(reply)
}

/// Returns the reply of some bytes.
///
/// # Errors
/// [`CodecError`] unless they are exactly one reply.
pub fn decode_reply(bytes: &[u8]) -> Result<ServerReply, CodecError> {
    decode(bytes)
}

#[cfg(test)]
mod tests;
