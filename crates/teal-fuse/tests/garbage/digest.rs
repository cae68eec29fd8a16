//! The fuzz target of the request decoder, shared with the crate `fuzz`.

use teal_fuse::abi::fuse_in_header;
use teal_fuse::{FuseOperation, InitFlags, KernelRequest};
use zerocopy::IntoBytes;

/// Decodes, and walks everything that is read lazily.
pub(crate) fn digest(message: &[u8], flags: InitFlags) {
    match KernelRequest::decode(message, flags) {
        Ok(KernelRequest {
            operation: FuseOperation::BatchForget(records),
            ..
        }) => {
            assert!(records.count() <= message.len() / 16)
        }
        Ok(KernelRequest {
            operation: FuseOperation::RemoveMapping(records),
            ..
        }) => {
            assert!(records.count() <= message.len() / 16);
        }
        Ok(KernelRequest {
            operation: FuseOperation::Write { data, .. },
            ..
        }) => assert!(data.len() + 80 <= message.len()),
        Ok(KernelRequest {
            operation: FuseOperation::Lookup { name },
            ..
        }) => assert!(!name.is_empty() && !name.contains(&0)),
        Ok(request) => drop(format!("{request:?}")),
        Err(error) => drop(error.to_string()),
    }
}

/// Decodes with no and with all capabilities. The length of the header is made right: else little
/// gets behind it.
pub(crate) fn digest_all(input: &[u8]) {
    let mut message = input.to_vec();
    if let (Some(length), Ok(len)) = (message.first_chunk_mut::<4>(), u32::try_from(input.len())) {
        *length = len.to_le_bytes();
    }
    for flags in [InitFlags::empty(), InitFlags::all()] {
        digest(&message, flags);
        digest(input, flags);
    }
}

/// A request of every operation.
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let body = [1; 160];
    (0..64)
        .map(|opcode| {
            let header = fuse_in_header {
                len: 200,
                opcode,
                ..Default::default()
            };
            [header.as_bytes(), &body].concat()
        })
        .collect()
}
