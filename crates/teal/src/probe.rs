//! Recognises what is on a disk before it is overwritten.

use teal_env::Disk;
use teal_types::{SECTOR, Sector};

/// Signatures of known formats: the offset of each, its bytes, and the name of the format.
const SIGNATURES: &[(u64, &[u8], &str)] = &[
    (0, b"TEALFS", "a TealFS store"),
    (0, b"XFSB", "an XFS file system"),
    (0x438, &[0x53, 0xef], "an ext2/3/4 file system"),
    (0x10040, b"_BHRfS_M", "a btrfs file system"),
    (0x400, &[0x10, 0x20, 0xf5, 0xf2], "an f2fs file system"),
    (0x406, &[0x34, 0x34], "a nilfs2 file system"),
    (0x10034, b"ReIsEr", "a reiserfs file system"),
    (0x8000, b"JFS1", "a JFS file system"),
    (0x8001, b"CD001", "an ISO 9660 image"),
    (3, b"NTFS    ", "an NTFS file system"),
    (3, b"EXFAT   ", "an exFAT file system"),
    (0x36, b"FAT1", "a FAT file system"),
    (0x52, b"FAT32", "a FAT file system"),
    (0xff6, b"SWAPSPACE2", "swap space"),
    (0, b"LUKS\xba\xbe", "an encrypted LUKS volume"),
    (0x200, b"LABELONE", "an LVM physical volume"),
    (0x218, b"LVM2 001", "an LVM physical volume"),
    (0x1000, &[0xfc, 0x4e, 0x2b, 0xa9], "a Linux RAID member"),
    (0x20000, &[0x0c, 0xb1, 0xba, 0, 0, 0, 0, 0], "a ZFS member"),
    (0x1018, &[0xc6, 0x85, 0x73, 0xf6], "a bcachefs file system"),
    (0, b"hsqs", "a squashfs image"),
    (0x200, b"EFI PART", "a GPT partition table"),
    (0x1fe, &[0x55, 0xaa], "a partition table or boot sector"),
];

/// Returns what is on the disk, in words; `None` when nothing is recognised.
pub(crate) fn recognise_content(disk: &dyn Disk) -> Option<&'static str> {
    // The list goes from special to general: a partition table is the last guess.
    SIGNATURES
        .iter()
        .find(|(at, magic, _)| has_signature(disk, *at, magic))
        .map(|(_, _, what)| *what)
}

/// Returns whether the first MiB holds anything but zeros.
pub(crate) fn holds_data(disk: &dyn Disk) -> bool {
    let sectors = disk.shape().sectors.min(2048);
    let mut bytes = vec![0; (sectors * SECTOR) as usize];
    // A disk that cannot be read counts as one with data: it must not be overwritten by mistake.
    disk.read_at(Sector::new(0), &mut bytes).is_err() || bytes.iter().any(|b| *b != 0)
}

fn has_signature(disk: &dyn Disk, at: u64, magic: &[u8]) -> bool {
    // Whole blocks around the signature are read, because a disk may refuse anything smaller.
    let first = at / 4096 * 4096;
    let mut bytes = vec![0; 8192];
    let sectors = disk.shape().sectors.saturating_sub(first / SECTOR).min(16);
    bytes.truncate((sectors * SECTOR) as usize);
    let from = (at - first) as usize;
    debug_assert!(
        magic.len() <= 4096,
        "a signature lies within the two blocks"
    );
    !bytes.is_empty()
        && disk
            .read_at(Sector::new(first / SECTOR), &mut bytes)
            .is_ok()
        && bytes.get(from..from + magic.len()) == Some(magic)
}

#[cfg(test)]
mod tests {
    use super::*;
    use teal_env::MemDisk;

    #[test]
    fn every_signature_is_recognised_where_it_is() {
        assert_eq!(recognise_content(&MemDisk::new(2048)), None);
        for (at, magic, what) in SIGNATURES {
            let mut bytes = vec![0; 1 << 20];
            bytes[*at as usize..*at as usize + magic.len()].copy_from_slice(magic);
            assert_eq!(recognise_content(&MemDisk::from_bytes(bytes)), Some(*what));
        }
    }
}
