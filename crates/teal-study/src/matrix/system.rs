//! The file systems of a matrix: which, made and mounted how, on which kernel.

use serde::{Deserialize, Serialize};

/// A file system with its options.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct FileSystemSetup {
    /// How it is called in tables.
    pub name: String,
    /// Which.
    pub kind: FileSystemKind,
    /// Arguments of its mkfs.
    #[serde(default)]
    pub mkfs: Vec<String>,
    /// Options of mount, with commas between.
    #[serde(default)]
    pub mount: String,
    /// On which kernel; `None`: on this machine's if that has it, else in a guest.
    #[serde(default, rename = "where", skip_serializing_if = "Option::is_none")]
    pub place: Option<KernelPlace>,
}

/// On which kernel a file system runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum KernelPlace {
    /// On this machine's.
    Host,
    /// On a guest's.
    Guest,
}

/// File systems that can be made here.
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
    /// Our log.
    Teal,
}

impl FileSystemSetup {
    /// The arguments with which its mkfs makes it, without asking; but for the device. An ext file
    /// system is made whole: else the kernel would go on with it during the runs.
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
        let mut args: Vec<String> = force
            .iter()
            .map(|&arg| arg.to_owned())
            .chain(self.mkfs.iter().cloned())
            .collect();
        if matches!(
            self.kind,
            FileSystemKind::Ext2 | FileSystemKind::Ext3 | FileSystemKind::Ext4
        ) {
            // Of several -E only the last holds.
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
    /// All of them, the usual one first.
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

    /// Returns whether it is made and mounted by this program.
    pub fn is_ours(self) -> bool {
        self == Self::Teal
    }

    /// Its name.
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
