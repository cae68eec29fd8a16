//! The kernel's write-back and read-ahead settings of a mount, under `/sys/class/bdi`.

use crate::mount::DeviceNumber;
use std::io;

/// A setting of the backing device info of a mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BdiKnob {
    /// KiB read ahead; 128 at first, which the kernel also offers as `max_readahead`.
    ReadAheadKb,
    /// Percent of the write-back cache this mount may fill; 1 at first.
    MaxRatio,
    /// Percent of the write-back cache reserved for it.
    MinRatio,
    /// 1 if `MaxRatio` also holds below the global threshold, which is the default; 0 if not.
    StrictLimit,
}

impl BdiKnob {
    fn file_name(self) -> &'static str {
        match self {
            Self::ReadAheadKb => "read_ahead_kb",
            Self::MaxRatio => "max_ratio",
            Self::MinRatio => "min_ratio",
            Self::StrictLimit => "strict_limit",
        }
    }
}

/// Sets `knob` of the mount with this device number (see [`crate::FuseSession::device_number`]) to
/// `value`, after `INIT`. Needs root.
///
/// # Errors
/// Returns the error of writing the file; the mount works all the same.
pub fn set_bdi(device: DeviceNumber, knob: BdiKnob, value: u32) -> io::Result<()> {
    // A mount on a block device has settings beside those of the device.
    let of_block_device = format!("/sys/class/bdi/{device}-fuseblk");
    let directory = if std::path::Path::new(&of_block_device).exists() {
        of_block_device
    } else {
        format!("/sys/class/bdi/{device}")
    };
    let file = format!("{directory}/{}", knob.file_name());
    std::fs::write(file, value.to_string())
}
