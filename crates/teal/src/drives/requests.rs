//! The requests of the control socket about drives.

use super::DriveService;
use super::places::place_signature;
use super::unfit::{explain_failure, is_outside, too_small};
use crate::control::{AffinityLine, ControlAnswer, ControlRequest};
use crate::mkfs;
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use teal_command::say::shell_quoted;
use teal_env::SystemEntropy;
use teal_replica::{AffineObject, DriveRefused, NewDrive};
use teal_types::ObjectNo;

/// Names that other sources of content have.
const RESERVED_NAMES: &[&str] = &["server", "home log", "elsewhere"];

impl DriveService {
    /// Answers a request about drives.
    pub(crate) fn answer_request(&self, ask: &ControlRequest) -> Result<ControlAnswer> {
        match ask {
            ControlRequest::DeviceLs => return self.list_drives(),
            ControlRequest::Where { object } => return self.locate_content(ObjectNo::new(*object)),
            ControlRequest::DeviceAdd {
                path,
                size,
                name,
                portable,
                profile,
                force,
            } => {
                let new = NewDrive {
                    name: name.clone(),
                    portable: *portable,
                    profile: profile.clone(),
                };
                self.make_drive(path, *size, *force, &new)?;
            }
            ControlRequest::DeviceAttach { path } => return self.attach_named(path),
            ControlRequest::DeviceDetach { name, fast } => self.detach_drive(name, *fast)?,
            ControlRequest::DeviceRm { name } => self.remove_drive(name)?,
            ControlRequest::AffinityAdd {
                object,
                drive,
                sticky,
            } => {
                let replica = self.replica()?;
                let added = replica.add_affinity(ObjectNo::new(*object), drive, *sticky);
                let (files, bytes) = added.map_err(too_small)?;
                return Ok(ControlAnswer::Marked { files, bytes });
            }
            ControlRequest::AffinityRm { object, drive } => {
                let replica = self.replica()?;
                replica.remove_affinity(ObjectNo::new(*object), drive)?;
            }
            ControlRequest::AffinityLs { drive } => {
                let found = self.replica()?.list_affinities(drive)?;
                let affinities = found.into_iter().map(affinity_line).collect();
                return Ok(ControlAnswer::Affinities { affinities });
            }
            _ => bail!("this request is not about drives"),
        }
        Ok(ControlAnswer::Done)
    }

    /// Attaches the drive at a place that a person has named, and looks for it there from now on.
    fn attach_named(&self, path: &Path) -> Result<ControlAnswer> {
        let already = self.attach_from(path)?;
        // Also where it was attached before: it may have appeared there by chance until now.
        self.remember_attached(path, true)?;
        Ok(match already {
            Some(already) => ControlAnswer::Already { already },
            None => ControlAnswer::Done,
        })
    }

    /// Detaches a drive, and keeps the watching thread from attaching it again.
    fn detach_drive(&self, name: &str, fast: bool) -> Result<()> {
        for (lost, place, why) in self.lose_absent() {
            if lost == name || place == name {
                bail!("{lost} is gone already ({why}); nothing is lost with it");
            }
        }
        let places = self.places_of(name);
        // Noted before the drive is let go, so that the thread does not find it free in between.
        self.lock_state().detaching.extend(places.iter().cloned());
        let done = self.replica()?.detach_drive(name, fast);
        let mut state = self.lock_state();
        state.detaching.retain(|place| !places.contains(place));
        if !matches!(done, Err(DriveRefused::NotAttached(_))) {
            let before = state.known.clone();
            for place in places {
                if let Some(signature) = place_signature(&place) {
                    state.known.left.insert(place, signature);
                }
            }
            let saved = state.known.save(&self.file, &before);
            drop(state);
            self.wake_watcher();
            saved?;
        }
        Ok(done?)
    }

    /// Removes a drive from the volume, and forgets its places.
    fn remove_drive(&self, name: &str) -> Result<()> {
        let places = self.places_of(name);
        // As for detaching: the thread must not attach it while it is being removed.
        self.lock_state().detaching.extend(places.iter().cloned());
        let removed = self.replica()?.remove_drive(name);
        let done = removed.map(|device| self.forget_devices(&[device]));
        let mut state = self.lock_state();
        state.detaching.retain(|place| !places.contains(place));
        drop(state);
        self.wake_watcher();
        done?
    }

    /// Returns where the drive of this name is attached.
    fn places_of(&self, name: &str) -> Vec<PathBuf> {
        let mut places = Vec::new();
        for (known, place, _) in self.attached_places() {
            if known == name || place == name {
                places.push(place.into());
            }
        }
        places
    }

    /// Makes a drive in a file or on a block device, and attaches it.
    fn make_drive(
        &self,
        path: &Path,
        size: Option<u64>,
        force: bool,
        new: &NewDrive,
    ) -> Result<()> {
        let replica = self.replica()?;
        let name = &new.name;
        if RESERVED_NAMES.contains(&name.to_lowercase().as_str()) {
            bail!(
                "{name} is the name of another place where content is; choose another with --name"
            );
        }
        is_outside(path)?;
        self.lose_absent();
        if let Some(name) = self.attached_from(path) {
            let quoted = shell_quoted(&name);
            bail!(
                "{} is in use: it is the drive {name}; let go of it first: \
                 teal device detach {quoted}",
                path.display()
            );
        }
        // The server refuses the name, too, but only after the store has been made.
        let registered = replica.registered_drives()?;
        if registered.iter().any(|known| known.name == *name) {
            bail!("this volume has a drive called {name} already; choose another name with --name");
        }
        let (disk, is_created) =
            mkfs::open_target_disk(path, size, force).map_err(|e| explain_failure(e, path))?;
        let added = replica.add_drive(Arc::new(disk), &path.to_string_lossy(), new, &SystemEntropy);
        // Only a file that this request has made is removed again.
        if added.is_err() && is_created {
            let _ = std::fs::remove_file(path);
        }
        added
            .with_context(|| format!("no drive was made in {}", path.display()))
            .map_err(|e| explain_failure(e, path))?;
        self.remember_attached(path, true)
    }
}

fn affinity_line(affinity: AffineObject) -> AffinityLine {
    let AffineObject {
        path,
        bytes,
        size,
        sticky,
        is_short,
    } = affinity;
    AffinityLine {
        path,
        bytes,
        size,
        sticky,
        short: is_short,
    }
}
