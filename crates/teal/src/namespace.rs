//! Finds out if this process lives in the machine's first mount namespace, which does not end when
//! the process dies.
//!
//! # Why it matters
//! A daemon that is killed closes `/dev/fuse` last of all: the kernel puts that off until it has
//! given back the daemon's namespaces. Is the daemon the last one in a mount namespace of its own,
//! the namespace goes, and its mounts with it. For a `fuseblk` mount the kernel then sends
//! `DESTROY` and waits, unkillably, for an answer of the very process that is dying; meanwhile it
//! holds the lock that `sync(2)` needs for the whole machine. A second process that answers, or
//! ends the connection, dies in the same moment where a container is killed, so that it cannot
//! help. A plain `fuse` mount is sent no `DESTROY`, and is not told of `sync(2)` either.

use std::path::Path;

/// The number of the first mount namespace, where the kernel gives it a fixed one (since Linux
/// 6.18). Others have larger numbers.
const FIRST_MOUNT: u64 = 0xEFFF_FFF8;
/// The number of the first process namespace, in all kernels.
const FIRST_PROCESS: u64 = 0xEFFF_FFFC;

/// Returns whether the mount namespace is surely the machine's first; `false` if that cannot be
/// told.
pub(crate) fn is_first() -> bool {
    let ours = namespace_number("/proc/self/ns/mnt");
    if ours == Some(FIRST_MOUNT) {
        return true;
    }
    // A container has a process 1 of its own: it is the machine's first one only in the first
    // process namespace.
    let is_first_process = namespace_number("/proc/self/ns/pid") == Some(FIRST_PROCESS);
    ours.is_some() && is_first_process && namespace_number("/proc/1/ns/mnt") == ours
}

/// Returns the number in a link such as `mnt:[4026531832]`.
fn namespace_number(link: impl AsRef<Path>) -> Option<u64> {
    let target = std::fs::read_link(link).ok()?;
    parse_namespace_link(target.to_str()?)
}

fn parse_namespace_link(target: &str) -> Option<u64> {
    target.split_once(":[")?.1.strip_suffix(']')?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_links_are_understood() {
        assert_eq!(parse_namespace_link("mnt:[4026531832]"), Some(FIRST_MOUNT));
        assert_eq!(
            parse_namespace_link("pid:[4026531836]"),
            Some(FIRST_PROCESS)
        );
        assert_eq!(
            (
                parse_namespace_link("mnt"),
                parse_namespace_link("mnt:[x]"),
                parse_namespace_link("")
            ),
            (None, None, None)
        );
    }
}
