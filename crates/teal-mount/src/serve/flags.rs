//! Flags of files and directories (`chattr`): device control requests that the kernel makes itself,
//! for either of two older system calls.

use crate::VolumeMount;
use crate::convert::{to_errno, to_object};
use rustix::io::Errno;
use teal_fuse::{IoctlRequest, ReplySender, RequestHeader};
use teal_posix::{FsError, InodeFlags};

/// `FS_IOC_GETFLAGS` and `FS_IOC_SETFLAGS`: 32 bits.
const GET_FLAGS: u32 = 0x8008_6601;
const SET_FLAGS: u32 = 0x4008_6602;
/// `FS_IOC_FSGETXATTR` and `FS_IOC_FSSETXATTR`: a `struct fsxattr`, of which the first 32 bits are
/// flags.
const GET_EXTENDED: u32 = 0x801c_581f;
const SET_EXTENDED: u32 = 0x401c_5820;
/// Bytes of a `struct fsxattr`.
const EXTENDED_BYTES: usize = 28;
/// The flags there: `FS_XFLAG_IMMUTABLE`, `FS_XFLAG_APPEND`.
const EXTENDED_IMMUTABLE: u32 = 8;
const EXTENDED_APPEND: u32 = 16;

fn first_word(input: &[u8]) -> Result<u32, FsError> {
    let bytes = input.first_chunk().ok_or(FsError::Invalid)?;
    Ok(u32::from_ne_bytes(*bytes))
}

/// Returns the flags in a `struct fsxattr`, of which nothing else may be set.
fn decode_extended(input: &[u8]) -> Result<InodeFlags, FsError> {
    let word = first_word(input)?;
    let is_plain = input.len() == EXTENDED_BYTES && input[4..].iter().all(|byte| *byte == 0);
    if word & !(EXTENDED_IMMUTABLE | EXTENDED_APPEND) != 0 || !is_plain {
        return Err(FsError::NotSupported);
    }
    let immutable = Some(InodeFlags::IMMUTABLE).filter(|_| word & EXTENDED_IMMUTABLE != 0);
    let append = Some(InodeFlags::APPEND_ONLY).filter(|_| word & EXTENDED_APPEND != 0);
    let set = immutable.into_iter().chain(append);
    Ok(set.fold(InodeFlags::default(), InodeFlags::with))
}

fn encode_extended(flags: InodeFlags) -> [u8; EXTENDED_BYTES] {
    let immutable = u32::from(flags.has(InodeFlags::IMMUTABLE)) * EXTENDED_IMMUTABLE;
    let append = u32::from(flags.has(InodeFlags::APPEND_ONLY)) * EXTENDED_APPEND;
    let mut out = [0; EXTENDED_BYTES];
    out[..4].copy_from_slice(&(immutable | append).to_ne_bytes());
    out
}

impl VolumeMount {
    /// Serves device control requests: those for flags.
    pub(super) fn serve_ioctl(
        &self,
        header: &RequestHeader,
        request: &IoctlRequest<'_>,
        reply: ReplySender,
    ) {
        let (file_system, no) = (&self.file_system, to_object(header.node));
        let set = |flags: Result<InodeFlags, FsError>| {
            let flags = flags?;
            // Kernels before 5.13 pass the command on without a look at who asks.
            if header.uid != 0 && file_system.inode_flags(no)? != flags {
                return Err(FsError::Permission);
            }
            file_system.set_inode_flags(no, flags).map(|()| Vec::new())
        };
        // Both pairs of commands read and set the same flags: chattr uses the older one, xfs_io the
        // extended one.
        let answer = match request.command {
            GET_FLAGS => file_system
                .inode_flags(no)
                .map(|flags| flags.bits().to_ne_bytes().to_vec()),
            GET_EXTENDED => file_system
                .inode_flags(no)
                .map(|flags| encode_extended(flags).to_vec()),
            SET_FLAGS => set(first_word(request.input).and_then(InodeFlags::from_bits)),
            SET_EXTENDED => set(decode_extended(request.input)),
            // Programs that ask for more go on without it.
            _ => return reply.send_error(Errno::NOTTY),
        };
        match answer {
            Ok(output) => reply.send_ioctl(0, &output),
            Err(error) => reply.send_error(to_errno(&error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_pass_through_both_calls() {
        for bits in [0, 0x10, 0x20, 0x30] {
            let flags = InodeFlags::from_bits(bits).unwrap();
            assert_eq!(decode_extended(&encode_extended(flags)).unwrap(), flags);
        }
        let mut project = encode_extended(InodeFlags::IMMUTABLE);
        project[12] = 1;
        assert!(matches!(
            decode_extended(&project),
            Err(FsError::NotSupported)
        ));
        assert!(matches!(decode_extended(&[8, 0]), Err(FsError::Invalid)));
        assert!(matches!(
            InodeFlags::from_bits(0x11),
            Err(FsError::NotSupported)
        ));
    }
}
