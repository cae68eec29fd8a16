//! Encodes the fields of items, in bytes and in text.

use super::field_bytes::{FieldReader, PutVarint as _};
use std::fmt;

/// Limits the bytes of a name, mark or description.
pub const TEXT_MAX: usize = 4096;

/// Holds a name, a mark or a description: bytes, not text, at most [`TEXT_MAX`].
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Text(Box<[u8]>);

/// The bytes are too many for a [`Text`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0} bytes are too long for a name or mark: at most {TEXT_MAX}")]
pub struct TextError(pub usize);

impl Text {
    /// Copies `bytes`.
    ///
    /// # Errors
    /// Returns [`TextError`] beyond [`TEXT_MAX`].
    pub fn new(bytes: &[u8]) -> Result<Self, TextError> {
        if bytes.len() > TEXT_MAX {
            Err(TextError(bytes.len()))
        } else {
            Ok(Self(bytes.into()))
        }
    }
    /// Copies the bytes that fit.
    pub fn truncated(bytes: &[u8]) -> Self {
        Self(bytes[..bytes.len().min(TEXT_MAX)].into())
    }
    /// Returns the bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", ShownField(self))
    }
}

/// Encodes one type of field.
pub(crate) trait ActionField: Sized {
    fn encode(&self, out: &mut Vec<u8>);
    fn decode(take: &mut FieldReader<'_>) -> Option<Self>;
    fn write_text(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result;
    fn parse(text: &str) -> Result<Self, String>;
    /// Changes the field, if it is a name.
    fn change_names(&mut self, _change: &mut dyn FnMut(&mut Text)) {}
}

/// Prints a field.
pub(crate) struct ShownField<'a, T>(pub(crate) &'a T);

impl<T: ActionField> fmt::Display for ShownField<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.write_text(f)
    }
}

impl ActionField for u64 {
    fn encode(&self, out: &mut Vec<u8>) {
        out.put_varint(*self);
    }
    fn decode(take: &mut FieldReader<'_>) -> Option<Self> {
        take.varint()
    }
    fn write_text(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
    fn parse(text: &str) -> Result<Self, String> {
        text.parse().map_err(|_| format!("'{text}' is no number"))
    }
}

impl ActionField for bool {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }
    fn decode(take: &mut FieldReader<'_>) -> Option<Self> {
        match take.u8()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }
    fn write_text(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self { "yes" } else { "no" })
    }
    fn parse(text: &str) -> Result<Self, String> {
        match text {
            "yes" => Ok(true),
            "no" => Ok(false),
            _ => Err(format!("'{text}' is neither yes nor no")),
        }
    }
}

impl ActionField for Text {
    fn encode(&self, out: &mut Vec<u8>) {
        out.put_varint(self.as_bytes().len() as u64);
        out.extend_from_slice(self.as_bytes());
    }
    fn decode(take: &mut FieldReader<'_>) -> Option<Self> {
        // A length beyond the rest of the bytes makes the text unreadable.
        let len = usize::try_from(take.varint()?).ok()?;
        Self::new(take.bytes(len)?).ok()
    }
    fn write_text(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Names may hold any bytes, so all others than printable ASCII are escaped.
        f.write_str("\"")?;
        for &b in self.as_bytes() {
            match b {
                b'"' | b'\\' => write!(f, "\\{}", b as char)?,
                b' '..=b'~' => write!(f, "{}", b as char)?,
                _ => write!(f, "\\x{b:02x}")?,
            }
        }
        f.write_str("\"")
    }
    fn parse(text: &str) -> Result<Self, String> {
        // Quotes hold names with blanks together.
        let inner = text.strip_prefix('"').and_then(|t| t.strip_suffix('"'));
        let mut rest = inner
            .ok_or_else(|| format!("{text} is not in quotes"))?
            .bytes();
        let mut out = Vec::new();
        // The escapes are exactly those that printing makes.
        while let Some(b) = rest.next() {
            out.push(match b {
                b'\\' => match rest.next() {
                    Some(b @ (b'"' | b'\\')) => b,
                    Some(b'x') => parse_hex_byte(&mut rest)
                        .ok_or_else(|| format!("{text}: \\x needs two hexadecimal digits"))?,
                    _ => return Err(format!("{text}: a backslash goes before \", \\ or x")),
                },
                b'"' => return Err(format!("{text}: a quote inside needs a backslash")),
                b => b,
            });
        }
        Self::new(&out).map_err(|e| e.to_string())
    }
    fn change_names(&mut self, change: &mut dyn FnMut(&mut Self)) {
        change(self);
    }
}

fn parse_hex_byte(bytes: &mut impl Iterator<Item = u8>) -> Option<u8> {
    let mut digit = || char::from(bytes.next()?).to_digit(16);
    Some((digit()? * 16 + digit()?) as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_any_bytes_go_through_text() {
        let all: Vec<u8> = (0..=255).collect();
        for bytes in [
            &b""[..],
            b"plain.txt",
            b"a \"b\" \\ c=d",
            b"\xff\x00\n",
            &all,
        ] {
            let text = Text::new(bytes).unwrap();
            let shown = ShownField(&text).to_string();
            assert!(shown.bytes().all(|b| (b' '..=b'~').contains(&b)), "{shown}");
            assert_eq!(Text::parse(&shown), Ok(text));
        }
        for bad in [
            "",
            "\"",
            "x",
            "\"a",
            "\"\\\"",
            "\"\\x1\"",
            "\"\\xgg\"",
            "\"\\n\"",
            "\"a\"b\"",
        ] {
            assert!(Text::parse(bad).is_err(), "{bad}");
        }
    }
}
