//! Paths as text, for JSON and for people: any path can be written down, and is found again.
//!
//! # Guarantees
//! 1. A byte that is no part of UTF-8 is written `\xHH`, and so is a backslash before an `x`;
//!    everything else stands for itself.
//! 2. [`decode`] gives back exactly the path that [`encode`] was given.

use serde::{Deserialize as _, Deserializer, Serializer};
use std::ffi::OsString;
use std::fmt::Write as _;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

/// Returns a path as text.
pub fn encode(path: &Path) -> String {
    let mut text = String::new();
    for chunk in path.as_os_str().as_bytes().utf8_chunks() {
        // A backslash before an `x` would read as an escape, and is escaped itself.
        text.push_str(&chunk.valid().replace("\\x", "\\x5cx"));
        for byte in chunk.invalid() {
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    text
}

/// Returns the path of a text.
pub fn decode(text: &str) -> PathBuf {
    let mut bytes = Vec::with_capacity(text.len());
    let mut parts = text.split("\\x");
    bytes.extend(parts.next().unwrap_or_default().as_bytes());
    for part in parts {
        match part
            .get(..2)
            .and_then(|digits| u8::from_str_radix(digits, 16).ok())
        {
            Some(byte) => {
                bytes.push(byte);
                bytes.extend(&part.as_bytes()[2..]);
            }
            // The text comes from a program that does not escape.
            None => bytes.extend([b"\\x", part.as_bytes()].concat()),
        }
    }
    OsString::from_vec(bytes).into()
}

/// Writes a path as text, for `#[serde(with)]`.
pub fn serialize<S: Serializer>(path: &Path, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&encode(path))
}

/// Reads a path from its text, for `#[serde(with)]`.
pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<PathBuf, D::Error> {
    Ok(decode(&String::deserialize(from)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_path_is_found_again() {
        for bytes in [
            &b"/a/b"[..],
            b"/m\xc3\xbcsli",
            b"/x\xff\xfe",
            b"/a\\xff",
            b"/a\\b\\",
            b"/\\x",
            b"/\xff\\xff\\x5cx",
            b"\\",
        ] {
            let path = PathBuf::from(OsString::from_vec(bytes.to_vec()));
            assert_eq!(decode(&encode(&path)), path, "{path:?}");
        }
        assert_eq!(encode(Path::new("/a\\b/müsli")), "/a\\b/müsli");
        assert_eq!(encode(&decode("/x\\xff")), "/x\\xff");
        assert_eq!(decode("/a\\xzz"), Path::new("/a\\xzz"));
    }
}
