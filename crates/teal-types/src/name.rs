//! One component of a path.

use serde::{Deserialize, Serialize};

/// The longest name, in bytes.
pub const NAME_MAX: usize = 255;

/// A validated directory entry name: bytes, not text.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "Vec<u8>", into = "Vec<u8>")]
pub struct Name(Box<[u8]>);

/// The reason for which bytes are no [`Name`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Longer than [`NAME_MAX`] bytes.
    #[error("a name has at most {NAME_MAX} bytes")]
    TooLong,
    /// Empty, `.`, `..`, or with `/` or NUL inside.
    #[error("not a valid name")]
    Invalid,
}

impl Name {
    /// Checks and copies `bytes`.
    ///
    /// # Errors
    /// [`NameError`] when the bytes cannot name a directory entry.
    pub fn new(bytes: &[u8]) -> Result<Self, NameError> {
        if bytes.len() > NAME_MAX {
            return Err(NameError::TooLong);
        }
        // `.` and `..` are not stored: each directory knows itself and its parent.
        if bytes.is_empty()
            || bytes == b"."
            || bytes == b".."
            || bytes.iter().any(|&b| b == b'/' || b == 0)
        {
            return Err(NameError::Invalid);
        }
        Ok(Self(bytes.into()))
    }
    /// Returns the bytes of the name.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl TryFrom<Vec<u8>> for Name {
    type Error = NameError;
    fn try_from(bytes: Vec<u8>) -> Result<Self, NameError> {
        Self::new(&bytes)
    }
}

impl From<Name> for Vec<u8> {
    fn from(name: Name) -> Self {
        name.0.into_vec()
    }
}

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.0))
    }
}
impl std::fmt::Debug for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", String::from_utf8_lossy(&self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_path_component() {
        assert!(Name::new(&[b'x'; NAME_MAX]).is_ok());
        assert_eq!(Name::new(&[b'x'; NAME_MAX + 1]), Err(NameError::TooLong));
        for bad in [&b""[..], b".", b"..", b"a/b", b"a\0b"] {
            assert_eq!(Name::new(bad), Err(NameError::Invalid));
        }
        assert!(Name::new(b"...").is_ok());
    }
}
