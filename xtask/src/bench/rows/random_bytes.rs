//! Bytes that cannot be compressed, the same in every run.

/// Returns bytes that no file system can compress or leave out.
pub(super) fn random_bytes(bytes: usize, seed: u64) -> Vec<u8> {
    // The generator must not begin at zero.
    let mut state = seed | 1;
    let words = std::iter::repeat_with(move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    });
    words.flat_map(u64::to_le_bytes).take(bytes).collect()
}
