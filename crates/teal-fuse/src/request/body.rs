//! Reads the parts of a request's body in order.

use super::DecodeError;
use zerocopy::FromBytes;

/// What is left of a body.
#[derive(Debug)]
pub(super) struct BodyReader<'a> {
    opcode: u32,
    left: &'a [u8],
}

impl<'a> BodyReader<'a> {
    pub(super) fn new(opcode: u32, left: &'a [u8]) -> Self {
        Self { opcode, left }
    }

    /// The next struct.
    pub(super) fn take_struct<T: FromBytes>(&mut self) -> Result<T, DecodeError> {
        let (value, left) = T::read_from_prefix(self.left).map_err(|_| self.too_short())?;
        self.left = left;
        Ok(value)
    }

    /// The next `length` bytes.
    pub(super) fn take_bytes(&mut self, length: usize) -> Result<&'a [u8], DecodeError> {
        let (bytes, left) = self
            .left
            .split_at_checked(length)
            .ok_or_else(|| self.too_short())?;
        self.left = left;
        Ok(bytes)
    }

    /// The next string that ends in NUL, without it. May be empty.
    pub(super) fn take_text(&mut self) -> Result<&'a [u8], DecodeError> {
        let end = self
            .left
            .iter()
            .position(|&b| b == 0)
            .ok_or(DecodeError::Name {
                opcode: self.opcode,
            })?;
        let text = self.take_bytes(end)?;
        self.left = &self.left[1..];
        Ok(text)
    }

    /// The next string that ends in NUL and is not empty.
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

    /// The last `length` bytes; more or fewer are an error.
    pub(super) fn take_data(&mut self, length: u32) -> Result<&'a [u8], DecodeError> {
        if usize::try_from(length) != Ok(self.left.len()) {
            return Err(self.too_short());
        }
        Ok(std::mem::take(&mut self.left))
    }

    /// The error of an undefined value in `field`.
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
