//! The memory of drives across remounts: `drives.toml` beside the store.
//!
//! # Guarantees
//! 1. The file is replaced as a whole, and only when something has changed.
//! 2. Of a drive that the volume has forgotten no place is kept.

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use teal_command::path_context::PathContext as _;
use teal_env::{ExistingFile, replace_file};
use teal_replica::{KnownDrive, KnownDrives};
use teal_types::DriveNo;

/// A drive that has been attached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RememberedDrive {
    device: DriveNo,
    /// The nonce of the last attachment here, in hexadecimal digits.
    nonce: String,
    profile: String,
}

/// The drives that have been attached, and their places.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DriveMemory {
    /// The places that a person has named.
    pub(super) places: BTreeSet<PathBuf>,
    #[serde(default)]
    drives: Vec<RememberedDrive>,
    /// The places of detached drives, with their signatures at that time. A place stays here until
    /// its file was away, or has been used by another machine.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) left: BTreeMap<PathBuf, String>,
    /// The drive that was in a place last, by its number.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) at: BTreeMap<PathBuf, DriveNo>,
}

impl DriveMemory {
    /// Returns what the file says; nothing if there is none yet.
    pub(super) fn load(file: &Path) -> Result<Self> {
        match std::fs::read_to_string(file) {
            Ok(text) => toml::from_str(&text).with_path(file),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(Self::default()),
            Err(e) => Err(e).with_path(file),
        }
    }

    /// Writes down what differs from `before`.
    pub(super) fn save(&self, file: &Path, before: &Self) -> Result<()> {
        // An unchanged memory is not written: an idle mount does no I/O.
        if self != before {
            let text =
                toml::to_string(self).context("the list of drives cannot be written as text")?;
            replace_file(file, text.as_bytes(), ExistingFile::Replace)
                .with_context(|| format!("writing {}", file.display()))?;
        }
        Ok(())
    }

    /// Returns the drives that were attached here.
    pub(super) fn known_drives(&self) -> KnownDrives {
        // An entry that cannot be read is left out, as if the drive had not been here.
        let mut known = KnownDrives::new();
        for had in &self.drives {
            if let Ok(nonce) = u64::from_str_radix(&had.nonce, 16) {
                let profile = had.profile.clone();
                known.insert(had.device, KnownDrive { nonce, profile });
            }
        }
        known
    }

    /// Records that a drive is attached from this place.
    pub(super) fn record_attachment(
        &mut self,
        device: DriveNo,
        place: &str,
        KnownDrive { nonce, profile }: KnownDrive,
    ) {
        self.drives.retain(|had| had.device != device);
        self.drives.push(RememberedDrive {
            device,
            nonce: format!("{nonce:x}"),
            profile,
        });
        self.drives.sort_by_key(|had| had.device);
        // A place at which a drive merely appeared may never come back, so it is not kept.
        self.at.retain(|place, at| {
            *at != device || self.places.contains(place) || self.left.contains_key(place)
        });
        debug_assert!(
            self.drives
                .is_sorted_by(|one, next| one.device < next.device),
            "one entry each"
        );
        self.at.insert(place.into(), device);
    }

    /// Stops looking for a drive at this place.
    pub(super) fn forget_place(&mut self, place: &Path) {
        self.places.remove(place);
        self.left.remove(place);
        self.at.remove(place);
    }

    /// Forgets a drive that the volume has forgotten, and returns its places.
    pub(super) fn forget_drive(&mut self, device: DriveNo) -> Vec<PathBuf> {
        let mut places = Vec::new();
        for (place, at) in &self.at {
            if *at == device {
                places.push(place.clone());
            }
        }
        for place in &places {
            self.forget_place(place);
        }
        self.drives.retain(|had| had.device != device);
        debug_assert!(
            self.at.values().all(|at| *at != device),
            "a forgotten drive has no place"
        );
        places
    }
}
