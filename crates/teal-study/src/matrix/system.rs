//! Describes the file systems of a matrix: their kind, their options and their kernel.

use serde::{Deserialize, Serialize};

/// Describes a file system with its options.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct FileSystemSetup {
    /// Name in tables.
    pub name: String,
    /// Kind of the file system.
    pub kind: FileSystemKind,
    /// Arguments of its mkfs.
    #[serde(default)]
    pub mkfs: Vec<String>,
    /// Options of mount, with commas between.
    #[serde(default)]
    pub mount: String,
    /// Kernel on which it runs; `None` means this machine's if it has the file system, else a
    /// guest's.
    #[serde(default, rename = "where", skip_serializing_if = "Option::is_none")]
    pub place: Option<KernelPlace>,
}

/// Names the kernel on which a file system runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum KernelPlace {
    /// The kernel of this machine.
    Host,
    /// The kernel of a guest.
    Guest,
}

/// Names the file systems that can be made here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FileSystemKind {
    /// ext2, by the kernel's ext4.
    Ext2,
    /// ext3, by the kernel's ext4.
    Ext3,
    /// ext4.
    Ext4,
    /// XFS.
    Xfs,
    /// Btrfs.
    Btrfs,
    /// ReiserFS.
    Reiserfs,
    /// JFS.
    Jfs,
    /// NILFS2.
    Nilfs2,
    /// F2FS.
    F2fs,
    /// FAT32.
    Vfat,
    /// TealFS, our log.
    Teal,
}

impl FileSystemSetup {
    /// Returns the arguments with which its mkfs makes it without asking, except the device. An ext
    /// file system is initialised completely, because otherwise the kernel would go on with it
    /// during the runs.
    pub fn mkfs_arguments(&self) -> Vec<String> {
        const WHOLE: &str = "lazy_itable_init=0,lazy_journal_init=0";
        let force: &[&str] = match self.kind {
            FileSystemKind::Xfs
            | FileSystemKind::Btrfs
            | FileSystemKind::Reiserfs
            | FileSystemKind::Nilfs2
            | FileSystemKind::F2fs => &["-q", "-f"],
            FileSystemKind::Jfs => &["-q"],
            FileSystemKind::Vfat => &["-F", "32", "-I"],
            FileSystemKind::Teal => &["--force"],
            FileSystemKind::Ext2 | FileSystemKind::Ext3 | FileSystemKind::Ext4 => &["-q", "-F"],
        };
        // The user's options come after ours, so that they can override them.
        let mut args: Vec<String> = force
            .iter()
            .map(|&arg| arg.to_owned())
            .chain(self.mkfs.iter().cloned())
            .collect();
        if matches!(
            self.kind,
            FileSystemKind::Ext2 | FileSystemKind::Ext3 | FileSystemKind::Ext4
        ) {
            // mkfs honours only the last of several -E, so the user's options are joined to ours.
            match args
                .iter()
                .position(|arg| arg == "-E")
                .and_then(|at| args.get_mut(at + 1))
            {
                Some(own) => *own = format!("{WHOLE},{own}"),
                None => args.extend(["-E".to_owned(), WHOLE.to_owned()]),
            }
        }
        args
    }
}

impl FileSystemKind {
    /// All kinds, the usual one first.
    pub const ALL: &[Self] = &[
        Self::Ext4,
        Self::Xfs,
        Self::Btrfs,
        Self::Ext3,
        Self::Ext2,
        Self::Reiserfs,
        Self::Jfs,
        Self::Nilfs2,
        Self::F2fs,
        Self::Vfat,
        Self::Teal,
    ];

    /// Returns whether this program makes and mounts it.
    pub fn is_ours(self) -> bool {
        self == Self::Teal
    }

    /// Returns its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ext2 => "ext2",
            Self::Ext3 => "ext3",
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
            Self::Btrfs => "btrfs",
            Self::Reiserfs => "reiserfs",
            Self::Jfs => "jfs",
            Self::Nilfs2 => "nilfs2",
            Self::F2fs => "f2fs",
            Self::Vfat => "vfat",
            Self::Teal => "teal",
        }
    }
}
