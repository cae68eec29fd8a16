//! `INIT`: the kernel's offer, the server's wishes, and the protocol that both then follow.
//!
//! # Guarantees
//! 1. *Intersection*: a flag is in force only if it was wanted, offered, and can be served.
//! 2. *Room*: the receive buffer holds every request the kernel may send under what was negotiated.

use crate::abi;
use crate::request::InitRequest;
use teal_types::limits::XATTR_VALUE_MAX;

/// The oldest minor version spoken (Linux 5.4): below it structs are shorter and limits differ.
pub(crate) const OLDEST_MINOR: u32 = 31;

/// Bytes of a page in the kernel's accounting of `max_pages`.
const PAGE: u32 = 4096;
/// The most bytes that a kernel without `MAX_PAGES` puts into one request.
const MAX_WRITE_WITHOUT_PAGES: u32 = 32 * PAGE;

bitflags::bitflags! {
    /// Capabilities exchanged by `INIT`: `flags` in the low word, `flags2` in the high one. The
    /// kernel's names and meanings.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub struct InitFlags: u64 {
        /// Several reads of one file at once.
        const ASYNC_READ = 1;
        /// `fcntl(2)` locks come to the server.
        const POSIX_LOCKS = 1 << 1;
        /// Opening with `O_TRUNC` is one request.
        const ATOMIC_O_TRUNC = 1 << 3;
        /// The server answers lookups of `.` and `..`, so that NFS may export the mount.
        const EXPORT_SUPPORT = 1 << 4;
        /// Writes of more than a page.
        const BIG_WRITES = 1 << 5;
        /// The server applies the umask.
        const DONT_MASK = 1 << 6;
        /// The kernel can splice into the device.
        const SPLICE_WRITE = 1 << 7;
        /// The kernel can move pages out of a pipe.
        const SPLICE_MOVE = 1 << 8;
        /// The kernel can splice from the device.
        const SPLICE_READ = 1 << 9;
        /// `flock(2)` locks come to the server.
        const FLOCK_LOCKS = 1 << 10;
        /// The kernel sends ioctls on directories.
        const HAS_IOCTL_DIR = 1 << 11;
        /// Cached data is dropped when size or mtime changed.
        const AUTO_INVAL_DATA = 1 << 12;
        /// `READDIRPLUS` instead of `READDIR`.
        const DO_READDIRPLUS = 1 << 13;
        /// The kernel chooses between both.
        const READDIRPLUS_AUTO = 1 << 14;
        /// Asynchronous direct I/O.
        const ASYNC_DIO = 1 << 15;
        /// The kernel keeps writes in its cache and owns size and mtime meanwhile. Excludes
        /// `PASSTHROUGH`.
        const WRITEBACK_CACHE = 1 << 16;
        /// `ENOSYS` to an open means: never send opens.
        const NO_OPEN_SUPPORT = 1 << 17;
        /// Lookups and listings of one directory in parallel.
        const PARALLEL_DIROPS = 1 << 18;
        /// The server clears set-id bits on write, chown and truncate, always.
        const HANDLE_KILLPRIV = 1 << 19;
        /// POSIX ACLs, checked by the kernel.
        const POSIX_ACL = 1 << 20;
        /// Reading the device after an abort fails with `ECONNABORTED`, which ends a session as an
        /// unmount does.
        const ABORT_ERROR = 1 << 21;
        /// `max_pages` counts: requests above 128 KiB.
        const MAX_PAGES = 1 << 22;
        /// Symbolic links are cached.
        const CACHE_SYMLINKS = 1 << 23;
        /// `ENOSYS` to an opendir means: never send opendirs.
        const NO_OPENDIR_SUPPORT = 1 << 24;
        /// Cached data is dropped only on request of the server.
        const EXPLICIT_INVAL_DATA = 1 << 25;
        /// `map_alignment` counts (DAX).
        const MAP_ALIGNMENT = 1 << 26;
        /// The kernel mounts directories marked as submounts.
        const SUBMOUNTS = 1 << 27;
        /// The server clears set-id bits, only when asked by a flag of the request.
        const HANDLE_KILLPRIV_V2 = 1 << 28;
        /// `SETXATTR` has the long form.
        const SETXATTR_EXT = 1 << 29;
        /// The high word of these flags counts.
        const INIT_EXT = 1 << 30;
        /// Creations carry a security context.
        const SECURITY_CTX = abi::FUSE_SECURITY_CTX;
        /// DAX for each inode.
        const HAS_INODE_DAX = abi::FUSE_HAS_INODE_DAX;
        /// Creations carry a supplementary group that matches the directory's.
        const CREATE_SUPP_GROUP = abi::FUSE_CREATE_SUPP_GROUP;
        /// [`crate::KernelNotifier::expire_entry`] works.
        const HAS_EXPIRE_ONLY = abi::FUSE_HAS_EXPIRE_ONLY;
        /// Shared mappings of files opened for direct I/O.
        const DIRECT_IO_ALLOW_MMAP = abi::FUSE_DIRECT_IO_ALLOW_MMAP;
        /// Reads and writes go to a backing file without the server. Excludes `WRITEBACK_CACHE`.
        const PASSTHROUGH = abi::FUSE_PASSTHROUGH;
        /// The server refuses NFS handles.
        const NO_EXPORT_SUPPORT = abi::FUSE_NO_EXPORT_SUPPORT;
        /// The kernel can send pending requests again.
        const HAS_RESEND = abi::FUSE_HAS_RESEND;
        /// Idmapped mounts.
        const ALLOW_IDMAP = abi::FUSE_ALLOW_IDMAP;
        /// Requests over `io_uring`.
        /// Only in force where rings can be had.
        const OVER_IO_URING = abi::FUSE_OVER_IO_URING;
        /// The kernel aborts the connection when a request takes longer than
        /// [`InitConfig::request_timeout`].
        const REQUEST_TIMEOUT = abi::FUSE_REQUEST_TIMEOUT;
    }
}

impl InitFlags {
    /// The flags that this crate needs in order to speak the newest layouts; always wanted.
    const WIRE: Self = Self::INIT_EXT
        .union(Self::MAX_PAGES)
        .union(Self::BIG_WRITES)
        .union(Self::SETXATTR_EXT);
    /// The flags that cannot be served: no backing file is opened here.
    const UNSERVED: Self = Self::PASSTHROUGH;

    /// Makes flags from `flags` and `flags2`. Bits without a name are dropped.
    pub(crate) fn from_words(low: u32, high: u32) -> Self {
        Self::from_bits_truncate(u64::from(low) | u64::from(high) << 32)
    }

    /// Returns `flags` and `flags2`.
    pub(crate) fn to_words(self) -> (u32, u32) {
        (
            (self.bits() & u64::from(u32::MAX)) as u32,
            (self.bits() >> 32) as u32,
        )
    }
}

/// The wishes of the server. Limits are upper bounds; the kernel may lower them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InitConfig {
    /// Capabilities, on top of those the wire needs.
    pub wanted: InitFlags,
    /// The most bytes in one write or read; a multiple of 4096, at most 1 MiB.
    pub max_write: u32,
    /// The most bytes read ahead. The kernel's offer (128 KiB by default) bounds it; see
    /// [`crate::BdiKnob::ReadAheadKb`].
    pub max_readahead: u32,
    /// The most background requests (read-ahead, write-back) in flight.
    pub max_background: u16,
    /// The number of them from which on the device counts as congested.
    pub congestion_threshold: u16,
    /// Granularity of file times in nanoseconds.
    pub time_gran: u32,
    /// Seconds after which an unanswered request aborts the connection; needs
    /// [`InitFlags::REQUEST_TIMEOUT`].
    pub request_timeout: u16,
}

impl Default for InitConfig {
    fn default() -> Self {
        Self {
            wanted: InitFlags::ASYNC_READ | InitFlags::PARALLEL_DIROPS | InitFlags::HAS_EXPIRE_ONLY,
            max_write: Self::MAX_WRITE,
            max_readahead: Self::MAX_WRITE,
            max_background: 64,
            congestion_threshold: 48,
            time_gran: 1,
            request_timeout: 0,
        }
    }
}

impl InitConfig {
    /// The largest `max_write`: 256 pages, the kernel's default limit (`fs.fuse.max_pages_limit`).
    pub const MAX_WRITE: u32 = 256 * PAGE;

    /// Returns the protocol that both sides follow, given the kernel's `offer`.
    pub(crate) fn negotiate(&self, offer: &InitRequest) -> NegotiatedProtocol {
        // The wire's own needs are always wanted; the kernel's offer bounds all.
        let flags = (self.wanted | InitFlags::WIRE).difference(InitFlags::UNSERVED) & offer.flags;
        // Always below the receive buffer, whatever the server wishes.
        let limit = if flags.contains(InitFlags::MAX_PAGES) {
            Self::MAX_WRITE
        } else {
            MAX_WRITE_WITHOUT_PAGES
        };
        NegotiatedProtocol {
            minor: offer.minor.min(abi::FUSE_KERNEL_MINOR_VERSION),
            flags,
            max_write: self.max_write.clamp(PAGE, limit),
            max_readahead: self.max_readahead.min(offer.max_readahead),
        }
    }

    /// Returns the reply that tells the kernel.
    pub(crate) fn init_reply(&self, negotiated: &NegotiatedProtocol) -> abi::fuse_init_out {
        let (flags, flags2) = negotiated.flags.to_words();
        abi::fuse_init_out {
            major: abi::FUSE_KERNEL_VERSION,
            minor: negotiated.minor,
            max_readahead: negotiated.max_readahead,
            flags,
            max_background: self.max_background,
            congestion_threshold: self.congestion_threshold,
            max_write: negotiated.max_write,
            time_gran: self.time_gran,
            // Counted in pages, the kernel allocates so many for a request.
            max_pages: u16::try_from(negotiated.max_write.div_ceil(PAGE)).unwrap_or(u16::MAX),
            flags2,
            request_timeout: self.request_timeout,
            ..Default::default()
        }
    }
}

/// The protocol that kernel and server agreed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NegotiatedProtocol {
    /// The smaller of both minor versions.
    pub minor: u32,
    /// The capabilities in force.
    pub flags: InitFlags,
    /// The most bytes in one write.
    pub max_write: u32,
    /// The most bytes read ahead.
    pub max_readahead: u32,
}

impl NegotiatedProtocol {
    /// Returns the length of the largest payload of a request or an answer, as the kernel counts it
    /// for an entry of a ring.
    pub(crate) fn payload_size(&self) -> usize {
        (self.max_write.max(XATTR_VALUE_MAX as u32)).next_multiple_of(PAGE) as usize
    }

    /// Returns the length of a buffer that holds any request: the largest payload, and a page for
    /// the structs and names before it.
    pub(crate) fn buffer_size(&self) -> usize {
        (self.max_write.max(XATTR_VALUE_MAX as u32) + PAGE) as usize
    }
}

#[cfg(test)]
mod tests;
