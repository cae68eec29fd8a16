//! Describes machines on which traces are replayed: their devices, and the initial place of
//! content.
//!
//! 1. A [`ModelledMachine`] is complete: every device of it can be simulated, and some device holds
//!    everything at the beginning.
//! 2. Labels are unique: devices with one profile are numbered.

use teal_energy::Profile;
use teal_energy::device::{DEVICES_MAX, DeviceId, DeviceModel, DeviceSet, QueueLimits};
use teal_energy::power::MissingFigure;
use teal_energy::profile::DeviceKind;
use teal_types::{Power, TimeSpan};

/// Named machines: name, shipped profiles, and description.
pub const NAMED_MACHINES: &[(&str, &[&str], &str)] = &[
    (
        "handheld",
        &["ibm-microdrive-1gb", "bluefs-802.11b", "ipaq-3870"],
        "a small disk, a server over 802.11b",
    ),
    (
        "laptop",
        &[
            "samsung-970-evo-plus-500gb",
            "hitachi-travelstar-5k320",
            "bluefs-802.11b",
            "thinkpad-t42",
        ],
        "flash, a disk, a server over 802.11b",
    ),
    (
        "desktop",
        &[
            "samsung-970-evo-plus-500gb",
            "desktop-7200rpm-composed",
            "greenfs-gigabit",
            "greenfs-desktop",
        ],
        "flash, a disk, a server over gigabit Ethernet",
    ),
    (
        "home-server",
        &[
            "samsung-970-evo-plus-500gb",
            "desktop-7200rpm-composed",
            "desktop-7200rpm-composed",
            "desktop-7200rpm-composed",
            "desktop-7200rpm-composed",
            "home-server-8-disks",
        ],
        "flash, and four disks of which each file is on one",
    ),
];

/// Limits of a home log: written data is on flash within these seconds, the commit interval.
const HOME_LOG: QueueLimits = QueueLimits {
    age: TimeSpan::from_secs(5),
    bytes: 64 << 20,
};

/// Says why profiles do not make a machine.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MachineError {
    /// A profile lacks a figure.
    #[error(transparent)]
    Missing(#[from] MissingFigure),
    /// More than one profile gives the base power of a machine.
    #[error("{0} and {1} are both machines; name one")]
    Machines(String, String),
    /// No profile stores anything.
    #[error(
        "no disk, flash or link is among the profiles; name at least one, or one of handheld, \
         laptop, desktop, home-server"
    )]
    NoDevices,
    /// There are more devices than a simulation has.
    #[error("{0} devices are too many: at most {DEVICES_MAX}")]
    TooMany(usize),
}

/// Describes the initial content of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InitialShare {
    /// Percent of the files, chosen by their numbers.
    pub files: u8,
    /// Is true when it holds the attributes and directories of all files, whether it holds their
    /// content or not.
    pub attributes: bool,
}

impl InitialShare {
    /// The device holds everything.
    pub const ALL: Self = Self {
        files: 100,
        attributes: true,
    };
    /// The device holds nothing.
    pub const NOTHING: Self = Self {
        files: 0,
        attributes: false,
    };
}

/// Describes one device of a machine.
#[derive(Debug, Clone)]
pub struct MachineDevice {
    /// Name in tables: that of its profile, numbered if there are several.
    pub label: String,
    /// Model of the device.
    pub device: DeviceModel,
    /// Initial content of the device.
    pub holds: InitialShare,
    /// Is true when content that is read elsewhere is copied to it.
    pub keeps: bool,
    /// Bytes it has room for; the least recently used content makes way.
    pub room: Option<u64>,
    /// Figures of its profile that no source supports.
    pub assumed: Vec<String>,
}

/// Describes a machine.
#[derive(Debug, Clone)]
pub struct ModelledMachine {
    /// Name of the machine.
    pub name: String,
    /// Devices of the machine.
    pub parts: Vec<MachineDevice>,
    /// Power it draws while a program waits, and the profile that gives it; no power without one.
    pub base: Option<(String, Power)>,
    /// Devices that share the files, one for each. If it is empty, each device holds all of its
    /// own.
    pub spread: DeviceSet,
}

impl ModelledMachine {
    /// Makes a machine of these profiles. Flash, or the first disk if there is no flash, takes
    /// copies of content that is read elsewhere. Disks and links hold everything at the beginning,
    /// and so does flash that is alone.
    ///
    /// # Errors
    /// Returns a [`MachineError`].
    pub fn from_profiles(name: &str, profiles: &[Profile]) -> Result<Self, MachineError> {
        // Machines and devices are both profiles: the kind tells them apart.
        let (machines, devices): (Vec<_>, Vec<_>) = profiles
            .iter()
            .partition(|profile| profile.kind == DeviceKind::Machine);
        if let [one, two, ..] = machines[..] {
            return Err(MachineError::Machines(one.name.clone(), two.name.clone()));
        }
        let base = match machines.first() {
            None => None,
            Some(machine) => {
                let missing = || MissingFigure {
                    profile: machine.name.clone(),
                    figure: "base power".into(),
                };
                Some((machine.name.clone(), machine.base.ok_or_else(missing)?))
            }
        };
        if devices.is_empty() {
            return Err(MachineError::NoDevices);
        }
        if devices.len() > DEVICES_MAX {
            return Err(MachineError::TooMany(devices.len()));
        }
        // The devices of the machine decide on their roles.
        let has = |kind| devices.iter().any(|profile| profile.kind == kind);
        let (has_flash, has_other) = (
            has(DeviceKind::Flash),
            has(DeviceKind::Disk) || has(DeviceKind::Link),
        );
        let mut parts: Vec<MachineDevice> = Vec::new();
        for profile in &devices {
            let same = parts
                .iter()
                .filter(|part| part.device.name == profile.name)
                .count();
            let label = if same == 0 {
                profile.name.clone()
            } else {
                format!("{} #{}", profile.name, same + 1)
            };
            let is_flash = profile.kind == DeviceKind::Flash;
            let is_first_disk = profile.kind == DeviceKind::Disk
                && !parts
                    .iter()
                    .any(|part| part.device.kind == DeviceKind::Disk);
            // A disk beside flash sleeps, so its queue is a long one.
            let mut device = DeviceModel::new(profile)?.with_queue(match profile.kind {
                DeviceKind::Flash => HOME_LOG,
                DeviceKind::Disk if has_flash => QueueLimits::SLEEPING_DISK,
                _ => QueueLimits::BLUEFS,
            });
            // A burst is one append to the log on the device.
            device.is_scattered = false;
            parts.push(MachineDevice {
                label,
                device,
                holds: if is_flash && has_other {
                    InitialShare::NOTHING
                } else {
                    InitialShare::ALL
                },
                keeps: is_flash || (!has_flash && is_first_disk),
                room: None,
                assumed: assumed_figures(profile),
            });
        }
        debug_assert!(
            parts.iter().any(|part| part.holds == InitialShare::ALL),
            "some device holds everything"
        );
        Ok(Self {
            name: name.to_owned(),
            parts,
            base,
            spread: DeviceSet::EMPTY,
        })
    }

    /// Returns the machine of that name, of [`NAMED_MACHINES`].
    ///
    /// # Panics
    /// No name panics: a test makes all machines.
    pub fn by_name(name: &str) -> Option<Self> {
        let (name, profiles, _) = NAMED_MACHINES.iter().find(|(known, ..)| *known == name)?;
        let profiles: Vec<_> = profiles
            .iter()
            .filter_map(|name| Profile::find_shipped(name))
            .collect();
        let machine = Self::from_profiles(name, &profiles).expect("a test makes all of them");
        Some(if *name == "home-server" {
            machine.with_spread_disks()
        } else {
            machine
        })
    }

    /// Puts each file on one of the disks, not on all.
    #[must_use]
    pub fn with_spread_disks(mut self) -> Self {
        let disks = self
            .iter_devices()
            .filter(|(_, part)| part.device.kind == DeviceKind::Disk)
            .map(|(id, _)| id);
        self.spread = disks.collect();
        self
    }

    /// Returns all devices with their numbers.
    pub fn iter_devices(&self) -> impl Iterator<Item = (DeviceId, &MachineDevice)> {
        self.parts
            .iter()
            .enumerate()
            .filter_map(|(at, part)| Some((DeviceId::new(at)?, part)))
    }

    /// Returns the names of the profiles behind its figures, each once.
    pub fn profile_names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        let devices = self.parts.iter().map(|part| part.device.name.as_str());
        for name in devices.chain(self.base.iter().map(|(name, _)| name.as_str())) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names
    }
}

/// Returns the groups of figures that are assumed in part, according to their source.
fn assumed_figures(profile: &Profile) -> Vec<String> {
    let is_assumed = |(_, source): &&(String, String)| source.contains("assumed");
    profile
        .sources
        .iter()
        .filter(is_assumed)
        .map(|(group, source)| format!("{group} ({source})"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn named_machines_are_complete() {
        for (name, profiles, _) in NAMED_MACHINES {
            let machine = ModelledMachine::by_name(name).unwrap();
            assert_eq!(
                machine.parts.len(),
                profiles.len() - 1,
                "{name}: all but the machine itself"
            );
            assert!(machine.base.is_some(), "{name}");
            assert!(
                machine
                    .parts
                    .iter()
                    .any(|part| part.holds == InitialShare::ALL),
                "{name}"
            );
        }
        let server = ModelledMachine::by_name("home-server").unwrap();
        assert_eq!(server.spread.iter().count(), 4);
        assert_eq!(server.parts[4].label, "desktop-7200rpm-composed #4");
        assert_eq!(server.profile_names().len(), 3);
    }

    #[test]
    fn what_makes_no_machine_is_refused() {
        let of = |names: &[&str]| {
            let profiles: Vec<_> = names
                .iter()
                .map(|name| Profile::find_shipped(name).unwrap())
                .collect();
            ModelledMachine::from_profiles("x", &profiles)
                .expect_err("accepted")
                .to_string()
        };
        assert!(of(&["ipaq-3870", "thinkpad-t42"]).contains("both machines"));
        assert!(of(&["ipaq-3870"]).contains("at least one"));
        assert!(of(&["wd-re-4tb"]).contains("wd-re-4tb has no"));
        assert!(of(&["ibm-microdrive-1gb"; 17]).contains("at most 16"));
    }
}
