//! Checks the options of a file system: none may name a device or a file.
//!
//! The matrix names the device, and mkfs and mount get it from the program. mkfs of some kinds
//! takes further devices (Btrfs), or one for its journal (ext, JFS, ReiserFS, XFS), and mount finds
//! some by its options. All of these would be written to, although the user has not allowed that
//! their content is lost.
//!
//! # Guarantees
//! 1. Every argument of mkfs that comes through is an option, or the value of one that is known to
//!    take a value: no operand is.
//! 2. None has a `/`, and none is or has an option that names a device: `/dev/sdX` does not come
//!    through, and neither does `sdX` in `/dev`.

use super::system::{FileSystemKind, FileSystemSetup};

/// Parts of an option that name a device or a file wherever they occur.
const NAMING: &[&str] = &[
    "/",
    "device=",
    "logdev",
    "rtdev",
    "journal_dev",
    "journal_path",
    "jdev",
    "name=",
    "helper=",
    "loop=",
];

/// Describes the syntax of mkfs: one-letter options and words that take a value, and those that
/// name a device.
struct MkfsSyntax {
    valued: &'static str,
    words: &'static [&'static str],
    naming: &'static [&'static str],
}

fn mkfs_syntax(kind: FileSystemKind) -> MkfsSyntax {
    // Each list follows the manual page of that mkfs.
    let (valued, words, naming): (_, &[&str], &[&str]) = match kind {
        FileSystemKind::Ext2 | FileSystemKind::Ext3 | FileSystemKind::Ext4 => {
            ("bCdeEgGiIJlLmMNoOrRstTUz", &[], &["-d", "-l", "-z"])
        }
        FileSystemKind::Xfs => ("bcdilLmnprs", &[], &["-p", "-c"]),
        FileSystemKind::Btrfs => (
            "AbdlmLnOrRsU",
            &[
                "--alloc-start",
                "--byte-count",
                "--checksum",
                "--csum",
                "--data",
                "--features",
                "--label",
                "--leafsize",
                "--metadata",
                "--nodesize",
                "--runtime-features",
                "--sectorsize",
                "--uuid",
            ],
            &["-r", "--rootdir"],
        ),
        FileSystemKind::Reiserfs => (
            "bsjtBhulo",
            &["--block-size", "--format", "--hash", "--label", "--uuid"],
            &["-j", "-B", "--journal-device"],
        ),
        FileSystemKind::Jfs => ("jJLs", &[], &["-j"]),
        FileSystemKind::Nilfs2 => ("bBLmO", &[], &[]),
        FileSystemKind::F2fs => ("acdeElOoRstTUwz", &[], &["-c"]),
        FileSystemKind::Vfat => ("bDfFghilmMnrRsS", &[], &["-l", "-m"]),
        FileSystemKind::Teal => ("", &["--size", "--label"], &[]),
    };
    MkfsSyntax {
        valued,
        words,
        naming,
    }
}

/// Says which argument may follow an option.
enum NextArgument {
    /// Its value, in the next argument.
    Value,
    /// Whatever comes next.
    Anything,
}

impl MkfsSyntax {
    /// Checks an argument that begins with `-`; an error says what is wrong with it.
    fn check_option(&self, arg: &str) -> Result<NextArgument, String> {
        let word = arg.split('=').next().unwrap_or(arg);
        // A long option may be abbreviated, so any beginning of a forbidden one is refused.
        if arg.starts_with("--") {
            if arg == "--"
                || self
                    .naming
                    .iter()
                    .any(|name| name.starts_with("--") && name.starts_with(word))
            {
                return Err(names_a_device(arg));
            }
            return Ok(if self.words.contains(&arg) {
                NextArgument::Value
            } else {
                NextArgument::Anything
            });
        }
        // Letters are read one after the other, until one takes the rest of the argument or the
        // next one.
        let mut letters = arg[1..].chars();
        while let Some(letter) = letters.next() {
            if self.naming.contains(&&*format!("-{letter}")) {
                return Err(names_a_device(arg));
            }
            if self.valued.contains(letter) {
                return Ok(if letters.as_str().is_empty() {
                    NextArgument::Value
                } else {
                    NextArgument::Anything
                });
            }
        }
        Ok(NextArgument::Anything)
    }
}

fn names_a_device(arg: &str) -> String {
    format!(
        "'{arg}' names a device or a file, and device.path or device.profile alone says where it \
         is made; leave it out"
    )
}

fn is_naming(text: &str) -> bool {
    NAMING.iter().any(|part| text.contains(part))
}

impl FileSystemSetup {
    /// Checks that all options are options, and that none names a device.
    ///
    /// # Errors
    /// Returns the wrong option, and what to do.
    pub(super) fn check_options(&self) -> Result<(), String> {
        // `is_value` says that the argument is the value of the option before.
        let known = mkfs_syntax(self.kind);
        let mut is_value = false;
        for arg in &self.mkfs {
            if is_naming(arg) {
                return Err(format!("mkfs: {}", names_a_device(arg)));
            }
            // A value belongs to the option before it; anything else must begin with a dash.
            is_value = match (is_value, arg.strip_prefix('-')) {
                (true, _) => false,
                (false, Some(rest)) if !rest.is_empty() => {
                    matches!(
                        known
                            .check_option(arg)
                            .map_err(|why| format!("mkfs: {why}"))?,
                        NextArgument::Value
                    )
                }
                (false, _) => {
                    return Err(format!(
                        "mkfs: '{arg}' is no option, and would be taken for one more device; \
                         write a value and its option as one, as in -b4096"
                    ));
                }
            };
        }
        // An option without its value would take the device for it.
        if is_value {
            return Err(format!(
                "mkfs: '{}' lacks its value",
                self.mkfs.last().map_or("", String::as_str)
            ));
        }
        if is_naming(&self.mount) {
            return Err(format!("mount: {}", names_a_device(&self.mount)));
        }
        Ok(())
    }
}
