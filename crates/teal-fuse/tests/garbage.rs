//! Whatever bytes arrive, decoding answers with an operation or an error.

#[path = "garbage/digest.rs"]
mod digest;

use digest::{digest, digest_all};
use proptest::prelude::*;
use teal_fuse::InitFlags;
use teal_fuse::abi::fuse_in_header;
use zerocopy::IntoBytes;

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

#[test]
fn the_corpus_never_panics() {
    let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/fuse");
    let files = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let inputs = files
        .map(|path| std::fs::read(path).unwrap())
        .chain(digest::seeds());
    inputs.for_each(|input| digest_all(&input));
}
