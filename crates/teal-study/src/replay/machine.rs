//! Machines on which traces are replayed: their devices, and what is where at the beginning.
//!
//! # Guarantees
//! 1. A [`Machine`] is complete: every device of it can be simulated, and some device holds
//!    everything at the beginning.
//! 2. Labels are unique: devices with one profile are numbered.

use teal_energy::Profile;
use teal_energy::device::{DEVICES_MAX, DeviceId, DeviceModel, DeviceSet, QueueLimits};
use teal_energy::power::MissingFigure;
use teal_energy::profile::DeviceKind;
use teal_types::{Power, Span};

/// Machines with a name: name, shipped profiles, and what it is.
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

/// A home log: what is written is on flash within these seconds, the commit interval.
const HOME_LOG: QueueLimits = QueueLimits {
    age: Span::secs(5),
    bytes: 64 << 20,
};

/// Why profiles do not make a machine.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MachineError {
    /// A profile lacks a figure.
    #[error(transparent)]
    Missing(#[from] MissingFigure),
    /// Only one profile of a machine gives the base power.
    #[error("{0} and {1} are both machines; name one")]
    Machines(String, String),
    /// Nothing that stores anything.
    #[error(
        "no disk, flash or link is among the profiles; name at least one, or one of handheld, laptop, desktop, home-server"
    )]
    NoDevices,
    /// More devices than a simulation has.
    #[error("{0} devices are too many: at most {DEVICES_MAX}")]
    TooMany(usize),
}

/// What a device holds at the beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InitialShare {
    /// So many percent of the files, chosen by their numbers.
    pub files: u8,
    /// The attributes and directories of all files, whether it holds those or not.
    pub attributes: bool,
}

impl InitialShare {
    /// Everything.
    pub const ALL: Self = Self {
        files: 100,
        attributes: true,
    };
    /// Nothing.
    pub const NOTHING: Self = Self {
        files: 0,
        attributes: false,
    };
}

/// One device of a machine.
#[derive(Debug, Clone)]
pub struct MachineDevice {
    /// Its name in tables: that of its profile, numbered if there are several.
    pub label: String,
    /// Its model.
    pub device: DeviceModel,
    /// What it holds at the beginning.
    pub holds: InitialShare,
    /// Whether what is read elsewhere is copied to it.
    pub keeps: bool,
    /// Bytes it has room for; what was not used for longest makes way.
    pub room: Option<u64>,
    /// Figures of its profile that no source stands behind.
    pub assumed: Vec<String>,
}

/// A machine.
#[derive(Debug, Clone)]
pub struct ModelledMachine {
    /// How it is called.
    pub name: String,
    /// Its devices.
    pub parts: Vec<MachineDevice>,
    /// What it draws while somebody waits, and the profile that says so; nothing without one.
    pub base: Option<(String, Power)>,
    /// Devices of which each file is on one; empty: each holds all of its own.
    pub spread: DeviceSet,
}

impl ModelledMachine {
    /// A machine of these profiles. Flash, or the first disk where there is none, takes copies of
    /// what is read elsewhere; disks and links hold everything at the beginning, and flash where
    /// there is nothing else.
    ///
    /// # Errors
    /// [`MachineError`].
    pub fn from_profiles(name: &str, profiles: &[Profile]) -> Result<Self, MachineError> {
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
            let mut device = DeviceModel::new(profile)?.with_queue(match profile.kind {
                DeviceKind::Flash => HOME_LOG,
                DeviceKind::Disk if has_flash => QueueLimits::SLEEPING_DISK,
                _ => QueueLimits::BLUEFS,
            });
            // A burst is one append to the log on it.
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
        Ok(Self {
            name: name.to_owned(),
            parts,
            base,
            spread: DeviceSet::EMPTY,
        })
    }

    /// The machine of that name, of [`NAMED`].
    ///
    /// # Panics
    /// Never: a test makes all of them.
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

    /// Each file is on one of the disks, not on all.
    #[must_use]
    pub fn with_spread_disks(mut self) -> Self {
        let disks = self
            .iter_devices()
            .filter(|(_, part)| part.device.kind == DeviceKind::Disk)
            .map(|(id, _)| id);
        self.spread = disks.collect();
        self
    }

    /// All devices with their numbers.
    pub fn iter_devices(&self) -> impl Iterator<Item = (DeviceId, &MachineDevice)> {
        self.parts
            .iter()
            .enumerate()
            .filter_map(|(at, part)| Some((DeviceId::new(at)?, part)))
    }

    /// The names of the profiles behind its figures, each once.
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

/// Groups of figures whose source says that some of it is assumed.
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
