//! The numbers by which kernel and server name things to each other.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[repr(transparent)]
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[derive(FromBytes, IntoBytes, KnownLayout, Immutable)]
        pub struct $name(u64);

        impl $name {
            /// Wraps the raw number.
            pub const fn new(raw: u64) -> Self {
                Self(raw)
            }
            /// Returns the raw number.
            pub const fn get(self) -> u64 {
                self.0
            }
        }
    };
}

id! {
    /// An inode as the kernel knows it. The server chooses it in an entry reply; it need not be
    /// `st_ino`.
    NodeId
}
id! {
    /// An open file or directory. The server chooses it in an open reply; 0 where opens are not
    /// sent.
    Handle
}
id! {
    /// A request that waits for its answer.
    Unique
}
id! {
    /// The holder of a lock: a process (`fcntl`) or an open file (`flock`), as an opaque number.
    LockOwner
}

impl NodeId {
    /// The root of the mount.
    pub const ROOT: Self = Self(1);
}
