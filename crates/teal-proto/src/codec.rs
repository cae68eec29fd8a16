//! Messages to bytes and back.

use crate::{ClientRequest, MESSAGE_MAX, ServerReply};
use serde::{Serialize, de::DeserializeOwned};

/// The protocol this program speaks.
pub const PROTOCOL: u16 = 3;

/// Why bytes are no message, or a message cannot become bytes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    /// The other side is older or newer.
    #[error(
        "the other side speaks protocol {theirs} and this program protocol {PROTOCOL}: update the older of the two"
    )]
    Version {
        /// What it speaks.
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
    let bytes = postcard::to_extend(message, PROTOCOL.to_le_bytes().to_vec())
        .map_err(|e| CodecError::Malformed(e.to_string()))?;
    if bytes.len() > MESSAGE_MAX {
        return Err(CodecError::TooLarge { bytes: bytes.len() });
    }
    Ok(bytes)
}

fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, CodecError> {
    if bytes.len() > MESSAGE_MAX {
        return Err(CodecError::TooLarge { bytes: bytes.len() });
    }
    let (theirs, body) = bytes
        .split_first_chunk()
        .ok_or_else(|| CodecError::Malformed("it is too short".into()))?;
    let theirs = u16::from_le_bytes(*theirs);
    if theirs != PROTOCOL {
        return Err(CodecError::Version { theirs });
    }
    match postcard::take_from_bytes(body) {
        Ok((message, [])) => Ok(message),
        Ok((_, rest)) => Err(CodecError::Malformed(format!(
            "{} bytes follow it",
            rest.len()
        ))),
        Err(e) => Err(CodecError::Malformed(e.to_string())),
    }
}

/// The bytes of a request.
///
/// # Errors
/// [`CodecError::TooLarge`].
pub fn encode_request(request: &ClientRequest) -> Result<Vec<u8>, CodecError> {
    encode(request)
}

/// The request of some bytes.
///
/// # Errors
/// [`CodecError`] unless they are exactly one request.
pub fn decode_request(bytes: &[u8]) -> Result<ClientRequest, CodecError> {
    decode(bytes)
}

/// The bytes of a reply.
///
/// # Errors
/// [`CodecError::TooLarge`].
pub fn encode_reply(reply: &ServerReply) -> Result<Vec<u8>, CodecError> {
    encode(reply)
}

/// The reply of some bytes.
///
/// # Errors
/// [`CodecError`] unless they are exactly one reply.
pub fn decode_reply(bytes: &[u8]) -> Result<ServerReply, CodecError> {
    decode(bytes)
}

#[cfg(test)]
mod tests;
