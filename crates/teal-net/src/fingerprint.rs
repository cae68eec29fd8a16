//! The name of a server that cannot be forged: the SHA-256 of its authority's certificate.

use ring::digest;
use std::fmt;
use std::str::FromStr;

/// The SHA-256 of the certificate of a server's authority. Printed as `sha256:` and 64 hexadecimal
/// digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint([u8; 32]);

/// A text that was to be a [`Fingerprint`] is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a server's fingerprint is `sha256:` and 64 hexadecimal digits, as the server shows it")]
pub struct NotAFingerprint;

impl Fingerprint {
    /// Returns the fingerprint of a certificate in DER.
    pub(crate) fn of_certificate(certificate: &[u8]) -> Self {
        let mut out = [0; 32];
        out.copy_from_slice(digest::digest(&digest::SHA256, certificate).as_ref());
        Self(out)
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("sha256:")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Fingerprint {
    type Err = NotAFingerprint;

    /// Takes what `Display` writes, and what other tools make of it: capital letters, colons
    /// between bytes, no prefix.
    fn from_str(text: &str) -> Result<Self, NotAFingerprint> {
        let text = text.trim().to_ascii_lowercase();
        // Other tools print fingerprints with colons.
        let digits: Vec<u8> = text
            .strip_prefix("sha256:")
            .unwrap_or(&text)
            .bytes()
            .filter(|&c| c != b':')
            .collect();
        if digits.len() != 64 {
            return Err(NotAFingerprint);
        }
        let nibble = |c: u8| {
            char::from(c)
                .to_digit(16)
                .and_then(|n| u8::try_from(n).ok())
                .ok_or(NotAFingerprint)
        };
        debug_assert!(digits.len() == 2 * 32, "two digits for each byte");
        let mut out = [0; 32];
        for (byte, pair) in out.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = nibble(pair[0])? << 4 | nibble(pair[1])?;
        }
        Ok(Self(out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fingerprint_survives_being_read_out_and_typed() {
        let print = Fingerprint::of_certificate(b"abc");
        let text = print.to_string();
        assert_eq!(
            text,
            "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
        assert_eq!(text.parse(), Ok(print));
        assert_eq!(
            format!(" {}\n", text[7..].to_uppercase()).parse(),
            Ok(print)
        );
        let colons: Vec<_> = text.as_bytes()[7..]
            .chunks(2)
            .map(|c| String::from_utf8(c.to_vec()).unwrap())
            .collect();
        assert_eq!(colons.join(":").parse(), Ok(print));
    }

    #[test]
    fn what_is_no_fingerprint_is_refused() {
        let text = Fingerprint::of_certificate(b"abc").to_string();
        for wrong in [
            "",
            "sha256:",
            &text[..70],
            &format!("{text}0"),
            &text.replace('b', "g"),
            &text.replace('b', "ä"),
        ] {
            assert_eq!(
                wrong.parse::<Fingerprint>(),
                Err(NotAFingerprint),
                "{wrong}"
            );
        }
    }
}
