//! The drives of a mount, in the daemon: what the control socket asks about them, and attaching those that appear.
//!
//! # Guarantees
//! 1. A drive that was attached here once is attached again whenever its file is there, unless somebody has detached it: then not before the
//!    file was away, or has changed, even if the volume is mounted anew meanwhile.
//! 2. Places are only looked at ([`POLL`]), never opened, while nothing has appeared there.
//! 3. A registered drive is attached wherever it appears: at the top of a file system that is mounted, or on a removable disk ([`Places`]).

mod places;

use crate::control::{AffinityLine, Answer, Ask, DeviceLine, SourceLine, WhereLine};
use crate::{mkfs, replica};
use anyhow::{Context, Result, bail};
use places::{Bell, Places, looks};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use teal_client::{Client, DriveRefused, KnownDrive, KnownDrives, NewDrive};
use teal_env::{FileDisk, OpenMode, SystemEntropy};
use teal_types::ObjectNo;

/// A file that was not there is looked for so often.
const POLL: Duration = Duration::from_secs(2);
/// What appears is tried so often: somebody else may have it open, who only looks whose it is.
const TRIES: u32 = 15;

/// A drive that has been attached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Had {
    device: u32,
    /// Of its last attachment here, in hexadecimal digits.
    nonce: String,
    profile: String,
}

/// Where drives have been attached, and which: `drives.toml` beside the store.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Known {
    places: BTreeSet<PathBuf>,
    #[serde(default)]
    drives: Vec<Had>,
    /// Detached by somebody, as they looked then: until their file was away, or somebody else has used it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    left: BTreeMap<PathBuf, String>,
}

/// What is kept in mind.
#[derive(Debug, Default)]
struct State {
    known: Known,
    /// Being detached just now.
    leaving: BTreeSet<PathBuf>,
    /// Stores that appeared where nobody has named a place, and how often they are still tried.
    tries: BTreeMap<PathBuf, u32>,
    /// Why a place could not be attached, as it was said last.
    said: BTreeMap<PathBuf, String>,
}

/// See the module.
pub(crate) struct Drives {
    client: Arc<Client>,
    file: PathBuf,
    /// Guards only itself.
    state: Mutex<State>,
    /// One attempt at a time: who is asked to attach what is just being looked at would find it in use. Under it a drive is opened, and the server asked.
    attaching: Mutex<()>,
    bell: std::sync::OnceLock<Bell>,
}

/// Why there is no drive in `path`, for people: of a disk that cannot be written to nothing else needs to be said.
fn said(error: anyhow::Error, path: &Path) -> anyhow::Error {
    let is_protected = |cause: &(dyn std::error::Error + 'static)| {
        let shared = cause.downcast_ref::<Arc<std::io::Error>>().map(|e| &**e);
        let kind = shared.or(cause.downcast_ref()).map(std::io::Error::kind);
        matches!(kind, Some(ErrorKind::ReadOnlyFilesystem | ErrorKind::PermissionDenied))
    };
    if error.chain().any(is_protected) {
        let path = path.display();
        return anyhow::anyhow!(
            "{path} is write-protected, and a drive writes down how far it has come: take the protection off"
        );
    }
    error
}

/// Whether it will not be otherwise soon: what has appeared is no drive of this volume.
fn is_final(error: &anyhow::Error) -> bool {
    let refused = error.downcast_ref();
    matches!(
        refused,
        Some(
            DriveRefused::Alone
                | DriveRefused::Disk(_)
                | DriveRefused::OtherVolume { .. }
                | DriveRefused::Forged
                | DriveRefused::Twice { .. }
                | DriveRefused::History
        )
    )
}

impl Drives {
    /// Those of a client whose store is this.
    pub(crate) fn new(client: &Arc<Client>, store: &Path) -> Result<Self> {
        let file = replica::beside(store)?.join("drives.toml");
        let known = match std::fs::read_to_string(&file) {
            Ok(text) => toml::from_str(&text).with_context(|| file.display().to_string())?,
            Err(e) if e.kind() == ErrorKind::NotFound => Known::default(),
            Err(e) => return Err(e).with_context(|| file.display().to_string()),
        };
        let state = Mutex::new(State { known, ..State::default() });
        let (attaching, bell) = (Mutex::new(()), std::sync::OnceLock::new());
        Ok(Self { client: Arc::clone(client), file, state, attaching, bell })
    }

    /// Attaches what is there, and from now on what appears. A volume without a server has no drives, and nobody wakes when something is mounted.
    pub(crate) fn start(self: &Arc<Self>) -> std::io::Result<()> {
        if !self.client.is_replica() {
            return Ok(());
        }
        let this = Arc::downgrade(self);
        let (mut places, bell) = Places::new()?;
        let poll = move || {
            while let Some(drives) = this.upgrade() {
                drives.forget_left();
                drives.leave_superseded();
                let is_trying = drives.attach_appeared(places.appeared());
                let is_waiting = drives.attach_known() || is_trying;
                drop(drives);
                places.wait(is_waiting.then_some(POLL));
            }
        };
        std::thread::Builder::new().name("teal-drives".into()).spawn(poll)?;
        let _ = self.bell.set(bell);
        // A place that was named is looked at until it is there again.
        let this = Arc::downgrade(self);
        self.client.when_a_drive_is_lost(move || this.upgrade().iter().for_each(|drives| drives.ring()));
        Ok(())
    }

    /// What was away, or is another one by now, may be attached again.
    fn forget_left(&self) {
        let mut state = self.state();
        let before = state.known.clone();
        state.known.left.retain(|place, looked| looks(place).as_ref() == Some(looked));
        if let Err(e) = self.save(&state.known, &before) {
            log::warn!("{e:#}");
        }
    }

    /// What is another machine's now is not attached by itself where it was, until it was away.
    fn leave_superseded(&self) {
        let mut state = self.state();
        let before = state.known.clone();
        let places = self.client.superseded_places().into_iter();
        state.known.left.extend(places.filter_map(|place| looks(&place).map(|looked| (place, looked))));
        if let Err(e) = self.save(&state.known, &before) {
            log::warn!("{e:#}");
        }
    }

    fn ring(&self) {
        self.bell.get().iter().for_each(|bell| bell.ring());
    }

    /// Attaches what is a drive of this volume, and is at a place that nobody has named; whether something is to be tried again: somebody else may let go
    /// of it just now.
    fn attach_appeared(&self, places: Vec<PathBuf>) -> bool {
        let attached: BTreeSet<PathBuf> = self.client.drives().into_iter().map(|drive| drive.place.into()).collect();
        let tried: Vec<PathBuf> = {
            let mut state = self.state();
            state.tries.extend(places.into_iter().map(|place| (place, TRIES)));
            let State { known, leaving, tries, .. } = &mut *state;
            tries.retain(|place, _| {
                let is_said = known.places.contains(place) || leaving.contains(place) || known.left.contains_key(place);
                !is_said && !attached.contains(place) && looks(place).is_some()
            });
            tries.keys().cloned().collect()
        };
        for place in tried {
            let done = self.attach(&place);
            let mut state = self.state();
            let left = state.tries.remove(&place).unwrap_or(0);
            if let Err(e) = done {
                log::debug!("{} is not attached: {e:#}", place.display());
                if left > 1 && !is_final(&e) {
                    state.tries.insert(place, left - 1);
                }
            }
        }
        !self.state().tries.is_empty()
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Attaches what has appeared; whether something known is not attached.
    fn attach_known(&self) -> bool {
        let attached: BTreeSet<PathBuf> = self.client.drives().into_iter().map(|drive| drive.place.into()).collect();
        let known = self.state().known.places.clone();
        let away: Vec<_> = known.into_iter().filter(|place| !attached.contains(place)).collect();
        for place in &away {
            if self.state().leaving.contains(place) {
                continue;
            }
            if looks(place).is_some() && !self.state().known.left.contains_key(place) {
                let words = self.attach(place).err().map(|e| format!("{e:#}")).unwrap_or_default();
                let mut state = self.state();
                if state.said.insert(place.clone(), words.clone()).unwrap_or_default() != words && !words.is_empty() {
                    log::warn!("{} is not attached: {words}", place.display());
                }
            }
        }
        !away.is_empty()
    }

    fn attach(&self, path: &Path) -> Result<()> {
        let _attaching = self.attaching.lock().unwrap_or_else(PoisonError::into_inner);
        let disk = FileDisk::open(path, OpenMode::Write).map_err(|e| said(e.into(), path))?;
        let place = path.to_string_lossy();
        let known = self.known();
        let attached = self.client.attach_drive(Arc::new(disk), &place, &known, &SystemEntropy);
        attached.with_context(|| place.into_owned()).map_err(|e| said(e, path))?;
        log::info!("the drive in {} is attached", path.display());
        self.remember(path, None)
    }

    /// The drives that were attached here.
    fn known(&self) -> KnownDrives {
        let state = self.state();
        let known = state.known.drives.iter().filter_map(|had| {
            let nonce = u64::from_str_radix(&had.nonce, 16).ok()?;
            Some((had.device, KnownDrive { nonce, profile: had.profile.clone() }))
        });
        known.collect()
    }

    /// Keeps in mind which drives are attached; and that one is to be looked for at this place, or not any more.
    fn remember(&self, path: &Path, is_place: Option<bool>) -> Result<()> {
        let attached = self.client.drives();
        let mut state = self.state();
        let before = state.known.clone();
        state.known.left.remove(path);
        match is_place {
            Some(true) => drop(state.known.places.insert(path.to_owned())),
            Some(false) => drop(state.known.places.remove(path)),
            None => {}
        }
        for drive in attached {
            let KnownDrive { nonce, profile } = drive.known;
            state.known.drives.retain(|had| had.device != drive.device);
            state.known.drives.push(Had { device: drive.device, nonce: format!("{nonce:x}"), profile });
        }
        state.known.drives.sort_by_key(|had| had.device);
        self.save(&state.known, &before)?;
        drop(state);
        self.ring();
        Ok(())
    }

    /// Writes down what is kept in mind, under the lock of the state.
    fn save(&self, known: &Known, before: &Known) -> Result<()> {
        if known != before {
            let new = self.file.with_extension("new");
            std::fs::write(&new, toml::to_string(known).context("the list of drives")?)
                .with_context(|| new.display().to_string())?;
            std::fs::rename(&new, &self.file).with_context(|| self.file.display().to_string())?;
        }
        Ok(())
    }

    /// Answers what is asked about drives.
    pub(crate) fn answer(&self, ask: &Ask) -> Result<Answer> {
        match ask {
            Ask::DeviceLs => return Ok(Answer::Devices { devices: self.list()? }),
            Ask::Where { object } => return self.whereabouts(ObjectNo::new(*object)),
            Ask::DeviceAdd { path, size, name, portable, profile } => {
                let new = NewDrive { name: name.clone(), portable: *portable, profile: profile.clone() };
                self.add(path, *size, &new)?;
            }
            Ask::DeviceAttach { path } => {
                self.attach(path)?;
                self.remember(path, Some(true))?;
            }
            Ask::DeviceDetach { name, fast } => {
                let places = self.places(name);
                self.state().leaving.extend(places.iter().cloned());
                let done = self.client.detach_drive(name, *fast);
                let mut state = self.state();
                state.leaving.retain(|place| !places.contains(place));
                if !matches!(done, Err(DriveRefused::NotAttached(_))) {
                    let before = state.known.clone();
                    state
                        .known
                        .left
                        .extend(places.into_iter().filter_map(|place| Some((place.clone(), looks(&place)?))));
                    let saved = self.save(&state.known, &before);
                    drop(state);
                    self.ring();
                    saved?;
                }
                done?;
            }
            Ask::DeviceRm { name } => {
                let places = self.places(name);
                self.client.remove_drive(name)?;
                places.iter().try_for_each(|place| self.remember(place, Some(false)))?;
            }
            Ask::AffinityAdd { object, drive, sticky } => {
                let (files, bytes) = self.client.add_affinity(ObjectNo::new(*object), drive, *sticky)?;
                return Ok(Answer::Marked { files, bytes });
            }
            Ask::AffinityRm { object, drive } => self.client.remove_affinity(ObjectNo::new(*object), drive)?,
            Ask::AffinityLs { drive } => {
                let found = self.client.affinities(drive)?.into_iter();
                let line = |of: teal_client::Affinity| {
                    let teal_client::Affinity { path, bytes, size, sticky, is_short } = of;
                    AffinityLine { path, bytes, size, sticky, short: is_short }
                };
                return Ok(Answer::Affinities { affinities: found.map(line).collect() });
            }
            _ => bail!("this is no question about drives"),
        }
        Ok(Answer::Done { ok: true })
    }

    /// Where the drive of this name is attached.
    fn places(&self, name: &str) -> Vec<PathBuf> {
        let drives = self.client.drives().into_iter();
        drives.filter(|drive| drive.name == name || drive.place == name).map(|drive| drive.place.into()).collect()
    }

    fn add(&self, path: &Path, size: Option<u64>, new: &NewDrive) -> Result<()> {
        if !self.client.is_replica() {
            return Err(DriveRefused::Alone.into());
        }
        let (disk, is_created) = mkfs::disk(path, size, false).map_err(|e| said(e, path))?;
        let added = self.client.add_drive(Arc::new(disk), &path.to_string_lossy(), new, &SystemEntropy);
        if added.is_err() && is_created {
            let _ = std::fs::remove_file(path);
        }
        added.with_context(|| format!("no drive was made in {}", path.display())).map_err(|e| said(e, path))?;
        self.remember(path, Some(true))
    }

    fn list(&self) -> Result<Vec<DeviceLine>> {
        let mut here = self.client.drives();
        let registered = self.client.registered_drives();
        let superseded = self.client.superseded_drives();
        here.retain(|drive| !superseded.contains_key(&drive.device));
        let mut lines = Vec::new();
        for drive in &here {
            lines.push(DeviceLine {
                device: drive.device,
                name: drive.name.clone(),
                place: Some(drive.place.clone()),
                total_bytes: drive.room.0,
                free_bytes: Some(drive.room.1),
                objects: Some(drive.objects),
                position: Some(drive.seen.get()),
                queued: drive.queued.0,
                queued_bytes: drive.queued.1,
                short: drive.short.0,
                short_bytes: drive.short.1,
                late: drive.is_late,
                counts: drive.counts.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect(),
                ..DeviceLine::default()
            });
        }
        match registered {
            // What is here is shown without the server, too.
            Err(_) if !here.is_empty() => {}
            registered => {
                for note in registered? {
                    let known = lines.iter_mut().find(|line| line.device == note.device);
                    let line = match known {
                        Some(line) => line,
                        None => {
                            lines.push(DeviceLine { device: note.device, name: note.name, ..DeviceLine::default() });
                            lines.last_mut().context("a line")?
                        }
                    };
                    (line.portable, line.profile) = (note.portable, note.profile);
                    line.bytes = note.bytes;
                    line.superseded = superseded.get(&note.device).cloned();
                    line.attached_to = note.attached.map(|(_, machine)| machine);
                }
            }
        }
        lines.sort_by_key(|line| line.device);
        Ok(lines)
    }

    fn whereabouts(&self, object: ObjectNo) -> Result<Answer> {
        let found = self.client.whereabouts(object)?;
        let line = |source: teal_client::SourceShown| SourceLine {
            name: source.name,
            version: source.data_seq.map(|seq| seq.get()),
            bytes: source.bytes,
            microseconds: source.latency.map(|time| time.as_micros() as u64),
            cost: source.cost as f64 / 1e11,
            why: source.why.to_owned(),
        };
        let sources = found.sources.into_iter().map(line).collect();
        let (path, size, pinned) = (found.path, found.size, found.pinned);
        Ok(Answer::Where { whereabouts: WhereLine { path, size, pinned, sources } })
    }
}
