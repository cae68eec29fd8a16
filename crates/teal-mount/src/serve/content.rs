//! Requests for the content of files.

use crate::VolumeMount;
use crate::convert::{to_errno, to_object};
use rustix::fs::{FallocateFlags, OFlags};
use rustix::io::Errno;
use teal_fuse::{FuseOperation, ReplySender, RequestHeader};
use teal_posix::{FallocateMode, Moment, ReadAccess, SeekTarget, WriteFlags};

/// `lseek(2)` for the next data.
const SEEK_DATA: u32 = 3;
/// Pieces the kernel takes in one answer, less the header.
const PIECES_MAX: usize = 1023;

impl VolumeMount {
    /// Serves a read of `range`, an offset and a size.
    pub(super) fn serve_read(
        &self,
        header: &RequestHeader,
        (offset, size): (u64, u32),
        access: ReadAccess,
        since: Moment,
        reply: ReplySender,
    ) {
        let (file_system, no) = (&self.file_system, to_object(header.node));
        file_system.read_then(no, offset, size as usize, access, |read| match read {
            Ok(parts) => self.answer_given(&[no], since, || match &parts.pieces()[..] {
                // Not copied: the kernel gathers the pieces. Only very scattered content is put
                // together first.
                pieces if pieces.len() <= PIECES_MAX => reply.send_data_vectored(pieces),
                pieces => reply.send_data(&pieces.concat()),
            }),
            Err(error) => reply.send_error(to_errno(&error)),
        });
    }

    /// Serves operations on content.
    pub(super) fn serve_content(
        &self,
        header: &RequestHeader,
        operation: &FuseOperation<'_>,
        reply: ReplySender,
    ) {
        let (file_system, no) = (&self.file_system, to_object(header.node));
        match *operation {
            FuseOperation::Write {
                offset,
                data,
                kill_suidgid,
                flags,
                cached,
                ..
            } => {
                // The kernel takes the size it holds for the end. It does not say of single writes
                // that they append, or do not (RWF_APPEND, RWF_NOAPPEND): only their offset tells.
                // Writes out of its cache have their place.
                let asks_for_end = flags.contains(OFlags::APPEND) && !cached;
                let flags = WriteFlags {
                    asks_for_end,
                    kill_suidgid,
                    ..WriteFlags::default()
                };
                match file_system.write(no, offset, data, flags) {
                    Ok(count) => reply.send_written(count as u32),
                    Err(error) => reply.send_error(to_errno(&error)),
                }
            }
            FuseOperation::Fallocate {
                offset,
                length,
                mode,
                ..
            } => {
                let mode = FallocateMode::from_flags(FallocateFlags::bits(&mode));
                Self::reply_done(
                    mode.and_then(|mode| {
                        file_system.fallocate(no, mode, offset, length, killing_flags(header))
                    }),
                    reply,
                );
            }
            FuseOperation::Lseek { offset, whence, .. } => {
                // The kernel answers the other kinds of seeking itself.
                let what = if whence == SEEK_DATA {
                    SeekTarget::Data
                } else {
                    SeekTarget::Hole
                };
                match file_system.seek(no, offset, what) {
                    Ok(at) => reply.send_offset(at),
                    Err(error) => reply.send_error(to_errno(&error)),
                }
            }
            FuseOperation::CopyFileRange {
                offset,
                to_node,
                to_offset,
                length,
                ..
            } => {
                match file_system.copy_file_range(
                    (no, offset),
                    (to_object(to_node), to_offset),
                    length,
                    killing_flags(header),
                ) {
                    Ok(copied) => reply.send_copied(copied),
                    Err(error) => reply.send_error(to_errno(&error)),
                }
            }
            _ => reply.send_error(Errno::NOSYS),
        }
    }
}

/// Returns the flags of a change of content of which the kernel does not say whether the caller may
/// keep the set-id bits: root may.
fn killing_flags(header: &RequestHeader) -> WriteFlags {
    WriteFlags {
        kill_suidgid: header.uid != 0,
        ..WriteFlags::default()
    }
}
