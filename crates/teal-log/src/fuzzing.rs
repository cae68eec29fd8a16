//! What a fuzzer calls: one function for each decoder of the disk format, and the mount of an
//! arbitrary image.
//!
//! Compiled into tests and into the crate `fuzz`, never into a program.
//!
//! # Guarantees
//! 1. *Quiet*: a target returns for every input. It panics exactly when a promise is broken: what
//!    decodes encodes to the same again, whatever an image says, opening and using it ends, in
//!    bounded work, with `Ok` or an error; and as long as checksums count, what is read from a
//!    damaged image is what was once committed, or an error.
//! 2. *Repeatable*: an input does the same on every run.
//!
//! # How
//! 1. Checksums are told to look away ([`lenient`]), else nothing would get behind them.
//!    [`image_sealed`] lets them count.
//! 2. The input of an image target is not an image but a script: which of the images of `bases` to
//!    start from, and what to change in which of its structures (`script`).

mod bases;
mod decoders;
mod image;
mod metered;
mod oracle;
mod script;
#[cfg(test)]
mod tests;

use crate::format::checksum::with_lenient_checksums;

/// A fuzz target: must return for every input.
pub type Target = fn(&[u8]);

/// Every target by its name.
pub const TARGETS: [(&str, Target); 13] = [
    ("superblock", decoders::fuzz_superblock),
    ("anchor", decoders::fuzz_anchor),
    ("record", decoders::fuzz_record),
    ("body", decoders::fuzz_body),
    ("inode", decoders::fuzz_inode),
    ("extent", decoders::fuzz_extent),
    ("imap", decoders::fuzz_imap),
    ("usage", decoders::fuzz_usage),
    ("page", decoders::fuzz_page),
    ("shared", decoders::fuzz_shared),
    ("future", decoders::fuzz_future),
    ("image", image::fuzz_image),
    ("image-sealed", image::fuzz_image_sealed),
];

/// Inputs to start from.
pub fn seeds(target: &str) -> Vec<Vec<u8>> {
    match target {
        "image" | "image-sealed" => script::seeds(),
        _ => decoders::seeds(target),
    }
}
