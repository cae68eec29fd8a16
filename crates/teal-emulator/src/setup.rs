//! The setup of an emulated disk: a profile, a size, and the figures the profile does not have.
//!
//! # Guarantees
//! 1. A figure the profile has is taken from it; one it lacks is assumed or given, and named by
//!    [`EmulationSetup::assumptions`].
//! 2. The size is a whole number of blocks, above zero and within the profile's capacity.

use teal_energy::Profile;
use teal_energy::power::MissingFigure;
use teal_energy::profile::{DeviceKind, DriveElectronics};
use teal_types::{BLOCK, Bytes, SECTOR, TimeSpan};

/// Time to take in a command where a profile has none. Published interfaces need 0.1 to 1 ms.
const ASSUMED_OVERHEAD: TimeSpan = TimeSpan::from_micros(500);
/// Track buffer and write cache where a profile has none.
const ASSUMED_BUFFER: Bytes = Bytes::new(128 << 10);

/// The reason for which a disk cannot be emulated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SetupError {
    /// The profile describes something else.
    #[error("{0} is no spinning disk; only those are emulated")]
    NoDisk(String),
    /// The size is zero, or not whole.
    #[error("{0} bytes are no size for a disk: it takes a whole number of 4 KiB blocks above zero")]
    Size(u64),
    /// The size is beyond the capacity.
    #[error("{profile} holds {capacity} bytes; {asked} are more")]
    TooLarge {
        /// The profile.
        profile: String,
        /// The bytes that it holds.
        capacity: u64,
        /// The bytes that were asked for.
        asked: u64,
    },
    /// The disk that is to hold the bytes is smaller than the emulated one.
    #[error("{have} sectors cannot hold a disk of {need}")]
    Backing {
        /// Sectors there are.
        have: u64,
        /// Sectors of the disk.
        need: u64,
    },
    /// The profile lacks a figure that cannot be assumed.
    #[error(transparent)]
    Missing(#[from] MissingFigure),
}

/// A disk to emulate, validated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EmulationSetup {
    profile: Profile,
    sectors: u64,
    spin_down: Option<TimeSpan>,
    assumed: Vec<String>,
}

impl EmulationSetup {
    /// Makes the disk of a profile with `bytes` of its capacity, its cache on.
    ///
    /// # Errors
    /// [`SetupError`].
    pub fn new(profile: Profile, bytes: u64) -> Result<Self, SetupError> {
        if profile.kind != DeviceKind::Disk {
            return Err(SetupError::NoDisk(profile.name));
        }
        if bytes == 0 || !bytes.is_multiple_of(BLOCK) {
            return Err(SetupError::Size(bytes));
        }
        // A disk without a surface cannot be modelled, however large.
        let capacity = profile
            .media
            .ok_or_else(|| missing_figure(&profile, "media rate"))?
            .capacity
            .get();
        if bytes > capacity {
            return Err(SetupError::TooLarge {
                profile: profile.name,
                capacity,
                asked: bytes,
            });
        }
        let mut this = Self {
            profile,
            sectors: bytes / SECTOR,
            spin_down: None,
            assumed: Vec::new(),
        };
        this.assume_missing();
        Ok(this)
    }

    /// Fills in the figures that the profile lacks, and notes them.
    fn assume_missing(&mut self) {
        let electronics = &mut self.profile.electronics;
        if electronics.overhead == TimeSpan::ZERO {
            electronics.overhead = ASSUMED_OVERHEAD;
            self.assumed
                .push(format!("{ASSUMED_OVERHEAD} to take in a command"));
        }
        for (size, name) in [
            (&mut electronics.track_buffer, "track buffer"),
            (&mut electronics.write_cache, "write cache"),
        ] {
            // A profile that has no figure has zero.
            if *size == Bytes::default() {
                *size = ASSUMED_BUFFER;
                self.assumed
                    .push(format!("{name} of {} KiB", ASSUMED_BUFFER.get() >> 10));
            }
        }
    }

    /// Takes its write cache away: a write is answered when it is on the surface.
    #[must_use]
    pub fn without_cache(mut self) -> Self {
        self.profile.electronics.write_cache = Bytes::default();
        // Without a cache its assumed size means nothing.
        self.assumed.retain(|what| !what.starts_with("write cache"));
        self
    }

    /// Takes these electronics instead of the profile's and the assumed ones.
    #[must_use]
    pub fn with_electronics(mut self, electronics: DriveElectronics) -> Self {
        self.profile.electronics = electronics;
        self.assumed = vec!["electronics given by the caller".to_owned()];
        self
    }

    /// Has it go to its lowest state after so long without work.
    #[must_use]
    pub fn with_spin_down(mut self, after: Option<TimeSpan>) -> Self {
        self.spin_down = after;
        self
    }

    /// Returns the profile, with the assumed figures in it.
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// Returns the size in sectors of 512 bytes.
    pub fn sectors(&self) -> u64 {
        self.sectors
    }

    /// Returns the time without work after which it spins down; `None`: never on its own.
    pub fn spin_down(&self) -> Option<TimeSpan> {
        self.spin_down
    }

    /// Returns whether writes are answered before they are on the surface.
    pub fn has_cache(&self) -> bool {
        self.profile.electronics.write_cache > Bytes::default()
    }

    /// Returns the figures that no source stands behind, in words.
    pub fn assumptions(&self) -> &[String] {
        &self.assumed
    }
}

fn missing_figure(profile: &Profile, figure: &str) -> MissingFigure {
    MissingFigure {
        profile: profile.name.clone(),
        figure: figure.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shipped(name: &str) -> Profile {
        Profile::find_shipped(name).unwrap()
    }

    #[test]
    fn only_disks_of_a_whole_size_within_their_capacity_are_emulated() {
        let microdrive = || shipped("ibm-microdrive-1gb");
        assert_eq!(
            EmulationSetup::new(microdrive(), 1 << 20)
                .unwrap()
                .sectors(),
            2048
        );
        assert!(matches!(
            EmulationSetup::new(microdrive(), 0),
            Err(SetupError::Size(0))
        ));
        assert!(matches!(
            EmulationSetup::new(microdrive(), 1000),
            Err(SetupError::Size(1000))
        ));
        let said = EmulationSetup::new(microdrive(), 1 << 30)
            .unwrap_err()
            .to_string();
        assert_eq!(
            said,
            "ibm-microdrive-1gb holds 1000000000 bytes; 1073741824 are more"
        );
        assert!(matches!(
            EmulationSetup::new(shipped("samsung-850-pro"), 1 << 20),
            Err(SetupError::NoDisk(_))
        ));
        assert!(matches!(
            EmulationSetup::new(shipped("greenfs-desktop"), 1 << 20),
            Err(SetupError::NoDisk(_))
        ));
    }

    #[test]
    fn what_is_assumed_is_named() {
        let setup = EmulationSetup::new(shipped("ibm-microdrive-1gb"), 1 << 20).unwrap();
        let names = [
            "500.0 us to take in a command",
            "track buffer of 128 KiB",
            "write cache of 128 KiB",
        ];
        assert_eq!(setup.assumptions(), names);
        assert!(setup.has_cache());
        let honest = setup.without_cache();
        assert_eq!(honest.assumptions(), &names[..2]);
        assert!(!honest.has_cache());
    }
}
