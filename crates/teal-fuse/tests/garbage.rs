//! Whatever bytes arrive, decoding answers with an operation or an error.

use proptest::prelude::*;
use teal_fuse::abi::fuse_in_header;
use teal_fuse::{InitFlags, Operation, Request};
use zerocopy::IntoBytes;

/// Decodes, and walks everything that is read lazily.
fn digest(message: &[u8], flags: InitFlags) {
    match Request::decode(message, flags) {
        Ok(Request { operation: Operation::BatchForget(records), .. }) => {
            assert!(records.count() <= message.len() / 16)
        }
        Ok(Request { operation: Operation::RemoveMapping(records), .. }) => {
            assert!(records.count() <= message.len() / 16);
        }
        Ok(Request { operation: Operation::Write { data, .. }, .. }) => assert!(data.len() + 80 <= message.len()),
        Ok(Request { operation: Operation::Lookup { name }, .. }) => assert!(!name.is_empty() && !name.contains(&0)),
        Ok(request) => drop(format!("{request:?}")),
        Err(error) => drop(error.to_string()),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4096, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_bytes_never_panic(message in proptest::collection::vec(any::<u8>(), 0..256)) {
        digest(&message, InitFlags::empty());
        digest(&message, InitFlags::all());
    }

    #[test]
    fn random_bodies_under_a_sound_header_never_panic(
        opcode in 0_u32..60,
        body in proptest::collection::vec(prop_oneof![Just(0_u8), 0_u8..4, any::<u8>()], 0..160),
        total_extlen in prop_oneof![Just(0_u16), 0_u16..4, any::<u16>()],
    ) {
        let len = u32::try_from(40 + body.len()).unwrap();
        let header = fuse_in_header { len, opcode, total_extlen, ..Default::default() };
        let message = [header.as_bytes(), &body].concat();
        digest(&message, InitFlags::empty());
        digest(&message, InitFlags::all());
    }
}
