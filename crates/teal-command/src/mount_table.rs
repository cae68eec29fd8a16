//! The table of mounts, which the kernel shows in `/proc/self/mountinfo`.

use anyhow::{Context, Result};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;

/// One line of `/proc/self/mountinfo`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountEntry {
    /// Major and minor number.
    pub device: (u32, u32),
    /// The mount point.
    pub point: PathBuf,
    /// The file system's type.
    pub kind: String,
    /// A device's path, or the name that the file system gives its source.
    pub source: PathBuf,
    /// The user that mounted it, if it is a FUSE mount.
    pub user: Option<u32>,
}

impl MountEntry {
    /// Returns whether it is a mount of TealFS.
    pub fn is_teal(&self) -> bool {
        ["fuse.teal", "fuseblk.teal"].contains(&self.kind.as_str())
    }

    /// Returns whether it is a mount of TealFS on a block device: then the kernel passes `sync(2)`
    /// on to it.
    pub fn is_on_device(&self) -> bool {
        self.kind == "fuseblk.teal"
    }
}

/// Returns the mounts of a table, in the order in which they were made.
pub fn parse_mountinfo(mountinfo: &[u8]) -> Vec<MountEntry> {
    let lines = mountinfo.split(|byte| *byte == b'\n');
    lines.filter_map(parse_line).collect()
}

/// Parses one line of the table; `None` if it is malformed.
fn parse_line(line: &[u8]) -> Option<MountEntry> {
    let fields: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
    // Any number of optional fields may stand before the `-`: the rest is found from there.
    let separator = fields.iter().position(|field| *field == b"-")?;
    let device = String::from_utf8_lossy(fields.get(2)?);
    let (major, minor) = device.split_once(':')?;
    let kind = String::from_utf8_lossy(fields.get(separator + 1)?);
    let source = unescape_octal(fields.get(separator + 2)?);
    let options = fields.get(separator + 3).copied().unwrap_or_default();
    Some(MountEntry {
        device: (major.parse().ok()?, minor.parse().ok()?),
        point: OsString::from_vec(unescape_octal(fields.get(4)?)).into(),
        kind: kind.into_owned(),
        source: OsString::from_vec(source).into(),
        user: user_of(&String::from_utf8_lossy(options)),
    })
}

/// Returns the user in the options of a FUSE mount.
fn user_of(options: &str) -> Option<u32> {
    for option in options.split(',') {
        let user = option.strip_prefix("user_id=").map(str::parse);
        if let Some(Ok(user)) = user {
            return Some(user);
        }
    }
    None
}

/// Returns a field without escapes: blanks, line ends and backslashes are written as three octal
/// digits.
fn unescape_octal(point: &[u8]) -> Vec<u8> {
    let mut parts = point.split(|byte| *byte == b'\\');
    let mut out = parts.next().unwrap_or_default().to_vec();
    for part in parts {
        match octal_byte(part) {
            Some(byte) => {
                debug_assert!(part.len() >= 3, "three digits were read");
                out.push(byte);
                out.extend(&part[3..]);
            }
            // A backslash without digits stands for itself.
            None => {
                out.push(b'\\');
                out.extend(part);
            }
        }
    }
    out
}

/// Returns the byte that the first three octal digits stand for.
fn octal_byte(part: &[u8]) -> Option<u8> {
    let digits = std::str::from_utf8(part.get(..3)?).ok()?;
    u8::from_str_radix(digits, 8).ok()
}

/// Returns the mounts of this process's namespace, in the order in which they were made.
pub fn list_mounts() -> Result<Vec<MountEntry>> {
    const FILE: &str = "/proc/self/mountinfo";
    Ok(parse_mountinfo(&std::fs::read(FILE).context(FILE)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_words_are_understood() {
        let info =
            b"36 27 8:1 / /media/my\\040st\xffick rw shared:1 master:2 - vfat /dev/sdb1 rw\n\
                     37 27 0:50 / /home/a/Teal rw - fuse.teal /a rw,user_id=7,group_id=0\n\
                     nonsense\n";
        let found = parse_mountinfo(info);
        let point = PathBuf::from(OsString::from_vec(b"/media/my st\xffick".to_vec()));
        let source = "/dev/sdb1".into();
        assert_eq!(
            found[0],
            MountEntry {
                device: (8, 1),
                point,
                kind: "vfat".into(),
                source,
                user: None
            }
        );
        let point = PathBuf::from("/home/a/Teal");
        let source = "/a".into();
        assert_eq!(
            found[1],
            MountEntry {
                device: (0, 50),
                point,
                kind: "fuse.teal".into(),
                source,
                user: Some(7)
            }
        );
        assert!(found.len() == 2 && found[1].is_teal() && !found[0].is_teal());
        assert_eq!(unescape_octal(b"a\\134b\\9"), b"a\\b\\9");
    }
}
