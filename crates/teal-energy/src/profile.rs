//! Profiles tell how much power, time and energy a device or machine needs, with a source for every
//! figure.
//!
//! # Guarantees
//! 1. A [`Profile`] is consistent: names are unique and known, every state that can be entered can
//!    be left, rates are above zero, seeks grow with their distance, and every group of figures has
//!    a source.
//! 2. Unknown figures are absent: a group of figures is there as a whole or `None`. Nothing is
//!    filled in.
//! 3. A profile that is refused is refused with a line, a column and, for unknown names, the
//!    nearest known one.
//!
//! Profiles are TOML files; those of the papers' devices and of common modern ones are
//! [shipped](Profile::find_shipped).

mod check;
mod error;
mod settings;
mod shipped;
#[cfg(test)]
mod tests;

use crate::quantity::{Rate, RotationSpeed};
pub use error::ProfileError;
use teal_types::{Bytes, Energy, Power, TimeSpan};

/// The kind of thing that a profile describes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceKind {
    /// A spinning disk.
    Disk,
    /// Flash: a stick, a card or a solid-state disk.
    Flash,
    /// A network interface with a server behind it.
    Link,
    /// The machine all of these are in.
    Machine,
}

/// Everything that is known of one device or machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    /// The name in settings and tables.
    pub name: String,
    /// The name for people.
    pub title: String,
    /// The kind of device, or a machine.
    pub kind: DeviceKind,
    /// Its power states, in the order of the file.
    pub states: Vec<PowerState>,
    /// The ways between them.
    pub transitions: Vec<Transition>,
    /// Times to move the arm of a disk.
    pub seek: Option<SeekTimes>,
    /// The speed at which a disk turns.
    pub rotation: Option<RotationSpeed>,
    /// Capacity and rates of a disk's surface.
    pub media: Option<DiskSurface>,
    /// A disk's power while it works.
    pub active: Option<ActivePower>,
    /// The electronics between a disk's surface and the host; all zero where nothing is known.
    pub electronics: DriveElectronics,
    /// The service of flash and links, by state.
    pub services: Vec<ServiceFigures>,
    /// The three figures of equation 1 of GreenFS.
    pub burst: Option<BurstEnergy>,
    /// The number of starts that the maker promises.
    pub rating: Option<CycleRating>,
    /// The power that the machine draws besides its storage and network.
    pub base: Option<Power>,
    /// The source of each group of figures: the group's name and the source.
    pub sources: Vec<(String, String)>,
}

/// Index of a state in [`Profile::states`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StateId(pub(crate) u8);

impl StateId {
    /// Returns the position in the list of states.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A power state in which a device rests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PowerState {
    /// Its name.
    pub name: String,
    /// The power that the device draws in it.
    pub power: Power,
    /// Is true if requests are served from it.
    pub serves: bool,
}

/// A way from one state to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transition {
    /// The state that is left.
    pub from: StateId,
    /// The state that is entered.
    pub to: StateId,
    /// The time it takes.
    pub time: TimeSpan,
    /// The energy of all of it.
    pub energy: Energy,
    /// The number of rated cycles that it uses up.
    pub cycles: u32,
}

/// Times to move a disk's arm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SeekTimes {
    /// The average over all pairs of places.
    pub average: TimeSpan,
    /// To the next track, and over the whole surface; without them every seek takes the average.
    pub extremes: Option<(TimeSpan, TimeSpan)>,
}

/// A disk's surface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskSurface {
    /// Bytes it holds.
    pub capacity: Bytes,
    /// Rate under the head on the outermost track, where addresses begin.
    pub outer: Rate,
    /// Rate on the innermost.
    pub inner: Rate,
}

/// A disk's power while it works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ActivePower {
    /// While the arm moves.
    pub seek: Power,
    /// While it waits for a sector to come round.
    pub rotate: Power,
    /// While it reads.
    pub read: Power,
    /// While it writes.
    pub write: Power,
}

/// The electronics between a disk's surface and the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DriveElectronics {
    /// Time to take in a command, before anything moves.
    pub overhead: TimeSpan,
    /// Rate to and from the host; `None`: does not hold anything up.
    pub interface: Option<Rate>,
    /// The size of the buffer for reading ahead.
    pub track_buffer: Bytes,
    /// The number of bytes that are taken in before they are on the surface.
    pub write_cache: Bytes,
}

/// The service of flash or a link in one state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServiceFigures {
    /// The state.
    pub state: StateId,
    /// Reading.
    pub read: TransferFigures,
    /// Writing.
    pub write: TransferFigures,
}

/// Latency, then bytes at a rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TransferFigures {
    /// The time before the first byte.
    pub latency: TimeSpan,
    /// The rate of the bytes after that.
    pub rate: Rate,
    /// The power while it transfers.
    pub power: Power,
    /// The energy for each byte besides, in picojoules.
    pub picojoules_per_byte: u32,
}

/// Equation 1 of GreenFS (2.5): `U = U_up + P * S / B`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BurstEnergy {
    /// `U_up`: to get ready.
    pub start: Energy,
    /// `P`: while transferring.
    pub power: Power,
    /// `B`: the bandwidth.
    pub rate: Rate,
}

/// The maker's promise about starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CycleRating {
    /// Starts and stops.
    pub cycles: u32,
    /// Within this life.
    pub life: TimeSpan,
}

impl Profile {
    /// Reads a profile from TOML.
    ///
    /// # Errors
    /// The first thing that is wrong, with its place.
    pub fn parse(text: &str) -> Result<Self, ProfileError> {
        let settings =
            toml::from_str(text).map_err(|said| ProfileError::from_parser(text, &said))?;
        check::check_settings(text, settings)
    }

    /// Returns the shipped profile of that name.
    ///
    /// # Panics
    /// Never: a test parses every shipped profile.
    pub fn find_shipped(name: &str) -> Option<Self> {
        let (_, text) = shipped::PROFILES.iter().find(|(known, _)| *known == name)?;
        Some(Self::parse(text).expect("a test parses every shipped profile"))
    }

    /// Returns the names of the shipped profiles.
    pub fn shipped_names() -> impl Iterator<Item = &'static str> + Clone {
        shipped::PROFILES.iter().map(|(name, _)| *name)
    }

    /// Returns the state of that name.
    pub fn state_named(&self, name: &str) -> Option<StateId> {
        let at = self.states.iter().position(|state| state.name == name)?;
        u8::try_from(at).ok().map(StateId)
    }
}
