//! Reads the parts of a request's body in order.

use super::DecodeError;
use zerocopy::FromBytes;

/// Reads a body from its front.
#[derive(Debug)]
pub(super) struct BodyReader<'a> {
    opcode: u32,
    left: &'a [u8],
}

impl<'a> BodyReader<'a> {
    pub(super) fn new(opcode: u32, left: &'a [u8]) -> Self {
        Self { opcode, left }
    }

    /// Takes the next struct.
    pub(super) fn take_struct<T: FromBytes>(&mut self) -> Result<T, DecodeError> {
        let (value, left) = T::read_from_prefix(self.left).map_err(|_| self.too_short())?;
        self.left = left;
        Ok(value)
    }

    /// Takes the next `length` bytes.
    pub(super) fn take_bytes(&mut self, length: usize) -> Result<&'a [u8], DecodeError> {
        let (bytes, left) = self
            .left
            .split_at_checked(length)
            .ok_or_else(|| self.too_short())?;
        self.left = left;
        Ok(bytes)
    }

    /// Takes the next string that ends in NUL, and returns it without that. It may be empty.
    pub(super) fn take_text(&mut self) -> Result<&'a [u8], DecodeError> {
        let unterminated = DecodeError::Name {
            opcode: self.opcode,
        };
        let end = self.left.iter().position(|&byte| byte == 0);
        let text = self.take_bytes(end.ok_or(unterminated)?)?;
        // The NUL itself.
        self.left = &self.left[1..];
        Ok(text)
    }

    /// Takes the next string that ends in NUL and is not empty.
    pub(super) fn take_name(&mut self) -> Result<&'a [u8], DecodeError> {
        let name = self.take_text()?;
        if name.is_empty() {
            Err(DecodeError::Name {
                opcode: self.opcode,
            })
        } else {
            Ok(name)
        }
    }

    /// Takes all that is left, which must be `length` bytes.
    pub(super) fn take_data(&mut self, length: u32) -> Result<&'a [u8], DecodeError> {
        // Data is last in a request: more bytes would belong to nothing.
        if usize::try_from(length) != Ok(self.left.len()) {
            return Err(self.too_short());
        }
        Ok(std::mem::take(&mut self.left))
    }

    /// Returns the error of an undefined value in `field`.
    pub(super) fn undefined_value(&self, field: &'static str) -> DecodeError {
        DecodeError::Value {
            opcode: self.opcode,
            field,
        }
    }

    fn too_short(&self) -> DecodeError {
        DecodeError::Short {
            opcode: self.opcode,
        }
    }
}
