//! The bytes of operations, and the digest by which a batch is known.
//!
//! # Guarantees
//! 1. *One encoding*: the same operations have the same bytes and the same digest, however they
//!    were divided into parts.
//! 2. *Distrust*: bytes that are not exactly operations are an error.

use crate::codec::CodecError;
use teal_types::Op;

/// Returns the bytes of operations: their encodings one behind the other, without a count.
///
/// # Errors
/// [`CodecError::Malformed`], which no operation causes.
pub fn encode_ops<'a>(ops: impl IntoIterator<Item = &'a Op>) -> Result<Vec<u8>, CodecError> {
    // Operations stand one behind the other without a count, so that parts can be joined.
    ops.into_iter().try_fold(Vec::new(), |bytes, op| {
        postcard::to_extend(op, bytes).map_err(|e| CodecError::Malformed(e.to_string()))
    })
}

/// Returns the operations of some bytes.
///
/// # Errors
/// [`CodecError::Malformed`] unless they are exactly operations.
pub fn decode_ops(mut bytes: &[u8]) -> Result<Vec<Op>, CodecError> {
    let mut ops = Vec::new();
    while !bytes.is_empty() {
        // An operation says itself where it ends.
        let (op, rest) =
            postcard::take_from_bytes(bytes).map_err(|e| CodecError::Malformed(e.to_string()))?;
        debug_assert!(
            rest.len() < bytes.len(),
            "every operation has bytes, so the loop ends"
        );
        ops.push(op);
        bytes = rest;
    }
    Ok(ops)
}

/// Returns the digest of a batch: BLAKE3 over the [encoded](encode_ops) operations of all its
/// parts, in order.
pub fn batch_digest<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new();
    // The parts are hashed as one text, so that their borders do not count.
    parts.into_iter().for_each(|part| {
        hasher.update(part);
    });
    *hasher.finalize().as_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use teal_types::{CommitSeq, ObjectNo};

    #[test]
    fn a_batch_has_one_digest_however_it_is_divided() {
        let op = |n| Op::SetXattr {
            object: ObjectNo::new(n),
            base: CommitSeq::new(1),
            name: b"user.a".to_vec(),
            value: Some(vec![0; 200]),
        };
        let ops = [op(20), op(3000)];
        let whole = encode_ops(&ops).unwrap();
        assert_eq!(decode_ops(&whole).unwrap(), ops);
        assert!(decode_ops(&whole[..whole.len() - 1]).is_err());
        let parts = ops.each_ref().map(|op| encode_ops([op]).unwrap());
        assert_eq!(
            batch_digest([&whole[..]]),
            batch_digest(parts.iter().map(|part| &part[..]))
        );
        assert_ne!(batch_digest([&whole[..]]), batch_digest([&parts[0][..]]));
    }
}
