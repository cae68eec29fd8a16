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
    /// Whether `MaxRatio` also holds below the global threshold; 1 at first.
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

/// Sets `knob` of the mount with this device number (see [`crate::Session::device`]) to `value`,
/// after `INIT`. Needs root.
///
/// # Errors
/// What writing the file says; the mount works all the same.
pub fn set_bdi(device: DeviceNumber, knob: BdiKnob, value: u32) -> io::Result<()> {
    // A mount on a block device has settings beside those of the device.
    let own = format!("/sys/class/bdi/{device}-fuseblk");
    let of = if std::path::Path::new(&own).exists() {
        own
    } else {
        format!("/sys/class/bdi/{device}")
    };
    std::fs::write(format!("{of}/{}", knob.file_name()), value.to_string())
}
