//! The drives of a mount: requests of the control socket about them, and attaching new ones.
//!
//! # Guarantees
//! 1. A drive that was attached here once is attached again whenever its file is there, unless a
//!    person has detached it. Then it is not attached before its file was away or has changed, even
//!    if the volume is mounted anew meanwhile.
//! 2. Places are only looked at, never opened, while nothing has appeared there; a file
//!    that is no drive is not opened again before it has changed. The places of drives that the
//!    volume has forgotten are not looked at any more.
//! 3. A registered drive is attached wherever it appears: at the top of a file system that is
//!    mounted, or on a removable disk.
//! 4. What appears and is no drive of this volume is never locked: it is only read.
//!
//! # Rooms, each of which uses those before it
//! 1. `memory`: what is remembered across remounts.
//! 2. `places`: where drives may appear.
//! 3. `unfit`: why a place holds no drive of this volume.
//! 4. `answers`: lists of drives and of places of content.
//! 5. `appearance`: attaching drives that appear, on a thread of its own.
//! 6. `requests`: the requests of the control socket.

mod answers;
mod appearance;
mod memory;
mod places;
mod requests;
mod unfit;

use crate::replica;
use anyhow::{Context, Result};
use memory::DriveMemory;
use places::{WakeupHandle, is_same};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use teal_env::{FileDisk, OpenMode, SystemEntropy};
use teal_posix::FileSystem;
use teal_replica::{DriveRefused, DriveStatus, Replica};
use teal_types::DriveNo;
use unfit::{explain_failure, is_fit};

/// The places and drives that the service remembers.
#[derive(Debug, Default)]
struct AttachmentState {
    known: DriveMemory,
    /// The places of drives that are being detached: they are not attached again meanwhile.
    detaching: BTreeSet<PathBuf>,
    /// Stores that appeared at places that were never named, and how often they are still tried.
    tries: BTreeMap<PathBuf, u32>,
    /// The last failure to attach each place, which is logged once and not at every attempt.
    last_failures: BTreeMap<PathBuf, String>,
    /// Places that hold no drive of this volume, each with its signature when that was found.
    unfit: BTreeMap<PathBuf, String>,
}

/// The drives of one mount.
pub(crate) struct DriveService {
    client: Arc<FileSystem>,
    /// The file of the memory.
    file: PathBuf,
    /// Guards only itself; no drive is opened and no server asked under it.
    state: Mutex<AttachmentState>,
    /// Held during an attempt to attach, so that there is one at a time: a second attempt would
    /// find the drive in use by the first. A drive is opened and the server is asked under this
    /// lock.
    attaching: Mutex<()>,
    wakeup: OnceLock<WakeupHandle>,
}

impl DriveService {
    /// Makes the service for the drives of a client, and loads what is remembered beside its store.
    pub(crate) fn new(client: &Arc<FileSystem>, store: &Path) -> Result<Self> {
        let file = replica::directory_beside(store)?.join("drives.toml");
        let state = Mutex::new(AttachmentState {
            known: DriveMemory::load(&file)?,
            ..AttachmentState::default()
        });
        Ok(Self {
            client: Arc::clone(client),
            file,
            state,
            attaching: Mutex::new(()),
            wakeup: OnceLock::new(),
        })
    }

    /// Returns the replica that drives belong to; a volume without a server has none.
    fn replica(&self) -> Result<&Arc<Replica>, DriveRefused> {
        self.client.replica().ok_or(DriveRefused::Alone)
    }

    /// Returns the drives that are attached.
    fn attached_drives(&self) -> Vec<DriveStatus> {
        match self.client.replica() {
            Some(replica) => replica.drive_statuses(),
            None => Vec::new(),
        }
    }

    /// Returns the name and the place of each attached drive, and the number of objects that wait
    /// for it. Asks none of the drives.
    pub(crate) fn attached_places(&self) -> Vec<(String, String, u64)> {
        match self.client.replica() {
            Some(replica) => replica.attached_drive_names(),
            None => Vec::new(),
        }
    }

    /// Lets go of the drives that are not there any more. Returns the name and the place of each,
    /// and the reason why it is gone.
    fn lose_absent(&self) -> Vec<(String, String, String)> {
        match self.client.replica() {
            Some(replica) => replica.lose_absent_drives(),
            None => Vec::new(),
        }
    }

    /// Makes the watching thread look at all places now.
    fn wake_watcher(&self) {
        if let Some(wakeup) = self.wakeup.get() {
            wakeup.wake();
        }
    }

    fn lock_state(&self) -> MutexGuard<'_, AttachmentState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Attaches the drive at `path`. Returns its name if it was attached before.
    fn attach_from(&self, path: &Path) -> Result<Option<String>> {
        let _attaching = self
            .attaching
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        // A drive that was pulled out counts as attached until its absence is noticed.
        self.lose_absent();
        if let Some(name) = self.attached_from(path) {
            return Ok(Some(name));
        }
        // Looked at before it is opened for writing, which would lock it.
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

    /// Returns the name of the drive that is attached from this file or disk.
    fn attached_from(&self, path: &Path) -> Option<String> {
        for (name, place, _) in self.attached_places() {
            if is_same(Path::new(&place), path) {
                return Some(name);
            }
        }
        None
    }

    /// Remembers which drives are attached. If a person has named the place, the drive is looked
    /// for there from now on.
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
        // The watching thread decides by the new state how long it waits.
        self.wake_watcher();
        Ok(())
    }

    /// Forgets drives that the volume has forgotten, and where they were.
    fn forget_devices(&self, devices: &[DriveNo]) -> Result<()> {
        let mut state = self.lock_state();
        let before = state.known.clone();
        for device in devices {
            for place in state.known.forget_drive(*device) {
                log::info!("a drive in {} is not looked for any more", place.display());
            }
        }
        state.known.save(&self.file, &before)
    }
}
