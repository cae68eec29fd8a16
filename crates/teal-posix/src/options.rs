//! The options of a mount, and the caller of an operation.

use teal_types::Timestamp;

/// A relative access time is renewed at the latest after this many seconds.
const RELATIME_SECS: i64 = 24 * 60 * 60;

/// When reading changes the access time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AtimePolicy {
    /// Never.
    Noatime,
    /// With every read that asks the file system.
    Strictatime,
    /// When it is not newer than the last change, or a day old.
    #[default]
    Relatime,
}

impl AtimePolicy {
    /// Returns whether reading at `now` changes an access time.
    pub(crate) fn is_due(
        // The usual rule of Linux: once a day, or after a change.
        self,
        atime: Timestamp,
        mtime: Timestamp,
        ctime: Timestamp,
        now: Timestamp,
    ) -> bool {
        match self {
            Self::Noatime => false,
            Self::Strictatime => true,
            Self::Relatime => {
                atime <= mtime
                    || atime <= ctime
                    || now.secs.saturating_sub(atime.secs) >= RELATIME_SECS
            }
        }
    }
}

/// Says if a read counts as an access, which may change the access time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadAccess {
    /// It counts, as the policy of the mount says.
    Counted,
    /// The file was opened with `O_NOATIME`.
    Uncounted,
}

/// The options of a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileSystemOptions {
    /// When reading changes the access time.
    pub atime: AtimePolicy,
    /// Bytes of content given back in one operation; what is larger goes in steps, in the
    /// background.
    pub reclaim_step: u64,
    /// The machine has external power: an idle store is cleaned ahead.
    pub powered: bool,
}

impl Default for FileSystemOptions {
    fn default() -> Self {
        Self {
            atime: AtimePolicy::default(),
            reclaim_step: 256 << 20,
            powered: true,
        }
    }
}

/// The process that asks for an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Caller {
    /// Effective user.
    pub uid: u32,
    /// Effective group.
    pub gid: u32,
    /// Process, for messages; 0 if unknown.
    pub pid: u32,
    /// Bits that new objects do not get where no default access control list rules.
    pub umask: u16,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relatime_renews_what_is_older_than_the_change_or_a_day() {
        let at = |secs| Timestamp::new(secs, 0);
        let due = |atime, changed, now| {
            AtimePolicy::Relatime.is_due(at(atime), at(changed), at(changed), at(now))
        };
        assert!(due(5, 5, 6));
        assert!(!due(6, 5, 7));
        assert!(!due(6, 5, 5 + RELATIME_SECS));
        assert!(due(6, 5, 6 + RELATIME_SECS));
        assert!(AtimePolicy::Strictatime.is_due(at(6), at(5), at(5), at(7)));
        assert!(!AtimePolicy::Noatime.is_due(at(0), at(5), at(5), at(9)));
    }
}
