//! The drives of a mount: requests of the control socket about them, and attaching new ones.
//!
//! # Guarantees
//! 1. A drive that was attached here once is attached again whenever its file is there, unless
//!    somebody has detached it: then not before the file was away, or has changed, even if the
//!    volume is mounted anew meanwhile.
//! 2. Places are only looked at ([`POLL`]), never opened, while nothing has appeared there; what is
//!    there and is no drive is not opened again before it has changed. Where a drive was that the
//!    volume has forgotten, nobody looks any more.
//! 3. A registered drive is attached wherever it appears: at the top of a file system that is
//!    mounted, or on a removable disk ([`Places`]).
//! 4. What appears and is no drive of this volume is never locked: it is only read.

mod answers;
mod memory;
mod places;
mod unfit;

use crate::control::{AffinityLine, ControlAnswer, ControlRequest};
use crate::{mkfs, replica};
use anyhow::{Context, Result, bail};
use memory::DriveMemory;
use places::{PlaceWatcher, WakeupHandle, is_same, place_signature};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use teal_command::say::shell_quoted;
use teal_env::{FileDisk, OpenMode, SystemEntropy};
use teal_posix::FileSystem;
use teal_replica::{DriveRefused, DriveShown, NewDrive, Replica};
use teal_types::ObjectNo;
use unfit::{
    describe_damage, explain_failure, is_final, is_fit, is_outside, is_removed, too_small,
};

/// A file that was not there is looked for so often.
const POLL: Duration = Duration::from_secs(2);
/// Names that other sources of content have.
const RESERVED_NAMES: &[&str] = &["server", "home log", "elsewhere"];
/// What appears is tried so often: somebody else may have it open, who only looks whose it is.
const TRIES: u32 = 15;

/// What is kept in mind.
#[derive(Debug, Default)]
struct AttachmentState {
    known: DriveMemory,
    /// Being detached just now.
    detaching: BTreeSet<PathBuf>,
    /// Stores that appeared where nobody has named a place, and how often they are still tried.
    tries: BTreeMap<PathBuf, u32>,
    /// Why a place could not be attached, as it was said last.
    last_failures: BTreeMap<PathBuf, String>,
    /// What is no drive of this volume, as it looked when that was found.
    unfit: BTreeMap<PathBuf, String>,
}

/// See the module.
pub(crate) struct DriveService {
    client: Arc<FileSystem>,
    file: PathBuf,
    /// Guards only itself.
    state: Mutex<AttachmentState>,
    /// One attempt at a time: who is asked to attach what is just being looked at would find it in
    /// use. Under it a drive is opened, and the server asked.
    attaching: Mutex<()>,
    wakeup: std::sync::OnceLock<WakeupHandle>,
}

impl DriveService {
    /// Those of a client whose store is this.
    pub(crate) fn new(client: &Arc<FileSystem>, store: &Path) -> Result<Self> {
        let file = replica::directory_beside(store)?.join("drives.toml");
        let state = Mutex::new(AttachmentState {
            known: DriveMemory::load(&file)?,
            ..AttachmentState::default()
        });
        let (attaching, bell) = (Mutex::new(()), std::sync::OnceLock::new());
        Ok(Self {
            client: Arc::clone(client),
            file,
            state,
            attaching,
            wakeup: bell,
        })
    }

    /// Returns what drives belong to; a volume without a server has none.
    fn replica(&self) -> Result<&Arc<Replica>, DriveRefused> {
        self.client.replica().ok_or(DriveRefused::Alone)
    }

    /// Returns the drives that are attached.
    fn attached_drives(&self) -> Vec<DriveShown> {
        self.client
            .replica()
            .map_or_else(Vec::new, |replica| replica.drives())
    }

    /// Returns the drives that are attached, with where they are and how many objects wait for
    /// each; asks none of them.
    pub(crate) fn attached_places(&self) -> Vec<(String, String, u64)> {
        self.client
            .replica()
            .map_or_else(Vec::new, |replica| replica.drives_here())
    }

    /// Lets go of the drives that are not there any more. Returns their names, where they were, and
    /// what has become of them.
    fn lose_absent(&self) -> Vec<(String, String, String)> {
        self.client
            .replica()
            .map_or_else(Vec::new, |replica| replica.lose_absent_drives())
    }

    /// Attaches what is there, and from now on what appears. A volume without a server has no
    /// drives, and nobody wakes when something is mounted.
    pub(crate) fn start(self: &Arc<Self>) -> std::io::Result<()> {
        let Some(replica) = self.client.replica() else {
            return Ok(());
        };
        let this = Arc::downgrade(self);
        let (mut places, bell) = PlaceWatcher::new()?;
        let poll = move || {
            while let Some(drives) = this.upgrade() {
                drives.forget_left();
                drives.leave_superseded();
                let is_trying = drives.attach_appeared(places.appeared_stores());
                let is_waiting = drives.attach_known() || is_trying;
                drop(drives);
                places.wait_for_change(is_waiting.then_some(POLL));
            }
        };
        std::thread::Builder::new()
            .name("teal-drives".into())
            .spawn(poll)?;
        let _ = self.wakeup.set(bell);
        // A place that was named is looked at until it is there again.
        let this = Arc::downgrade(self);
        replica.when_a_drive_is_lost(move || {
            this.upgrade()
                .iter()
                .for_each(|drives| drives.wake_watcher())
        });
        Ok(())
    }

    /// What was away, or is another one by now, may be attached again.
    fn forget_left(&self) {
        let mut state = self.lock_state();
        let before = state.known.clone();
        state
            .known
            .left
            .retain(|place, looked| place_signature(place).as_ref() == Some(looked));
        if let Err(e) = state.known.save(&self.file, &before) {
            log::warn!("{e:#}");
        }
    }

    /// What is another machine's now is not attached by itself where it was, until it was away.
    fn leave_superseded(&self) {
        let mut state = self.lock_state();
        let before = state.known.clone();
        let places: Vec<PathBuf> = self
            .client
            .replica()
            .map_or_else(Vec::new, |replica| replica.superseded_places());
        state.known.left.extend(
            places
                .into_iter()
                .filter_map(|place| place_signature(&place).map(|looked| (place, looked))),
        );
        if let Err(e) = state.known.save(&self.file, &before) {
            log::warn!("{e:#}");
        }
    }

    fn wake_watcher(&self) {
        self.wakeup.get().iter().for_each(|bell| bell.wake());
    }

    /// Attaches what is a drive of this volume, and is at a place that nobody has named; whether
    /// something is to be tried again: somebody else may let go of it just now.
    fn attach_appeared(&self, places: Vec<PathBuf>) -> bool {
        let attached: BTreeSet<PathBuf> = self
            .attached_drives()
            .into_iter()
            .map(|drive| drive.place.into())
            .collect();
        let tried: Vec<PathBuf> = {
            let mut state = self.lock_state();
            state
                .tries
                .extend(places.into_iter().map(|place| (place, TRIES)));
            let AttachmentState {
                known,
                detaching: leaving,
                tries,
                ..
            } = &mut *state;
            tries.retain(|place, _| {
                let is_said = known.places.contains(place)
                    || leaving.contains(place)
                    || known.left.contains_key(place);
                !is_said && !attached.contains(place) && place_signature(place).is_some()
            });
            tries.keys().cloned().collect()
        };
        for place in tried {
            let done = self
                .inspect_place(&place)
                .and_then(|()| self.attach_from(&place));
            let mut state = self.lock_state();
            let left = state.tries.remove(&place).unwrap_or(0);
            if let Err(e) = done {
                log::debug!("{} is not attached: {e:#}", place.display());
                if left > 1 && !is_final(&e) {
                    state.tries.insert(place, left - 1);
                }
            }
        }
        !self.lock_state().tries.is_empty()
    }

    fn lock_state(&self) -> std::sync::MutexGuard<'_, AttachmentState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Attaches what has appeared; whether something known is not attached.
    fn attach_known(&self) -> bool {
        let attached: BTreeSet<PathBuf> = self
            .attached_drives()
            .into_iter()
            .map(|drive| drive.place.into())
            .collect();
        let known = self.lock_state().known.places.clone();
        let away: Vec<_> = known
            .into_iter()
            .filter(|place| !attached.contains(place))
            .collect();
        away.iter().for_each(|place| self.attach_again(place));
        !away.is_empty()
    }

    /// Attaches what has appeared where somebody has named a place, unless it is known to be none
    /// of ours.
    fn attach_again(&self, place: &Path) {
        let looked = place_signature(place);
        {
            let mut state = self.lock_state();
            if looked.is_none() || state.unfit.get(place) != looked.as_ref() {
                state.unfit.remove(place);
            }
            let is_left = state.detaching.contains(place) || state.known.left.contains_key(place);
            if looked.is_none() || is_left || state.unfit.contains_key(place) {
                return;
            }
        }
        let done = self.attach_from(place);
        if done.as_ref().is_err_and(is_removed)
            && let Err(e) = self.list_drives()
        {
            log::debug!("{e:#}");
        }
        let words = done
            .as_ref()
            .err()
            .map(|e| format!("{e:#}"))
            .unwrap_or_default();
        let mut state = self.lock_state();
        if let Some(looked) = place_signature(place).filter(|_| done.is_err_and(|e| is_final(&e))) {
            state.unfit.insert(place.to_owned(), looked);
        }
        if state
            .last_failures
            .insert(place.to_owned(), words.clone())
            .unwrap_or_default()
            != words
            && !words.is_empty()
        {
            log::warn!("{} is not attached: {words}", place.display());
        }
    }

    /// Looks whether a drive of this volume is there, without a lock: whoever else opens what is
    /// there finds it free.
    fn inspect_place(&self, path: &Path) -> Result<()> {
        is_fit(path)?;
        let disk = FileDisk::open(path, OpenMode::ReadUnlocked)
            .map_err(|e| explain_failure(e.into(), path))?;
        let looked = self.replica()?.look_at_drive(Arc::new(disk));
        if let Err(DriveRefused::Disk(why)) = &looked
            && let Some(why) = describe_damage(why)
        {
            // Not final: somebody who writes to it looks like that, too.
            bail!("{} is damaged, or in use: {why}", path.display());
        }
        looked
            .with_context(|| path.to_string_lossy().into_owned())
            .map_err(|e| explain_failure(e, path))
    }

    /// Attaches what is there; its name if it is attached already.
    fn attach_from(&self, path: &Path) -> Result<Option<String>> {
        let _attaching = self
            .attaching
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        self.lose_absent();
        if let Some(name) = self.attached_from(path) {
            return Ok(Some(name));
        }
        is_fit(path)?;
        let disk =
            FileDisk::open(path, OpenMode::Write).map_err(|e| explain_failure(e.into(), path))?;
        let place = path.to_string_lossy();
        let known = self.lock_state().known.known_drives();
        let attached = self
            .replica()?
            .attach_drive(Arc::new(disk), &place, &known, &SystemEntropy);
        attached
            .with_context(|| place.into_owned())
            .map_err(|e| explain_failure(e, path))?;
        log::info!("the drive in {} is attached", path.display());
        self.remember_attached(path, false)?;
        Ok(None)
    }

    /// The drive that is attached from this file or disk.
    fn attached_from(&self, path: &Path) -> Option<String> {
        let mut drives = self.attached_places().into_iter();
        drives
            .find(|(_, place, _)| is_same(Path::new(place), path))
            .map(|(name, ..)| name)
    }

    /// Keeps in mind which drives are attached; and, if somebody has named it, that one is to be
    /// looked for at this place.
    fn remember_attached(&self, path: &Path, is_named: bool) -> Result<()> {
        let attached = self.attached_drives();
        let mut state = self.lock_state();
        let before = state.known.clone();
        state.known.left.remove(path);
        state.unfit.remove(path);
        if is_named {
            state.known.places.insert(path.to_owned());
        }
        for drive in attached {
            state
                .known
                .record_attachment(drive.device, &drive.place, drive.known);
        }
        state.known.save(&self.file, &before)?;
        drop(state);
        self.wake_watcher();
        Ok(())
    }

    /// Forgets drives that the volume has forgotten, and where they were.
    fn forget_devices(&self, devices: &[u32]) -> Result<()> {
        let mut state = self.lock_state();
        let before = state.known.clone();
        for device in devices {
            let places = state.known.forget_drive(*device);
            places.iter().for_each(|place| {
                log::info!("nobody looks for a drive in {} any more", place.display())
            });
        }
        state.known.save(&self.file, &before)
    }

    /// Answers what is asked about drives.
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
                self.make_drive(path, (*size, *force), &new)?;
            }
            ControlRequest::DeviceAttach { path } => {
                let already = self.attach_from(path)?;
                self.remember_attached(path, true)?;
                if let Some(already) = already {
                    return Ok(ControlAnswer::Already { already });
                }
            }
            ControlRequest::DeviceDetach { name, fast } => {
                let mut lost = self.lose_absent().into_iter();
                if let Some((name, _, why)) =
                    lost.find(|(lost, place, _)| lost == name || place == name)
                {
                    bail!("{name} is gone already ({why}); nothing is lost with it");
                }
                let places = self.places_of(name);
                self.lock_state().detaching.extend(places.iter().cloned());
                let done = self.replica()?.detach_drive(name, *fast);
                let mut state = self.lock_state();
                state.detaching.retain(|place| !places.contains(place));
                if !matches!(done, Err(DriveRefused::NotAttached(_))) {
                    let before = state.known.clone();
                    state.known.left.extend(
                        places
                            .into_iter()
                            .filter_map(|place| Some((place.clone(), place_signature(&place)?))),
                    );
                    let saved = state.known.save(&self.file, &before);
                    drop(state);
                    self.wake_watcher();
                    saved?;
                }
                done?;
            }
            ControlRequest::DeviceRm { name } => {
                let places = self.places_of(name);
                self.lock_state().detaching.extend(places.iter().cloned());
                let done = self
                    .replica()?
                    .remove_drive(name)
                    .map(|device| self.forget_devices(&[device]));
                self.lock_state()
                    .detaching
                    .retain(|place| !places.contains(place));
                self.wake_watcher();
                done??;
            }
            ControlRequest::AffinityAdd {
                object,
                drive,
                sticky,
            } => {
                let (files, bytes) = self
                    .replica()?
                    .add_affinity(ObjectNo::new(*object), drive, *sticky)
                    .map_err(too_small)?;
                return Ok(ControlAnswer::Marked { files, bytes });
            }
            ControlRequest::AffinityRm { object, drive } => self
                .replica()?
                .remove_affinity(ObjectNo::new(*object), drive)?,
            ControlRequest::AffinityLs { drive } => {
                let found = self.replica()?.affinities(drive)?.into_iter();
                let line = |of: teal_replica::Affinity| {
                    let teal_replica::Affinity {
                        path,
                        bytes,
                        size,
                        sticky,
                        is_short,
                    } = of;
                    AffinityLine {
                        path,
                        bytes,
                        size,
                        sticky,
                        short: is_short,
                    }
                };
                return Ok(ControlAnswer::Affinities {
                    affinities: found.map(line).collect(),
                });
            }
            _ => bail!("this is no question about drives"),
        }
        Ok(ControlAnswer::Done)
    }

    /// Returns where the drive of this name is attached.
    fn places_of(&self, name: &str) -> Vec<PathBuf> {
        let drives = self.attached_places().into_iter();
        drives
            .filter(|(known, place, _)| known == name || place == name)
            .map(|(_, place, _)| place.into())
            .collect()
    }

    fn make_drive(
        &self,
        path: &Path,
        (size, force): (Option<u64>, bool),
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
                "{} is in use: it is the drive {name}; let go of it first: teal device detach {quoted}",
                path.display()
            );
        }
        if replica
            .registered_drives()?
            .iter()
            .any(|known| known.name == *name)
        {
            bail!("this volume has a drive called {name} already; choose another name with --name");
        }
        let (disk, is_created) =
            mkfs::open_target_disk(path, size, force).map_err(|e| explain_failure(e, path))?;
        let added = replica.add_drive(Arc::new(disk), &path.to_string_lossy(), new, &SystemEntropy);
        if added.is_err() && is_created {
            let _ = std::fs::remove_file(path);
        }
        added
            .with_context(|| format!("no drive was made in {}", path.display()))
            .map_err(|e| explain_failure(e, path))?;
        self.remember_attached(path, true)
    }
}
